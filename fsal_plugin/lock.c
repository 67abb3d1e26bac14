/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * Byte range locks.  They are the daemon's, so they hold against mounts and other
 * servers, over its restarts, and until this session ends.  Ganesha keeps its own
 * account besides, and asks again for a lock that a client waits for.  Nothing of them is
 * kept here.
 */

#include "fsal_tombolo.h"
#include "call.h"
#include "errors.h"
#include "operations.h"

/* The protocol's infinity. */
#define RANGE_END_MAX ((uint64_t)INT64_MAX)

/* A lock that was refused but whose holder has gone when asked for is tried again. */
#define LOCK_ATTEMPTS 4

/* Ganesha's owner is an object that it keeps for as long as the owner has a lock, so its
 * address tells owners apart, and stays with them. */
static uint64_t owner_id(const void *owner)
{
	return (uint64_t)(uintptr_t)owner;
}

/* A length of 0 means up to the end, wherever that will be. */
static bool encode_range(const fsal_lock_param_t *lock, struct fuse_file_lock *range)
{
	if (lock->lock_start > RANGE_END_MAX)
		return false;
	range->start = lock->lock_start;
	if (lock->lock_length == 0 || lock->lock_length > RANGE_END_MAX - lock->lock_start)
		range->end = RANGE_END_MAX;
	else
		range->end = lock->lock_start + lock->lock_length - 1;
	return true;
}

static void decode_conflict(const struct fuse_file_lock *range, fsal_lock_param_t *conflict)
{
	conflict->lock_type = range->type == F_WRLCK ? FSAL_LOCK_W : FSAL_LOCK_R;
	conflict->lock_start = range->start;
	conflict->lock_length = range->end >= RANGE_END_MAX ? 0 : range->end - range->start + 1;
}

/* What stands in the way of `wanted`; F_UNLCK: nothing. */
static fsal_status_t fetch_conflict(struct tombolo_fsal_export *export, uint64_t inode,
				    const struct fuse_lk_in *wanted, struct fuse_file_lock *conflict)
{
	struct tombolo_fsal_request request;
	struct fuse_lk_out answer;
	fsal_status_t status;

	tombolo_fsal_request_init(&request, export, FUSE_GETLK, inode);
	tombolo_fsal_request_add(&request, wanted, sizeof(*wanted));
	status = tombolo_fsal_call_exact(export, &request, &answer, sizeof(answer));
	if (FSAL_IS_ERROR(status))
		return status;
	if (answer.lk.type != F_UNLCK && (answer.lk.end < answer.lk.start || answer.lk.start > RANGE_END_MAX))
		return tombolo_fsal_bad_answer(FUSE_GETLK);
	*conflict = answer.lk;
	return status;
}

static fsal_status_t set_lock(struct tombolo_fsal_export *export, uint64_t inode, const struct fuse_lk_in *wanted)
{
	struct tombolo_fsal_request request;

	tombolo_fsal_request_init(&request, export, FUSE_SETLK, inode);
	tombolo_fsal_request_add(&request, wanted, sizeof(*wanted));
	return tombolo_fsal_call_for_status(export, &request);
}

/* ERR_FSAL_DELAY is how ganesha is told of a conflict. */
static fsal_status_t test_lock(struct tombolo_fsal_export *export, uint64_t inode, const struct fuse_lk_in *wanted,
			       fsal_lock_param_t *conflict)
{
	struct fuse_file_lock holder;
	fsal_status_t status = fetch_conflict(export, inode, wanted, &holder);

	if (FSAL_IS_ERROR(status))
		return status;
	if (holder.type == F_UNLCK) {
		if (conflict)
			conflict->lock_type = FSAL_NO_LOCK;
		return status;
	}
	if (conflict)
		decode_conflict(&holder, conflict);
	return fsalstat(ERR_FSAL_DELAY, EAGAIN);
}

static fsal_status_t take_lock(struct tombolo_fsal_export *export, uint64_t inode, const struct fuse_lk_in *wanted,
			       fsal_lock_param_t *conflict)
{
	fsal_status_t status = fsalstat(ERR_FSAL_DELAY, EAGAIN);

	if (conflict)
		decode_conflict(&wanted->lk, conflict);
	for (int attempt = 0; attempt < LOCK_ATTEMPTS; attempt++) {
		status = set_lock(export, inode, wanted);
		if (status.minor != EAGAIN)
			return status;
		status = test_lock(export, inode, wanted, conflict);
		if (FSAL_IS_ERROR(status))
			return status;
	}
	/* Nobody holds it, and yet it was not given: the client may try again. */
	if (conflict)
		decode_conflict(&wanted->lk, conflict);
	return fsalstat(ERR_FSAL_DELAY, EAGAIN);
}

static fsal_status_t lock_op2(struct fsal_obj_handle *object, struct state_t *state, void *owner,
			      fsal_lock_op_t operation, fsal_lock_param_t *lock, fsal_lock_param_t *conflict)
{
	struct tombolo_fsal_export *export = tombolo_fsal_current_export();
	struct fuse_lk_in wanted = {
		.owner = owner_id(owner),
		.lk = { .type = lock->lock_type == FSAL_LOCK_W ? F_WRLCK : F_RDLCK },
	};

	(void)state;
	if (!encode_range(lock, &wanted.lk))
		return fsalstat(ERR_FSAL_BAD_RANGE, 0);
	switch (operation) {
	case FSAL_OP_LOCKT:
		return test_lock(export, object->fileid, &wanted, conflict);
	case FSAL_OP_LOCK:
		return take_lock(export, object->fileid, &wanted, conflict);
	case FSAL_OP_UNLOCK:
		wanted.lk.type = F_UNLCK;
		return set_lock(export, object->fileid, &wanted);
	case FSAL_OP_LOCKB:
	case FSAL_OP_CANCEL:
		/* Not asked for: lock_support_async_block is not set. */
		break;
	}
	return fsalstat(ERR_FSAL_NOTSUPP, 0);
}

void tombolo_fsal_lock_ops_init(struct fsal_obj_ops *ops)
{
	ops->lock_op2 = lock_op2;
}
