/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * What the daemon answers, as ganesha's errors.  Every errno that the service can
 * answer has its row; one that it cannot is a fault of the daemon and is logged.
 */

#include "fsal_tombolo.h"
#include "errors.h"

static fsal_errors_t error_of(int error)
{
	switch (error) {
	case EPERM:
		return ERR_FSAL_PERM;
	case ENOENT:
		return ERR_FSAL_NOENT;
	case EIO:
		return ERR_FSAL_IO;
	case ENXIO:
		/* Of SEEK: there is no such region up to the end of the file. */
		return ERR_FSAL_NXIO;
	case E2BIG:
		return ERR_FSAL_XATTR2BIG;
	/* Busy: room has to be made first.  Nor is the client told of a restart of ganesha. */
	case EAGAIN:
	case ESHUTDOWN:
	case EINTR:
		return ERR_FSAL_DELAY;
	case ENOMEM:
		return ERR_FSAL_NOMEM;
	case EACCES:
		return ERR_FSAL_ACCESS;
	case EBUSY:
		return ERR_FSAL_FILE_OPEN;
	case EEXIST:
		return ERR_FSAL_EXIST;
	case EXDEV:
		return ERR_FSAL_XDEV;
	case ENOTDIR:
		return ERR_FSAL_NOTDIR;
	case EISDIR:
		return ERR_FSAL_ISDIR;
	case EINVAL:
		return ERR_FSAL_INVAL;
	case EFBIG:
		return ERR_FSAL_FBIG;
	case ENOSPC:
		return ERR_FSAL_NOSPC;
	case EROFS:
		return ERR_FSAL_ROFS;
	case EMLINK:
		return ERR_FSAL_MLINK;
	case ERANGE:
		/* Of an extended attribute: the buffer was too small for it. */
		return ERR_FSAL_XATTR2BIG;
	case EDEADLK:
		return ERR_FSAL_DEADLOCK;
	case ENAMETOOLONG:
		return ERR_FSAL_NAMETOOLONG;
	case ENOLCK:
		return ERR_FSAL_DELAY;
	case ENOTEMPTY:
		return ERR_FSAL_NOTEMPTY;
	case ELOOP:
		return ERR_FSAL_SYMLINK;
	case ENODATA:
		return ERR_FSAL_NOXATTR;
	case EOVERFLOW:
		return ERR_FSAL_OVERFLOW;
	case ENOSYS:
	case EOPNOTSUPP:
		return ERR_FSAL_NOTSUPP;
	case ESTALE:
		return ERR_FSAL_STALE;
	case EDQUOT:
		return ERR_FSAL_DQUOT;
	}
	LogCrit(COMPONENT_FSAL, "the file service answered with the unexpected error %d", error);
	return ERR_FSAL_SERVERFAULT;
}

fsal_status_t tombolo_fsal_status(int error)
{
	return error == 0 ? tombolo_fsal_success() : fsalstat(error_of(error), error);
}

fsal_status_t tombolo_fsal_bad_answer(uint32_t opcode)
{
	LogCrit(COMPONENT_FSAL, "the file service's answer to request %" PRIu32 " is not valid", opcode);
	return fsalstat(ERR_FSAL_SERVERFAULT, EPROTO);
}
