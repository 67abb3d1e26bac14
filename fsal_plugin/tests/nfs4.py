# SPDX-License-Identifier: LGPL-3.0-or-later
"""A client of NFSv4.2, as small as the tests allow: one session with one slot.

The libraries at hand cannot write over NFSv4, and show nothing of states, verifiers and reservations.
"""

import itertools
import os
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass

OK, EXIST, ACCESS, NOENT, FBIG, STALE, BADHANDLE = 0, 17, 13, 2, 27, 70, 10001
SHARE_DENIED, DENIED, NOXATTR, NXIO = 10015, 10010, 10095, 6
READ, WRITE, BOTH = 1, 2, 3
UNSTABLE, FILE_SYNC = 0, 2
UNCHECKED, GUARDED, EXCLUSIVE41 = 0, 1, 3
ANONYMOUS = bytes(16)
ATTR_CHANGE, ATTR_SIZE, ATTR_MODE, ATTR_OWNER = 3, 4, 33, 36


class Status(Exception):
    def __init__(self, operation: int, number: int, found: object = None) -> None:
        super().__init__(f"operation {operation} answered {number}")
        self.number = number
        self.found = found


class Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    def fixed(self, count: int) -> bytes:
        taken = self.data[self.position : self.position + count]
        assert len(taken) == count, "the answer is too short"
        self.position += count + -count % 4
        return taken

    def u32(self) -> int:
        return int(struct.unpack(">I", self.fixed(4))[0])

    def u64(self) -> int:
        return int(struct.unpack(">Q", self.fixed(8))[0])

    def opaque(self) -> bytes:
        return self.fixed(self.u32())

    def words(self) -> list[int]:
        return [self.u32() for _ in range(self.u32())]


def u32(*numbers: int) -> bytes:
    return struct.pack(f">{len(numbers)}I", *numbers)


def u64(*numbers: int) -> bytes:
    return struct.pack(f">{len(numbers)}Q", *numbers)


def opaque(data: bytes) -> bytes:
    return u32(len(data)) + data + bytes(-len(data) % 4)


