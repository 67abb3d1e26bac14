"""An SMB client in this process: smbprotocol, version 3.1.1, without caching (it asks for no oplock and no lease).

The server resolves symbolic links by itself and knows no way to make one here.
"""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import smbclient
from smbclient import SMBDirEntry
from smbprotocol.exceptions import SMBException, SMBOSError, SMBResponseException
from smbprotocol.open import LockFlags, Open, SMB2LockElement

from harness.front_ends import Status, status_of

SHARE_ALL = "rwd"
"""Other handles may read, write and delete meanwhile, as other front ends do without asking."""
IO_BYTES_MAX = 256 << 10
STATUS_LOCK_NOT_GRANTED = 0xC0000055


class SmbError(OSError):
    """The server refused; EIO stands for what smbprotocol has no errno for."""


@contextmanager
def _raised_as_os_error(what: str) -> Iterator[None]:
    try:
        yield
    except SMBOSError as refused:
        raise SmbError(refused.errno or errno.EIO, str(refused), what) from refused
    except SMBResponseException as refused:
        raise SmbError(errno.EIO, str(refused), what) from refused
    except (SMBException, OSError, ValueError) as lost:
        # A socket that its other thread has closed shows as EBADF, or as a ValueError of the socket module.
        raise ConnectionError(f"{what}: {lost}") from lost


class SmbFrontEnd:
    """One session with one share of a server on a loopback port."""

    name = "smb"
    makes_links = False
    exact_errors = False

    def __init__(self, port: int, share: str, user: str, password: str) -> None:
        self._root = rf"\\127.0.0.1\{share}"
        self._session: dict[str, Any] = {"port": port, "connection_cache": {}}
        with _raised_as_os_error("session"):
            smbclient.register_session("127.0.0.1", user, password, connection_timeout=20, **self._session)

    def create(self, path: str) -> None:
        with self._opened(path, "xb"):
            """The open makes the file."""

    def write(self, path: str, offset: int, data: bytes) -> None:
        with self._opened(path, "r+b") as file:
            for start in range(0, len(data), IO_BYTES_MAX):
                file.write(data[start : start + IO_BYTES_MAX], offset + start)

    def sync(self, path: str) -> None:
        with self._opened(path, "r+b") as file:
            file.flush()

    def truncate(self, path: str, size: int) -> None:
        # Not smbclient.truncate: that makes the file if it is absent.
        with self._raw(path, "r+b") as file:
            file.truncate(size)

    def read(self, path: str, offset: int, length: int) -> bytes:
        parts: list[bytes] = []
        with self._opened(path, "rb") as file:
            while length > 0 and offset < file.end_of_file:
                part: bytes = file.read(offset, min(length, IO_BYTES_MAX))
                parts.append(part)
                offset, length = offset + len(part), length - len(part)
        return b"".join(parts)

    def rename(self, source: str, target: str) -> None:
        with _raised_as_os_error(f"{source} -> {target}"):
            smbclient.replace(self._full(source), self._full(target), **self._session)

    def unlink(self, path: str) -> None:
        with _raised_as_os_error(path):
            smbclient.unlink(self._full(path), **self._session)

    def mkdir(self, path: str) -> None:
        with _raised_as_os_error(path):
            smbclient.mkdir(self._full(path), **self._session)

    def rmdir(self, path: str) -> None:
        with _raised_as_os_error(path):
            smbclient.rmdir(self._full(path), **self._session)

    def link(self, existing: str, new: str) -> None:
        raise NotImplementedError

    def symlink(self, target: str, new: str) -> None:
        raise NotImplementedError

    def readlink(self, path: str) -> str:
        raise NotImplementedError

    def names(self, path: str) -> list[str]:
        with _raised_as_os_error(path):
            found: Iterator[SMBDirEntry] = smbclient.scandir(self._full(path), **self._session)
            return [entry.name for entry in found]

    def status(self, path: str) -> Status:
        with _raised_as_os_error(path):
            found = smbclient.stat(self._full(path), **self._session)
        return status_of(found.st_mode, found.st_size, found.st_nlink, found.st_ino)

    def open_to_lock(self, path: str) -> "SmbLocks":
        return SmbLocks(self, path)

    def close(self) -> None:
        with _raised_as_os_error("end of the session"):
            smbclient.reset_connection_cache(fail_on_error=False, connection_cache=self._session["connection_cache"])

    def _full(self, path: str) -> str:
        return self._root + "\\" + path.replace("/", "\\")

    @contextmanager
    def _raw(self, path: str, mode: str) -> Iterator[Any]:
        options = {"mode": mode, "buffering": 0, "share_access": SHARE_ALL}
        with _raised_as_os_error(path), smbclient.open_file(self._full(path), **options, **self._session) as file:
            yield file

    @contextmanager
    def _opened(self, path: str, mode: str) -> Iterator[Open]:
        with self._raw(path, mode) as file:
            yield file.fd


class SmbLocks:
    """An open file of an `SmbDoor`; its locks are those of one lock owner."""

    def __init__(self, front_end: SmbFrontEnd, path: str) -> None:
        self._entered = front_end._opened(path, "r+b")
        self._file = self._entered.__enter__()

    def try_lock(self, start: int, length: int, exclusive: bool = True) -> bool:
        """False when another owner holds a lock in the way."""
        kind = LockFlags.SMB2_LOCKFLAG_EXCLUSIVE_LOCK if exclusive else LockFlags.SMB2_LOCKFLAG_SHARED_LOCK
        try:
            self._send(start, length, kind | LockFlags.SMB2_LOCKFLAG_FAIL_IMMEDIATELY)
        except SMBResponseException as refused:
            if refused.status != STATUS_LOCK_NOT_GRANTED:
                raise
            return False
        return True

    def unlock(self, start: int, length: int) -> None:
        self._send(start, length, LockFlags.SMB2_LOCKFLAG_UNLOCK)

    def close(self) -> None:
        self._entered.__exit__(None, None, None)

    def _send(self, start: int, length: int, flags: int) -> None:
        element = SMB2LockElement()
        element["offset"], element["length"], element["flags"] = start, length, flags
        self._file.lock([element])
