/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * Creation, with the attributes that were asked for: what the request cannot bring along
 * is set afterwards, and if that fails the name is removed again.
 *
 * Ganesha creates files by opening them: the states and reservations of that are open.c's,
 * which calls here.  Owns nothing that outlives the operation.
 */

#include "fsal_tombolo.h"
#include "attributes.h"
#include "call.h"
#include "create.h"
#include "entry.h"
#include "errors.h"
#include "handle.h"
#include "operations.h"
#include "permission.h"

#include <sys/sysmacros.h>

/* What creation itself takes care of. */
#define CREATION_ATTRIBUTES ((attrmask_t)ATTR_MODE)

/* What is left to be set when creation brought the mode alone.  A new owner takes the set-id bits, so the mode is
 * then set once more. */
static attrmask_t attributes_left(const struct fsal_attrlist *wanted)
{
	attrmask_t left = wanted->valid_mask & ~CREATION_ATTRIBUTES;

	if ((left & (ATTR_OWNER | ATTR_GROUP)) && (wanted->mode & (S_ISUID | S_ISGID)))
		left |= wanted->valid_mask & ATTR_MODE;
	return left;
}

/* ---- files ---- */

/* What a creation may bring along besides the mode: all but an ACL.  A new file has no right yet that
 * its owner's change would take. */
static fsal_status_t encode_attributes(const struct fsal_attrlist *wanted, struct fuse_setattr_in *attributes)
{
	struct fsal_attrlist set = *wanted;
	fsal_status_t status;

	set.valid_mask &= ~(attrmask_t)(ATTR_MODE | ATTR_ACL);
	status = tombolo_fsal_attributes_encode(&set, REGULAR_FILE, attributes);
	attributes->valid &= ~(uint32_t)FATTR_KILL_SUIDGID;
	return status;
}

/* `attributes`: what it brings along, or NULL. */
static fsal_status_t send_creation(struct tombolo_fsal_creation *creation, bool is_opened,
				   const struct fuse_setattr_in *attributes)
{
	const uint32_t mode = fsal2unix_mode(creation->wanted->mode) | S_IFREG;
	const uint32_t mark = attributes ? TOMBOLO_WIRE_CREATION_WITH_ATTRIBUTES : 0;
	const struct fuse_create_in create = { .flags = O_RDWR | O_CREAT | O_EXCL, .mode = mode, .open_flags = mark };
	const struct fuse_mknod_in make = { .mode = mode, .padding = mark };
	struct {
		struct fuse_entry_out entry;
		struct fuse_open_out open;
	} answer;
	size_t bytes = is_opened ? sizeof(answer) : sizeof(answer.entry);
	struct tombolo_fsal_request request;
	fsal_status_t status;

	tombolo_fsal_request_init(&request, creation->export, is_opened ? FUSE_CREATE : FUSE_MKNOD,
				  creation->directory);
	if (is_opened)
		tombolo_fsal_request_add(&request, &create, sizeof(create));
	else
		tombolo_fsal_request_add(&request, &make, sizeof(make));
	if (attributes)
		tombolo_fsal_request_add(&request, attributes, sizeof(*attributes));
	tombolo_fsal_request_add(&request, creation->name, strlen(creation->name) + 1);
	status = tombolo_fsal_call_exact(creation->export, &request, &answer, bytes);
	if (FSAL_IS_ERROR(status))
		return status;
	creation->entry = answer.entry;
	return tombolo_fsal_entry_check(request.header.opcode, &creation->entry);
}

fsal_status_t tombolo_fsal_create_file(struct tombolo_fsal_creation *creation, bool is_opened)
{
	struct fuse_setattr_in attributes;
	bool brings_attributes;
	fsal_status_t status = encode_attributes(creation->wanted, &attributes);

	if (FSAL_IS_ERROR(status))
		return status;
	brings_attributes = attributes.valid != 0 && creation->export->has_creation_attributes;
	if (attributes.valid == 0 || brings_attributes)
		creation->left = creation->wanted->valid_mask & ATTR_ACL;
	else
		creation->left = attributes_left(creation->wanted);
	return send_creation(creation, is_opened, brings_attributes ? &attributes : NULL);
}

/* ---- what is left ---- */

static fsal_status_t set_attributes_left(struct tombolo_fsal_creation *creation, uint64_t inode)
{
	struct fsal_attrlist *wanted = creation->wanted;
	struct fuse_attr *attributes = &creation->entry.attr;
	attrmask_t asked = wanted->valid_mask;
	fsal_status_t status;

	if (creation->left == 0)
		return tombolo_fsal_success();
	wanted->valid_mask = creation->left;
	status = tombolo_fsal_set_attributes(creation->export, inode, posix2fsal_type(attributes->mode), wanted,
					     attributes);
	wanted->valid_mask = asked;
	return status;
}

fsal_status_t tombolo_fsal_finish_creation(struct tombolo_fsal_creation *creation, struct fsal_obj_handle **new_object,
					   struct fsal_attrlist *attributes_out)
{
	struct tombolo_fsal_export *export = creation->export;
	const struct fuse_attr *attributes = &creation->entry.attr;
	uint64_t inode = tombolo_fsal_inode_of(export, creation->entry.nodeid);
	fsal_status_t status = set_attributes_left(creation, inode);

