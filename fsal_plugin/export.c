/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * One export, which is one share and one session.
 *
 *     FSAL {
 *         Name = TOMBOLO;
 *         Share = "name";
 *         Socket = "/run/tombolo/files.sock";
 *         Connections = 8;
 *         Instance = "name";      # of this ganesha; default: the host's name
 *         File_System = 7;        # of a share in a named store; part of every handle
 *     }
 *
 * The daemon knows the session as "nfs:<instance>:<export id>".  When ganesha starts
 * again, it comes with the same name and another incarnation; the daemon then ends the
 * old session with its locks, and the clients reclaim theirs.
 *
 * Owns the export's structure with its session, its notifier and its account of open
 * files: in which order they begin and end.  What they do is in their own files.
 */

#include "fsal_tombolo.h"
#include "call.h"
#include "errors.h"
#include "export.h"
#include "notify.h"
#include "open.h"
#include "opens.h"
#include "operations.h"

#include <sys/un.h>
#include <unistd.h>

/* At start, the daemon may come a little later than ganesha. */
#define DAEMON_WAIT_MS 30000

static struct config_item export_items[] = {
	CONF_ITEM_NOOP("name"),
	CONF_MAND_STR("Share", 1, TOMBOLO_WIRE_NAME_BYTES_MAX, NULL, tombolo_fsal_export, share_name),
	CONF_ITEM_PATH("Socket", 1, sizeof(((struct sockaddr_un *)0)->sun_path) - 1, "/run/tombolo/files.sock",
		       tombolo_fsal_export, socket_path),
	CONF_ITEM_UI32("Connections", 1, TOMBOLO_FSAL_CONNECTIONS_MAX, 8, tombolo_fsal_export, connection_count),
	/* Leaves room for the rest of the client's name. */
	CONF_ITEM_STR("Instance", 1, 200, NULL, tombolo_fsal_export, instance),
	/* Not by chance that of another store: written by `tombolo export nfs`. */
	CONF_ITEM_UI32("File_System", 0, UINT32_MAX, 0, tombolo_fsal_export, file_system),
	CONFIG_EOL
};

static struct config_block export_block = {
	.dbus_interface_name = "org.ganesha.nfsd.config.fsal.tombolo-export%d",
	.blk_desc.name = "FSAL",
	.blk_desc.type = CONFIG_BLOCK,
	.blk_desc.u.blk.init = noop_conf_init,
	.blk_desc.u.blk.params = export_items,
	.blk_desc.u.blk.commit = noop_conf_commit,
};

/* ---- operations ---- */

static fsal_status_t get_dynamic_info(struct fsal_export *fsal_export, struct fsal_obj_handle *object,
				      fsal_dynamicfsinfo_t *info)
{
	struct tombolo_fsal_export *export = tombolo_fsal_export_of(fsal_export);
	struct tombolo_fsal_request request;
	struct fuse_statfs_out answer;
	fsal_status_t status;

	tombolo_fsal_request_init(&request, export, FUSE_STATFS, object->fileid);
	status = tombolo_fsal_call_exact(export, &request, &answer, sizeof(answer));
	if (FSAL_IS_ERROR(status))
		return status;
	memset(info, 0, sizeof(*info));
	info->total_bytes = answer.st.blocks * answer.st.frsize;
	info->free_bytes = answer.st.bfree * answer.st.frsize;
	info->avail_bytes = answer.st.bavail * answer.st.frsize;
	info->total_files = answer.st.files;
	info->free_files = answer.st.ffree;
	info->avail_files = answer.st.ffree;
	info->maxread = export->io_bytes_max;
	info->maxwrite = export->io_bytes_max;
	info->time_delta.tv_nsec = 1;
	return status;
}

static uint32_t io_bytes_max(struct fsal_export *export)
{
	return tombolo_fsal_export_of(export)->io_bytes_max;
}

/* Unstable data outlives the daemon, but not the machine; the daemon's start tells both apart
 * from no restart at all, and clients may commit once more than needed. */
static void get_write_verifier(struct fsal_export *export, struct gsh_buffdesc *verifier)
{
	struct tombolo_wire_attached attached =
		tombolo_fsal_session_attached(tombolo_fsal_export_of(export)->session);
	size_t bytes = verifier->len < sizeof(attached.boot) ? verifier->len : sizeof(attached.boot);

	memcpy(verifier->addr, &attached.boot, bytes);
}

static void prepare_unexport(struct fsal_export *export)
{
	/* What is closed and unlocked now must not wait for a daemon that is away. */
	tombolo_fsal_session_drain(tombolo_fsal_export_of(export)->session);
}

/* ---- beginning and end ---- */

