/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * What the daemon answers, as ganesha's errors.  A status has ganesha's error in `major` and the daemon's errno in
 * `minor`.  It begins as a failure, and is success only where an answer said so.
 */

#ifndef TOMBOLO_FSAL_ERRORS_H
#define TOMBOLO_FSAL_ERRORS_H

#include "fsal_tombolo.h"

static inline fsal_status_t tombolo_fsal_success(void)
{
	return fsalstat(ERR_FSAL_NO_ERROR, 0);
}

/* The daemon's errno, positive, as a status; 0 is success.  One that the service cannot answer is
 * ERR_FSAL_SERVERFAULT, and logged. */
fsal_status_t tombolo_fsal_status(int error);
/* ERR_FSAL_SERVERFAULT with EPROTO, for an answer that is too short or contradicts itself; logged. */
fsal_status_t tombolo_fsal_bad_answer(uint32_t opcode);

#endif
