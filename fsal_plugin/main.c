/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * The module: what ganesha finds when it loads the library, and what it is told of
 * the kind of file system.
 *
 * Owns the module's structure, which the other files reach through their export.  What the
 * operations do is theirs.
 */

#include "fsal_tombolo.h"
#include "export.h"
#include "operations.h"

#include <sys/random.h>

/* 2^48 bytes: the service's largest file. */
#define FILE_BYTES_MAX (1ull << 48)
#define LINKS_MAX 65000

/* Reads and writes are cut to what the daemon of the export offers; see export.c. */
#define IO_BYTES_MAX (1u << 20)

static struct tombolo_fsal_module this_module = {
	.module = {
		.fs_info = {
			.maxfilesize = FILE_BYTES_MAX,
			.maxlink = LINKS_MAX,
			.maxnamelen = TOMBOLO_WIRE_NAME_BYTES_MAX,
			.maxpathlen = MAXPATHLEN,
			.no_trunc = true,
			.chown_restricted = true,
			.case_insensitive = false,
			.case_preserving = true,
			.link_support = true,
			.symlink_support = true,
			/* The daemon keeps locks, so that those of mounts and of other servers count. */
			.lock_support = true,
			/* Ganesha asks again for a blocked lock; the service has no way to call back. */
			.lock_support_async_block = false,
			.unique_handles = true,
			.acl_support = FSAL_ACLSUPPORT_ALLOW | FSAL_ACLSUPPORT_DENY,
			.cansettime = true,
			.homogenous = true,
			.supported_attrs = TOMBOLO_FSAL_ATTRIBUTES,
			.maxread = IO_BYTES_MAX,
			.maxwrite = IO_BYTES_MAX,
			.umask = 0,
			/* A delegation would have to be recalled before others may open the file, and the
			 * service does not ask before it lets them. */
			.delegations = FSAL_OPTION_NO_DELEGATIONS,
			.link_supports_permission_checks = false,
			.rename_changes_key = false,
			.readdir_plus = true,
			/* A short read ends at the end of the file. */
			.compliant_eof_behavior = false,
			.xattr_support = true,
			.expire_time_parent = -1,
		},
	},
};

static uint64_t random_number(void)
{
	uint64_t number = 0;

	/* Without the kernel's generator, the time will do: two starts differ. */
	if (getrandom(&number, sizeof(number), 0) != sizeof(number)) {
		struct timespec current;

		now(&current);
		number = (uint64_t)timespec_to_nsecs(&current);
	}
	return number;
}

MODULE_INIT void tombolo_fsal_load(void)
{
	struct fsal_obj_ops *ops = &this_module.object_ops;

	/* Refuses any other ganesha than the one whose headers this was built with. */
	if (register_fsal(&this_module.module, "TOMBOLO", FSAL_MAJOR_VERSION, FSAL_MINOR_VERSION, FSAL_ID_NO_PNFS) !=
	    0) {
		LogCrit(COMPONENT_FSAL, "FSAL TOMBOLO could not be registered");
		return;
	}
	this_module.incarnation = random_number();
	this_module.module.m_ops.create_export = tombolo_fsal_create_export;
	fsal_default_obj_ops_init(ops);
	tombolo_fsal_handle_ops_init(ops);
	tombolo_fsal_attributes_ops_init(ops);
	tombolo_fsal_directory_ops_init(ops);
	tombolo_fsal_create_ops_init(ops);
	tombolo_fsal_open_ops_init(ops);
	tombolo_fsal_file_ops_init(ops);
	tombolo_fsal_lock_ops_init(ops);
	tombolo_fsal_xattr_ops_init(ops);
}

MODULE_FINI void tombolo_fsal_unload(void)
{
	if (unregister_fsal(&this_module.module) != 0)
		LogCrit(COMPONENT_FSAL, "FSAL TOMBOLO is unloaded while in use");
}
