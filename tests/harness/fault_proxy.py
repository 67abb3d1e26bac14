"""An HTTP/1.1 proxy that makes an S3 server slow, busy or treacherous.

Sits between the gateway and the server on a loopback port of its own. Faults are set while it runs and drawn
from a seeded generator. It forwards the Host header untouched, so signatures stay valid. It never alters a
body. Owns one thread with one event loop.
"""

import asyncio
import contextlib
import random
import socket
import ssl
import struct
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from harness.tools import free_port

SLOW_DOWN = (
    "503 Slow Down",
    b'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>SlowDown</Code><Message>Please reduce your request rate.'
    b"</Message></Error>",
)
INTERNAL_ERROR = (
    "500 Internal Server Error",
    b'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>InternalError</Code><Message>We encountered an internal '
    b"error. Please try again.</Message></Error>",
)
EXPIRED = (
    "403 Forbidden",
    b'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>ExpiredToken</Code><Message>The provided token has expired.'
    b"</Message></Error>",
)
TIME_SKEWED = (
    "403 Forbidden",
    b'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>RequestTimeTooSkewed</Code><Message>The difference between '
    b"the request time and the current time is too large.</Message></Error>",
)


@dataclass
class Faults:
    """What happens to a request. The fractions are probabilities, applied in this order."""

    error_fraction: float = 0.0
    """Answered with 500 or 503, in equal parts, without reaching the server."""
    lost_reply_fraction: float = 0.0
    """Carried out by the server, but the connection is reset instead of a reply."""
    delay_s: float = 0.0
    """Waited before each request is handled."""
    refuses: Callable[[str, str, dict[str, str]], bool] | None = None
    """Of method, path and headers: whether the request is answered as if the server were busy."""
    hangs: Callable[[str, str], bool] | None = None
    """Of method and path: whether the request is swallowed, and nothing ever comes back."""
    refusal: tuple[str, bytes] | None = None
    """Status and body that every request is answered with, without reaching the server."""


@dataclass(frozen=True)
class Exchange:
    """One request that was answered."""

    method: str
    target: str
    """Path and query."""
    sent_bytes: int
    """The body of the request."""
    status: int
    received_bytes: int
    """The body of the answer."""


@dataclass
class Counts:
    connections: int = 0
    """That were accepted, ended ones too."""
    forwarded: int = 0
    refused_with_error: int = 0
    lost_replies: int = 0
    hung: list[str] = field(default_factory=list)
    """Paths of what was swallowed."""
    reply_bytes: int = 0
    """With their heads."""
    methods: dict[str, int] = field(default_factory=dict)
    exchanges: list[Exchange] = field(default_factory=list)
    """Whatever became of the answer. Those that never reached the server have 503, whatever was answered."""