def bitmap(*attributes: int) -> bytes:
    words = [0, 0, 0]
    for attribute in attributes:
        words[attribute // 32] |= 1 << attribute % 32
    return u32(3, *words)


def attributes_of(mode: int | None = None, size: int | None = None) -> bytes:
    """In the order of their numbers."""
    present, values = [], b""
    if size is not None:
        present.append(ATTR_SIZE)
        values += u64(size)
    if mode is not None:
        present.append(ATTR_MODE)
        values += u32(mode)
    return bitmap(*present) + opaque(values)


@dataclass
class Operation:
    number: int
    arguments: bytes = b""
    decode: Callable[[Reader], object] = lambda _reader: None


@dataclass
class Opened:
    handle: bytes
    stateid: bytes


def _decode_open(reader: Reader) -> bytes:
    stateid = reader.fixed(16)
    reader.fixed(4 + 16)  # change_info
    reader.u32()
    reader.words()
    delegation = reader.u32()
    assert delegation in (0, 3), "a delegation was given"
    if delegation == 3 and reader.u32() in (1, 2):
        reader.u32()
    return stateid


def _decode_attributes(reader: Reader) -> Reader:
    reader.words()
    return Reader(reader.opaque())


class Client:
    _names = itertools.count(1)

    def __init__(
        self, host: str = "127.0.0.1", port: int = 2049, *, uid: int = 0, gid: int = 0, groups: tuple[int, ...] = ()
    ) -> None:
        self.socket = socket.create_connection((host, port), timeout=60)
        self.credentials = u32(0) + opaque(b"test") + u32(uid, gid, len(groups), *groups)
        self.xid = itertools.count(1)
        self.sequence = 0
        self.session = b""
        self.owner = f"test {os.getpid()} {next(self._names)}".encode()
        self._begin()

    def close(self) -> None:
        self.socket.close()

    # -- calls --

    def _call(self, body: bytes) -> Reader:
        xid = next(self.xid)
        message = u32(xid, 0, 2, 100003, 4, 1, 1) + opaque(self.credentials) + u32(0, 0) + body
        self.socket.sendall(u32(len(message) | 1 << 31) + message)
        answer = b""
        last = False
        while not last:
            (mark,) = struct.unpack(">I", self._receive(4))
            last = bool(mark >> 31)
            answer += self._receive(mark & 0x7FFFFFFF)
        reader = Reader(answer)
        assert reader.u32() == xid
        assert (reader.u32(), reader.u32()) == (1, 0), "the call was rejected"
        reader.u32()
        reader.opaque()
        assert reader.u32() == 0, "the call was not accepted"
        return reader

    def _receive(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            piece = self.socket.recv(count - len(data))
            assert piece, "the server closed the connection"
            data += piece
        return data

    def _compound(self, *operations: Operation) -> list[object]:
        body = opaque(b"") + u32(2, len(operations))
        reader = self._call(body + b"".join(u32(o.number) + o.arguments for o in operations))
        reader.u32()
        reader.opaque()
        reader.u32()
        results = []
        for operation in operations:
            assert reader.u32() == operation.number
            status = reader.u32()
            if status == DENIED:
                raise Status(operation.number, status, (reader.u64(), reader.u64(), reader.u32()))
            if status != OK:
                raise Status(operation.number, status)
            results.append(operation.decode(reader))
        return results

    def call(self, *operations: Operation) -> list[object]:
        """One compound in the session. A refusal to be patient (DELAY, GRACE) is repeated."""
        for _ in range(300):
            self.sequence += 1
            sequence = Operation(53, self.session + u32(self.sequence, 0, 0, 0), lambda reader: reader.fixed(36))
            try:
                return self._compound(sequence, *operations)[1:]
            except Status as status:
                if status.number not in (10008, 10013):
                    raise
                time.sleep(0.1)
        raise TimeoutError("the server asks for patience without end")

    def _begin(self) -> None:
        def decode_exchange(reader: Reader) -> tuple[int, int]:
            result = reader.u64(), reader.u32()
            reader.u32()
            assert reader.u32() == 0
            reader.u64()
            reader.opaque()
            reader.opaque()
            reader.u32()
            return result

        def decode_session(reader: Reader) -> bytes:
            session = reader.fixed(16)
            reader.fixed(8)
            for _ in range(2):
                reader.fixed(24)
                reader.words()
            return session

        exchange = Operation(42, os.urandom(8) + opaque(self.owner) + u32(0, 0, 0), decode_exchange)
        (identified,) = self._compound(exchange)
        assert isinstance(identified, tuple)
        self.clientid, sequence = identified
        channel = u32(0, 2 << 20, 2 << 20, 4096, 16, 1, 0)
        create = Operation(
            43, u64(self.clientid) + u32(sequence, 0) + channel + channel + u32(0x40000000, 1, 0), decode_session
        )
        (session,) = self._compound(create)
        assert isinstance(session, bytes)
        self.session = session
        self.call(Operation(58, u32(0)))

    # -- objects --

    def walk(self, path: str) -> list[Operation]:
        return [Operation(24), *(Operation(15, opaque(name.encode())) for name in path.split("/") if name)]

    def handle(self, path: str) -> bytes:
        result = self.call(*self.walk(path), Operation(10, b"", Reader.opaque))[-1]
        assert isinstance(result, bytes)
        return result

    def on(self, handle: bytes, *operations: Operation) -> object:
        return self.call(Operation(22, opaque(handle)), *operations)[-1]

    def open(
        self, directory: str, name: str, access: int, *, deny: int = 0, owner: bytes = b"o", create: bytes | None = None
    ) -> Opened:
        """`create` is an openhow without its first word; see `unchecked` and its like."""
        how = u32(0) if create is None else u32(1) + create
        arguments = u32(0, access, deny) + u64(self.clientid) + opaque(owner) + how + u32(0) + opaque(name.encode())
        results = self.call(
            *self.walk(directory), Operation(18, arguments, _decode_open), Operation(10, b"", Reader.opaque)
        )
        stateid, handle = results[-2:]
        assert isinstance(stateid, bytes)
        assert isinstance(handle, bytes)
        return Opened(handle, stateid)

    def close_file(self, opened: Opened) -> None:
        self.on(opened.handle, Operation(4, u32(0) + opened.stateid, lambda reader: reader.fixed(16)))

    def read(self, opened: Opened, offset: int, count: int) -> tuple[bytes, bool]:
        def decode(reader: Reader) -> tuple[bytes, bool]:
            eof = bool(reader.u32())
            return reader.opaque(), eof

        result = self.on(opened.handle, Operation(25, opened.stateid + u64(offset) + u32(count), decode))
        assert isinstance(result, tuple)
        return result

    def write(self, opened: Opened, offset: int, data: bytes, stable: int = UNSTABLE) -> tuple[int, int, bytes]:
        """Count, stability, verifier."""
        arguments = opened.stateid + u64(offset) + u32(stable) + opaque(data)
        decode = Operation(38, arguments, lambda reader: (reader.u32(), reader.u32(), reader.fixed(8)))
        result = self.on(opened.handle, decode)
        assert isinstance(result, tuple)
        return result

    def commit(self, handle: bytes) -> bytes:
        result = self.on(handle, Operation(5, u64(0) + u32(0), lambda reader: reader.fixed(8)))
        assert isinstance(result, bytes)
        return result

    def attributes(self, handle: bytes) -> tuple[int, int, int]:
        """Change, size, mode."""

        def decode(reader: Reader) -> tuple[int, int, int]:
            values = _decode_attributes(reader)
            return values.u64(), values.u64(), values.u32()

        result = self.on(handle, Operation(9, bitmap(ATTR_CHANGE, ATTR_SIZE, ATTR_MODE), decode))
        assert isinstance(result, tuple)
        return result

    def symlink(self, directory: str, name: str, target: bytes) -> bytes:
        """Its handle."""
        arguments = u32(5) + opaque(target) + opaque(name.encode()) + attributes_of()
        create = Operation(6, arguments, lambda reader: (reader.fixed(20), reader.words()))
        result = self.call(*self.walk(directory), create, Operation(10, b"", Reader.opaque))[-1]
        assert isinstance(result, bytes)
        return result

    def set_mode(self, handle: bytes, mode: int) -> None:
        self.on(handle, Operation(34, ANONYMOUS + attributes_of(mode), Reader.words))

    def remove(self, directory: str, name: str) -> None:
        self.call(*self.walk(directory), Operation(28, opaque(name.encode()), lambda reader: reader.fixed(20)))

    # -- locks --

    def lock(self, opened: Opened, kind: int, offset: int, length: int, owner: bytes) -> bytes:
        locker = u32(1, 0) + opened.stateid + u32(0) + u64(self.clientid) + opaque(owner)
        arguments = u32(kind, 0) + u64(offset, length) + locker
        result = self.on(opened.handle, Operation(12, arguments, lambda reader: reader.fixed(16)))
        assert isinstance(result, bytes)
        return result

    def test_lock(self, handle: bytes, kind: int, offset: int, length: int, owner: bytes) -> None:
        self.on(handle, Operation(13, u32(kind) + u64(offset, length) + u64(self.clientid) + opaque(owner)))

    def unlock(self, opened: Opened, stateid: bytes, offset: int, length: int) -> None:
        self.on(
            opened.handle, Operation(14, u32(WRITE, 0) + stateid + u64(offset, length), lambda reader: reader.fixed(16))
        )

    # -- NFSv4.2 --

    def seek(self, opened: Opened, offset: int, what: int) -> tuple[bool, int]:
        """`what` is 0 for data, 1 for a hole."""
        decode = Operation(
            69, opened.stateid + u64(offset) + u32(what), lambda reader: (bool(reader.u32()), reader.u64())
        )
        result = self.on(opened.handle, decode)
        assert isinstance(result, tuple)
        return result

    def allocate(self, opened: Opened, offset: int, length: int) -> None:
        self.on(opened.handle, Operation(59, opened.stateid + u64(offset, length)))

    def deallocate(self, opened: Opened, offset: int, length: int) -> None:
        self.on(opened.handle, Operation(62, opened.stateid + u64(offset, length)))

    def set_xattr(self, handle: bytes, name: str, value: bytes, option: int = 0) -> None:
        self.on(
            handle, Operation(73, u32(option) + opaque(name.encode()) + opaque(value), lambda reader: reader.fixed(20))
        )

    def get_xattr(self, handle: bytes, name: str) -> bytes:
        result = self.on(handle, Operation(72, opaque(name.encode()), Reader.opaque))
        assert isinstance(result, bytes)
        return result

    def list_xattrs(self, handle: bytes, bytes_max: int = 4096) -> list[bytes]:
        """As many calls as it takes."""

        def decode(reader: Reader) -> tuple[int, list[bytes], bool]:
            cookie = reader.u64()
            return cookie, [reader.opaque() for _ in range(reader.u32())], reader.u32() == 1

        names: list[bytes] = []
        cookie, at_end = 0, False
        while not at_end:
            result = self.on(handle, Operation(74, u64(cookie) + u32(bytes_max), decode))
            assert isinstance(result, tuple)
            cookie, some, at_end = result
            names += some
        return names

    def remove_xattr(self, handle: bytes, name: str) -> None:
        self.on(handle, Operation(75, opaque(name.encode()), lambda reader: reader.fixed(20)))


def unchecked(mode: int = 0o644, size: int | None = None) -> bytes:
    return u32(UNCHECKED) + attributes_of(mode, size)


def guarded(mode: int = 0o644) -> bytes:
    return u32(GUARDED) + attributes_of(mode)


def exclusive(verifier: bytes, mode: int = 0o644) -> bytes:
    return u32(EXCLUSIVE41) + verifier + attributes_of(mode)
