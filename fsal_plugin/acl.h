/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * POSIX ACLs of the service as ACLs of ganesha, and back.
 */

#ifndef TOMBOLO_FSAL_ACL_H
#define TOMBOLO_FSAL_ACL_H

#include "fsal_tombolo.h"

/* Whether it is known that the mode says it all. */
bool tombolo_fsal_acl_is_mode(const struct tombolo_fsal_export *export, const struct fuse_attr *attributes);
/* Fills list->acl with what the mode amounts to, whether asked for or not. */
void tombolo_fsal_acl_give_mode(const struct fuse_attr *attributes, struct fsal_attrlist *list);
/* Fetches the ACL and fills list->acl. */
fsal_status_t tombolo_fsal_acl_get(struct tombolo_fsal_export *export, uint64_t inode,
				   const struct fuse_attr *attributes, struct fsal_attrlist *list);
/* Keeps what POSIX can express.  ERR_FSAL_INVAL: nothing, or no ACL that holds. */
fsal_status_t tombolo_fsal_acl_set(struct tombolo_fsal_export *export, uint64_t inode, bool is_directory,
				   fsal_acl_t *acl);

#endif
