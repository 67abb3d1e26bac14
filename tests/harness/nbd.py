"""A small NBD client over a Unix socket: fixed newstyle handshake, simple replies, one request at a time.

Written against the protocol document rather than on libnbd, so that requests libnbd would refuse to send
(out of range, unknown export) can be sent, and the exact error number of the reply be seen.
"""

import errno
import socket
import struct
from pathlib import Path
from types import TracebackType

SECTOR_BYTES = 512
NBDMAGIC = 0x4E42444D41474943
IHAVEOPT = 0x49484156454F5054
OPTION_REPLY = 0x0003E889045565A9
REQUEST = 0x25609513
SIMPLE_REPLY = 0x67446698
OPT_GO = 7
REP_ACK, REP_INFO = 1, 3
REP_ERR_UNKNOWN = (1 << 31) + 6
INFO_EXPORT = 0
CMD_READ, CMD_WRITE, CMD_DISC, CMD_FLUSH, CMD_TRIM, CMD_WRITE_ZEROES = 0, 1, 2, 3, 4, 6
FLAG_FUA = 1


class NbdError(OSError):
    """The server answered a request with an error number."""


class UnknownExport(Exception):
    """The server knows no export of this name."""


class NbdDisk:
    """One connection to one export; a `Disk` of `harness.verifier`."""

    def __init__(self, socket_path: Path, export: str, limit_s: float = 60.0) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(limit_s)
        self._cookie = 0
        self.size = 0
        self.transmission_flags = 0
        try:
            self._socket.connect(str(socket_path))
            self._handshake(export.encode())
        except BaseException:
            self._socket.close()
            raise

    def __enter__(self) -> "NbdDisk":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def read(self, offset: int, length: int) -> bytes:
        return self._request(CMD_READ, offset, length, reply_bytes=length)

    def ask_to_read(self, offset: int, length: int) -> None:
        """And leaves the answer where it is."""
        self._socket.sendall(struct.pack(">IHHQQI", REQUEST, 0, CMD_READ, 0, offset, length))

    def write(self, offset: int, data: bytes, fua: bool = False) -> None:
        self._request(CMD_WRITE, offset, len(data), data, FLAG_FUA if fua else 0)

    def flush(self) -> None:
        self._request(CMD_FLUSH, 0, 0)

    def trim(self, offset: int, length: int) -> None:
        self._request(CMD_TRIM, offset, length)

    def write_zeroes(self, offset: int, length: int) -> None:
        self._request(CMD_WRITE_ZEROES, offset, length)

    def close(self) -> None:
        try:
            self._socket.sendall(struct.pack(">IHHQQI", REQUEST, 0, CMD_DISC, 0, 0, 0))
        except OSError:
            pass  # A dead server needs no goodbye.
        finally:
            self._socket.close()

    def _handshake(self, export: bytes) -> None:
        magic, option_magic, _flags = struct.unpack(">QQH", self._receive(18))
        if (magic, option_magic) != (NBDMAGIC, IHAVEOPT):
            raise ConnectionError(f"not an NBD newstyle server: {magic:#x} {option_magic:#x}")
        go = struct.pack(">I", len(export)) + export + struct.pack(">H", 0)
        self._socket.sendall(struct.pack(">I", 3) + struct.pack(">QII", IHAVEOPT, OPT_GO, len(go)) + go)
        while True:
            _magic, _option, kind, length = struct.unpack(">QIII", self._receive(20))
            payload = self._receive(length)
            if kind == REP_ACK:
                return
            if kind == REP_ERR_UNKNOWN:
                raise UnknownExport(payload.decode(errors="replace"))
            if kind & (1 << 31):
                raise ConnectionError(f"option GO refused with {kind:#x}: {payload.decode(errors='replace')}")
            if kind == REP_INFO and struct.unpack(">H", payload[:2])[0] == INFO_EXPORT:
                self.size, self.transmission_flags = struct.unpack(">QH", payload[2:12])

    def _request(
        self, command: int, offset: int, length: int, data: bytes = b"", flags: int = 0, reply_bytes: int = 0
    ) -> bytes:
        self._cookie += 1
        self._socket.sendall(struct.pack(">IHHQQI", REQUEST, flags, command, self._cookie, offset, length) + data)
        magic, error, cookie = struct.unpack(">IIQ", self._receive(16))
        if magic != SIMPLE_REPLY or cookie != self._cookie:
            raise ConnectionError(f"bad reply: magic {magic:#x}, cookie {cookie} for {self._cookie}")
        if error:
            raise NbdError(error, errno.errorcode.get(error, "unknown"))
        return self._receive(reply_bytes)

    def _receive(self, length: int) -> bytes:
        data = bytearray(length)
        view, filled = memoryview(data), 0
        while filled < length:
            count = self._socket.recv_into(view[filled:])
            if count == 0:
                raise ConnectionError("the server closed the connection")
            filled += count
        return bytes(data)
