/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * Attributes: the service's for ganesha, and ganesha's for the service.
 *
 * The change attribute is the ctime: the service makes it greater at every change of
 * an inode, whatever the clock does.  The time of creation is not offered: the
 * protocol would need another request for it with each object.
 *
 * Owns the translation both ways, and keeps nothing: recent.c does.  ACLs are acl.c's.
 */

#include "fsal_tombolo.h"
#include "acl.h"
#include "attributes.h"
#include "call.h"
#include "errors.h"
#include "operations.h"
#include "reservations.h"

#include <sys/sysmacros.h>

#define BLOCK_BYTES 512

/* What SETATTR and the ACLs' extended attributes can express. */
#define SETTABLE                                                                                                    \
	(ATTR_MODE | ATTR_OWNER | ATTR_GROUP | ATTR_SIZE | ATTR_ATIME | ATTR_MTIME | ATTR_ATIME_SERVER |               \
	 ATTR_MTIME_SERVER | ATTR_ACL)

bool tombolo_fsal_attributes_valid(const struct fuse_attr *attributes)
{
	return attributes->ino != 0 && posix2fsal_type(attributes->mode) != NO_FILE_TYPE &&
	       attributes->atimensec < 1000000000 && attributes->mtimensec < 1000000000 &&
	       attributes->ctimensec < 1000000000;
}

static struct timespec time_of(uint64_t seconds, uint32_t nanoseconds)
{
	return (struct timespec){ .tv_sec = (time_t)seconds, .tv_nsec = nanoseconds };
}

void tombolo_fsal_attributes_fill(const struct tombolo_fsal_export *export, const struct fuse_attr *attributes,
				  struct fsal_attrlist *list)
{
	/* The protocol has Linux's 32-bit encoding of device numbers. */
	uint32_t device = attributes->rdev;

	list->supported = TOMBOLO_FSAL_ATTRIBUTES;
	list->type = posix2fsal_type(attributes->mode);
	list->filesize = attributes->size;
	list->fsid.major = export->root;
	list->fsid.minor = export->file_system;
	list->fileid = tombolo_fsal_inode_of(export, attributes->ino);
	list->mode = unix2fsal_mode(attributes->mode);
	list->numlinks = attributes->nlink;
	list->owner = attributes->uid;
	list->group = attributes->gid;
	list->rawdev.major = (device & 0xfff00) >> 8;
	list->rawdev.minor = (device & 0xff) | ((device >> 12) & 0xfff00);
	list->atime = time_of(attributes->atime, attributes->atimensec);
	list->mtime = time_of(attributes->mtime, attributes->mtimensec);
	list->ctime = time_of(attributes->ctime, attributes->ctimensec);
	list->change = (uint64_t)timespec_to_nsecs(&list->ctime);
	list->spaceused = attributes->blocks * BLOCK_BYTES;
	list->valid_mask |= ATTRS_POSIX | ATTR4_XATTR;
	if (tombolo_fsal_acl_is_mode(export, attributes))
		tombolo_fsal_acl_give_mode(attributes, list);
}

fsal_status_t tombolo_fsal_attributes_give(struct tombolo_fsal_export *export, uint64_t inode,
					   const struct fuse_attr *attributes, struct fsal_attrlist *list)
{
	if (!list)
		return tombolo_fsal_success();
	tombolo_fsal_attributes_fill(export, attributes, list);
	if (!(list->request_mask & ATTR_ACL) || (list->valid_mask & ATTR_ACL))
		return tombolo_fsal_success();
	return tombolo_fsal_acl_get(export, inode, attributes, list);
}

static fsal_status_t call_for_attributes(struct tombolo_fsal_export *export, struct tombolo_fsal_request *request,
					 struct fuse_attr *attributes)
{
	struct fuse_attr_out answer;
	fsal_status_t status = tombolo_fsal_call_exact(export, request, &answer, sizeof(answer));

	if (FSAL_IS_ERROR(status))
		return status;
	if (!tombolo_fsal_attributes_valid(&answer.attr))
		return tombolo_fsal_bad_answer(request->header.opcode);
	*attributes = answer.attr;
	return status;
}

fsal_status_t tombolo_fsal_fetch_attributes(struct tombolo_fsal_export *export, uint64_t inode,
					    struct fuse_attr *attributes)
{
	struct tombolo_fsal_request request;
	struct fuse_getattr_in question = { 0 };

	tombolo_fsal_request_init(&request, export, FUSE_GETATTR, inode);
	tombolo_fsal_request_add(&request, &question, sizeof(question));
	return call_for_attributes(export, &request, attributes);
}

static fsal_status_t find_attributes(struct tombolo_fsal_export *export, struct fsal_obj_handle *object,
				     struct fuse_attr *attributes)
{
	struct tombolo_fsal_object *self = tombolo_fsal_object_of(object);
	fsal_status_t status;

	if (tombolo_fsal_recent_find(export, self, attributes))
		return tombolo_fsal_success();
	status = tombolo_fsal_fetch_attributes(export, object->fileid, attributes);
	if (FSAL_IS_SUCCESS(status))
		tombolo_fsal_recent_seen(self, attributes);
	return status;
}

