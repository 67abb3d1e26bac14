/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * Which files are open, for the daemon to know: it is told of the first opening and of the last closing of each inode.
 */

#ifndef TOMBOLO_FSAL_OPENS_H
#define TOMBOLO_FSAL_OPENS_H

#include "fsal_tombolo.h"

struct tombolo_fsal_opens *tombolo_fsal_opens_new(void);
/* Forgets all; the daemon is not told. */
void tombolo_fsal_opens_free(struct tombolo_fsal_opens *opens);
/* Counts one more.  Fails, and counts nothing, if it is the first and the daemon refuses it. */
fsal_status_t tombolo_fsal_opens_add(struct tombolo_fsal_export *export, uint64_t inode);
/* Counts one that the daemon counted by itself, on creation. */
void tombolo_fsal_opens_add_created(struct tombolo_fsal_export *export, uint64_t inode);
/* One less.  That the daemon could not be told is logged. */
void tombolo_fsal_opens_remove(struct tombolo_fsal_export *export, uint64_t inode);
/* Tells a daemon that has started anew. */
void tombolo_fsal_opens_repeat(struct tombolo_fsal_export *export);

#endif