class FaultProxy:
    def __init__(self, upstream_port: int, seed: int, tls: ssl.SSLContext | None = None) -> None:
        """`tls`: of the way to the proxy; the server behind it is asked without."""
        self.port = free_port()
        self.tls = tls
        self.faults = Faults()
        self.counts = Counts()
        self.upstream_port = upstream_port
        self._random = random.Random(seed)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fault-proxy", daemon=True)
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.StreamWriter] = set()

    @property
    def endpoint(self) -> str:
        return f"{'http' if self.tls is None else 'https'}://127.0.0.1:{self.port}"

    def start(self) -> None:
        self._thread.start()
        self.listen()

    def listen(self) -> None:
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(10)

    def refuse(self) -> None:
        """Stops listening and resets what is open: the cloud is gone until `listen`."""
        asyncio.run_coroutine_threadsafe(self._refuse(), self._loop).result(10)

    def close(self) -> None:
        self.refuse()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _listen(self) -> None:
        if self._server is None:
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, ssl=self.tls)

    async def _refuse(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in list(self._connections):
            reset(writer)
        # The cancelled handlers take their leave before the caller goes on.
        for _ in range(3):
            await asyncio.sleep(0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.add(writer)
        self.counts.connections += 1
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                while await self._exchange(reader, writer):
                    pass
        finally:
            self._connections.discard(writer)
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """One request and its answer; false when the connection is done."""
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return False
        method, path = head.decode("latin-1").split(" ", 2)[:2]
        self.counts.methods[method] = self.counts.methods.get(method, 0) + 1
        headers = parse_headers(head)
        if headers.get("expect", "").lower() == "100-continue":
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = b"".join([part async for part in read_body(reader, headers)])
        if self.faults.hangs is not None and self.faults.hangs(method, path):
            self.counts.hung.append(path)
            await reader.read()
            return False
        if self.faults.delay_s > 0:
            await asyncio.sleep(self.faults.delay_s)
        if self.faults.refusal is not None:
            status, text = self.faults.refusal
            self.counts.refused_with_error += 1
            await answer(writer, status, b"" if method == "HEAD" else text)
            return True
        is_refused = self.faults.refuses is not None and self.faults.refuses(method, path, headers)
        if is_refused or self._random.random() < self.faults.error_fraction:
            self.counts.refused_with_error += 1
            self.counts.exchanges.append(Exchange(method, path, len(body), 503, 0))
            status, text = SLOW_DOWN if self._random.random() < 0.5 else INTERNAL_ERROR
            await answer(writer, status, b"" if method == "HEAD" else text)
            return True
        reply = await self._forward(method, without_expect(head), body)
        reply_head, _, reply_body = reply.partition(b"\r\n\r\n")
        code = int(reply_head.split(b" ", 2)[1])
        self.counts.exchanges.append(Exchange(method, path, len(body), code, len(reply_body)))
        if self._random.random() < self.faults.lost_reply_fraction:
            self.counts.lost_replies += 1
            reset(writer)
            return False
        self.counts.forwarded += 1
        self.counts.reply_bytes += len(reply)
        writer.write(reply)
        await writer.drain()
        return True

    async def _forward(self, method: str, head: bytes, body: bytes) -> bytes:
        """The server's whole reply; a server that cannot be reached becomes a reset."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.upstream_port)
        try:
            writer.write(head + body)
            await writer.drain()
            while True:
                reply_head = await reader.readuntil(b"\r\n\r\n")
                status = int(reply_head.split(b" ", 2)[1])
                if status >= 200:
                    break
            if method == "HEAD" or status in (204, 304):
                return reply_head
            parts = [part async for part in read_body(reader, parse_headers(reply_head), is_reply=True)]
            return with_length(reply_head, sum(map(len, parts))) + b"".join(parts)
        finally:
            writer.close()


def parse_headers(head: bytes) -> dict[str, str]:
    lines = head.decode("latin-1").split("\r\n")[1:]
    pairs = (line.partition(":") for line in lines if ":" in line)
    return {name.strip().lower(): value.strip() for name, _, value in pairs}


def without_expect(head: bytes) -> bytes:
    lines = head.split(b"\r\n")
    return b"\r\n".join(line for line in lines if not line.lower().startswith(b"expect:"))


def with_length(head: bytes, length: int) -> bytes:
    """The head of a reply whose body is passed on in one piece."""
    dropped = (b"transfer-encoding:", b"content-length:", b"connection:")
    lines = [line for line in head[:-4].split(b"\r\n") if not line.lower().startswith(dropped)]
    return b"\r\n".join([*lines, b"Content-Length: %d" % length, b"", b""])


async def read_body(
    reader: asyncio.StreamReader, headers: dict[str, str], is_reply: bool = False
) -> AsyncIterator[bytes]:
    if headers.get("transfer-encoding", "").lower() == "chunked":
        while True:
            length = int((await reader.readline()).split(b";")[0], 16)
            chunk = await reader.readexactly(length + 2)
            if length == 0:
                return
            yield chunk[:-2]
    elif "content-length" in headers:
        yield await reader.readexactly(int(headers["content-length"]))
    elif is_reply:
        yield await reader.read(-1)


async def answer(writer: asyncio.StreamWriter, status: str, body: bytes) -> None:
    writer.write(
        f"HTTP/1.1 {status}\r\nContent-Type: application/xml\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
    )
    await writer.drain()


def reset(writer: asyncio.StreamWriter) -> None:
    """Closes with RST: the peer sees a broken connection, not an end of data."""
    raw = writer.get_extra_info("socket")
    if raw is not None:
        with contextlib.suppress(OSError):
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