static fsal_status_t getattrs(struct fsal_obj_handle *object, struct fsal_attrlist *list)
{
	struct tombolo_fsal_export *export = tombolo_fsal_current_export();
	struct fuse_attr attributes;
	fsal_status_t status = find_attributes(export, object, &attributes);

	if (FSAL_IS_SUCCESS(status))
		status = tombolo_fsal_attributes_give(export, object->fileid, &attributes, list);
	if (FSAL_IS_ERROR(status) && (list->request_mask & ATTR_RDATTR_ERR))
		list->valid_mask = ATTR_RDATTR_ERR;
	return status;
}

/* ---- setting ---- */

static void encode_times(const struct fsal_attrlist *list, struct fuse_setattr_in *change)
{
	if (list->valid_mask & ATTR_ATIME_SERVER) {
		change->valid |= FATTR_ATIME | FATTR_ATIME_NOW;
	} else if (list->valid_mask & ATTR_ATIME) {
		change->valid |= FATTR_ATIME;
		change->atime = (uint64_t)list->atime.tv_sec;
		change->atimensec = (uint32_t)list->atime.tv_nsec;
	}
	if (list->valid_mask & ATTR_MTIME_SERVER) {
		change->valid |= FATTR_MTIME | FATTR_MTIME_NOW;
	} else if (list->valid_mask & ATTR_MTIME) {
		change->valid |= FATTR_MTIME;
		change->mtime = (uint64_t)list->mtime.tv_sec;
		change->mtimensec = (uint32_t)list->mtime.tv_nsec;
	}
}

static bool encode_owner(const struct fsal_attrlist *list, struct fuse_setattr_in *change)
{
	if (list->valid_mask & ATTR_OWNER) {
		if (list->owner > UINT32_MAX)
			return false;
		change->valid |= FATTR_UID;
		change->uid = (uint32_t)list->owner;
	}
	if (list->valid_mask & ATTR_GROUP) {
		if (list->group > UINT32_MAX)
			return false;
		change->valid |= FATTR_GID;
		change->gid = (uint32_t)list->group;
	}
	return true;
}

/* As Linux does it: a change of owner takes the set-id bits of a file, and so does a
 * truncation by anybody but root, unless the mode is set at the same time. */
static bool takes_set_id_bits(const struct fsal_attrlist *list, object_file_type_t type)
{
	if (type == DIRECTORY || (list->valid_mask & ATTR_MODE))
		return false;
	if (list->valid_mask & (ATTR_OWNER | ATTR_GROUP))
		return true;
	return (list->valid_mask & ATTR_SIZE) && op_ctx->creds.caller_uid != 0;
}

fsal_status_t tombolo_fsal_attributes_encode(const struct fsal_attrlist *list, object_file_type_t type,
					     struct fuse_setattr_in *change)
{
	memset(change, 0, sizeof(*change));
	if (list->valid_mask & ~(attrmask_t)SETTABLE)
		return fsalstat(ERR_FSAL_ATTRNOTSUPP, 0);
	/* A symbolic link has none that counts, and clients set it all the same: it is ignored, as by other servers. */
	if ((list->valid_mask & ATTR_MODE) && type != SYMBOLIC_LINK) {
		change->valid |= FATTR_MODE;
		change->mode = fsal2unix_mode(list->mode);
	}
	if (list->valid_mask & ATTR_SIZE) {
		if (type != REGULAR_FILE)
			return fsalstat(ERR_FSAL_INVAL, EINVAL);
		change->valid |= FATTR_SIZE;
		change->size = list->filesize;
	}
	if (!encode_owner(list, change))
		return fsalstat(ERR_FSAL_INVAL, EINVAL);
	encode_times(list, change);
	if (takes_set_id_bits(list, type))
		change->valid |= FATTR_KILL_SUIDGID;
	return tombolo_fsal_success();
}

/* The ACL last: with it the mode changes, and with the mode the ACL. */
fsal_status_t tombolo_fsal_set_attributes(struct tombolo_fsal_export *export, uint64_t inode, object_file_type_t type,
					  struct fsal_attrlist *list, struct fuse_attr *attributes)
{
	struct tombolo_fsal_request request;
	struct fuse_setattr_in change;
	fsal_status_t status = tombolo_fsal_attributes_encode(list, type, &change);

	if (FSAL_IS_ERROR(status))
		return status;
	if (change.valid != 0) {
		tombolo_fsal_request_init(&request, export, FUSE_SETATTR, inode);
		tombolo_fsal_request_add(&request, &change, sizeof(change));
		status = call_for_attributes(export, &request, attributes);
		if (FSAL_IS_ERROR(status) || !(list->valid_mask & ATTR_ACL))
			return status;
	}
	if (list->valid_mask & ATTR_ACL) {
		status = tombolo_fsal_acl_set(export, inode, type == DIRECTORY, list->acl);
		if (FSAL_IS_ERROR(status))
			return status;
	}
	return tombolo_fsal_fetch_attributes(export, inode, attributes);
}

static fsal_status_t setattr2(struct fsal_obj_handle *object, bool bypass, struct state_t *state,
			      struct fsal_attrlist *list)
{
	struct fuse_attr attributes;
	fsal_status_t status = tombolo_fsal_success();

	if (list->valid_mask & ATTR_SIZE)
		status = tombolo_fsal_share_check(object, state, FSAL_O_WRITE, bypass);
	if (FSAL_IS_ERROR(status))
		return status;
	return tombolo_fsal_set_attributes(tombolo_fsal_current_export(), object->fileid, object->type, list,
					   &attributes);
}

void tombolo_fsal_attributes_ops_init(struct fsal_obj_ops *ops)
{
	ops->getattrs = getattrs;
	ops->setattr2 = setattr2;
}
