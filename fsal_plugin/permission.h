/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * Who may create, remove and rename, according to Linux's rules.  ERR_FSAL_ACCESS: mode or ACL refuse it;
 * ERR_FSAL_PERM: the directory's sticky bit does.  They ask the daemon, and fail as that does.
 */

#ifndef TOMBOLO_FSAL_PERMISSION_H
#define TOMBOLO_FSAL_PERMISSION_H

#include "fsal_tombolo.h"

enum tombolo_fsal_entry_kind { TOMBOLO_FSAL_ENTRY_FILE, TOMBOLO_FSAL_ENTRY_DIRECTORY };

fsal_status_t tombolo_fsal_may_create(struct fsal_obj_handle *directory, enum tombolo_fsal_entry_kind kind);
fsal_status_t tombolo_fsal_may_remove(struct fsal_obj_handle *directory, struct fsal_obj_handle *object);
fsal_status_t tombolo_fsal_may_rename(struct fsal_obj_handle *object, struct fsal_obj_handle *old_directory,
				      struct fsal_obj_handle *new_directory, const char *new_name);
fsal_status_t tombolo_fsal_may_access(struct fsal_obj_handle *object, fsal_accessflags_t access);

#endif
