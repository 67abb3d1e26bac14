/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The one place where an error of the NBD server becomes a SCSI status and sense.
 * The table in README.md says the same.  ENOTCONN and ESHUTDOWN do not come here:
 * the command is kept and issued again.
 */

#include <errno.h>

#include "tgt_plugin.h"

struct tombolo_tgt_outcome tombolo_tgt_outcome_of(int error, bool writing)
{
	const struct tombolo_tgt_outcome busy = { SAM_STAT_BUSY, 0, 0 };
	struct tombolo_tgt_outcome outcome = { SAM_STAT_CHECK_CONDITION, HARDWARE_ERROR, ASC_INTERNAL_TGT_FAILURE };

	switch (error) {
	case ENOMEM:
		/* The backlog has reached its cap, or memory is short: later it will do. */
		return busy;
	case ENOSPC:
		outcome.key = DATA_PROTECT;
		outcome.asc = TOMBOLO_TGT_ASC_SPACE_ALLOCATION_FAILED;
		break;
	case EPERM:
	case EROFS:
		outcome.key = DATA_PROTECT;
		outcome.asc = ASC_WRITE_PROTECT;
		break;
	case EIO:
		outcome.key = MEDIUM_ERROR;
		outcome.asc = writing ? ASC_WRITE_ERROR : ASC_UNRECOVERED_READ;
		break;
	case ERANGE:
		/* Ours, not the server's: the export shrank after tgtd had checked the range. */
		outcome.key = ILLEGAL_REQUEST;
		outcome.asc = ASC_LBA_OUT_OF_RANGE;
		break;
	case EINVAL:
	case EOVERFLOW:
		outcome.key = ILLEGAL_REQUEST;
		outcome.asc = ASC_INVALID_FIELD_IN_CDB;
		break;
	case ENOTSUP:
		outcome.key = ILLEGAL_REQUEST;
		outcome.asc = ASC_INVALID_OP_CODE;
		break;
	default:
		break;
	}
	return outcome;
}
