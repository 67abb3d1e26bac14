/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * ACLs.  The service keeps POSIX ACLs, as extended attributes with Linux's names and
 * layout; ganesha wants NFSv4's, and has the translation both ways.
 *
 * An object without a POSIX ACL has for ganesha the ACL that its mode amounts to, and
 * never none: ganesha's cache takes "none" for "not told", and would go on with the ACL
 * that it had before.  Setting an NFSv4 ACL keeps what POSIX can express.
 *
 * Owns nothing: ACLs are fetched when they are asked for, and ganesha caches them.
 */

#include "fsal_tombolo.h"
#include "acl.h"
#include "call.h"
#include "errors.h"

#include <sys/acl.h>
#include <sys/xattr.h>

#include <nfs4_acls.h>
#include <posix_acls.h>

/* As for every extended attribute. */
#define ACL_BYTES_MAX 65536

/* Each entry of a POSIX ACL becomes up to two, one that allows and one that denies. */
#define ACES_PER_ENTRY 2

static fsal_status_t fetch_posix_acl(struct tombolo_fsal_export *export, uint64_t inode, const char *name,
				     acl_t *posix_acl)
{
	struct tombolo_fsal_request request;
	struct fuse_getxattr_in question = { .size = ACL_BYTES_MAX };
	size_t bytes = ACL_BYTES_MAX;
	void *value = gsh_malloc(bytes);
	fsal_status_t status;

	*posix_acl = NULL;
	tombolo_fsal_request_init(&request, export, FUSE_GETXATTR, inode);
	tombolo_fsal_request_add(&request, &question, sizeof(question));
	tombolo_fsal_request_add(&request, name, strlen(name) + 1);
	status = tombolo_fsal_call_up_to(export, &request, value, &bytes);
	if (status.minor == ENODATA || status.minor == EOPNOTSUPP) {
		/* None, or an object that cannot have one, as a symbolic link. */
		status = tombolo_fsal_success();
	} else if (FSAL_IS_SUCCESS(status)) {
		*posix_acl = bytes >= sizeof(struct acl_ea_header) ? xattr_2_posix_acl(value, bytes) : NULL;
		if (!*posix_acl)
			status = tombolo_fsal_bad_answer(FUSE_GETXATTR);
	}
	gsh_free(value);
	return status;
}

static fsal_status_t fetch_both(struct tombolo_fsal_export *export, uint64_t inode, const struct fuse_attr *attributes,
				acl_t *access_acl, acl_t *default_acl)
{
	bool is_directory = S_ISDIR(attributes->mode);
	fsal_status_t status = tombolo_fsal_success();

	*access_acl = NULL;
	*default_acl = NULL;
	if (!export->has_acl_flags || (attributes->flags & TOMBOLO_WIRE_HAS_ACCESS_ACL))
		status = fetch_posix_acl(export, inode, ACL_EA_ACCESS, access_acl);
	if (FSAL_IS_ERROR(status) || !is_directory)
		return status;
	if (!export->has_acl_flags || (attributes->flags & TOMBOLO_WIRE_HAS_DEFAULT_ACL))
		status = fetch_posix_acl(export, inode, ACL_EA_DEFAULT, default_acl);
	return status;
}

static int entry_count(acl_t posix_acl)
{
	return posix_acl ? ace_count(posix_acl) : 0;
}

static fsal_status_t translate(acl_t access_acl, acl_t default_acl, bool is_directory, struct fsal_attrlist *list)
{
	size_t room = (size_t)(ACES_PER_ENTRY * (entry_count(access_acl) + entry_count(default_acl)));
	fsal_acl_data_t data = { .aces = nfs4_ace_alloc((int)room) };
	fsal_ace_t *next = data.aces;
	fsal_acl_status_t acl_status;
	int count = posix_acl_2_fsal_acl(access_acl, is_directory, false, &next);
	int inherited = default_acl ? posix_acl_2_fsal_acl(default_acl, true, true, &next) : 0;

	if (count <= 0 || inherited < 0) {
		nfs4_ace_free(data.aces);
		return tombolo_fsal_bad_answer(FUSE_GETXATTR);
	}
	data.naces = (uint32_t)(count + inherited);
	/* Takes the entries, and finds an equal ACL if there is one. */
	list->acl = nfs4_acl_new_entry(&data, &acl_status);
	if (!list->acl)
		return fsalstat(ERR_FSAL_NOMEM, ENOMEM);
	list->valid_mask |= ATTR_ACL;
	return tombolo_fsal_success();
}

/* For an object without an access ACL; one with only a default ACL is such a one. */
static fsal_status_t translate_mode(uint32_t mode, acl_t default_acl, struct fsal_attrlist *list)
{
	acl_t access_acl = acl_from_mode(mode & 0777);
	fsal_status_t status;

	if (!access_acl)
		return fsalstat(ERR_FSAL_NOMEM, ENOMEM);
	status = translate(access_acl, default_acl, S_ISDIR(mode), list);
	acl_free(access_acl);
	return status;
}

