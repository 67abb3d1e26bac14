/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * Share reservations among the clients of one ganesha: what openings deny to others.
 */

#ifndef TOMBOLO_FSAL_RESERVATIONS_H
#define TOMBOLO_FSAL_RESERVATIONS_H

#include "fsal_tombolo.h"

/* Whether a state of this kind denies anything to others. */
bool tombolo_fsal_holds_reservation(const struct state_t *state);
/* Whether share reservations let the holder of `state`, or anybody if NULL, do this; ERR_FSAL_SHARE_DENIED.  `bypass`:
 * of denied accesses only mandatory denials of writing count. */
fsal_status_t tombolo_fsal_share_check(struct fsal_obj_handle *object, struct state_t *state,
				       fsal_openflags_t openflags, bool bypass);
/* Replaces the reservation `from` by `to`, whatever others deny. */
void tombolo_fsal_reserve(struct fsal_obj_handle *object, fsal_openflags_t from, fsal_openflags_t to);
/* The same, if nobody denies it; else ERR_FSAL_SHARE_DENIED, and `from` stays. */
fsal_status_t tombolo_fsal_try_reserve(struct fsal_obj_handle *object, fsal_openflags_t from, fsal_openflags_t to);

#endif
