/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * Creation, with the attributes that were asked for.
 */

#ifndef TOMBOLO_FSAL_CREATE_H
#define TOMBOLO_FSAL_CREATE_H

#include "fsal_tombolo.h"

/* Sets what creation could not, which is `left`, and builds the object.  On failure the name is removed again. */
fsal_status_t tombolo_fsal_finish_creation(struct tombolo_fsal_export *export, uint64_t directory, const char *name,
					   struct fuse_entry_out *entry, struct fsal_attrlist *wanted, attrmask_t left,
					   struct fsal_obj_handle **new_object, struct fsal_attrlist *attributes_out);
/* What is left when creation brought the mode alone. */
attrmask_t tombolo_fsal_attributes_left(const struct fsal_attrlist *wanted);

#endif
