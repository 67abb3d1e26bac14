# SPDX-License-Identifier: LGPL-3.0-or-later
"""NFSv3: files, directories, attributes and permissions, through a real ganesha."""

import contextlib
import errno
import os
import stat
import subprocess
import time
import unittest
from collections.abc import Iterator

import nfs3
from harness import Served


@contextlib.contextmanager
def mounted(uid: int = 0, gid: int = 0) -> Iterator[nfs3.Client]:
    client = nfs3.Client(uid=uid, gid=gid)
    try:
        yield client
    finally:
        client.close()


class Nfs3(Served):
    def setUp(self) -> None:
        self.nfs = self.enterContext(mounted())
        self.directory = "/" + self._testMethodName
        self.nfs.mkdir(self.directory)
        self.nfs.chmod(self.directory, 0o777)

    def path(self, name: str) -> str:
        return f"{self.directory}/{name}"

    def assert_refused(self, number: int, call: object, *arguments: object) -> None:
        with self.assertRaises(OSError) as caught:
            call(*arguments)  # type: ignore[operator]
        self.assertEqual(caught.exception.errno, number, caught.exception)

    def test_data(self) -> None:
        data = os.urandom(3_500_001)
        self.nfs.write(self.path("file"), data)
        self.assertEqual(self.nfs.read(self.path("file")), data)
        self.nfs.overwrite(self.path("file"), 1000, b"x" * 5000)
        expected = data[:1000] + b"x" * 5000 + data[6000:]
        self.assertEqual(bytes(self.daemon.find(self.path("file")).data), expected)
        self.nfs.truncate(self.path("file"), 4321)
        self.assertEqual(self.nfs.read(self.path("file")), expected[:4321])
        self.nfs.truncate(self.path("file"), 10_000)
        self.assertEqual(self.nfs.read(self.path("file")), expected[:4321] + bytes(10_000 - 4321))

    def test_attributes_come_with_a_write(self) -> None:
        before = self.daemon.counts.copy()
        self.nfs.write(self.path("file"), os.urandom(24 << 20))
        asked = self.daemon.counts - before
        self.assertEqual(self.nfs.stat(self.path("file")).size, 24 << 20)
        self.assertGreaterEqual(asked["WRITE"], 24)
        self.assertLess(asked["GETATTR"], 6)

    def test_attributes_that_came_with_a_write_do_not_outlive_other_changes(self) -> None:
        path = self.path("file")
        for round_number in range(20):
            self.nfs.write(path, b"x" * 100)
            self.nfs.truncate(path, 10 + round_number)
            self.assertEqual(self.nfs.stat(path).size, 10 + round_number)
            self.nfs.overwrite(path, 50, b"y")
            self.nfs.link(path, self.path("other"))
            self.assertEqual(self.nfs.stat(path).nlink, 2)
            self.nfs.overwrite(path, 60, b"z")
            self.nfs.unlink(self.path("other"))
            found = self.nfs.stat(path)
            self.assertEqual((found.nlink, found.size), (1, 61))
            self.nfs.unlink(path)

    def test_attributes_that_came_with_a_write_do_not_hide_changes_of_others(self) -> None:
        path = self.path("file")
        self.nfs.write(path, b"x" * 100)
        for size in range(200, 220):
            self.nfs.overwrite(path, 0, b"y")
            node = self.daemon.find(path)
            self.daemon.change_file(node, bytes(size))
            self.daemon.notify_inode(node.inode)
            deadline = time.monotonic() + 0.8
            while self.nfs.stat(path).size != size:
                self.assertLess(time.monotonic(), deadline)

    def test_names(self) -> None:
        self.nfs.write(self.path("a"), b"1")
        self.nfs.link(self.path("a"), self.path("b"))
        self.assertEqual(self.nfs.stat(self.path("a")).nlink, 2)
        self.assertEqual(self.nfs.stat(self.path("a")).ino, self.nfs.stat(self.path("b")).ino)
        self.nfs.rename(self.path("b"), self.path("c"))
        self.assert_refused(errno.ENOENT, self.nfs.stat, self.path("b"))
        self.nfs.mkdir(self.path("d"))
        self.nfs.rename(self.path("c"), self.path("d/e"))
        self.assert_refused(errno.ENOTEMPTY, self.nfs.rmdir, self.path("d"))
        self.nfs.unlink(self.path("d/e"))
        self.nfs.rmdir(self.path("d"))
        self.assertEqual(self.nfs.stat(self.path("a")).nlink, 1)
        self.assert_refused(errno.EEXIST, self.nfs.mkdir, self.path("a"))
        self.nfs.symlink("some/where", self.path("s"))
        self.assertEqual(self.nfs.readlink(self.path("s")), "some/where")
        self.assert_refused(errno.ENAMETOOLONG, self.nfs.mkdir, self.path("x" * 256))
        self.nfs.mkdir(self.path("y" * 255))

    def test_special_files(self) -> None:
        self.nfs.mknod(self.path("device"), stat.S_IFBLK | 0o640, os.makedev(259, 70000))
        node = self.daemon.find(self.path("device"))
        self.assertEqual(node.mode, stat.S_IFBLK | 0o640)
        # Linux's 32-bit encoding: 12 bits of major number between two parts of the minor one.
        self.assertEqual(node.rdev, (70000 & 0xFF) | 259 << 8 | (70000 & ~0xFF) << 12)

    def test_attributes(self) -> None:
        self.nfs.write(self.path("file"), b"12345", 0o640)
        found = self.nfs.stat(self.path("file"))
        self.assertEqual((stat.S_IMODE(found.mode), found.uid, found.gid, found.size), (0o640, 0, 0, 5))
        self.nfs.chmod(self.path("file"), 0o4755)
        self.nfs.chown(self.path("file"), 12, 34)
        found = self.nfs.stat(self.path("file"))
        # A new owner takes the set-id bit.
        self.assertEqual((stat.S_IMODE(found.mode), found.uid, found.gid), (0o755, 12, 34))
        with mounted(uid=12, gid=34) as owner:
            owner.chmod(self.path("file"), 0o4700)
            self.assertTrue(self.daemon.find(self.path("file")).mode & stat.S_ISUID)
            owner.overwrite(self.path("file"), 0, b"x")
        self.assertFalse(self.daemon.find(self.path("file")).mode & stat.S_ISUID, "writing takes the set-id bit")

    def test_large_directory(self) -> None:
        names = {f"entry {number:05} with a name of some length" for number in range(3000)}
        for name in names:
            self.daemon.put_file(self.path(name), b"")
        before = self.daemon.counts["LOOKUP"], self.daemon.counts["GETATTR"], self.daemon.counts["READDIRPLUS"]
        listed = self.list_names()
        self.assertEqual(listed, names)
        lookups, getattrs, reads = (
            self.daemon.counts["LOOKUP"],
            self.daemon.counts["GETATTR"],
            self.daemon.counts["READDIRPLUS"],
        )
        # One trip brings names and attributes of hundreds of entries.
        self.assertLess(lookups - before[0] + getattrs - before[1], 20)
        self.assertLess(reads - before[2], 60)

    def list_names(self) -> set[str]:
        for version in (3, 4):
            url = self.ganesha.url(self.directory[1:], version=version)
            done = subprocess.run(["nfs-ls", url], capture_output=True, text=True, check=True, timeout=60)
            names = {line.split(maxsplit=5)[5] for line in done.stdout.splitlines()}
            if version == 3:
                first = names
        self.assertEqual(first, names)
        return names

    def test_permissions(self) -> None:
        """What ganesha leaves to the file system is checked: creation, removal, renaming."""
        self.nfs.write(self.path("file"), b"secret", 0o640)
        self.nfs.mkdir(self.path("closed"))
        self.nfs.write(self.path("closed/file"), b"", 0o666)
        self.nfs.chmod(self.path("closed"), 0o755)
        with mounted(uid=1000, gid=1000) as user:
            self.assert_refused(errno.EACCES, user.read, self.path("file"))
            self.assert_refused(errno.EACCES, user.write, self.path("closed/new"), b"")
            self.assert_refused(errno.EACCES, user.mkdir, self.path("closed/new"))
            self.assert_refused(errno.EACCES, user.symlink, "target", self.path("closed/new"))
            self.assert_refused(errno.EACCES, user.mknod, self.path("closed/new"), stat.S_IFIFO | 0o666, 0)
            self.assert_refused(errno.EACCES, user.link, self.path("file"), self.path("closed/new"))
            self.assert_refused(errno.EACCES, user.unlink, self.path("closed/file"))
            self.assert_refused(errno.EACCES, user.rename, self.path("closed/file"), self.path("moved"))
            self.assert_refused(errno.EACCES, user.rename, self.path("file"), self.path("closed/moved"))
            self.assert_refused(errno.EPERM, user.chmod, self.path("file"), 0o666)
            self.assert_refused(errno.EPERM, user.chown, self.path("file"), 1000, 1000)
            user.write(self.path("own"), b"", 0o600)
            user.rename(self.path("file"), self.path("renamed"))
        self.assertEqual(self.daemon.find(self.path("own")).uid, 1000)
        self.assertEqual(set(self.daemon.find(self.path("closed")).entries), {b"file"})
        # A directory that moves is itself changed.
        self.nfs.mkdir(self.path("parent"))
        self.nfs.chmod(self.path("parent"), 0o777)
        with mounted(uid=1000, gid=1000) as user:
            self.assert_refused(errno.EACCES, user.rename, self.path("closed"), self.path("parent/closed"))
            user.rename(self.path("closed"), self.path("reopened"))

    def test_sticky_directory(self) -> None:
        self.nfs.chmod(self.directory, 0o1777)
        with mounted(uid=1000, gid=1000) as user, mounted(uid=2000, gid=2000) as other:
            user.write(self.path("a"), b"")
            other.write(self.path("b"), b"")
            for call in (other.unlink, lambda path: other.rename(path, self.path("c"))):
                self.assert_refused(errno.EPERM, call, self.path("a"))
            self.assert_refused(errno.EPERM, other.rename, self.path("b"), self.path("a"))
            user.rename(self.path("a"), self.path("c"))
            user.unlink(self.path("c"))

    def test_group_by_mode(self) -> None:
        self.nfs.write(self.path("file"), b"data", 0o640)
        self.nfs.chown(self.path("file"), 0, 500)
        with mounted(uid=1000, gid=500) as member, mounted(uid=1000, gid=501) as stranger:
            self.assertEqual(member.read(self.path("file")), b"data")
            self.assert_refused(errno.EACCES, stranger.read, self.path("file"))


if __name__ == "__main__":
    unittest.main()
