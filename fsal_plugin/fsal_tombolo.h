/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * FSAL TOMBOLO: the NFS front end of the shares of a tombolo gateway, for nfs-ganesha 4.3.
 * Here are the shapes that all its files know; each file has a header with what it does for
 * others, and what only serves ganesha's tables of operations is in operations.h.
 *
 *   session/        the messages, and sending them, over restarts of the daemon
 *   main.c          the module
 *   export.c        one export: its configuration, its session
 *   errors.c        errno as ganesha's errors
 *   call.c          the making of requests
 *   notify.c        changes by others, passed on to ganesha's cache
 *
 *   handle.c        objects, and the handles that clients keep
 *   attributes.c    attributes, both ways
 *   recent.c        attributes that came with the answer to a write
 *   acl.c           POSIX ACLs of the service as ACLs of ganesha
 *   permission.c    who may create, remove and rename
 *   entry.c         one name, as the daemon knows it
 *   directory.c     names: lookup, links, removal, reading directories
 *   create.c        creation, with the attributes asked for
 *   open.c          opening files
 *   opens.c         which files are open, for the daemon to know
 *   reservations.c  share reservations
 *   file.c          data
 *   lock.c          byte range locks
 *   xattr.c         extended attributes of RFC 8276
 *
 * The FSAL keeps no data and no policy, and attributes only for the questions that follow
 * a write: each operation is one message, or as few as the protocol allows, and the answer
 * is the daemon's.  It has two duties that no other party can take.  It checks permissions
 * where ganesha expects the file system to do so (permission.c), because the daemon does
 * not know a client's groups; and it keeps share reservations, as every FSAL of this
 * version has to.
 */

#ifndef TOMBOLO_FSAL_H
#define TOMBOLO_FSAL_H

#include "config.h"

#include <fcntl.h>

#include <fsal.h>
#include <fsal_api.h>
#include <fsal_convert.h>
#include <FSAL/fsal_commonlib.h>
#include <FSAL/fsal_config.h>
#include <FSAL/fsal_init.h>
#include <sal_data.h>

#include "recent.h"
#include "session/session.h"

#define TOMBOLO_FSAL_ATTRIBUTES (ATTRS_POSIX | ATTR_ACL | ATTR4_XATTR)

struct tombolo_fsal_module {
	struct fsal_module module;
	struct fsal_obj_ops object_ops;
	uint64_t incarnation;	/* differs each time ganesha starts */
};

struct tombolo_fsal_opens;
struct tombolo_fsal_notifier;

struct tombolo_fsal_export {
	struct fsal_export export;
	char *socket_path;
	char *share_name;
	char *instance;
	uint32_t connection_count;
	uint32_t file_system;	/* of a share in a named store: which store's numbers these are; else 0 */

	struct tombolo_fsal_session *session;
	uint64_t root;		/* inode of the share's root: part of every handle, so it never changes */
	uint32_t io_bytes_max;	/* of one read or write */
	bool has_acl_flags;	/* attributes tell whether there are ACLs */
	bool has_write_attributes;	/* answers to writes bring attributes, if asked for */
	bool has_creation_attributes;	/* creations may bring attributes */
	uint64_t changes;	/* atomic; see recent.c */
	struct tombolo_fsal_opens *opens;
	struct tombolo_fsal_notifier *notifier;
};

/* The handle that clients keep, little endian, and the key under which ganesha caches the object. */
struct tombolo_fsal_handle {
	uint8_t magic;		/* TOMBOLO_FSAL_HANDLE_MAGIC */
	uint8_t version;	/* TOMBOLO_FSAL_HANDLE_VERSION */
	uint8_t reserved[2];	/* 0 */
	uint32_t file_system;	/* as of the export: numbers of two stores may be the same */
	uint64_t root;		/* of which share */
	uint64_t inode;		/* numbers are never used again, so no generation is needed */
};

#define TOMBOLO_FSAL_HANDLE_MAGIC 0x74
#define TOMBOLO_FSAL_HANDLE_VERSION 1

_Static_assert(sizeof(struct tombolo_fsal_handle) == 24, "handles outlive us");

struct tombolo_fsal_object {
	struct fsal_obj_handle object;
	struct tombolo_fsal_handle handle;
	struct fsal_share share;	/* under object.obj_lock */
	int stateless_opens;	/* opens by name without a state that ganesha will close; atomic */
	struct tombolo_fsal_recent recent;
};

struct tombolo_fsal_state {
	struct state_t state;	/* first: ganesha knows only this */
	fsal_openflags_t openflags;
	bool is_open;		/* counted in export->opens */
};

static inline struct tombolo_fsal_object *tombolo_fsal_object_of(struct fsal_obj_handle *object)
{
	return container_of(object, struct tombolo_fsal_object, object);
}

static inline struct tombolo_fsal_export *tombolo_fsal_export_of(struct fsal_export *export)
{
	return container_of(export, struct tombolo_fsal_export, export);
}

static inline struct tombolo_fsal_module *tombolo_fsal_module_of(const struct tombolo_fsal_export *export)
{
	return container_of(export->export.fsal, struct tombolo_fsal_module, module);
}

/* The export of the operation under way. */
static inline struct tombolo_fsal_export *tombolo_fsal_current_export(void)
{
	return tombolo_fsal_export_of(op_ctx->fsal_export);
}

static inline struct tombolo_fsal_state *tombolo_fsal_state_of(struct state_t *state)
{
	return container_of(state, struct tombolo_fsal_state, state);
}

#endif
