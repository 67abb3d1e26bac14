"""Shares and their files, from the entries of the file service."""

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field

from harness.store_reader.bucket import FILE, Bucket, big
from harness.store_reader.fields import Cursor, Damaged

VERSION = 1
TYPES = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "directory",
    stat.S_IFLNK: "symlink",
    stat.S_IFCHR: "character device",
    stat.S_IFBLK: "block device",
    stat.S_IFIFO: "fifo",
    stat.S_IFSOCK: "socket",
}


FLAG_BEING_DELETED = 1
FLAG_FLUSH_TO_BUCKET = 2


@dataclass(frozen=True)
class Share:
    name: str
    identity: int
    root: int
    quota: int
    flags: int

    @property
    def is_being_deleted(self) -> bool:
        return bool(self.flags & FLAG_BEING_DELETED)

    @property
    def flush(self) -> str:
        """What its flushes wait for."""
        return "bucket" if self.flags & FLAG_FLUSH_TO_BUCKET else "local"


@dataclass
class Inode:
    number: int
    share: int
    mode: int
    uid: int
    gid: int
    links: int
    device: int
    atime_ns: int
    mtime_ns: int
    size: int
    target: bytes | None
    """Of a symbolic link."""
    xattrs: dict[bytes, bytes] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        return TYPES.get(stat.S_IFMT(self.mode), f"mode {self.mode:o}")

    @property
    def map_number(self) -> int:
        return self.number | FILE


def fields_of(key: bytes, value: bytes) -> Cursor:
    fields = Cursor("root", f"entry {key[:1].decode(errors='replace')} {key[1:].hex()}", value)
    fields.require(fields.u8() == VERSION, "has an unknown version")
    return fields


def time_ns(fields: Cursor) -> int:
    seconds, nanoseconds = fields.i64(), fields.u32()
    return seconds * 1_000_000_000 + nanoseconds


def read_shares(bucket: Bucket) -> list[Share]:
    found = []
    for key, value in bucket.entries(b"S").items():
        fields = fields_of(key, value)
        identity, root, quota, _created = fields.u32(), fields.u64(), fields.u64(), time_ns(fields)
        flags = fields.u8()
        fields.require(not flags & ~(FLAG_BEING_DELETED | FLAG_FLUSH_TO_BUCKET), "has unknown flags")
        found.append(Share(os.fsdecode(key[1:]), identity, root, quota, flags))
        fields.end()
    return found


def read_inode(bucket: Bucket, number: int) -> Inode:
    key = b"I" + big(number)
    value = bucket.entry(key)
    if value is None:
        raise Damaged("root", f"inode {number} is named and is not there")
    fields = fields_of(key, value)
    share, mode, uid, gid, links, device = (fields.u32() for _ in range(6))
    _flags, _xattr_name_bytes = fields.u8(), fields.u32()
    atime, mtime, _ctime, _btime = (time_ns(fields) for _ in range(4))
    target, size = None, 0
    kind = stat.S_IFMT(mode)
    if kind == stat.S_IFDIR:
        _parent, _next_cookie, _entries = fields.u64(), fields.u64(), fields.u64()
    elif kind == stat.S_IFLNK:
        target = fields.rest()
        size = len(target)
    elif kind == stat.S_IFREG:
        size, mtime = read_data(bucket, number)
    fields.end()
    inode = Inode(number, share, mode, uid, gid, links, device, atime, mtime, size, target)
    found = bucket.entries(b"X" + big(number))
    inode.xattrs = {name[9:]: value for name, value in found.items()}
    return inode


def read_data(bucket: Bucket, number: int) -> tuple[int, int]:
    """Size and mtime of a regular file."""
    key = b"D" + big(number)
    value = bucket.entry(key)
    if value is None:
        raise Damaged("root", f"the data of inode {number} are not there")
    fields = fields_of(key, value)
    _share, _flags, size, _allocated = fields.u32(), fields.u8(), fields.u64(), fields.u64()
    mtime, _ctime = time_ns(fields), time_ns(fields)
    fields.end()
    return size, mtime


def names_in(bucket: Bucket, directory: int) -> dict[bytes, int]:
    """The inodes of a directory's names."""
    found = {}
    for key, value in bucket.entries(b"N" + big(directory)).items():
        fields = fields_of(key, value)
        found[key[9:]] = fields.u64()
        _type, _cookie = fields.u8(), fields.u64()
        fields.end()
    return found


def walk(bucket: Bucket, share: Share) -> Iterator[tuple[bytes, Inode]]:
    """Every path and its inode, the root first, whose path is empty; a directory goes before what is in it."""
    waiting = [(b"", share.root)]
    while waiting:
        path, number = waiting.pop()
        try:
            inode = read_inode(bucket, number)
            yield path, inode
            if inode.kind == "directory":
                names = names_in(bucket, number)
                waiting += [(os.path.join(path, name), below) for name, below in sorted(names.items(), reverse=True)]  # noqa: PTH118
        except Damaged as damage:
            bucket.complain(Damaged(damage.name, f"share {share.name}, {os.fsdecode(path) or '/'}: {damage.what}"))
