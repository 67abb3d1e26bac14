"""An NFS client in this process: libnfs, called through ctypes.

Reaches the server by its ports, so it needs neither root nor a port mapper nor kernel support. It caches nothing
(`dircache=0`, no read-ahead): every call is a question to the server. Version 3 is what files are changed with;
Debian's libnfs cannot write over version 4, but takes its locks.
"""

import ctypes
import ctypes.util
import errno
import fcntl
import os
import time
from collections.abc import Callable
from functools import cache
from typing import Any

from harness.front_ends import Status, status_of

IO_BYTES_MAX = 256 << 10
LINK_BYTES_MAX = 4096
BUSY_LIMIT_S = 60.0
SETLK = 0
"""libnfs's own number of the operation, unlike the kernel's F_SETLK."""
SEEK_SET = 0


class _Url(ctypes.Structure):
    _fields_ = [("server", ctypes.c_char_p), ("path", ctypes.c_char_p), ("file", ctypes.c_char_p)]


class _Status(ctypes.Structure):
    """libnfs's `struct nfs_stat_64`."""

    _fields_ = [
        (name, ctypes.c_uint64)
        for name in (
            *("dev", "ino", "mode", "nlink", "uid", "gid", "rdev", "size", "blksize", "blocks"),
            *("atime", "mtime", "ctime", "atime_nsec", "mtime_nsec", "ctime_nsec", "used"),
        )
    ]


class _Entry(ctypes.Structure):
    """The leading fields of libnfs's `struct nfsdirent`."""

    _fields_ = [("next", ctypes.c_void_p), ("name", ctypes.c_char_p), ("inode", ctypes.c_uint64)]


class _Lock(ctypes.Structure):
    """libnfs's `struct nfs4_flock`."""

    _fields_ = [
        ("type", ctypes.c_int),
        ("whence", ctypes.c_int),
        ("pid", ctypes.c_uint32),
        ("start", ctypes.c_uint64),
        ("length", ctypes.c_uint64),
    ]


@cache
def _library() -> ctypes.CDLL:
    name = ctypes.util.find_library("nfs")
    if name is None:
        raise FileNotFoundError("libnfs is missing: install the package libnfs13")
    library = ctypes.CDLL(name)
    number, text, pointer, wide = ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_uint64
    status, entry = ctypes.POINTER(_Status), ctypes.POINTER(_Entry)
    out = ctypes.POINTER(ctypes.c_void_p)
    signatures: dict[str, tuple[Any, list[Any]]] = {
        "nfs_init_context": (pointer, []),
        "nfs_destroy_context": (None, [pointer]),
        "nfs_get_error": (text, [pointer]),
        "nfs_parse_url_dir": (ctypes.POINTER(_Url), [pointer, text]),
        "nfs_destroy_url": (None, [ctypes.POINTER(_Url)]),
        "nfs_set_uid": (None, [pointer, number]),
        "nfs_set_gid": (None, [pointer, number]),
        "nfs_mount": (number, [pointer, text, text]),
        "nfs_open": (number, [pointer, text, number, out]),
        "nfs_create": (number, [pointer, text, number, number, out]),
        "nfs_close": (number, [pointer, pointer]),
        "nfs_pread": (number, [pointer, pointer, wide, wide, text]),
        "nfs_pwrite": (number, [pointer, pointer, wide, wide, text]),
        "nfs_fsync": (number, [pointer, pointer]),
        "nfs_truncate": (number, [pointer, text, wide]),
        "nfs_lstat64": (number, [pointer, text, status]),
        "nfs_mkdir2": (number, [pointer, text, number]),
        "nfs_mknod": (number, [pointer, text, number, number]),
        "nfs_rmdir": (number, [pointer, text]),
        "nfs_unlink": (number, [pointer, text]),
        "nfs_rename": (number, [pointer, text, text]),
        "nfs_link": (number, [pointer, text, text]),
        "nfs_symlink": (number, [pointer, text, text]),
        "nfs_readlink": (number, [pointer, text, text, number]),
        "nfs_opendir": (number, [pointer, text, out]),
        "nfs_readdir": (entry, [pointer, pointer]),
        "nfs_closedir": (None, [pointer, pointer]),
        "nfs_chmod": (number, [pointer, text, number]),
        "nfs_chown": (number, [pointer, text, number, number]),
        "nfs_fcntl": (number, [pointer, pointer, number, pointer]),
    }
    for symbol, (result, arguments) in signatures.items():
        function = getattr(library, symbol)
        function.restype, function.argtypes = result, arguments
    return library


