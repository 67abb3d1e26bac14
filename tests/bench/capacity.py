"""A store of limited capacity: an S3 server behind a proxy that serves so many requests at once, and what its log says.

The log is the measure of uploads: it says when each marked block was in the store, by a clock that no gateway has a
hand in.
"""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from bench.cloud import example_binary
from harness.object_store import S3Server
from harness.process import Process
from harness.tools import can_connect, free_port

MARK = b"written-at-micro"
BLOCK_BYTES = 4096


@dataclass(frozen=True)
class Capacity:
    servers: int
    service_ms: float
    """Of each request, give or take a third."""
    ms_per_mib: float = 0

    @property
    def requests_per_s(self) -> float:
        return self.servers * 1e3 / self.service_ms

    def __str__(self) -> str:
        return (
            f"{self.servers} requests at once, {self.service_ms:g} ms each and {self.ms_per_mib:g} ms more for a MiB:"
            f" {self.requests_per_s:g} small ones a second at the most"
        )


@dataclass(frozen=True)
class Exchange:
    """One request that was answered."""

    at_s: float
    """When; Unix time."""
    method: str
    path: str
    status: int
    bytes: int
    waited_s: float
    """For a server."""
    written_s: tuple[float, ...]
    """The times from the marks in its body."""


class LimitedStore:
    """The proxy. It may be stopped by SIGSTOP, and goes on."""

    def __init__(self, capacity: Capacity, server: S3Server, folder: Path, stack: ExitStack) -> None:
        self.port = free_port()
        self.log_path = folder / f"capacity-{self.port}.requests"
        self.process = Process("capacity_proxy", folder / "capacity_proxy.log")
        stack.callback(self.process.kill9)
        listen, to = f"127.0.0.1:{self.port}", f"127.0.0.1:{server.port}"
        numbers = [str(capacity.servers), str(capacity.service_ms), str(capacity.ms_per_mib)]
        self.process.start([example_binary("capacity_proxy"), listen, to, *numbers, self.log_path])
        self.process.wait_until(lambda: can_connect(self.port), 20, "listening socket")

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def exchanges(self) -> Iterator[Exchange]:
        """All so far."""
        for line in self.log_path.read_text().splitlines():
            at, method, path, status, size, waited, *written = line.split(" ")
            marks = tuple(int(each) / 1e6 for each in written)
            yield Exchange(int(at) / 1e6, method, path, int(status), int(size), int(waited) / 1e6, marks)


def marked(at_s: float, unique: bytes) -> bytes:
    """A block that says when it was written, and has not been written before."""
    head = MARK + int(at_s * 1e6).to_bytes(8, "little") + unique
    return head.ljust(BLOCK_BYTES, b"\x5a")


def now_s() -> float:
    """As the proxy's log has it."""
    return time.time()
