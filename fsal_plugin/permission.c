/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * Permission to change directories.  Ganesha checks access to files, but leaves this
 * to the file system, which would normally be a kernel that was told who is asking.
 * The daemon trusts its front ends, so it is checked here, by ganesha's own test_access
 * with the client's groups, according to Linux's rules.
 *
 * Owns nothing: every question is answered from what the daemon says now.
 */

#include "fsal_tombolo.h"
#include "attributes.h"
#include "entry.h"
#include "errors.h"
#include "permission.h"

static bool is_superuser(void)
{
	return op_ctx->fsal_export->exp_ops.is_superuser(op_ctx->fsal_export, &op_ctx->creds);
}

fsal_status_t tombolo_fsal_may_access(struct fsal_obj_handle *object, fsal_accessflags_t access)
{
	return object->obj_ops->test_access(object, access, NULL, NULL, false);
}

/* Writing to a directory and passing through it. */
static fsal_status_t may_change(struct fsal_obj_handle *directory, fsal_accessflags_t ace)
{
	return tombolo_fsal_may_access(directory, FSAL_MODE_MASK_SET(FSAL_W_OK | FSAL_X_OK) |
							  FSAL_ACE4_MASK_SET(ace | FSAL_ACE_PERM_EXECUTE));
}

fsal_status_t tombolo_fsal_may_create(struct fsal_obj_handle *directory, enum tombolo_fsal_entry_kind kind)
{
	if (is_superuser())
		return tombolo_fsal_success();
	return may_change(directory, kind == TOMBOLO_FSAL_ENTRY_DIRECTORY ? FSAL_ACE_PERM_ADD_SUBDIRECTORY :
									    FSAL_ACE_PERM_ADD_FILE);
}

/* In a sticky directory only its owner and that of the object may remove a name. */
static fsal_status_t sticky_allows(struct fsal_obj_handle *directory, uint64_t object_owner)
{
	uint64_t caller = op_ctx->creds.caller_uid;
	struct fuse_attr attributes;
	fsal_status_t status;

	if (caller == object_owner)
		return tombolo_fsal_success();
	status = tombolo_fsal_fetch_attributes(tombolo_fsal_current_export(), directory->fileid, &attributes);
	if (FSAL_IS_SUCCESS(status) && (attributes.mode & S_ISVTX) && caller != attributes.uid)
		return fsalstat(ERR_FSAL_PERM, EPERM);
	return status;
}

fsal_status_t tombolo_fsal_may_remove(struct fsal_obj_handle *directory, struct fsal_obj_handle *object)
{
	struct fuse_attr attributes;
	fsal_status_t status;

	if (is_superuser())
		return tombolo_fsal_success();
	/* POSIX ACLs know no deletion apart from writing to the directory. */
	status = may_change(directory, FSAL_ACE_PERM_ADD_FILE);
	if (FSAL_IS_ERROR(status))
		return status;
	status = tombolo_fsal_fetch_attributes(tombolo_fsal_current_export(), object->fileid, &attributes);
	if (FSAL_IS_ERROR(status))
		return status;
	return sticky_allows(directory, attributes.uid);
}

static fsal_status_t may_replace(struct fsal_obj_handle *directory, const char *name)
{
	struct fuse_entry_out entry;
	fsal_status_t status =
		tombolo_fsal_lookup_entry(tombolo_fsal_current_export(), directory->fileid, name, &entry);

	if (status.major == ERR_FSAL_NOENT)
		return tombolo_fsal_success();
	if (FSAL_IS_ERROR(status))
		return status;
	return sticky_allows(directory, entry.attr.uid);
}

fsal_status_t tombolo_fsal_may_rename(struct fsal_obj_handle *object, struct fsal_obj_handle *old_directory,
				      struct fsal_obj_handle *new_directory, const char *new_name)
{
	bool is_directory = object->type == DIRECTORY;
	fsal_status_t status;

	if (is_superuser())
		return tombolo_fsal_success();
	status = tombolo_fsal_may_remove(old_directory, object);
	if (FSAL_IS_ERROR(status))
		return status;
	status = tombolo_fsal_may_create(new_directory,
					 is_directory ? TOMBOLO_FSAL_ENTRY_DIRECTORY : TOMBOLO_FSAL_ENTRY_FILE);
	if (FSAL_IS_ERROR(status))
		return status;
	/* A directory that gets another parent is itself changed. */
	if (is_directory && old_directory->fileid != new_directory->fileid)
		status = tombolo_fsal_may_access(object, FSAL_WRITE_ACCESS);
	if (FSAL_IS_ERROR(status))
		return status;
	return may_replace(new_directory, new_name);
}
