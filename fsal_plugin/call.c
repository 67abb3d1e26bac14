/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * The making of requests: as whom, about which inode, and how much answer is expected.
 *
 * Owns nothing.  Sending, and waiting over restarts of the daemon, is the session's; what
 * an errno means to ganesha is in errors.c.
 */

#include "fsal_tombolo.h"
#include "call.h"
#include "errors.h"

uint64_t tombolo_fsal_nodeid_of(const struct tombolo_fsal_export *export, uint64_t inode)
{
	return inode == export->root ? FUSE_ROOT_ID : inode;
}

uint64_t tombolo_fsal_inode_of(const struct tombolo_fsal_export *export, uint64_t nodeid)
{
	return nodeid == FUSE_ROOT_ID ? export->root : nodeid;
}

void tombolo_fsal_request_init(struct tombolo_fsal_request *request, const struct tombolo_fsal_export *export,
			       uint32_t opcode, uint64_t inode)
{
	memset(request, 0, sizeof(*request));
	request->header.opcode = opcode;
	request->header.nodeid = tombolo_fsal_nodeid_of(export, inode);
	/* The threads of the FSAL's own act for nobody in particular. */
	if (op_ctx) {
		request->header.uid = op_ctx->creds.caller_uid;
		request->header.gid = op_ctx->creds.caller_gid;
	}
}

fsal_status_t tombolo_fsal_call_up_to(struct tombolo_fsal_export *export, struct tombolo_fsal_request *request,
				      void *answer, size_t *bytes)
{
	const struct iovec reply = { .iov_base = answer, .iov_len = *bytes };
	int error;

	request->reply = &reply;
	request->reply_count = 1;
	error = tombolo_fsal_session_call(export->session, request);
	if (tombolo_fsal_changes_silently(request->header.opcode))
		tombolo_fsal_changes_count(export);
	*bytes = request->reply_bytes;
	return tombolo_fsal_status(error);
}

fsal_status_t tombolo_fsal_call_exact(struct tombolo_fsal_export *export, struct tombolo_fsal_request *request,
				      void *answer, size_t bytes)
{
	size_t got = bytes;
	fsal_status_t status = tombolo_fsal_call_up_to(export, request, answer, &got);

	if (FSAL_IS_SUCCESS(status) && got != bytes)
		return tombolo_fsal_bad_answer(request->header.opcode);
	return status;
}

fsal_status_t tombolo_fsal_call_for_status(struct tombolo_fsal_export *export, struct tombolo_fsal_request *request)
{
	return tombolo_fsal_call_exact(export, request, NULL, 0);
}
