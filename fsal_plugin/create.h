/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * Creation, with the attributes that were asked for.
 */

#ifndef TOMBOLO_FSAL_CREATE_H
#define TOMBOLO_FSAL_CREATE_H

#include "fsal_tombolo.h"

/* One creation, from its request to the object. */
struct tombolo_fsal_creation {
	struct tombolo_fsal_export *export;
	uint64_t directory;	/* its inode */
	const char *name;
	struct fsal_attrlist *wanted;	/* what is in its valid mask is to be set */
	attrmask_t left;	/* of `wanted`: what the request did not bring along */
	struct fuse_entry_out entry;	/* the daemon's answer; checked */
};

/* Creates a regular file or fails, with ERR_FSAL_EXIST if the name is taken; fills in `left` and `entry`.  `is_opened`:
 * the daemon counts it as open once.
 *
 * Its attributes come with it, the verifier of an exclusive creation above all: should this server die before it has
 * answered, the client's next attempt finds its own file. */
fsal_status_t tombolo_fsal_create_file(struct tombolo_fsal_creation *creation, bool is_opened);
/* Sets what is left, and builds the object.  On failure the name is removed again. */
fsal_status_t tombolo_fsal_finish_creation(struct tombolo_fsal_creation *creation, struct fsal_obj_handle **new_object,
					   struct fsal_attrlist *attributes_out);

#endif
