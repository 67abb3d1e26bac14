/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * Objects as ganesha has them, the handles that clients keep of them, and what ganesha's cache is to forget.
 */

#ifndef TOMBOLO_FSAL_HANDLE_H
#define TOMBOLO_FSAL_HANDLE_H

#include "fsal_tombolo.h"

/* An object for ganesha, which releases it; `mode` has the type.  Does not ask the daemon. */
struct tombolo_fsal_object *tombolo_fsal_object_new(struct tombolo_fsal_export *export, uint64_t inode, uint32_t mode);
/* Tells ganesha's cache to trust nothing of this inode.  See FSAL_UP_INVALIDATE_*. */
void tombolo_fsal_invalidate(struct tombolo_fsal_export *export, uint64_t inode, uint32_t flags);
/* The same for all objects of the export. */
void tombolo_fsal_invalidate_all(struct tombolo_fsal_export *export);

#endif
