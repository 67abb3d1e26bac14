"""Writes volumes and shares of a bucket to files and folders."""

import os
from collections.abc import Iterable
from pathlib import Path

from harness.store_reader.bucket import Bucket, Volume
from harness.store_reader.extents import Run
from harness.store_reader.files import Inode, Share, walk
from harness.store_reader.packs import BLOCK


def write_sparse(bucket: Bucket, runs: Iterable[Run], size: int, target: Path) -> None:
    """A new file in which what is not mapped is a hole."""
    with target.open("xb") as file:
        file.truncate(size)
        # In the order in which packs have the blocks, so that each is read about once.
        for run in sorted(runs, key=lambda run: run.pvbn or 0):
            for place in range(run.first, min(run.end, -(-size // BLOCK))):
                block = bucket.block((run.pvbn or 0) + place - run.first)
                os.pwrite(file.fileno(), block[: size - place * BLOCK], place * BLOCK)


def export_volume(bucket: Bucket, volume: Volume, target: Path) -> None:
    write_sparse(bucket, bucket.map_of(volume.number), volume.blocks * BLOCK, target)


def export_share(bucket: Bucket, share: Share, target: Path) -> None:
    """To a new folder: with hard links, holes, extended attributes, owners where the caller may set them, and times."""
    made: dict[int, Path] = {}
    inodes: list[tuple[Inode, Path]] = []
    for name, inode in walk(bucket, share):
        path = target / os.fsdecode(name) if name else target
        if inode.number in made:
            os.link(made[inode.number], path, follow_symlinks=False)
            continue
        made[inode.number] = path
        make(bucket, inode, path)
        inodes.append((inode, path))
    for inode, path in reversed(inodes):
        dress(inode, path)


def make(bucket: Bucket, inode: Inode, path: Path) -> None:
    if inode.kind == "directory":
        path.mkdir()
    elif inode.target is not None:
        path.symlink_to(os.fsdecode(inode.target))
    elif inode.kind == "file":
        write_sparse(bucket, bucket.map_of(inode.map_number), inode.size, path)
    else:
        os.mknod(path, inode.mode, inode.device)


def dress(inode: Inode, path: Path) -> None:
    """Owner, mode, attributes and times: of a folder after what is in it."""
    if os.geteuid() == 0:
        os.chown(path, inode.uid, inode.gid, follow_symlinks=False)
    for name, value in inode.xattrs.items():
        os.setxattr(path, name, value, follow_symlinks=False)
    if inode.target is None:
        path.chmod(inode.mode & 0o7777)
    os.utime(path, ns=(inode.atime_ns, inode.mtime_ns), follow_symlinks=False)
