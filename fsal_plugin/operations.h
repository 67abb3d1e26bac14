/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * What ganesha calls: each file that implements operations enters them into ganesha's tables, which have defaults for
 * the rest.
 */

#ifndef TOMBOLO_FSAL_OPERATIONS_H
#define TOMBOLO_FSAL_OPERATIONS_H

#include "fsal_tombolo.h"

/* Of objects. */
void tombolo_fsal_handle_ops_init(struct fsal_obj_ops *ops);
void tombolo_fsal_attributes_ops_init(struct fsal_obj_ops *ops);
void tombolo_fsal_directory_ops_init(struct fsal_obj_ops *ops);
void tombolo_fsal_create_ops_init(struct fsal_obj_ops *ops);
void tombolo_fsal_open_ops_init(struct fsal_obj_ops *ops);
void tombolo_fsal_file_ops_init(struct fsal_obj_ops *ops);
void tombolo_fsal_lock_ops_init(struct fsal_obj_ops *ops);
void tombolo_fsal_xattr_ops_init(struct fsal_obj_ops *ops);

/* Of exports: from handles to objects. */
void tombolo_fsal_handle_export_ops_init(struct export_ops *ops);

#endif
