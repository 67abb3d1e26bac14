/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * Extended attributes of NFSv4.2 (RFC 8276).  On the wire they have no namespace; they
 * are those below "user.".  As in Linux, reading and writing them needs the permission
 * that reading and writing the file needs; listing needs none.
 */

#include "tombolo.h"

#include <sys/xattr.h>

#define PREFIX "user."
#define PREFIX_BYTES (sizeof(PREFIX) - 1)
#define VALUE_BYTES_MAX 65536u
#define LIST_BYTES_MAX 65536u

/* 0 bytes of `full` are left undefined on failure. */
static fsal_status_t full_name(const xattrkey4 *name, char full[TOMBOLO_WIRE_NAME_BYTES_MAX + 1])
{
	size_t bytes = name->utf8string_len;

	if (bytes == 0 || memchr(name->utf8string_val, '\0', bytes))
		return fsalstat(ERR_FSAL_INVAL, EINVAL);
	if (PREFIX_BYTES + bytes > TOMBOLO_WIRE_NAME_BYTES_MAX)
		return fsalstat(ERR_FSAL_NAMETOOLONG, ENAMETOOLONG);
	memcpy(full, PREFIX, PREFIX_BYTES);
	memcpy(full + PREFIX_BYTES, name->utf8string_val, bytes);
	full[PREFIX_BYTES + bytes] = '\0';
	return tombolo_fsal_success();
}

static void prepare_get(struct tombolo_fsal_request *request, uint64_t inode, const struct fuse_getxattr_in *question,
			const char *name)
{
	tombolo_fsal_request_init(request, tombolo_fsal_current_export(), FUSE_GETXATTR, inode);
	tombolo_fsal_request_add(request, question, sizeof(*question));
	tombolo_fsal_request_add(request, name, strlen(name) + 1);
}

/* Ganesha asks with no buffer for the length, and for that after ERR_FSAL_XATTR2BIG. */
static fsal_status_t get_length(uint64_t inode, const char *name, xattrvalue4 *value)
{
	const struct fuse_getxattr_in question = { .size = 0 };
	struct tombolo_fsal_request request;
	struct fuse_getxattr_out answer;
	fsal_status_t status;

	prepare_get(&request, inode, &question, name);
	status = tombolo_fsal_ask(tombolo_fsal_current_export(), &request, &answer, sizeof(answer));
	if (FSAL_IS_SUCCESS(status) && answer.size > VALUE_BYTES_MAX)
		return tombolo_fsal_bad_answer(FUSE_GETXATTR);
	if (FSAL_IS_SUCCESS(status))
		value->utf8string_len = answer.size;
	return status;
}

static fsal_status_t get_value(uint64_t inode, const char *name, xattrvalue4 *value)
{
	const struct fuse_getxattr_in question = { .size = value->utf8string_len };
	size_t bytes = value->utf8string_len;
	struct tombolo_fsal_request request;
	fsal_status_t status;

	prepare_get(&request, inode, &question, name);
	status = tombolo_fsal_ask_up_to(tombolo_fsal_current_export(), &request, value->utf8string_val, &bytes);
	if (FSAL_IS_SUCCESS(status))
		value->utf8string_len = (uint32_t)bytes;
	return status;
}

static fsal_status_t getxattrs(struct fsal_obj_handle *object, xattrkey4 *name, xattrvalue4 *value)
{
	char full[TOMBOLO_WIRE_NAME_BYTES_MAX + 1];
	fsal_status_t status = full_name(name, full);

	if (FSAL_IS_SUCCESS(status))
		status = tombolo_fsal_may_access(object, FSAL_READ_ACCESS);
	if (FSAL_IS_ERROR(status))
		return status;
	if (value->utf8string_len == 0)
		return get_length(object->fileid, full, value);
	return get_value(object->fileid, full, value);
}

static fsal_status_t setxattrs(struct fsal_obj_handle *object, setxattr_option4 option, xattrkey4 *name,
			       xattrvalue4 *value)
{
	struct tombolo_fsal_export *export = tombolo_fsal_current_export();
	struct fuse_setxattr_in question = { .size = value->utf8string_len };
	char full[TOMBOLO_WIRE_NAME_BYTES_MAX + 1];
	struct tombolo_fsal_request request;
	fsal_status_t status = full_name(name, full);

	if (FSAL_IS_ERROR(status))
		return status;
	if (value->utf8string_len > VALUE_BYTES_MAX)
		return fsalstat(ERR_FSAL_XATTR2BIG, E2BIG);
	switch (option) {
	case SETXATTR4_EITHER:
		break;
	case SETXATTR4_CREATE:
		question.flags = XATTR_CREATE;
		break;
	case SETXATTR4_REPLACE:
		question.flags = XATTR_REPLACE;
		break;
	default:
		return fsalstat(ERR_FSAL_INVAL, EINVAL);
	}
	status = tombolo_fsal_may_access(object, FSAL_WRITE_ACCESS);
	if (FSAL_IS_ERROR(status))
		return status;
	tombolo_fsal_request_init(&request, export, FUSE_SETXATTR, object->fileid);
	tombolo_fsal_request_add(&request, &question, sizeof(question));
	tombolo_fsal_request_add(&request, full, strlen(full) + 1);
	tombolo_fsal_request_add(&request, value->utf8string_val, value->utf8string_len);
	return tombolo_fsal_tell(export, &request);
}

static fsal_status_t removexattrs(struct fsal_obj_handle *object, xattrkey4 *name)
{
	struct tombolo_fsal_export *export = tombolo_fsal_current_export();
	char full[TOMBOLO_WIRE_NAME_BYTES_MAX + 1];
	struct tombolo_fsal_request request;
	fsal_status_t status = full_name(name, full);

	if (FSAL_IS_SUCCESS(status))
		status = tombolo_fsal_may_access(object, FSAL_WRITE_ACCESS);
	if (FSAL_IS_ERROR(status))
		return status;
	tombolo_fsal_request_init(&request, export, FUSE_REMOVEXATTR, object->fileid);
	tombolo_fsal_request_add(&request, full, strlen(full) + 1);
	return tombolo_fsal_tell(export, &request);
}

static fsal_status_t listxattrs(struct fsal_obj_handle *object, count4 bytes_max, nfs_cookie4 *cookie, bool_t *eof,
				xattrlist4 *names)
{
	const struct fuse_getxattr_in question = { .size = LIST_BYTES_MAX };
	struct tombolo_fsal_export *export = tombolo_fsal_current_export();
	struct tombolo_fsal_request request;
	size_t bytes = LIST_BYTES_MAX;
	char *list = gsh_malloc(bytes);
	fsal_status_t status;

	tombolo_fsal_request_init(&request, export, FUSE_LISTXATTR, object->fileid);
	tombolo_fsal_request_add(&request, &question, sizeof(question));
	status = tombolo_fsal_ask_up_to(export, &request, list, &bytes);
	/* Ganesha reads names up to their terminator. */
	if (FSAL_IS_SUCCESS(status) && bytes > 0 && list[bytes - 1] != '\0')
		status = tombolo_fsal_bad_answer(FUSE_LISTXATTR);
	if (FSAL_IS_SUCCESS(status))
		status = fsal_listxattr_helper(list, bytes, bytes_max, cookie, eof, names);
	gsh_free(list);
	return status;
}

void tombolo_fsal_xattr_ops_init(struct fsal_obj_ops *ops)
{
	ops->getxattrs = getxattrs;
	ops->setxattrs = setxattrs;
	ops->removexattrs = removexattrs;
	ops->listxattrs = listxattrs;
}
