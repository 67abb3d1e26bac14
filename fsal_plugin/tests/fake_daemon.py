# SPDX-License-Identifier: LGPL-3.0-or-later
"""A file service in memory that speaks the protocol of files.sock.

It knows just enough of file systems to serve a real ganesha. What it has beyond that are means to be unpleasant:
it can go away and come back with another boot, lose answers of requests that it carried out, and be busy. It keeps
count of requests, so that tests see what crossed the socket, and remembers changes by their number as the real
service does, so that a request that is repeated without need is noticed.
"""

import contextlib
import errno
import os
import pathlib
import socket
import stat
import struct
import threading
import time
from collections import Counter
from dataclasses import dataclass, field

ATTACH = 0x54420001
RESENT = 1 << 63
SLOTS = 4096
ROOT_INODE = 1000
ACL_FLAGS = 1
WRITE_ATTRIBUTES = 2
CREATION_ATTRIBUTES = 4
CREATION_WITH_ATTRIBUTES = 1 << 31
ALL_CAPABILITIES = ACL_FLAGS | WRITE_ATTRIBUTES | CREATION_ATTRIBUTES
HAS_ACCESS_ACL = 1 << 30
HAS_DEFAULT_ACL = 1 << 31
MAX_WRITE = 1 << 20

IN_HEADER = struct.Struct("<IIQQIIIHH")
OUT_HEADER = struct.Struct("<IiQ")
ATTACH_IN = struct.Struct("<IIQIIIIQ")
ATTACH_OUT = struct.Struct("<IIQQQIIQ")
ATTR = struct.Struct("<6Q10I")
SETATTR_IN = struct.Struct("<IIQQQQQQIIIIIIII")
IO_IN = struct.Struct("<QQIIQII")

FATTR_MODE, FATTR_UID, FATTR_GID, FATTR_SIZE = 1, 2, 4, 8
FATTR_ATIME, FATTR_MTIME, FATTR_ATIME_NOW, FATTR_MTIME_NOW = 16, 32, 128, 256
FATTR_KILL_SUIDGID = 1 << 11
WRITE_KILL_SUIDGID = 1 << 2
WRITE_WITH_ATTRIBUTES = 1 << 31

NAMES = {
    1: "LOOKUP", 3: "GETATTR", 4: "SETATTR", 5: "READLINK", 6: "SYMLINK", 8: "MKNOD", 9: "MKDIR", 10: "UNLINK",
    11: "RMDIR", 13: "LINK", 14: "OPEN", 15: "READ", 16: "WRITE", 17: "STATFS", 18: "RELEASE", 20: "FSYNC",
    21: "SETXATTR", 22: "GETXATTR", 23: "LISTXATTR", 24: "REMOVEXATTR", 31: "GETLK", 32: "SETLK", 35: "CREATE",
    43: "FALLOCATE", 44: "READDIRPLUS", 45: "RENAME2", 46: "LSEEK", ATTACH: "ATTACH",
}  # fmt: skip
CHANGES = {
    "SETATTR",
    "SYMLINK",
    "MKNOD",
    "MKDIR",
    "UNLINK",
    "RMDIR",
    "LINK",
    "CREATE",
    "RENAME2",
    "SETXATTR",
    "REMOVEXATTR",
}


class Refused(Exception):
    def __init__(self, number: int) -> None:
        super().__init__(errno.errorcode[number])
        self.number = number


@dataclass
class Node:
    inode: int
    mode: int
    uid: int
    gid: int
    nlink: int = 1
    rdev: int = 0
    atime: int = 0
    mtime: int = 0
    ctime: int = 0
    parent: int = 0
    data: bytearray = field(default_factory=bytearray)
    target: bytes = b""
    entries: dict[bytes, tuple[int, int]] = field(default_factory=dict)
    """Name to inode and cookie."""
    cookie: int = 3
    xattrs: dict[bytes, bytes] = field(default_factory=dict)

    def is_directory(self) -> bool:
        return stat.S_ISDIR(self.mode)


@dataclass
class Request:
    """What a handler gets: the header's fields and the rest."""

    session: str
    unique: int
    node: int
    uid: int
    gid: int
    body: bytes


