/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * Names: looking them up, linking, removing and moving them, and reading directories.
 *
 * Owns nothing: ganesha caches names, and the daemon keeps them.  Creation is create.c's,
 * and who may do it is permission.c's.
 */

#include "fsal_tombolo.h"
#include "attributes.h"
#include "call.h"
#include "entry.h"
#include "errors.h"
#include "handle.h"
#include "operations.h"
#include "permission.h"

/* One READDIRPLUS answer: some three hundred entries. */
#define READ_BYTES 65536u

static fsal_status_t lookup(struct fsal_obj_handle *directory, const char *name, struct fsal_obj_handle **object,
			    struct fsal_attrlist *attributes_out)
{
	struct tombolo_fsal_export *export = tombolo_fsal_current_export();
	struct fuse_entry_out entry;
	uint64_t inode;
	fsal_status_t status;

	*object = NULL;
	if (directory->type != DIRECTORY)
		return fsalstat(ERR_FSAL_NOTDIR, ENOTDIR);
	status = tombolo_fsal_lookup_entry(export, directory->fileid, name, &entry);
	if (FSAL_IS_ERROR(status))
		return status;
	inode = tombolo_fsal_inode_of(export, entry.nodeid);
	status = tombolo_fsal_attributes_give(export, inode, &entry.attr, attributes_out);
	if (FSAL_IS_ERROR(status))
		return status;
	*object = &tombolo_fsal_object_new(export, inode, entry.attr.mode)->object;
	return status;
}

/* ---- links ---- */

static fsal_status_t read_link(struct fsal_obj_handle *object, struct gsh_buffdesc *content, bool refresh)
{
	struct tombolo_fsal_export *export = tombolo_fsal_current_export();
	struct tombolo_fsal_request request;
	size_t bytes = MAXPATHLEN;
	char *target = gsh_malloc(bytes + 1);
	fsal_status_t status;

	(void)refresh;
	tombolo_fsal_request_init(&request, export, FUSE_READLINK, object->fileid);
	status = tombolo_fsal_call_up_to(export, &request, target, &bytes);
	if (FSAL_IS_ERROR(status)) {
		gsh_free(target);
		return status;
	}
	target[bytes] = '\0';
	content->addr = target;
	/* Ganesha counts the terminator. */
	content->len = bytes + 1;
	return status;
}

static fsal_status_t link_object(struct fsal_obj_handle *object, struct fsal_obj_handle *directory, const char *name)
{
	struct tombolo_fsal_export *export = tombolo_fsal_current_export();
	struct fuse_link_in question = { .oldnodeid = tombolo_fsal_nodeid_of(export, object->fileid) };
	struct tombolo_fsal_request request;
	struct fuse_entry_out entry;

	/* Ganesha has checked the directory: link_supports_permission_checks is not set. */
	tombolo_fsal_request_init(&request, export, FUSE_LINK, directory->fileid);
	tombolo_fsal_request_add(&request, &question, sizeof(question));
	tombolo_fsal_request_add(&request, name, strlen(name) + 1);
	return tombolo_fsal_call_for_entry(export, &request, &entry);
}

/* ---- removing and moving ---- */

static fsal_status_t unlink_object(struct fsal_obj_handle *directory, struct fsal_obj_handle *object, const char *name)
{
	fsal_status_t status = tombolo_fsal_may_remove(directory, object);

	if (FSAL_IS_ERROR(status))
		return status;
	return tombolo_fsal_remove_entry(tombolo_fsal_current_export(), directory->fileid, name,
					 object->type == DIRECTORY);
}

static fsal_status_t rename_object(struct fsal_obj_handle *object, struct fsal_obj_handle *old_directory,
				   const char *old_name, struct fsal_obj_handle *new_directory, const char *new_name)
{
	struct tombolo_fsal_export *export = tombolo_fsal_current_export();
	struct fuse_rename2_in question = { .newdir = tombolo_fsal_nodeid_of(export, new_directory->fileid) };
	struct tombolo_fsal_request request;
	fsal_status_t status = tombolo_fsal_may_rename(object, old_directory, new_directory, new_name);

	if (FSAL_IS_ERROR(status))
		return status;
	tombolo_fsal_request_init(&request, export, FUSE_RENAME2, old_directory->fileid);
	tombolo_fsal_request_add(&request, &question, sizeof(question));
	tombolo_fsal_request_add(&request, old_name, strlen(old_name) + 1);
	tombolo_fsal_request_add(&request, new_name, strlen(new_name) + 1);
	return tombolo_fsal_call_for_status(export, &request);
}

/* ---- reading ---- */

