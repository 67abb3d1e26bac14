/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * One name of a directory, as the daemon knows it.  Directories are given by their inode; names are terminated.
 */

#ifndef TOMBOLO_FSAL_ENTRY_H
#define TOMBOLO_FSAL_ENTRY_H

#include "fsal_tombolo.h"

/* ERR_FSAL_NOENT: there is no such name. */
fsal_status_t tombolo_fsal_lookup_entry(struct tombolo_fsal_export *export, uint64_t directory, const char *name,
					struct fuse_entry_out *entry);
/* An answer that names an object, checked.  ERR_FSAL_NOENT: it names none. */
fsal_status_t tombolo_fsal_entry_check(uint32_t opcode, const struct fuse_entry_out *entry);
/* Makes a call that is answered with an object, and checks it. */
fsal_status_t tombolo_fsal_call_for_entry(struct tombolo_fsal_export *export, struct tombolo_fsal_request *request,
					  struct fuse_entry_out *entry);
/* UNLINK, or RMDIR of a directory. */
fsal_status_t tombolo_fsal_remove_entry(struct tombolo_fsal_export *export, uint64_t directory, const char *name,
					bool is_directory);

#endif
