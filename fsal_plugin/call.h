/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * Requests to the daemon, one at a time: made ready, sent, and waited for as long as it takes.
 *
 * Every call fails with what tombolo_fsal_status() makes of the daemon's errno; with ERR_FSAL_DELAY if ganesha stops
 * while the daemon is away, and ERR_FSAL_STALE if the share is gone.
 */

#ifndef TOMBOLO_FSAL_CALL_H
#define TOMBOLO_FSAL_CALL_H

#include "fsal_tombolo.h"

/* An inode's number as messages have it, where the share's root is FUSE_ROOT_ID, and back. */
uint64_t tombolo_fsal_nodeid_of(const struct tombolo_fsal_export *export, uint64_t inode);
uint64_t tombolo_fsal_inode_of(const struct tombolo_fsal_export *export, uint64_t nodeid);

/* Prepares a request of the caller of the operation under way, about `inode`.  The message's parts are then added with
 * tombolo_fsal_request_add(). */
void tombolo_fsal_request_init(struct tombolo_fsal_request *request, const struct tombolo_fsal_export *export,
			       uint32_t opcode, uint64_t inode);
/* Makes the call; the answer must have exactly `bytes`, or it is a bad one. */
fsal_status_t tombolo_fsal_call_exact(struct tombolo_fsal_export *export, struct tombolo_fsal_request *request,
				      void *answer, size_t bytes);
/* Makes the call; the answer may have up to *bytes, and *bytes says how many it has. */
fsal_status_t tombolo_fsal_call_up_to(struct tombolo_fsal_export *export, struct tombolo_fsal_request *request,
				      void *answer, size_t *bytes);
/* Makes the call for its status: the answer has no content. */
fsal_status_t tombolo_fsal_call_for_status(struct tombolo_fsal_export *export, struct tombolo_fsal_request *request);

#endif
