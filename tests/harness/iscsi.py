"""A small iSCSI initiator over the system's libiscsi, with SCSI status made visible."""

import ctypes
import ctypes.util
from functools import cache
from typing import Any

SECTOR_BYTES = 512
SESSION_NORMAL = 2
HEADER_DIGEST_NONE_CRC32C = 1


class _Sense(ctypes.Structure):
    """libiscsi's `struct scsi_sense`; the compiler keeps its three one-bit fields in one byte."""

    _fields_ = [
        ("error_type", ctypes.c_ubyte),
        ("key", ctypes.c_int),
        ("ascq", ctypes.c_int),
        ("bits", ctypes.c_ubyte),
        ("bit_pointer", ctypes.c_ubyte),
        ("field_pointer", ctypes.c_uint16),
    ]


class _Data(ctypes.Structure):
    _fields_ = [("size", ctypes.c_int), ("data", ctypes.POINTER(ctypes.c_ubyte))]


class _Task(ctypes.Structure):
    """The leading fields of libiscsi's `struct scsi_task`, up to the data that came in."""

    _fields_ = [
        ("status", ctypes.c_int),
        ("cdb_size", ctypes.c_int),
        ("xfer_dir", ctypes.c_int),
        ("expxferlen", ctypes.c_int),
        ("cdb", ctypes.c_ubyte * 16),
        ("residual_status", ctypes.c_int),
        ("residual", ctypes.c_size_t),
        ("sense", _Sense),
        ("datain", _Data),
    ]


class ScsiError(OSError):
    """A command ended with a status other than GOOD."""

    def __init__(self, status: int, sense_key: int, ascq: int) -> None:
        super().__init__(f"SCSI status {status:#x}, sense key {sense_key:#x}, ASC/ASCQ {ascq:#06x}")
        self.status = status
        self.sense_key = sense_key
        self.ascq = ascq


class LoginFailed(ConnectionError):
    """The target refused the login or could not be reached."""


@cache
def _library() -> ctypes.CDLL:
    name = ctypes.util.find_library("iscsi")
    if name is None:
        raise FileNotFoundError("libiscsi is missing: install the package libiscsi7")
    library = ctypes.CDLL(name)
    task = ctypes.POINTER(_Task)
    context, number, text = ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p
    signatures: dict[str, tuple[Any, list[Any]]] = {
        "iscsi_create_context": (context, [text]),
        "iscsi_destroy_context": (number, [context]),
        "iscsi_set_targetname": (number, [context, text]),
        "iscsi_set_session_type": (number, [context, number]),
        "iscsi_set_timeout": (number, [context, number]),
        "iscsi_set_noautoreconnect": (None, [context, number]),
        "iscsi_set_initiator_username_pwd": (number, [context, text, text]),
        "iscsi_full_connect_sync": (number, [context, text, number]),
        "iscsi_logout_sync": (number, [context]),
        "iscsi_get_error": (text, [context]),
        "iscsi_read16_sync": (task, [context, number, ctypes.c_uint64, ctypes.c_uint32] + [number] * 6),
        "iscsi_write16_sync": (task, [context, number, ctypes.c_uint64, text, ctypes.c_uint32] + [number] * 6),
        "iscsi_synchronizecache16_sync": (task, [context, number, ctypes.c_uint64, ctypes.c_uint32, number, number]),
        "iscsi_readcapacity16_sync": (task, [context, number]),
        "iscsi_testunitready_sync": (task, [context, number]),
        "scsi_free_scsi_task": (None, [task]),
    }
    for symbol, (result, arguments) in signatures.items():
        function = getattr(library, symbol)
        function.restype, function.argtypes = result, arguments
    return library


# Sense keys.
MEDIUM_ERROR, UNIT_ATTENTION = 0x3, 0x6


class IscsiDisk:
    """One session with one LUN; a `Disk` of `harness.verifier`."""

    def __init__(
        self,
        portal: str,
        target: str,
        lun: int,
        limit_s: int = 60,
        credentials: tuple[str, str] | None = None,
        initiator: str = "iqn.2026-01.test.tombolo:initiator",
    ) -> None:
        self._library = _library()
        self._lun = lun
        self._context = self._library.iscsi_create_context(initiator.encode())
        self._library.iscsi_set_targetname(self._context, target.encode())
        self._library.iscsi_set_session_type(self._context, SESSION_NORMAL)
        self._library.iscsi_set_timeout(self._context, limit_s)
        # A lost session must show as an error, not as a silent second login.
        self._library.iscsi_set_noautoreconnect(self._context, 1)
        if credentials is not None:
            user, password = credentials
            self._library.iscsi_set_initiator_username_pwd(self._context, user.encode(), password.encode())
        if self._library.iscsi_full_connect_sync(self._context, portal.encode(), lun) != 0:
            reason = self._library.iscsi_get_error(self._context).decode(errors="replace")
            self._library.iscsi_destroy_context(self._context)
            raise LoginFailed(f"{portal} {target} LUN {lun}: {reason}")
        self.size = self.capacity()

    def capacity(self) -> int:
        """READ CAPACITY(16), in bytes. A pending unit attention is taken first."""
        self._run(self._library.iscsi_testunitready_sync(self._context, self._lun), may_fail=True)
        reply = self._run(self._library.iscsi_readcapacity16_sync(self._context, self._lun))
        last_sector = int.from_bytes(reply[:8], "big")
        return (last_sector + 1) * int.from_bytes(reply[8:12], "big")

    def read(self, offset: int, length: int) -> bytes:
        sector, flags = offset // SECTOR_BYTES, [0] * 5
        task = self._library.iscsi_read16_sync(self._context, self._lun, sector, length, SECTOR_BYTES, *flags)
        return self._run(task)

    def write(self, offset: int, data: bytes, fua: bool = False) -> None:
        sector, flags = offset // SECTOR_BYTES, [0, 0, int(fua), 0, 0]
        task = self._library.iscsi_write16_sync(self._context, self._lun, sector, data, len(data), SECTOR_BYTES, *flags)
        self._run(task)

    def flush(self) -> None:
        self._run(self._library.iscsi_synchronizecache16_sync(self._context, self._lun, 0, 0, 0, 0))

    def close(self) -> None:
        if self._context is not None:
            self._library.iscsi_logout_sync(self._context)
            self._library.iscsi_destroy_context(self._context)
            self._context = None

    def _run(self, task: "ctypes._Pointer[_Task] | None", may_fail: bool = False) -> bytes:
        """The data of a finished task; raises unless its status is GOOD."""
        if not task:
            raise ConnectionError(self._library.iscsi_get_error(self._context).decode(errors="replace"))
        result = task.contents
        try:
            if result.status != 0 and not may_fail:
                raise ScsiError(result.status, result.sense.key, result.sense.ascq)
            return ctypes.string_at(result.datain.data, result.datain.size) if result.datain.size > 0 else b""
        finally:
            self._library.scsi_free_scsi_task(task)