bool tombolo_fsal_acl_is_mode(const struct tombolo_fsal_export *export, const struct fuse_attr *attributes)
{
	return export->has_acl_flags &&
	       !(attributes->flags & (TOMBOLO_WIRE_HAS_ACCESS_ACL | TOMBOLO_WIRE_HAS_DEFAULT_ACL));
}

void tombolo_fsal_acl_give_mode(const struct fuse_attr *attributes, struct fsal_attrlist *list)
{
	/* The cache trusts an ACL that it thinks it has asked for. */
	if (FSAL_IS_SUCCESS(translate_mode(attributes->mode, NULL, list)))
		list->request_mask |= ATTR_ACL;
}

fsal_status_t tombolo_fsal_acl_get(struct tombolo_fsal_export *export, uint64_t inode,
				   const struct fuse_attr *attributes, struct fsal_attrlist *list)
{
	acl_t access_acl, default_acl;
	fsal_status_t status = fetch_both(export, inode, attributes, &access_acl, &default_acl);

	if (FSAL_IS_SUCCESS(status) && access_acl)
		status = translate(access_acl, default_acl, S_ISDIR(attributes->mode), list);
	else if (FSAL_IS_SUCCESS(status))
		status = translate_mode(attributes->mode, default_acl, list);
	if (access_acl)
		acl_free(access_acl);
	if (default_acl)
		acl_free(default_acl);
	return status;
}

/* ---- setting ---- */

static fsal_status_t store_posix_acl(struct tombolo_fsal_export *export, uint64_t inode, const char *name,
				     acl_t posix_acl)
{
	size_t bytes = posix_acl_xattr_size(acl_entries(posix_acl));
	struct tombolo_fsal_request request;
	struct fuse_setxattr_in change = { .size = (uint32_t)bytes };
	void *value = gsh_malloc(bytes);
	fsal_status_t status = fsalstat(ERR_FSAL_INVAL, EINVAL);

	if (posix_acl_2_xattr(posix_acl, value, bytes) >= 0) {
		tombolo_fsal_request_init(&request, export, FUSE_SETXATTR, inode);
		tombolo_fsal_request_add(&request, &change, sizeof(change));
		tombolo_fsal_request_add(&request, name, strlen(name) + 1);
		tombolo_fsal_request_add(&request, value, bytes);
		status = tombolo_fsal_call_for_status(export, &request);
	}
	gsh_free(value);
	return status;
}

static fsal_status_t remove_posix_acl(struct tombolo_fsal_export *export, uint64_t inode, const char *name)
{
	struct tombolo_fsal_request request;
	fsal_status_t status;

	tombolo_fsal_request_init(&request, export, FUSE_REMOVEXATTR, inode);
	tombolo_fsal_request_add(&request, name, strlen(name) + 1);
	status = tombolo_fsal_call_for_status(export, &request);
	return status.minor == ENODATA ? tombolo_fsal_success() : status;
}

static fsal_status_t set_access_acl(struct tombolo_fsal_export *export, uint64_t inode, fsal_acl_t *acl)
{
	acl_t posix_acl = fsal_acl_2_posix_acl(acl, ACL_TYPE_ACCESS);
	fsal_status_t status = fsalstat(ERR_FSAL_INVAL, EINVAL);

	if (!posix_acl)
		return status;
	if (acl_valid(posix_acl) == 0)
		status = store_posix_acl(export, inode, ACL_EA_ACCESS, posix_acl);
	acl_free(posix_acl);
	return status;
}

/* An ACL without entries to be inherited is one that takes the default ACL away. */
static fsal_status_t set_default_acl(struct tombolo_fsal_export *export, uint64_t inode, fsal_acl_t *acl)
{
	acl_t posix_acl = fsal_acl_2_posix_acl(acl, ACL_TYPE_DEFAULT);
	fsal_status_t status = fsalstat(ERR_FSAL_INVAL, EINVAL);

	if (!posix_acl)
		return remove_posix_acl(export, inode, ACL_EA_DEFAULT);
	if (acl_valid(posix_acl) == 0)
		status = store_posix_acl(export, inode, ACL_EA_DEFAULT, posix_acl);
	acl_free(posix_acl);
	return status;
}

fsal_status_t tombolo_fsal_acl_set(struct tombolo_fsal_export *export, uint64_t inode, bool is_directory,
				   fsal_acl_t *acl)
{
	fsal_status_t status;

	if (!acl)
		return fsalstat(ERR_FSAL_INVAL, EINVAL);
	status = set_access_acl(export, inode, acl);
	if (FSAL_IS_ERROR(status) || !is_directory)
		return status;
	return set_default_acl(export, inode, acl);
}
