"""One way into a tree of files, whatever the protocol: the local file system, NFS, SMB.

A front end takes paths relative to the root of the share, with `/` between names and `""` for the root itself. What the
server refuses is raised as `OSError` with its errno; a connection that is lost is a `ConnectionError`. None follows a
symbolic link in the last component. A front end belongs to one thread.
"""

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol


class Kind(StrEnum):
    FILE = "file"
    DIRECTORY = "directory"
    SYMLINK = "symlink"


@dataclass(frozen=True)
class Status:
    kind: Kind
    size: int
    """Of files only; 0 for others."""
    links: int
    """Of files only; 0 for others, as each protocol counts those of directories in its own way."""
    inode: int


class FrontEnd(Protocol):
    name: str
    makes_links: bool
    """Whether hard and symbolic links can be made and seen; a server of SMB resolves the latter by itself."""
    exact_errors: bool
    """Whether refusals carry the errno that the local file system would give."""

    def create(self, path: str) -> None:
        """Makes an empty file; refuses if the name is taken."""
        ...

    def write(self, path: str, offset: int, data: bytes) -> None: ...

    def sync(self, path: str) -> None:
        """What was written to the file before is on stable storage afterwards."""
        ...

    def truncate(self, path: str, size: int) -> None: ...

    def read(self, path: str, offset: int, length: int) -> bytes: ...

    def rename(self, source: str, target: str) -> None:
        """Replaces a file at the target."""
        ...

    def unlink(self, path: str) -> None: ...

    def mkdir(self, path: str) -> None: ...

    def rmdir(self, path: str) -> None: ...

    def link(self, existing: str, new: str) -> None: ...

    def symlink(self, target: str, new: str) -> None: ...

    def readlink(self, path: str) -> str: ...

    def names(self, path: str) -> list[str]:
        """The names in a directory, in the order in which the server lists them."""
        ...

    def status(self, path: str) -> Status: ...

    def close(self) -> None: ...


def refusals(*actions: Callable[[], object]) -> set[int]:
    """The errnos of actions, all of which must be refused."""
    found = set()
    for action in actions:
        try:
            action()
        except OSError as refused:
            found.add(refused.errno or 0)
        else:
            raise AssertionError("something was permitted that must be refused")
    return found


def status_of(mode: int, size: int, links: int, inode: int) -> Status:
    """From the fields of a `stat`."""
    if stat.S_ISDIR(mode):
        return Status(Kind.DIRECTORY, 0, 0, inode)
    if stat.S_ISLNK(mode):
        return Status(Kind.SYMLINK, 0, 0, inode)
    return Status(Kind.FILE, size, links, inode)


class LocalFrontEnd:
    """System calls below a folder: a plain file system, or a mounted share."""

    makes_links = True
    exact_errors = True

    def __init__(self, folder: Path, name: str = "local") -> None:
        self.name = name
        self._folder = folder

    def create(self, path: str) -> None:
        os.close(os.open(self._folder / path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))

    def write(self, path: str, offset: int, data: bytes) -> None:
        file = os.open(self._folder / path, os.O_WRONLY)
        try:
            done = 0
            while done < len(data):
                done += os.pwrite(file, data[done:], offset + done)
        finally:
            os.close(file)

    def sync(self, path: str) -> None:
        file = os.open(self._folder / path, os.O_RDONLY)
        try:
            os.fsync(file)
        finally:
            os.close(file)

    def truncate(self, path: str, size: int) -> None:
        os.truncate(self._folder / path, size)

    def read(self, path: str, offset: int, length: int) -> bytes:
        file = os.open(self._folder / path, os.O_RDONLY)
        try:
            parts: list[bytes] = []
            while length > 0 and (part := os.pread(file, length, offset)):
                parts.append(part)
                offset, length = offset + len(part), length - len(part)
            return b"".join(parts)
        finally:
            os.close(file)

    def rename(self, source: str, target: str) -> None:
        (self._folder / source).rename(self._folder / target)

    def unlink(self, path: str) -> None:
        (self._folder / path).unlink()

    def mkdir(self, path: str) -> None:
        (self._folder / path).mkdir()

    def rmdir(self, path: str) -> None:
        (self._folder / path).rmdir()

    def link(self, existing: str, new: str) -> None:
        os.link(self._folder / existing, self._folder / new, follow_symlinks=False)

    def symlink(self, target: str, new: str) -> None:
        (self._folder / new).symlink_to(target)

    def readlink(self, path: str) -> str:
        return str((self._folder / path).readlink())

    def names(self, path: str) -> list[str]:
        with os.scandir(self._folder / path) as entries:
            return [entry.name for entry in entries]

    def status(self, path: str) -> Status:
        found = (self._folder / path).lstat()
        return status_of(found.st_mode, found.st_size, found.st_nlink, found.st_ino)

    def close(self) -> None:
        """Nothing is held open between calls."""