static void free_export(struct tombolo_fsal_export *export)
{
	/* The notifier uses the session, and the session's threads call the notifier: the thread of the
	 * one ends first, its memory goes last. */
	if (export->session)
		tombolo_fsal_session_drain(export->session);
	if (export->notifier)
		tombolo_fsal_notifier_stop(export->notifier);
	if (export->session)
		tombolo_fsal_session_close(export->session);
	if (export->notifier)
		tombolo_fsal_notifier_free(export->notifier);
	if (export->opens)
		tombolo_fsal_opens_free(export->opens);
	free_export_ops(&export->export);
	gsh_free(export->socket_path);
	gsh_free(export->share_name);
	gsh_free(export->instance);
	gsh_free(export);
}

static void release(struct fsal_export *fsal_export)
{
	fsal_detach_export(fsal_export->fsal, &fsal_export->exports);
	free_export(tombolo_fsal_export_of(fsal_export));
}

static void log_event(void *context, const char *text)
{
	(void)context;
	LogEvent(COMPONENT_FSAL, "%s", text);
}

static void client_name(const struct tombolo_fsal_export *export, char *name, size_t bytes)
{
	char host[HOST_NAME_MAX + 1] = "";

	if (!export->instance)
		(void)gethostname(host, sizeof(host) - 1);
	snprintf(name, bytes, "nfs:%s:%u", export->instance ? export->instance : host, export->export.export_id);
}

static int open_session(struct tombolo_fsal_export *export)
{
	const struct tombolo_fsal_session_events events = {
		.context = export->notifier,
		.notified = tombolo_fsal_notified,
		.resumed = tombolo_fsal_resumed,
		.log = log_event,
	};
	char name[TOMBOLO_WIRE_CLIENT_NAME_BYTES_MAX + 1];
	struct tombolo_wire_attached attached;
	int error;

	client_name(export, name, sizeof(name));
	error = tombolo_fsal_session_open(&export->session, export->socket_path, export->share_name, name,
					  tombolo_fsal_module_of(export)->incarnation, export->connection_count, DAEMON_WAIT_MS, &events);
	if (error) {
		LogCrit(COMPONENT_FSAL, "share \"%s\" at %s: %s", export->share_name, export->socket_path,
			error == ENOENT ? "there is no such share" :
			error == EBUSY	? "a running ganesha has the same name; give each an Instance of its own" :
					  strerror(error));
		return error;
	}
	attached = tombolo_fsal_session_attached(export->session);
	export->root = attached.root;
	export->io_bytes_max = attached.write_bytes_max;
	export->has_write_attributes = (attached.capabilities & TOMBOLO_WIRE_WRITE_ATTRIBUTES) != 0;
	export->has_creation_attributes = (attached.capabilities & TOMBOLO_WIRE_CREATION_ATTRIBUTES) != 0;
	export->has_acl_flags = (attached.capabilities & TOMBOLO_WIRE_ACL_FLAGS) != 0;
	return 0;
}

static void init_export_ops(struct export_ops *ops)
{
	tombolo_fsal_handle_export_ops_init(ops);
	ops->release = release;
	ops->prepare_unexport = prepare_unexport;
	ops->get_fs_dynamic_info = get_dynamic_info;
	ops->fs_maxread = io_bytes_max;
	ops->fs_maxwrite = io_bytes_max;
	ops->get_write_verifier = get_write_verifier;
	ops->alloc_state = tombolo_fsal_alloc_state;
	ops->free_state = tombolo_fsal_free_state;
}

fsal_status_t tombolo_fsal_create_export(struct fsal_module *module, void *parse_node,
					 struct config_error_type *error_type, const struct fsal_up_vector *up_ops)
{
	struct tombolo_fsal_export *export = gsh_calloc(1, sizeof(*export));
	int error = EINVAL;

	fsal_export_init(&export->export);
	init_export_ops(&export->export.exp_ops);
	export->export.fsal = module;
	export->export.up_ops = up_ops;
	if (load_config_from_node(parse_node, &export_block, export, true, error_type) == 0) {
		export->opens = tombolo_fsal_opens_new();
		export->notifier = tombolo_fsal_notifier_new(export);
		error = open_session(export);
	}
	if (error == 0)
		error = tombolo_fsal_notifier_start(export->notifier);
	if (error == 0)
		error = fsal_attach_export(module, &export->export.exports);
	if (error) {
		free_export(export);
		return tombolo_fsal_status(error);
	}
	op_ctx->fsal_export = &export->export;
	LogEvent(COMPONENT_FSAL, "%s is share \"%s\" at %s", CTX_FULLPATH(op_ctx), export->share_name,
		 export->socket_path);
	return tombolo_fsal_success();
}