class FakeDaemon:
    def __init__(self, path: pathlib.Path, *, share: str = "test", capabilities: int = ALL_CAPABILITIES) -> None:
        self.path = path
        self.share = share
        self.capabilities = capabilities
        self.lock = threading.RLock()
        self.nodes: dict[int, Node] = {}
        self.inode_next = ROOT_INODE
        self.boot = 0
        self.incarnations: dict[str, int] = {}
        self.opens: Counter[int] = Counter()
        self.locks: list[tuple[int, str, int, int, int, int]] = []
        """inode, session, owner, start, end, type"""
        self.replays: dict[tuple[str, int], tuple[int, bytes]] = {}
        self.counts: Counter[str] = Counter()
        self.repeated = 0
        """Requests that came with the mark of a repetition, and of these, those that had been carried out."""
        self.repeated_done = 0
        self.stable_writes = 0
        self.lose_answers: Counter[str] = Counter()
        """So many of these are carried out and not answered; the connection breaks instead."""
        self.busy: Counter[str] = Counter()
        """So many of these are answered with EAGAIN."""
        self.attach_error = 0
        self.attaches: list[tuple[str, int, int]] = []
        self._listener: socket.socket | None = None
        self._sockets: set[socket.socket] = set()
        self._connections: dict[socket.socket, tuple[str, bool, threading.Lock]] = {}
        """Those that are attached: session, whether it wants notifications, and the lock for sending."""
        self._threads: list[threading.Thread] = []
        root = self._new_node(stat.S_IFDIR | 0o777, 0, 0)
        root.nlink = 2
        root.parent = root.inode

    # -- life --

    def start(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            self.path.unlink()
        self.boot += 1
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(os.fspath(self.path))
        listener.listen(64)
        self._listener = listener
        self._spawn(self._accept, listener)

    def stop(self) -> None:
        """Like kill -9: connections end at once; what was carried out stays."""
        assert self._listener
        # Wakes accept(); closing alone does not.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._listener = None
        self._threads[0].join()
        with self.lock:
            for connection in self._sockets:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        self._threads.clear()
        self.opens.clear()

    def restart(self, pause_s: float = 0.3) -> None:
        self.stop()
        time.sleep(pause_s)
        self.start()

    def _spawn(self, target: object, *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with self.lock:
                self._sockets.add(connection)
            self._spawn(self._serve, connection)

    # -- the tree, for tests --

    def _new_node(self, mode: int, uid: int, gid: int) -> Node:
        node = Node(self.inode_next, mode, uid, gid)
        self.inode_next += 1
        self.nodes[node.inode] = node
        node.atime = node.mtime = node.ctime = time.time_ns()
        return node

    def find(self, path: str) -> Node:
        with self.lock:
            node = self.nodes[ROOT_INODE]
            for name in path.strip("/").split("/"):
                node = self.nodes[node.entries[name.encode()][0]]
            return node

    def put_file(self, path: str, data: bytes, mode: int = 0o644, uid: int = 0, gid: int = 0) -> Node:
        """As another client would: nobody is told, see `notify_entry`."""
        directory, _, name = path.strip("/").rpartition("/")
        with self.lock:
            parent = self.find(directory) if directory else self.nodes[ROOT_INODE]
            node = self._new_node(stat.S_IFREG | mode, uid, gid)
            node.data[:] = data
            self._enter(parent, name.encode(), node)
            return node

    def change_file(self, node: Node, data: bytes) -> None:
        """As another client would: nobody is told, see `notify_inode`."""
        with self.lock:
            node.data[:] = data
            self._touch(node, data=True)

    def notify_inode(self, inode: int, offset: int = 0) -> None:
        self._notify(2, struct.pack("<Qqq", inode, offset, 0))

    def notify_entry(self, parent: int, name: bytes) -> None:
        self._notify(3, struct.pack("<QII", parent, len(name), 0) + name + b"\0")

    def _notify(self, code: int, body: bytes) -> None:
        with self.lock:
            wanting = [(c, sending) for c, (_, wants, sending) in self._connections.items() if wants]
        for connection, sending in wanting:
            with sending:
                connection.sendall(OUT_HEADER.pack(16 + len(body), code, 0) + body)

    # -- connections --

    def _serve(self, connection: socket.socket) -> None:
        sending = threading.Lock()
        try:
            with connection, connection.makefile("rb") as stream:
                while header := stream.read(IN_HEADER.size):
                    length, opcode, unique, node, uid, gid, _, _, _ = IN_HEADER.unpack(header)
                    body = stream.read(length - IN_HEADER.size)
                    if opcode == ATTACH:
                        answer: bytes | None = self._attach(connection, sending, body)
                    else:
                        session = self._connections[connection][0]
                        answer = self._handle(opcode, Request(session, unique, node, uid, gid, body))
                    if answer is None:
                        return
                    with sending:
                        connection.sendall(answer)
        except (OSError, KeyError, struct.error):
            pass
        finally:
            with self.lock:
                self._sockets.discard(connection)
                self._connections.pop(connection, None)

    def _attach(self, connection: socket.socket, sending: threading.Lock, body: bytes) -> bytes:
        version, flags, incarnation, client_bytes, share_bytes, _, _, _ = ATTACH_IN.unpack_from(body)
        names = body[ATTACH_IN.size :]
        client, share = names[:client_bytes].decode(), names[client_bytes:].decode()
        with self.lock:
            self.counts["ATTACH"] += 1
            self.attaches.append((client, incarnation, flags))
            refusal = self.attach_error or (errno.EPROTO if version != 1 else 0)
            if not refusal and (share != self.share or share_bytes != len(share)):
                refusal = errno.ENOENT
            if refusal:
                return OUT_HEADER.pack(16, -refusal, 0)
            resumed = self.incarnations.get(client) == incarnation
            if not resumed:
                self.locks = [lock for lock in self.locks if lock[1] != client]
                self.replays = {key: value for key, value in self.replays.items() if key[0] != client}
            self.incarnations[client] = incarnation
            self._connections[connection] = (client, bool(flags & 8), sending)
            answer = ATTACH_OUT.pack(1, self.capabilities, 1, self.boot, ROOT_INODE, MAX_WRITE, 90000, resumed)
        return OUT_HEADER.pack(16 + len(answer), 0, 0) + answer

    def _handle(self, opcode: int, request: Request) -> bytes | None:
        name = NAMES.get(opcode, str(opcode))
        resent = bool(request.unique & RESENT)
        number = request.unique & ~RESENT
        with self.lock:
            self.counts[name] += 1
            self.repeated += resent
            if self.busy[name] > 0:
                self.busy[name] -= 1
                return OUT_HEADER.pack(16, -errno.EAGAIN, request.unique)
            slot = (request.session, (number >> 1) % SLOTS)
            before = self.replays.get(slot)
            if name in CHANGES and before and before[0] == number:
                assert resent, "a number was used twice"
                self.repeated_done += 1
                result, error = before[1], 0
            else:
                result, error = self._carry_out(name, request)
                if name in CHANGES and not error:
                    self.replays[slot] = (number, result)
            if self.lose_answers[name] > 0:
                self.lose_answers[name] -= 1
                return None
        return OUT_HEADER.pack(16 + len(result), -error, request.unique) + result

    def _carry_out(self, name: str, request: Request) -> tuple[bytes, int]:
        try:
            handler = getattr(self, "_on_" + name.lower(), None)
            if handler is None:
                raise Refused(errno.ENOSYS)
            return handler(request), 0
        except Refused as refused:
            return b"", refused.number

    # -- helpers --

    def _node(self, inode: int) -> Node:
        node = self.nodes.get(ROOT_INODE if inode == 1 else inode)
        if node is None:
            raise Refused(errno.ESTALE)
        return node

    def _directory(self, inode: int) -> Node:
        node = self._node(inode)
        if not node.is_directory():
            raise Refused(errno.ENOTDIR)
        return node

    def _touch(self, node: Node, *, data: bool = False) -> None:
        node.ctime = max(time.time_ns(), node.ctime + 1)
        if data:
            node.mtime = node.ctime

    def _enter(self, parent: Node, name: bytes, node: Node) -> None:
        if name in parent.entries:
            raise Refused(errno.EEXIST)
        if name in (b"", b".", b".."):
            raise Refused(errno.EINVAL)
        if len(name) > 255:
            raise Refused(errno.ENAMETOOLONG)
        parent.entries[name] = (node.inode, parent.cookie)
        parent.cookie += 1
        if node.is_directory():
            node.parent = parent.inode
            parent.nlink += 1
        self._touch(parent, data=True)

    def _drop(self, parent: Node, name: bytes) -> None:
        inode, _ = parent.entries.pop(name)
        node = self.nodes[inode]
        self._touch(parent, data=True)
        self._touch(node)
        if node.is_directory():
            parent.nlink -= 1
            node.nlink = 0
        else:
            node.nlink -= 1
        self._reap(node)

    def _reap(self, node: Node) -> None:
        if node.nlink == 0 and self.opens[node.inode] == 0:
            self.nodes.pop(node.inode, None)

    def _attr(self, node: Node) -> bytes:
        size = len(node.target) if stat.S_ISLNK(node.mode) else 4096 if node.is_directory() else len(node.data)
        flags = 0
        if self.capabilities & ACL_FLAGS:
            flags |= HAS_ACCESS_ACL if b"system.posix_acl_access" in node.xattrs else 0
            flags |= HAS_DEFAULT_ACL if b"system.posix_acl_default" in node.xattrs else 0
        seconds = [t // 10**9 for t in (node.atime, node.mtime, node.ctime)]
        nanoseconds = [t % 10**9 for t in (node.atime, node.mtime, node.ctime)]
        return ATTR.pack(
            node.inode, size, (size + 511) // 512, *seconds, *nanoseconds,
            node.mode, node.nlink, node.uid, node.gid, node.rdev, 4096, flags,
        )  # fmt: skip

    def _entry(self, node: Node) -> bytes:
        return struct.pack("<QQQQII", node.inode, 0, 1, 1, 0, 0) + self._attr(node)

    def _attr_out(self, node: Node) -> bytes:
        return struct.pack("<QII", 1, 0, 0) + self._attr(node)

    def _create(self, request: Request, mode: int, name: bytes) -> Node:
        parent = self._directory(request.node)
        if name in parent.entries:
            raise Refused(errno.EEXIST)
        node = self._new_node(mode, request.uid, parent.gid if parent.mode & stat.S_ISGID else request.gid)
        if node.is_directory():
            node.nlink = 2
        self._enter(parent, name, node)
        return node

    # -- operations --

    def _on_lookup(self, request: Request) -> bytes:
        parent = self._directory(request.node)
        name = request.body.rstrip(b"\0")
        if name == b"..":
            return self._entry(self.nodes[parent.parent])
        if name not in parent.entries:
            raise Refused(errno.ENOENT)
        return self._entry(self.nodes[parent.entries[name][0]])

    def _on_getattr(self, request: Request) -> bytes:
        return self._attr_out(self._node(request.node))

    def _on_setattr(self, request: Request) -> bytes:
        node = self._node(request.node)
        self._set_attributes(node, request.body)
        return self._attr_out(node)

    def _set_attributes(self, node: Node, body: bytes) -> None:
        values = SETATTR_IN.unpack(body)
        valid, size = values[0], values[3]
        if valid & FATTR_KILL_SUIDGID:
            node.mode &= ~(stat.S_ISUID | stat.S_ISGID)
        if valid & FATTR_MODE:
            node.mode = stat.S_IFMT(node.mode) | values[11] & 0o7777
        if valid & FATTR_UID:
            node.uid = values[13]
        if valid & FATTR_GID:
            node.gid = values[14]
        if valid & FATTR_SIZE:
            del node.data[size:]
            node.data.extend(bytes(size - len(node.data)))
        self._touch(node, data=bool(valid & FATTR_SIZE))
        if valid & FATTR_ATIME:
            node.atime = node.ctime if valid & FATTR_ATIME_NOW else values[5] * 10**9 + values[8]
        if valid & FATTR_MTIME:
            node.mtime = node.ctime if valid & FATTR_MTIME_NOW else values[6] * 10**9 + values[9]

    def _on_readlink(self, request: Request) -> bytes:
        return self._node(request.node).target

    def _on_symlink(self, request: Request) -> bytes:
        name, target, _ = request.body.split(b"\0")
        node = self._create(request, stat.S_IFLNK | 0o777, name)
        node.target = target
        return self._entry(node)

    def _on_mknod(self, request: Request) -> bytes:
        mode, rdev, _, flags = struct.unpack_from("<IIII", request.body)
        node = self._create_with(request, mode, flags)
        node.rdev = rdev
        return self._entry(node)

    def _create_with(self, request: Request, mode: int, flags: int) -> Node:
        """A file, with the attributes that may come along."""
        rest, attributes = request.body[16:], b""
        if flags & CREATION_WITH_ATTRIBUTES:
            assert self.capabilities & CREATION_ATTRIBUTES
            attributes, rest = rest[: SETATTR_IN.size], rest[SETATTR_IN.size :]
        node = self._create(request, mode, rest[:-1])
        if attributes:
            self._set_attributes(node, attributes)
        return node

    def _on_mkdir(self, request: Request) -> bytes:
        mode, _ = struct.unpack_from("<II", request.body)
        return self._entry(self._create(request, stat.S_IFDIR | mode & 0o7777, request.body[8:-1]))

    def _on_create(self, request: Request) -> bytes:
        flags, mode, _, open_flags = struct.unpack_from("<IIII", request.body)
        assert flags & os.O_EXCL
        node = self._create_with(request, mode, open_flags)
        self.opens[node.inode] += 1
        return self._entry(node) + struct.pack("<QII", 0, 0, 0)

    def _on_unlink(self, request: Request) -> bytes:
        parent, name = self._directory(request.node), request.body[:-1]
        if name not in parent.entries:
            raise Refused(errno.ENOENT)
        if self.nodes[parent.entries[name][0]].is_directory():
            raise Refused(errno.EISDIR)
        self._drop(parent, name)
        return b""

    def _on_rmdir(self, request: Request) -> bytes:
        parent, name = self._directory(request.node), request.body[:-1]
        if name not in parent.entries:
            raise Refused(errno.ENOENT)
        node = self._directory(parent.entries[name][0])
        if node.entries:
            raise Refused(errno.ENOTEMPTY)
        self._drop(parent, name)
        return b""

    def _on_rename2(self, request: Request) -> bytes:
        new_directory, flags, _ = struct.unpack_from("<QII", request.body)
        assert flags == 0
        old_name, new_name, _ = request.body[16:].split(b"\0")
        old, new = self._directory(request.node), self._directory(new_directory)
        if old_name not in old.entries:
            raise Refused(errno.ENOENT)
        node = self.nodes[old.entries[old_name][0]]
        if new_name in new.entries:
            target = self.nodes[new.entries[new_name][0]]
            if target is node:
                return b""
            if target.entries:
                raise Refused(errno.ENOTEMPTY)
            self._drop(new, new_name)
        del old.entries[old_name]
        if node.is_directory():
            old.nlink -= 1
        self._touch(old, data=True)
        self._enter(new, new_name, node)
        self._touch(node)
        return b""

    def _on_link(self, request: Request) -> bytes:
        (old,) = struct.unpack_from("<Q", request.body)
        node = self._node(old)
        self._enter(self._directory(request.node), request.body[8:-1], node)
        node.nlink += 1
        self._touch(node)
        return self._entry(node)

    def _on_open(self, request: Request) -> bytes:
        self.opens[self._node(request.node).inode] += 1
        return struct.pack("<QII", 0, 0, 0)

    def _on_release(self, request: Request) -> bytes:
        node = self._node(request.node)
        self.opens[node.inode] -= 1
        assert self.opens[node.inode] >= 0
        self._reap(node)
        return b""

    def _on_read(self, request: Request) -> bytes:
        _, offset, size, _, _, _, _ = IO_IN.unpack(request.body)
        return bytes(self._node(request.node).data[offset : offset + size])

    def _on_write(self, request: Request) -> bytes:
        _, offset, size, write_flags, _, flags, _ = IO_IN.unpack_from(request.body)
        data = request.body[IO_IN.size :]
        assert len(data) == size <= MAX_WRITE
        node = self._node(request.node)
        node.data.extend(bytes(max(0, offset - len(node.data))))
        node.data[offset : offset + size] = data
        if write_flags & WRITE_KILL_SUIDGID:
            node.mode &= ~(stat.S_ISUID | stat.S_ISGID)
        self._touch(node, data=True)
        self.stable_writes += bool(flags & os.O_DSYNC)
        written = struct.pack("<II", size, 0)
        if write_flags & WRITE_WITH_ATTRIBUTES:
            assert self.capabilities & WRITE_ATTRIBUTES
            return written + self._attr(node)
        return written

    def _on_fsync(self, request: Request) -> bytes:
        self._node(request.node)
        return b""

    def _on_statfs(self, _request: Request) -> bytes:
        return struct.pack("<5Q10I", 1 << 20, 1 << 19, 1 << 18, 1000, 500, 4096, 255, 4096, *[0] * 7)

    def _on_setxattr(self, request: Request) -> bytes:
        size, flags, _, _ = struct.unpack_from("<IIII", request.body)
        name, _, value = request.body[16:].partition(b"\0")
        assert len(value) == size
        node = self._node(request.node)
        if flags & 1 and name in node.xattrs:
            raise Refused(errno.EEXIST)
        if flags & 2 and name not in node.xattrs:
            raise Refused(errno.ENODATA)
        node.xattrs[name] = value
        self._touch(node)
        return b""

    def _sized(self, request: Request, value: bytes) -> bytes:
        (size,) = struct.unpack_from("<I", request.body)
        if size == 0:
            return struct.pack("<II", len(value), 0)
        if len(value) > size:
            raise Refused(errno.ERANGE)
        return value

    def _on_getxattr(self, request: Request) -> bytes:
        name = request.body[8:-1]
        node = self._node(request.node)
        if name not in node.xattrs:
            raise Refused(errno.ENODATA)
        return self._sized(request, node.xattrs[name])

    def _on_listxattr(self, request: Request) -> bytes:
        return self._sized(request, b"".join(name + b"\0" for name in self._node(request.node).xattrs))

    def _on_removexattr(self, request: Request) -> bytes:
        node = self._node(request.node)
        if node.xattrs.pop(request.body[:-1], None) is None:
            raise Refused(errno.ENODATA)
        self._touch(node)
        return b""

    def _on_readdirplus(self, request: Request) -> bytes:
        _, offset, size, _, _, _, _ = IO_IN.unpack(request.body)
        node = self._directory(request.node)
        entries = [(1, b".", node), (2, b"..", self.nodes[node.parent])]
        entries += [(cookie, name, self.nodes[inode]) for name, (inode, cookie) in node.entries.items()]
        answer = b""
        for cookie, name, child in sorted(entries, key=lambda entry: entry[0]):
            if cookie <= offset:
                continue
            entry = self._entry(child) + struct.pack("<QQII", child.inode, cookie, len(name), child.mode >> 12) + name
            entry += bytes(-len(entry) % 8)
            if len(answer) + len(entry) > size:
                break
            answer += entry
        return answer

    def _conflict(
        self, inode: int, session: str, owner: int, start: int, end: int, kind: int
    ) -> tuple[int, int, int] | None:
        for locked, holder, holder_owner, first, last, held in self.locks:
            others = locked == inode and (holder, holder_owner) != (session, owner)
            if others and first <= end and start <= last and 1 in (kind, held):
                return first, last, held
        return None

    def _on_getlk(self, request: Request) -> bytes:
        _, owner, start, end, kind, _, _, _ = struct.unpack("<QQQQIIII", request.body)
        found = self._conflict(self._node(request.node).inode, request.session, owner, start, end, kind)
        return struct.pack("<QQII", *found, 0) if found else struct.pack("<QQII", start, end, 2, 0)

    def _on_setlk(self, request: Request) -> bytes:
        _, owner, start, end, kind, _, _, _ = struct.unpack("<QQQQIIII", request.body)
        inode = self._node(request.node).inode
        if kind != 2 and self._conflict(inode, request.session, owner, start, end, kind):
            raise Refused(errno.EAGAIN)
        kept = []
        for lock in self.locks:
            locked, holder, holder_owner, first, last, held = lock
            if (locked, holder, holder_owner) != (inode, request.session, owner) or first > end or start > last:
                kept.append(lock)
                continue
            if first < start:
                kept.append((locked, holder, holder_owner, first, start - 1, held))
            if last > end:
                kept.append((locked, holder, holder_owner, end + 1, last, held))
        if kind != 2:
            kept.append((inode, request.session, owner, start, end, kind))
        self.locks = kept
        return b""

    def _on_fallocate(self, request: Request) -> bytes:
        _, offset, length, mode, _ = struct.unpack("<QQQII", request.body)
        node = self._node(request.node)
        if mode == 3:
            end = min(offset + length, len(node.data))
            node.data[offset:end] = bytes(max(0, end - offset))
        else:
            node.data.extend(bytes(max(0, offset + length - len(node.data))))
        self._touch(node, data=True)
        return b""

    def _on_lseek(self, request: Request) -> bytes:
        _, offset, whence, _ = struct.unpack("<QQII", request.body)
        data = self._node(request.node).data
        if offset >= len(data):
            raise Refused(errno.ENXIO)
        while offset < len(data) and any(data[offset : offset + 4096]) != (whence == os.SEEK_DATA):
            offset += 4096 - offset % 4096
        if offset >= len(data) and whence == os.SEEK_DATA:
            raise Refused(errno.ENXIO)
        return struct.pack("<Q", min(offset, len(data)))
