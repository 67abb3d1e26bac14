# SPDX-License-Identifier: LGPL-3.0-or-later
"""NFSv4.2: states, reservations, creation modes, locks, extended attributes, holes, through a real ganesha."""

import contextlib
import os
import struct
import unittest
from collections.abc import Iterator
from unittest.case import _AssertRaisesContext

import nfs4
from harness import Served, wait_until
from nfs4 import BOTH, READ, WRITE


@contextlib.contextmanager
def connected(uid: int = 0, gid: int = 0, groups: tuple[int, ...] = ()) -> Iterator[nfs4.Client]:
    client = nfs4.Client(uid=uid, gid=gid, groups=groups)
    try:
        yield client
    finally:
        client.close()


def posix_acl(*entries: tuple[int, int, int]) -> bytes:
    """Tag, permissions, id; as Linux keeps it in an extended attribute."""
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


NO_ID = 0xFFFFFFFF


class Nfs4(Served):
    def setUp(self) -> None:
        self.nfs = self.enterContext(connected())
        self.name = self._testMethodName

    @contextlib.contextmanager
    def refused(self, number: int) -> Iterator[_AssertRaisesContext[nfs4.Status]]:
        with self.assertRaises(nfs4.Status) as caught:
            yield caught
        self.assertEqual(caught.exception.number, number, caught.exception)

    def create(self, access: int = BOTH) -> nfs4.Opened:
        return self.nfs.open("test", self.name, access, create=nfs4.unchecked())

    def test_data_and_stability(self) -> None:
        data = os.urandom(300_000)
        file = self.create()
        before = self.daemon.stable_writes
        count, stable, verifier = self.nfs.write(file, 0, data)
        self.assertEqual((count, stable), (len(data), nfs4.UNSTABLE))
        self.assertEqual(self.daemon.stable_writes, before)
        fsyncs = self.daemon.counts["FSYNC"]
        self.assertEqual(self.nfs.commit(file.handle), verifier)
        self.assertEqual(self.daemon.counts["FSYNC"], fsyncs + 1)
        # The verifier says which start of the daemon has the data.
        self.assertEqual(struct.unpack("<Q", verifier)[0], self.daemon.boot)
        _, stable, _ = self.nfs.write(file, 10, b"stable", nfs4.FILE_SYNC)
        self.assertEqual(stable, nfs4.FILE_SYNC)
        self.assertEqual(self.daemon.stable_writes, before + 1)
        expected = data[:10] + b"stable" + data[16:]
        self.assertEqual(self.nfs.read(file, 0, 1 << 20), (expected, True))
        self.assertEqual(self.nfs.read(file, 5, 20), (expected[5:25], False))
        self.nfs.close_file(file)

    def test_change_attribute_grows(self) -> None:
        file = self.create()
        last = self.nfs.attributes(file.handle)[0]
        for round_ in range(5):
            self.nfs.write(file, round_, b"x")
            change = self.nfs.attributes(file.handle)[0]
            self.assertGreater(change, last)
            last = change
        self.nfs.close_file(file)

    def test_creation_modes(self) -> None:
        file = self.nfs.open("test", self.name, BOTH, create=nfs4.guarded(0o640))
        self.nfs.write(file, 0, b"data")
        self.nfs.close_file(file)
        self.assertEqual(self.nfs.attributes(file.handle)[1:], (4, 0o640))
        with self.refused(nfs4.EXIST):
            self.nfs.open("test", self.name, BOTH, create=nfs4.guarded())
        # UNCHECKED opens what is there and leaves its mode alone; a size of zero truncates it.
        again = self.nfs.open("test", self.name, BOTH, create=nfs4.unchecked(0o600))
        self.assertEqual(again.handle, file.handle)
        self.assertEqual(self.nfs.attributes(file.handle)[1:], (4, 0o640))
        self.nfs.close_file(again)
        again = self.nfs.open("test", self.name, BOTH, create=nfs4.unchecked(0o600, size=0))
        self.assertEqual(self.nfs.attributes(file.handle)[1:], (0, 0o640))
        self.nfs.close_file(again)
        with self.refused(nfs4.NOENT):
            self.nfs.open("test", "nothing", READ)

    def test_exclusive_creation(self) -> None:
        first = self.nfs.open("test", self.name, BOTH, create=nfs4.exclusive(b"verifier"))
        with connected() as other:
            # The same verifier is the same creation, repeated.
            again = other.open("test", self.name, BOTH, create=nfs4.exclusive(b"verifier"))
            self.assertEqual(again.handle, first.handle)
            with self.refused(nfs4.EXIST):
                other.open("test", self.name, BOTH, create=nfs4.exclusive(b"anotherv"))
            other.close_file(again)
        self.nfs.close_file(first)

    def test_exclusive_creation_is_one_step(self) -> None:
        before = self.daemon.counts.copy()
        file = self.nfs.open("test", self.name, BOTH, create=nfs4.exclusive(b"verifier", 0o4640))
        asked = self.daemon.counts - before
        self.assertEqual((asked["CREATE"], asked["SETATTR"], asked["MKNOD"]), (1, 0, 0))
        self.assertEqual(self.daemon.find(self.name).mode & 0o7777, 0o4640)
        self.nfs.close_file(file)

    def test_truncation_needs_permission(self) -> None:
        file = self.create()
        self.nfs.write(file, 0, b"precious")
        self.nfs.close_file(file)
        with connected(uid=1000, gid=1000) as user:
            for access in (READ, BOTH):
                with self.refused(nfs4.ACCESS):
                    user.open("test", self.name, access, create=nfs4.unchecked(size=0))
        self.assertEqual(bytes(self.daemon.find(self.name).data), b"precious")

    def test_creation_needs_permission(self) -> None:
        with self.daemon.lock:
            self.daemon.nodes[1000].mode &= ~0o022
        try:
            file = self.create()
            self.nfs.close_file(file)
            self.daemon.find(self.name).mode |= 0o666
            self.daemon.notify_inode(self.daemon.find(self.name).inode)
            self.daemon.notify_inode(1000)
            with connected(uid=1000, gid=1000) as user:
                with self.refused(nfs4.ACCESS):
                    user.open("test", self.name + " other", BOTH, create=nfs4.unchecked())
                # One that is there is opened, whoever may create; the notification of its mode needs a moment.
                wait_until(lambda: self.may_open(user, BOTH, nfs4.unchecked()), "opening what is there")
        finally:
            self.daemon.nodes[1000].mode |= 0o022
            self.daemon.notify_inode(1000)

    def test_reservations(self) -> None:
        first = self.nfs.open("test", self.name, BOTH, deny=WRITE, create=nfs4.unchecked())
        with connected() as other:
            with self.refused(nfs4.SHARE_DENIED):
                other.open("test", self.name, WRITE)
            with self.refused(nfs4.SHARE_DENIED):
                other.open("test", self.name, READ, deny=READ)
            reading = other.open("test", self.name, READ)
            self.nfs.close_file(first)
            other.close_file(reading)
            other.close_file(other.open("test", self.name, WRITE))

    def test_open_files_outlive_their_name(self) -> None:
        file = self.create()
        self.nfs.write(file, 0, b"still here")
        inode = self.daemon.find(self.name).inode
        again = self.nfs.open("test", self.name, READ, owner=b"another")
        self.assertEqual(self.daemon.opens[inode], 1, "the daemon is told once")
        self.nfs.remove("test", self.name)
        self.assertEqual(self.nfs.read(file, 0, 100), (b"still here", True))
        self.nfs.close_file(file)
        self.assertEqual(self.nfs.read(again, 0, 100), (b"still here", True))
        self.nfs.close_file(again)
        self.assertNotIn(inode, self.daemon.nodes)

    def test_locks(self) -> None:
        file = self.create()
        held = self.nfs.lock(file, WRITE, 100, 50, b"one")
        inode = self.daemon.find(self.name).inode
        self.assertEqual([lock[3:] for lock in self.daemon.locks if lock[0] == inode], [(100, 149, 1)])
        with connected() as other:
            theirs = other.open("test", self.name, BOTH)
            with self.refused(nfs4.DENIED) as caught:
                other.lock(theirs, READ, 149, 10, b"two")
            self.assertEqual(caught.exception.found, (100, 50, WRITE))
            with self.refused(nfs4.DENIED):
                other.test_lock(theirs.handle, READ, 0, 0xFFFFFFFFFFFFFFFF, b"two")
            other.test_lock(theirs.handle, READ, 0, 100, b"two")
            other.unlock(theirs, other.lock(theirs, WRITE, 150, 10, b"two"), 150, 10)
            self.nfs.unlock(file, held, 100, 50)
            other.unlock(theirs, other.lock(theirs, WRITE, 0, 0xFFFFFFFFFFFFFFFF, b"three"), 0, 0xFFFFFFFFFFFFFFFF)
            other.close_file(theirs)
        self.nfs.close_file(file)
        self.assertEqual([lock for lock in self.daemon.locks if lock[0] == inode], [])

    def test_locks_of_others(self) -> None:
        """A lock that a mount holds is one for NFS as well."""
        file = self.create()
        inode = self.daemon.find(self.name).inode
        self.daemon.locks.append((inode, "mount", 1, 10, 19, 1))
        with self.refused(nfs4.DENIED) as caught:
            self.nfs.lock(file, WRITE, 0, 0xFFFFFFFFFFFFFFFF, b"one")
        self.assertEqual(caught.exception.found, (10, 10, WRITE))
        with self.refused(nfs4.DENIED):
            self.nfs.test_lock(file.handle, READ, 15, 1, b"one")
        self.daemon.locks.clear()
        held = self.nfs.lock(file, WRITE, 0, 0xFFFFFFFFFFFFFFFF, b"two")
        self.nfs.unlock(file, held, 0, 0xFFFFFFFFFFFFFFFF)
        self.nfs.close_file(file)

    def test_extended_attributes(self) -> None:
        file = self.create()
        large = os.urandom(5000)
        self.nfs.set_xattr(file.handle, "small", b"value")
        self.nfs.set_xattr(file.handle, "large", large)
        self.assertEqual(self.daemon.find(self.name).xattrs[b"user.small"], b"value")
        self.assertEqual(self.nfs.get_xattr(file.handle, "small"), b"value")
        self.assertEqual(self.nfs.get_xattr(file.handle, "large"), large)
        self.daemon.find(self.name).xattrs[b"trusted.hidden"] = b"x"
        self.assertEqual(set(self.nfs.list_xattrs(file.handle)), {b"small", b"large"})
        with self.refused(nfs4.EXIST):
            self.nfs.set_xattr(file.handle, "small", b"other", 1)
        with self.refused(nfs4.NOXATTR):
            self.nfs.set_xattr(file.handle, "none", b"other", 2)
        self.nfs.remove_xattr(file.handle, "small")
        with self.refused(nfs4.NOXATTR):
            self.nfs.get_xattr(file.handle, "small")
        with connected(uid=1000, gid=1000) as user, self.refused(nfs4.ACCESS):
            user.set_xattr(file.handle, "large", b"")
        self.nfs.close_file(file)

    def test_long_extended_attributes(self) -> None:
        """Ganesha encodes no value beyond 8,192 bytes: it would leave the client without an answer for ever."""
        file = self.create()
        longest = os.urandom(8192)
        xattrs = self.daemon.find(self.name).xattrs
        xattrs[b"user.long"] = longest
        self.assertEqual(self.nfs.get_xattr(file.handle, "long"), longest)
        for excess in (1, 4096, 65536 - 8192):
            xattrs[b"user.long"] = longest + bytes(excess)
            with self.refused(nfs4.FBIG):
                self.nfs.get_xattr(file.handle, "long")
        # Nor does it decode as much: the client hears at once that the call makes no sense, which Linux calls EIO.
        with connected() as other, self.assertRaisesRegex(AssertionError, "the call was not accepted"):
            other.set_xattr(file.handle, "long", longest)
        self.nfs.set_xattr(file.handle, "longest", longest[1:])
        self.assertEqual(xattrs[b"user.longest"], longest[1:])
        xattrs[b"user.long"] = b"short"
        self.assertEqual(self.nfs.get_xattr(file.handle, "long"), b"short")
        self.nfs.close_file(file)

    def test_many_extended_attributes(self) -> None:
        """Nor more than 1,024 names in one answer."""
        file = self.create()
        names = [b"%d" % number for number in range(3000)]
        xattrs = self.daemon.find(self.name).xattrs
        for name in names:
            xattrs[b"user." + name] = b"x"
            xattrs[b"trusted." + name[:3]] = b"x"
        for bytes_max in (65536, 4096, 32):
            self.assertEqual(self.nfs.list_xattrs(file.handle, bytes_max), names)
        for count in (1023, 1024, 1025):
            xattrs.clear()
            xattrs.update({b"user." + name: b"x" for name in names[:count]})
            self.assertEqual(self.nfs.list_xattrs(file.handle, 65536), names[:count])
        self.nfs.close_file(file)

    def test_mode_of_a_symbolic_link_is_ignored(self) -> None:
        """As other servers do: there is none that counts."""
        link = self.nfs.symlink("test", self.name, b"target")
        self.nfs.set_mode(link, 0o600)
        self.assertEqual(self.daemon.find(self.name).mode & 0o7777, 0o777)

    def test_holes(self) -> None:
        file = self.create()
        self.nfs.write(file, 8192, b"d" * 4096)
        self.nfs.allocate(file, 12288, 8192)
        self.assertEqual(self.nfs.attributes(file.handle)[1], 20480)
        self.assertEqual(self.nfs.seek(file, 0, 0), (False, 8192))
        self.assertEqual(self.nfs.seek(file, 8192, 1), (False, 12288))
        self.assertTrue(self.nfs.seek(file, 12288, 0)[0])
        with self.refused(nfs4.NXIO):
            self.nfs.seek(file, 20480, 0)
        self.nfs.deallocate(file, 8192, 4096)
        self.assertEqual(bytes(self.daemon.find(self.name).data), bytes(20480))
        self.nfs.close_file(file)

    def test_posix_acl_decides(self) -> None:
        """The mode alone would let the group in and keep the named user out."""
        node = self.daemon.put_file(self.name, b"data", 0o660, uid=1, gid=500)
        acl = posix_acl((1, 6, NO_ID), (2, 6, 1000), (4, 0, NO_ID), (16, 6, NO_ID), (32, 0, NO_ID))
        node.xattrs[b"system.posix_acl_access"] = acl
        self.daemon.notify_entry(1000, self.name.encode())
        with connected(uid=1000, gid=1000) as named, connected(uid=2000, gid=500) as member:
            file = named.open("test", self.name, BOTH)
            self.assertEqual(named.read(file, 0, 10), (b"data", True))
            named.close_file(file)
            with self.refused(nfs4.ACCESS):
                member.open("test", self.name, READ)
            # Without the ACL it is the other way round.
            del node.xattrs[b"system.posix_acl_access"]
            self.daemon.notify_inode(node.inode)
            # The notification needs a moment.
            wait_until(lambda: not self.may_open(named, READ), "the end of the ACL that was removed")
            member.close_file(member.open("test", self.name, READ))

    def may_open(self, client: nfs4.Client, access: int, create: bytes | None = None) -> bool:
        try:
            client.close_file(client.open("test", self.name, access, create=create))
        except nfs4.Status as status:
            self.assertEqual(status.number, nfs4.ACCESS)
            return False
        return True

    def test_supplementary_groups(self) -> None:
        self.daemon.put_file(self.name, b"data", 0o640, uid=1, gid=700)
        with connected(uid=1000, gid=1000, groups=(600, 700)) as member:
            member.close_file(member.open("test", self.name, READ))

    def test_bad_handles(self) -> None:
        """One bit of each field of the handle (`struct tombolo_fsal_handle`) is another."""
        file = self.create()
        self.nfs.close_file(file)
        # The root follows magic, version, two reserved bytes and the number of the file system.
        root = file.handle.index(struct.pack("<QQ", 1000, self.daemon.find(self.name).inode))
        magic, version, reserved, file_system, inode = root - 8, root - 7, root - 5, root - 1, root + 8
        malformed = [(offset, nfs4.BADHANDLE) for offset in (magic, version, reserved)]
        of_something_else = [(offset, nfs4.STALE) for offset in (file_system, root + 1, inode + 1)]
        for offset, expected in malformed + of_something_else:
            handle = bytearray(file.handle)
            handle[offset] ^= 0x40
            with self.subTest(offset=offset - root), self.refused(expected):
                self.nfs.attributes(bytes(handle))


if __name__ == "__main__":
    unittest.main()
