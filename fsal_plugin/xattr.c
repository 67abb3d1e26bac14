/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * Extended attributes of NFSv4.2 (RFC 8276).  On the wire they have no namespace; they
 * are those below "user.".  As in Linux, reading and writing them needs the permission
 * that reading and writing the file needs; listing needs none.
 *
 * Owns nothing.  POSIX ACLs, which are kept as extended attributes, too, are acl.c's.
 */

#include "fsal_tombolo.h"
#include "call.h"
#include "errors.h"
#include "operations.h"
#include "permission.h"

#include <sys/xattr.h>

#define PREFIX "user."
#define PREFIX_BYTES (sizeof(PREFIX) - 1)
/* What the service has at the most. */
#define VALUE_BYTES_MAX 65536u
#define LIST_BYTES_MAX 65536u
/* What ganesha encodes in one answer.  Of a longer one it sends nothing, and the client
 * waits on a connection that is never closed. */
#define VALUE_BYTES_SENT_MAX XDR_STRING_MAXLEN
#define LIST_NAMES_SENT_MAX XDR_ARRAY_MAXLEN

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

/* A value that cannot be sent is refused.  With ERR_FSAL_XATTR2BIG ganesha would ask again. */
static fsal_status_t get_length(uint64_t inode, const char *name, xattrvalue4 *value)
{
	const struct fuse_getxattr_in question = { .size = 0 };
	struct tombolo_fsal_request request;
	struct fuse_getxattr_out answer;
	fsal_status_t status;

	prepare_get(&request, inode, &question, name);
	status = tombolo_fsal_call_exact(tombolo_fsal_current_export(), &request, &answer, sizeof(answer));
	if (FSAL_IS_SUCCESS(status) && answer.size > VALUE_BYTES_MAX)
		return tombolo_fsal_bad_answer(FUSE_GETXATTR);
	if (FSAL_IS_SUCCESS(status) && answer.size > VALUE_BYTES_SENT_MAX)
		return fsalstat(ERR_FSAL_FBIG, EFBIG);
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
	status = tombolo_fsal_call_up_to(tombolo_fsal_current_export(), &request, value->utf8string_val, &bytes);
	if (FSAL_IS_SUCCESS(status))
		value->utf8string_len = (uint32_t)bytes;
	return status;
}

/* Ganesha comes with a small buffer.  After ERR_FSAL_XATTR2BIG it asks with none for the
 * length, and with that much for the value. */
static fsal_status_t getxattrs(struct fsal_obj_handle *object, xattrkey4 *name, xattrvalue4 *value)
{
	char full[TOMBOLO_WIRE_NAME_BYTES_MAX + 1];
	fsal_status_t status = full_name(name, full);
	xattrvalue4 whole = { 0 };
	fsal_status_t too_long;

	if (FSAL_IS_SUCCESS(status))
		status = tombolo_fsal_may_access(object, FSAL_READ_ACCESS);
	if (FSAL_IS_ERROR(status))
		return status;
	if (value->utf8string_len == 0)
		return get_length(object->fileid, full, value);
	status = get_value(object->fileid, full, value);
	if (status.major != ERR_FSAL_XATTR2BIG)
		return status;
	/* Only here an error reaches the client as it is. */
	too_long = get_length(object->fileid, full, &whole);
	return FSAL_IS_ERROR(too_long) ? too_long : status;
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
	if (value->utf8string_len > VALUE_BYTES_SENT_MAX)
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
	return tombolo_fsal_call_for_status(export, &request);
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
	return tombolo_fsal_call_for_status(export, &request);
}

/* How much of the list is for one answer that goes on behind the first `cookie` names. */
static size_t cut(const char *list, size_t bytes, nfs_cookie4 cookie)
{
	nfs_cookie4 names = 0;
	size_t length;

	for (size_t position = 0; position < bytes; position += length + 1) {
		length = strlen(list + position);
		if (length <= PREFIX_BYTES || strncmp(list + position, PREFIX, PREFIX_BYTES) != 0)
			continue;
		names++;
		if (names > cookie && names - cookie > LIST_NAMES_SENT_MAX)
			return position;
	}
	return bytes;
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
	status = tombolo_fsal_call_up_to(export, &request, list, &bytes);
	/* Ganesha reads names up to their terminator. */
	if (FSAL_IS_SUCCESS(status) && bytes > 0 && list[bytes - 1] != '\0')
		status = tombolo_fsal_bad_answer(FUSE_LISTXATTR);
	if (FSAL_IS_SUCCESS(status)) {
		size_t part = cut(list, bytes, *cookie);

		status = fsal_listxattr_helper(list, part, bytes_max, cookie, eof, names);
		if (FSAL_IS_SUCCESS(status) && part < bytes)
			*eof = false;
	}
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
