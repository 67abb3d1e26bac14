"""NFSv3's CREATE with a verifier, which libnfs does not send: who lost the answer comes again with the same."""

import os
import socket
import struct

MOUNT_PROGRAM, NFS_PROGRAM = 100005, 100003
MNT, CREATE = 1, 8
EXCLUSIVE = 2
LIMIT_S = 30.0


class _Answer:
    def __init__(self, data: bytes) -> None:
        self._data = data

    def number(self) -> int:
        number, self._data = struct.unpack(">I", self._data[:4])[0], self._data[4:]
        return int(number)

    def opaque(self) -> bytes:
        length = self.number()
        found, self._data = self._data[:length], self._data[length + -length % 4 :]
        return found


def _numbers(*numbers: int) -> bytes:
    return struct.pack(f">{len(numbers)}I", *numbers)


def _opaque(data: bytes) -> bytes:
    return _numbers(len(data)) + data + bytes(-len(data) % 4)


def _call(port: int, program: int, procedure: int, arguments: bytes) -> _Answer:
    """As root, over a connection of its own."""
    credentials = _numbers(0) + _opaque(b"test") + _numbers(0, 0, 0)
    (xid,) = struct.unpack(">I", os.urandom(4))
    message = _numbers(xid, 0, 2, program, 3, procedure, 1) + _opaque(credentials) + _numbers(0, 0) + arguments
    with socket.create_connection(("127.0.0.1", port), LIMIT_S) as connection:
        connection.sendall(_numbers(len(message) | 1 << 31) + message)
        stream = connection.makefile("rb")
        (mark,) = struct.unpack(">I", stream.read(4))
        answer = _Answer(stream.read(mark & 0x7FFFFFFF))
    if (answer.number(), answer.number(), answer.number()) != (xid, 1, 0):
        raise ConnectionError("the call was rejected")
    answer.number()
    answer.opaque()
    if answer.number() != 0:
        raise ConnectionError("the call was not accepted")
    return answer


def root_handle(mount_port: int, export: str) -> bytes:
    answer = _call(mount_port, MOUNT_PROGRAM, MNT, _opaque(export.encode()))
    if (status := answer.number()) != 0:
        raise OSError(status, "MNT", export)
    return answer.opaque()


def create_exclusively(port: int, directory: bytes, name: str, verifier: bytes) -> bytes:
    """The file's handle; `verifier` has 8 bytes."""
    arguments = _opaque(directory) + _opaque(name.encode()) + _numbers(EXCLUSIVE) + verifier
    answer = _call(port, NFS_PROGRAM, CREATE, arguments)
    if (status := answer.number()) != 0:
        raise OSError(status, "CREATE", name)
    if answer.number() != 1:
        raise OSError("no handle came along")
    return answer.opaque()