	if (FSAL_IS_SUCCESS(status))
		status = tombolo_fsal_attributes_give(export, inode, attributes, attributes_out);
	if (FSAL_IS_ERROR(status)) {
		(void)tombolo_fsal_remove_entry(export, creation->directory, creation->name,
						S_ISDIR(attributes->mode));
		return status;
	}
	*new_object = &tombolo_fsal_object_new(export, inode, attributes->mode)->object;
	return status;
}

/* ---- directories, nodes, symbolic links ---- */

/* The second half of mkdir, mknode and symlink; the request is ready but for the name's check. */
static fsal_status_t make(struct fsal_obj_handle *directory, const char *name, enum tombolo_fsal_entry_kind kind,
			  struct tombolo_fsal_request *request, struct fsal_attrlist *wanted,
			  struct fsal_obj_handle **new_object, struct fsal_attrlist *attributes_out)
{
	struct tombolo_fsal_creation creation = {
		.export = tombolo_fsal_current_export(),
		.directory = directory->fileid,
		.name = name,
		.wanted = wanted,
		.left = attributes_left(wanted),
	};
	fsal_status_t status;

	*new_object = NULL;
	status = tombolo_fsal_may_create(directory, kind);
	if (FSAL_IS_ERROR(status))
		return status;
	status = tombolo_fsal_call_for_entry(creation.export, request, &creation.entry);
	if (FSAL_IS_ERROR(status))
		return status;
	return tombolo_fsal_finish_creation(&creation, new_object, attributes_out);
}

static fsal_status_t make_directory(struct fsal_obj_handle *directory, const char *name, struct fsal_attrlist *wanted,
				    struct fsal_obj_handle **new_object, struct fsal_attrlist *attributes_out)
{
	struct fuse_mkdir_in question = { .mode = fsal2unix_mode(wanted->mode) };
	struct tombolo_fsal_request request;

	tombolo_fsal_request_init(&request, tombolo_fsal_current_export(), FUSE_MKDIR, directory->fileid);
	tombolo_fsal_request_add(&request, &question, sizeof(question));
	tombolo_fsal_request_add(&request, name, strlen(name) + 1);
	return make(directory, name, TOMBOLO_FSAL_ENTRY_DIRECTORY, &request, wanted, new_object, attributes_out);
}

static uint32_t type_bits(object_file_type_t type)
{
	switch (type) {
	case CHARACTER_FILE:
		return S_IFCHR;
	case BLOCK_FILE:
		return S_IFBLK;
	case FIFO_FILE:
		return S_IFIFO;
	case SOCKET_FILE:
		return S_IFSOCK;
	case NO_FILE_TYPE:
	case REGULAR_FILE:
	case SYMBOLIC_LINK:
	case DIRECTORY:
	case EXTENDED_ATTR:
		break;
	}
	return 0;
}

static uint32_t device_bits(const fsal_dev_t *device)
{
	uint32_t major = (uint32_t)device->major;
	uint32_t minor = (uint32_t)device->minor;

	return (minor & 0xff) | (major << 8) | ((minor & ~0xffu) << 12);
}

static fsal_status_t make_node(struct fsal_obj_handle *directory, const char *name, object_file_type_t type,
			       struct fsal_attrlist *wanted, struct fsal_obj_handle **new_object,
			       struct fsal_attrlist *attributes_out)
{
	struct fuse_mknod_in question = { .mode = fsal2unix_mode(wanted->mode) | type_bits(type) };
	struct tombolo_fsal_request request;
	attrmask_t asked = wanted->valid_mask;
	fsal_status_t status;

	*new_object = NULL;
	if (type_bits(type) == 0)
		return fsalstat(ERR_FSAL_INVAL, EINVAL);
	if (type == CHARACTER_FILE || type == BLOCK_FILE) {
		if (wanted->rawdev.major > 0xfff || wanted->rawdev.minor > 0xfffff)
			return fsalstat(ERR_FSAL_INVAL, EINVAL);
		question.rdev = device_bits(&wanted->rawdev);
	}
	tombolo_fsal_request_init(&request, tombolo_fsal_current_export(), FUSE_MKNOD, directory->fileid);
	tombolo_fsal_request_add(&request, &question, sizeof(question));
	tombolo_fsal_request_add(&request, name, strlen(name) + 1);
	wanted->valid_mask &= ~(attrmask_t)ATTR_RAWDEV;
	status = make(directory, name, TOMBOLO_FSAL_ENTRY_FILE, &request, wanted, new_object, attributes_out);
	wanted->valid_mask = asked;
	return status;
}

static fsal_status_t make_symlink(struct fsal_obj_handle *directory, const char *name, const char *target,
				  struct fsal_attrlist *wanted, struct fsal_obj_handle **new_object,
				  struct fsal_attrlist *attributes_out)
{
	struct tombolo_fsal_request request;

	tombolo_fsal_request_init(&request, tombolo_fsal_current_export(), FUSE_SYMLINK, directory->fileid);
	tombolo_fsal_request_add(&request, name, strlen(name) + 1);
	tombolo_fsal_request_add(&request, target, strlen(target) + 1);
	return make(directory, name, TOMBOLO_FSAL_ENTRY_FILE, &request, wanted, new_object, attributes_out);
}

void tombolo_fsal_create_ops_init(struct fsal_obj_ops *ops)
{
	ops->mkdir = make_directory;
	ops->mknode = make_node;
	ops->symlink = make_symlink;
}
