/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * One export, which is one share and one session.
 */

#ifndef TOMBOLO_FSAL_EXPORT_H
#define TOMBOLO_FSAL_EXPORT_H

#include "fsal_tombolo.h"

/* For ganesha's configuration: reads the block, opens the session, attaches the export.  ERR_FSAL_INVAL for a block
 * that does not hold; else why the session could not be opened. */
fsal_status_t tombolo_fsal_create_export(struct fsal_module *module, void *parse_node,
					 struct config_error_type *error_type, const struct fsal_up_vector *up_ops);

#endif
