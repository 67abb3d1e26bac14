/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * Attributes: the service's for ganesha, and ganesha's for the service.
 */

#ifndef TOMBOLO_FSAL_ATTRIBUTES_H
#define TOMBOLO_FSAL_ATTRIBUTES_H

#include "fsal_tombolo.h"

/* Whether the daemon describes an object that can be; else it is not to be believed. */
bool tombolo_fsal_attributes_valid(const struct fuse_attr *attributes);
/* Converts all but an ACL that would have to be fetched. */
void tombolo_fsal_attributes_fill(const struct tombolo_fsal_export *export, const struct fuse_attr *attributes,
				  struct fsal_attrlist *list);
/* Fills what the operation under way asked for, the ACL as well, which may have to be fetched.  With no `list` nothing
 * happens. */
fsal_status_t tombolo_fsal_attributes_give(struct tombolo_fsal_export *export, uint64_t inode,
					   const struct fuse_attr *attributes, struct fsal_attrlist *list);
/* Asks the daemon.  ERR_FSAL_NOENT: there is no such inode any more. */
fsal_status_t tombolo_fsal_fetch_attributes(struct tombolo_fsal_export *export, uint64_t inode,
					    struct fuse_attr *attributes);
/* Encodes what is in the list's valid mask, but for an ACL.  ERR_FSAL_ATTRNOTSUPP: the service cannot set one of them;
 * ERR_FSAL_INVAL: it cannot be set to that, or not for this type. */
fsal_status_t tombolo_fsal_attributes_encode(const struct fsal_attrlist *list, object_file_type_t type,
					     struct fuse_setattr_in *change);
/* Sets what is in the list's valid mask; fails as encoding does, too.  Afterwards `attributes` are the object's. */
fsal_status_t tombolo_fsal_set_attributes(struct tombolo_fsal_export *export, uint64_t inode, object_file_type_t type,
					  struct fsal_attrlist *list, struct fuse_attr *attributes);

#endif
