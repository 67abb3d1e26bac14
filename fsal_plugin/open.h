/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * The states of open files: memory for ganesha to keep.
 */

#ifndef TOMBOLO_FSAL_OPEN_H
#define TOMBOLO_FSAL_OPEN_H

#include "fsal_tombolo.h"

struct state_t *tombolo_fsal_alloc_state(struct fsal_export *export, enum state_type type, struct state_t *related);
void tombolo_fsal_free_state(struct fsal_export *export, struct state_t *state);

#endif
