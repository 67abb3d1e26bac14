/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * Share reservations, as every FSAL of this version has to keep them: what an opening
 * denies to others, and whether somebody else's stands in the way.
 *
 * Owns object->share, under object->obj_lock, which is taken and released here; only when
 * two objects of one file meet, handle.c adds them up.  Reservations hold among the clients
 * of one ganesha; the daemon does not know of them.
 */

#include "fsal_tombolo.h"
#include "errors.h"
#include "reservations.h"

bool tombolo_fsal_holds_reservation(const struct state_t *state)
{
	return state->state_type == STATE_TYPE_SHARE || state->state_type == STATE_TYPE_NLM_SHARE ||
	       state->state_type == STATE_TYPE_9P_FID;
}

fsal_status_t tombolo_fsal_share_check(struct fsal_obj_handle *object, struct state_t *state,
				       fsal_openflags_t openflags, bool bypass)
{
	fsal_status_t status;

	/* Ganesha has compared the access with the state's; a lock's state is backed by an open one. */
	if (state && (tombolo_fsal_holds_reservation(state) || state->state_type == STATE_TYPE_LOCK))
		return tombolo_fsal_success();
	PTHREAD_RWLOCK_rdlock(&object->obj_lock);
	status = check_share_conflict(&tombolo_fsal_object_of(object)->share, openflags, bypass);
	PTHREAD_RWLOCK_unlock(&object->obj_lock);
	return status;
}

void tombolo_fsal_reserve(struct fsal_obj_handle *object, fsal_openflags_t from, fsal_openflags_t to)
{
	PTHREAD_RWLOCK_wrlock(&object->obj_lock);
	update_share_counters(&tombolo_fsal_object_of(object)->share, from, to);
	PTHREAD_RWLOCK_unlock(&object->obj_lock);
}

fsal_status_t tombolo_fsal_try_reserve(struct fsal_obj_handle *object, fsal_openflags_t from, fsal_openflags_t to)
{
	struct fsal_share *share = &tombolo_fsal_object_of(object)->share;
	fsal_status_t status;

	PTHREAD_RWLOCK_wrlock(&object->obj_lock);
	status = check_share_conflict(share, to, false);
	if (FSAL_IS_SUCCESS(status))
		update_share_counters(share, from, to);
	PTHREAD_RWLOCK_unlock(&object->obj_lock);
	return status;
}
