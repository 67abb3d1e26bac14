# SPDX-License-Identifier: LGPL-3.0-or-later
"""NFSv3 through libnfs, called by its C interface. Errors are OSErrors."""

import ctypes
import os
from dataclasses import dataclass


class _Stat(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_uint64)
        for name in (
            "dev", "ino", "mode", "nlink", "uid", "gid", "rdev", "size", "blksize", "blocks",
            "atime", "mtime", "ctime", "atime_nsec", "mtime_nsec", "ctime_nsec", "used",
        )
    ]  # fmt: skip


@dataclass
class Stat:
    ino: int
    mode: int
    nlink: int
    uid: int
    gid: int
    size: int
    mtime: int


def _library() -> ctypes.CDLL:
    library = ctypes.CDLL("libnfs.so.13")
    library.nfs_init_context.restype = ctypes.c_void_p
    library.nfs_get_error.restype = ctypes.c_char_p
    return library


class Client:
    """One mount, on the thread that made it."""

    def __init__(self, *, path: str = "/test", uid: int = 0, gid: int = 0) -> None:
        self.library = _library()
        self.context = ctypes.c_void_p(self.library.nfs_init_context())
        self.library.nfs_set_version(self.context, 3)
        self.library.nfs_set_uid(self.context, uid)
        self.library.nfs_set_gid(self.context, gid)
        self._check(self.library.nfs_mount(self.context, b"127.0.0.1", path.encode()))

    def close(self) -> None:
        self.library.nfs_destroy_context(self.context)

    def _check(self, result: int) -> int:
        if result < 0:
            text = (self.library.nfs_get_error(self.context) or b"").decode(errors="replace")
            raise OSError(-result, f"{os.strerror(-result)} ({text})")
        return result

    def _on_path(self, function: str, path: str, *arguments: object) -> None:
        self._check(getattr(self.library, function)(self.context, path.encode(), *arguments))

    def mkdir(self, path: str) -> None:
        self._on_path("nfs_mkdir", path)

    def rmdir(self, path: str) -> None:
        self._on_path("nfs_rmdir", path)

    def unlink(self, path: str) -> None:
        self._on_path("nfs_unlink", path)

    def rename(self, old: str, new: str) -> None:
        self._on_path("nfs_rename", old, new.encode())

    def link(self, old: str, new: str) -> None:
        self._on_path("nfs_link", old, new.encode())

    def symlink(self, target: str, path: str) -> None:
        self._on_path("nfs_symlink", target, path.encode())

    def mknod(self, path: str, mode: int, device: int) -> None:
        self._on_path("nfs_mknod", path, ctypes.c_int(mode), ctypes.c_int(device))

    def readlink(self, path: str) -> str:
        buffer = ctypes.create_string_buffer(4097)
        self._on_path("nfs_readlink", path, buffer, ctypes.c_int(len(buffer)))
        return buffer.value.decode()

    def chmod(self, path: str, mode: int) -> None:
        self._on_path("nfs_chmod", path, ctypes.c_int(mode))

    def chown(self, path: str, uid: int, gid: int) -> None:
        self._on_path("nfs_chown", path, ctypes.c_int(uid), ctypes.c_int(gid))

    def truncate(self, path: str, size: int) -> None:
        self._on_path("nfs_truncate", path, ctypes.c_uint64(size))

    def stat(self, path: str) -> Stat:
        found = _Stat()
        self._on_path("nfs_lstat64", path, ctypes.byref(found))
        return Stat(found.ino, found.mode, found.nlink, found.uid, found.gid, found.size, found.mtime)

    def write(self, path: str, data: bytes, mode: int = 0o644) -> None:
        """Creates a file that must not be there."""
        handle = ctypes.c_void_p()
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        self._on_path("nfs_open2", path, ctypes.c_int(flags), ctypes.c_int(mode), ctypes.byref(handle))
        self._fill(handle, 0, data)

    def overwrite(self, path: str, offset: int, data: bytes) -> None:
        handle = ctypes.c_void_p()
        self._on_path("nfs_open", path, ctypes.c_int(os.O_WRONLY), ctypes.byref(handle))
        self._fill(handle, offset, data)

    def _fill(self, handle: ctypes.c_void_p, offset: int, data: bytes) -> None:
        try:
            written = 0
            while written < len(data):
                rest = data[written:]
                written += self._check(
                    self.library.nfs_pwrite(
                        self.context, handle, ctypes.c_uint64(offset + written), ctypes.c_uint64(len(rest)), rest
                    )
                )
            self._check(self.library.nfs_fsync(self.context, handle))
        finally:
            self.library.nfs_close(self.context, handle)

    def read(self, path: str, size: int = 1 << 24) -> bytes:
        handle = ctypes.c_void_p()
        self._on_path("nfs_open", path, ctypes.c_int(os.O_RDONLY), ctypes.byref(handle))
        try:
            data = b""
            while len(data) < size:
                buffer = ctypes.create_string_buffer(min(size - len(data), 1 << 20))
                count = self._check(
                    self.library.nfs_pread(
                        self.context, handle, ctypes.c_uint64(len(data)), ctypes.c_uint64(len(buffer)), buffer
                    )
                )
                if count == 0:
                    break
                data += buffer.raw[:count]
            return data
        finally:
            self.library.nfs_close(self.context, handle)
