/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * One name of a directory, as the daemon knows it: asked for, checked, removed.
 *
 * Owns nothing and decides nothing: who may do it is permission.c's, what ganesha is
 * given for it the callers'.
 */

#include "fsal_tombolo.h"
#include "attributes.h"
#include "call.h"
#include "entry.h"
#include "errors.h"

fsal_status_t tombolo_fsal_entry_check(uint32_t opcode, const struct fuse_entry_out *entry)
{
	if (entry->nodeid == 0)
		return fsalstat(ERR_FSAL_NOENT, ENOENT);
	if (!tombolo_fsal_attributes_valid(&entry->attr))
		return tombolo_fsal_bad_answer(opcode);
	return tombolo_fsal_success();
}

fsal_status_t tombolo_fsal_call_for_entry(struct tombolo_fsal_export *export, struct tombolo_fsal_request *request,
					  struct fuse_entry_out *entry)
{
	fsal_status_t status = tombolo_fsal_call_exact(export, request, entry, sizeof(*entry));

	return FSAL_IS_SUCCESS(status) ? tombolo_fsal_entry_check(request->header.opcode, entry) : status;
}

fsal_status_t tombolo_fsal_lookup_entry(struct tombolo_fsal_export *export, uint64_t directory, const char *name,
					struct fuse_entry_out *entry)
{
	struct tombolo_fsal_request request;

	tombolo_fsal_request_init(&request, export, FUSE_LOOKUP, directory);
	tombolo_fsal_request_add(&request, name, strlen(name) + 1);
	return tombolo_fsal_call_for_entry(export, &request, entry);
}

fsal_status_t tombolo_fsal_remove_entry(struct tombolo_fsal_export *export, uint64_t directory, const char *name,
					bool is_directory)
{
	struct tombolo_fsal_request request;

	tombolo_fsal_request_init(&request, export, is_directory ? FUSE_RMDIR : FUSE_UNLINK, directory);
	tombolo_fsal_request_add(&request, name, strlen(name) + 1);
	return tombolo_fsal_call_for_status(export, &request);
}