class NfsError(OSError):
    """The server answered with an error, here as an errno, or the connection failed."""


class NfsFrontEnd:
    """One mounted export. Waits out a server that says "try again later", as the kernel's client does."""

    makes_links = True
    exact_errors = False
    """Ganesha checks some things itself, and version 3 has no error for others."""

    def __init__(
        self,
        port: int,
        mount_port: int,
        export: str,
        version: int = 3,
        reconnects: int = -1,
        uid: int = 0,
        gid: int = 0,
    ) -> None:
        self.name = f"nfs{version}"
        self._library = _library()
        self._context = self._library.nfs_init_context()
        query = f"version={version}&nfsport={port}&mountport={mount_port}&dircache=0&autoreconnect={reconnects}"
        url = self._library.nfs_parse_url_dir(self._context, f"nfs://127.0.0.1{export}?{query}".encode())
        if not url:
            raise self._failure(errno.EINVAL, "URL")
        self._library.nfs_set_uid(self._context, uid)
        self._library.nfs_set_gid(self._context, gid)
        code = self._library.nfs_mount(self._context, url.contents.server, url.contents.path)
        self._library.nfs_destroy_url(url)
        if code < 0:
            failure = self._failure(-code, f"mount of {export}")
            self.close()
            raise failure

    def create(self, path: str, mode: int = 0o666) -> None:
        self._close(self._handle("nfs_create", path, os.O_CREAT | os.O_EXCL, mode))

    def write(self, path: str, offset: int, data: bytes) -> None:
        handle = self._handle("nfs_open", path, os.O_WRONLY)
        try:
            for start in range(0, len(data), IO_BYTES_MAX):
                part = data[start : start + IO_BYTES_MAX]
                written = self._call("nfs_pwrite", path, handle, offset + start, len(part), part)
                if written != len(part):
                    raise NfsError(errno.EIO, f"{written} of {len(part)} bytes written", path)
        finally:
            self._close(handle)

    def open_to_write(self, path: str) -> Callable[[int, bytes], None]:
        """Opens a file for as long as this lives: what writes through that handle, whatever the name leads to."""
        handle = self._handle("nfs_open", path, os.O_WRONLY)

        def write(offset: int, data: bytes) -> None:
            self._call("nfs_pwrite", path, handle, offset, len(data), data)

        return write

    def sync(self, path: str) -> None:
        handle = self._handle("nfs_open", path, os.O_WRONLY)
        try:
            self._call("nfs_fsync", path, handle)
        finally:
            self._close(handle)

    def truncate(self, path: str, size: int) -> None:
        self._call("nfs_truncate", path, self._full(path), size)

    def read(self, path: str, offset: int, length: int) -> bytes:
        handle = self._handle("nfs_open", path, os.O_RDONLY)
        buffer, parts = ctypes.create_string_buffer(min(length, IO_BYTES_MAX)), []
        try:
            while length > 0:
                count = self._call("nfs_pread", path, handle, offset, min(length, IO_BYTES_MAX), buffer)
                if count == 0:
                    break
                parts.append(buffer.raw[:count])
                offset, length = offset + count, length - count
        finally:
            self._close(handle)
        return b"".join(parts)

    def rename(self, source: str, target: str) -> None:
        self._call("nfs_rename", f"{source} -> {target}", self._full(source), self._full(target))

    def unlink(self, path: str) -> None:
        self._call("nfs_unlink", path, self._full(path))

    def mkdir(self, path: str, mode: int = 0o777) -> None:
        self._call("nfs_mkdir2", path, self._full(path), mode)

    def rmdir(self, path: str) -> None:
        self._call("nfs_rmdir", path, self._full(path))

    def link(self, existing: str, new: str) -> None:
        self._call("nfs_link", f"{existing} -> {new}", self._full(existing), self._full(new))

    def symlink(self, target: str, new: str) -> None:
        self._call("nfs_symlink", new, target.encode(), self._full(new))

    def readlink(self, path: str) -> str:
        buffer = ctypes.create_string_buffer(LINK_BYTES_MAX)
        self._call("nfs_readlink", path, self._full(path), buffer, LINK_BYTES_MAX)
        return buffer.value.decode()

    def mknod(self, path: str, mode: int, device: int = 0) -> None:
        self._call("nfs_mknod", path, self._full(path), mode, device)

    def chmod(self, path: str, mode: int) -> None:
        self._call("nfs_chmod", path, self._full(path), mode)

    def chown(self, path: str, uid: int, gid: int) -> None:
        self._call("nfs_chown", path, self._full(path), uid, gid)

    def names(self, path: str) -> list[str]:
        directory = self._handle("nfs_opendir", path)
        try:
            found = []
            while entry := self._library.nfs_readdir(self._context, directory):
                found.append(entry.contents.name.decode())
            return [name for name in found if name not in (".", "..")]
        finally:
            self._library.nfs_closedir(self._context, directory)

    def status(self, path: str) -> Status:
        found = _Status()
        self._call("nfs_lstat64", path, self._full(path), ctypes.byref(found))
        return status_of(found.mode, found.size, found.nlink, found.ino)

    def try_lock_once(self, path: str, start: int, length: int, exclusive: bool) -> Callable[[], None] | None:
        """Opens a file of version 4 and locks a range of it: what unlocks it, or None when another holds a lock there.

        libnfs 4.0 loses count of its state after that, so a front end is good for one lock: see `harness.nfs_locker`.
        """
        handle = self._handle("nfs_open", path, os.O_RDWR)

        def set_lock(kind: int) -> bool:
            lock = _Lock(kind, SEEK_SET, os.getpid(), start, length)
            if self._library.nfs_fcntl(self._context, handle, SETLK, ctypes.byref(lock)) >= 0:
                return True
            failure = self._failure(errno.EIO, path)
            if "NFS4ERR_DENIED" in str(failure):
                return False
            raise failure

        if not set_lock(fcntl.F_WRLCK if exclusive else fcntl.F_RDLCK):
            return None

        def unlock() -> None:
            set_lock(fcntl.F_UNLCK)

        return unlock

    def close(self) -> None:
        if self._context is not None:
            self._library.nfs_destroy_context(self._context)
            self._context = None

    @staticmethod
    def _full(path: str) -> bytes:
        return b"/" + path.encode()

    def _failure(self, code: int, what: str) -> NfsError:
        said = (self._library.nfs_get_error(self._context) or b"").decode(errors="replace")
        return NfsError(code, said, what)

    def _close(self, handle: ctypes.c_void_p) -> None:
        self._library.nfs_close(self._context, handle)

    def _handle(self, symbol: str, path: str, *arguments: int) -> ctypes.c_void_p:
        handle = ctypes.c_void_p()
        self._call(symbol, path, self._full(path), *arguments, ctypes.byref(handle))
        return handle

    @staticmethod
    def _is_busy(failure: NfsError) -> bool:
        return failure.errno in (errno.EAGAIN, errno.ETIMEDOUT) or "JUKEBOX" in str(failure)

    def _call(self, symbol: str, what: str, *arguments: object) -> int:
        function: Callable[..., int] = getattr(self._library, symbol)
        deadline = time.monotonic() + BUSY_LIMIT_S
        while True:
            code = function(self._context, *arguments)
            if code >= 0:
                return code
            failure = self._failure(-code, what)
            if not self._is_busy(failure) or time.monotonic() > deadline:
                raise failure
            time.sleep(0.05)