static bool is_dot_or_dotdot(const struct tombolo_wire_directory_entry *entry)
{
	return (entry->name_bytes == 1 && entry->name[0] == '.') ||
	       (entry->name_bytes == 2 && entry->name[0] == '.' && entry->name[1] == '.');
}

static fsal_status_t fetch_entries(struct tombolo_fsal_export *export, uint64_t directory, uint64_t cookie,
				   uint8_t *answer, size_t *bytes)
{
	struct fuse_read_in question = { .offset = cookie, .size = READ_BYTES };
	struct tombolo_fsal_request request;

	*bytes = READ_BYTES;
	tombolo_fsal_request_init(&request, export, FUSE_READDIRPLUS, directory);
	tombolo_fsal_request_add(&request, &question, sizeof(question));
	return tombolo_fsal_call_up_to(export, &request, answer, bytes);
}

struct reading {
	struct tombolo_fsal_export *export;
	uint64_t directory;
	fsal_readdir_cb callback;
	void *callback_argument;
	attrmask_t mask;
	uint64_t cookie;	/* of the last entry passed on: where to read on */
	bool stopped;	/* by the callback */
};

/* Between the daemon's answer and now the entry may have gone: then it is left out. */
static fsal_status_t pass_on(struct reading *reading, const struct tombolo_wire_directory_entry *entry)
{
	struct tombolo_fsal_export *export = reading->export;
	uint64_t inode = tombolo_fsal_inode_of(export, entry->entry.nodeid);
	char name[TOMBOLO_WIRE_NAME_BYTES_MAX + 1];
	struct tombolo_fsal_object *object;
	struct fsal_attrlist attributes;
	fsal_status_t status = tombolo_fsal_entry_check(FUSE_READDIRPLUS, &entry->entry);

	if (FSAL_IS_ERROR(status))
		return status.major == ERR_FSAL_NOENT ? tombolo_fsal_success() : status;
	memcpy(name, entry->name, entry->name_bytes);
	name[entry->name_bytes] = '\0';
	/* ACLs are not fetched for each entry: ganesha asks for those that it needs. */
	fsal_prepare_attrs(&attributes, reading->mask & ~(attrmask_t)ATTR_ACL);
	tombolo_fsal_attributes_fill(export, &entry->entry.attr, &attributes);
	object = tombolo_fsal_object_new(export, inode, entry->entry.attr.mode);
	reading->stopped = reading->callback(name, &object->object, &attributes, reading->callback_argument,
					     entry->cookie) >= DIR_TERMINATE;
	fsal_release_attrs(&attributes);
	return status;
}

static fsal_status_t pass_on_all(struct reading *reading, const uint8_t *answer, size_t bytes)
{
	struct tombolo_wire_directory_entry entry;
	size_t position = 0;
	int taken;

	while (!reading->stopped && (taken = tombolo_wire_next_entry(answer, bytes, &position, &entry)) != 0) {
		fsal_status_t status = tombolo_fsal_success();

		/* A cookie that does not advance would be read for ever. */
		if (taken == -1 || entry.cookie <= reading->cookie)
			return tombolo_fsal_bad_answer(FUSE_READDIRPLUS);
		if (!is_dot_or_dotdot(&entry))
			status = pass_on(reading, &entry);
		if (FSAL_IS_ERROR(status))
			return status;
		reading->cookie = entry.cookie;
	}
	return tombolo_fsal_success();
}

static fsal_status_t read_directory(struct fsal_obj_handle *directory, fsal_cookie_t *whence, void *callback_argument,
				    fsal_readdir_cb callback, attrmask_t mask, bool *eof)
{
	struct reading reading = {
		.export = tombolo_fsal_current_export(),
		.directory = directory->fileid,
		.callback = callback,
		.callback_argument = callback_argument,
		.mask = mask,
		.cookie = whence ? *whence : 0,
	};
	uint8_t *answer = gsh_malloc(READ_BYTES);
	fsal_status_t status;
	size_t bytes;

	*eof = false;
	do {
		status = fetch_entries(reading.export, reading.directory, reading.cookie, answer, &bytes);
		if (FSAL_IS_SUCCESS(status)) {
			*eof = bytes == 0;
			status = pass_on_all(&reading, answer, bytes);
		}
	} while (FSAL_IS_SUCCESS(status) && !*eof && !reading.stopped);
	gsh_free(answer);
	return status;
}

void tombolo_fsal_directory_ops_init(struct fsal_obj_ops *ops)
{
	ops->lookup = lookup;
	ops->readdir = read_directory;
	ops->readlink = read_link;
	ops->link = link_object;
	ops->unlink = unlink_object;
	ops->rename = rename_object;
}
