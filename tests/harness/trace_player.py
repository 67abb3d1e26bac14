"""Plays a trace against an NBD export and tells how long each request took, and the player itself between them.

One thread and one connection per client of the trace; a connection carries many requests at a time. Requests go out in
the trace's order: in a closed loop as soon as fewer than a given number are under way, or else at their own times. A
process of its own (`python -m harness.trace_player JOB`), lest other threads of the test delay it.
"""

import json
import random
import selectors
import struct
import sys
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.nbd import CMD_READ, CMD_WRITE, REQUEST, SIMPLE_REPLY, NbdDisk, NbdError
from harness.tools import REPOSITORY, run
from harness.traces import BLOCK, Request, load

HEADER_BYTES = 16
STALLED_S = 60.0
"""Without any answer for this long the play has failed."""


@dataclass
class UnderWay:
    index: int
    sent_at: float
    reply_bytes: int


class Connection(NbdDisk):
    """Requests in flight at the same time; their cookies are their places in the trace."""

    def __init__(self, socket_path: Path, export: str) -> None:
        super().__init__(socket_path, export)
        self._socket.setblocking(False)
        self._out = bytearray()
        self._in = bytearray()
        self._waiting: dict[int, UnderWay] = {}

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def events(self) -> int:
        return selectors.EVENT_READ | (selectors.EVENT_WRITE if self._out else 0)

    def ask(self, index: int, request: Request, data: bytes) -> None:
        command = CMD_WRITE if data else CMD_READ
        length = request.count * BLOCK
        self._out += struct.pack(">IHHQQI", REQUEST, 0, command, index, request.block * BLOCK, length) + data
        self._waiting[index] = UnderWay(index, time.monotonic(), 0 if data else length)
        self.send()

    def send(self) -> None:
        if self._out:
            try:
                del self._out[: self._socket.send(self._out)]
            except BlockingIOError:
                return

    def receive(self) -> list[UnderWay]:
        """What is answered in full."""
        part = self._socket.recv(1 << 20)
        if not part:
            raise ConnectionError("the server closed the connection")
        self._in += part
        done, position = [], 0
        while len(self._in) - position >= HEADER_BYTES:
            magic, error, cookie = struct.unpack_from(">IIQ", self._in, position)
            if magic != SIMPLE_REPLY or cookie not in self._waiting:
                raise ConnectionError(f"bad reply: magic {magic:#x}, cookie {cookie}")
            if error:
                raise NbdError(error, f"request {cookie} of the trace")
            end = position + HEADER_BYTES + self._waiting[cookie].reply_bytes
            if len(self._in) < end:
                break
            done.append(self._waiting.pop(cookie))
            position = end
        del self._in[:position]
        return done


class Player:
    """`outstanding_max` 0: requests come at the trace's times. What is written depends on the export, and where its
    contents have no names on the part that is played of it: what the store holds already would be deduplicated."""

    def __init__(
        self, trace: list[Request], connections: dict[int, Connection], outstanding_max: int, export: str, part: str
    ) -> None:
        self._trace = trace
        self._connections = connections
        self._outstanding_max = outstanding_max
        self._export = export
        self._random = random.Random(f"{export} {part}")
        self._selector = selectors.DefaultSelector()
        for connection in connections.values():
            self._selector.register(connection, selectors.EVENT_READ, connection)
        self._next = 0
        self._under_way = 0
        self._began = time.monotonic()
        self._answered_at: deque[float] = deque()
        self.latencies_ms = [0.0] * len(trace)
        self.think_times_us: list[float] = []
        """In a closed loop: from each answer to when the request that takes its place has been sent."""

    def play(self) -> None:
        self._began = time.monotonic()
        while self._next < len(self._trace) or self._under_way:
            while self._is_due():
                self._issue()
            self._wait()

    def _is_due(self) -> bool:
        if self._next == len(self._trace):
            return False
        if self._outstanding_max:
            return self._under_way < self._outstanding_max
        return self._until_due() <= 0

    def _until_due(self) -> float:
        return self._began + self._trace[self._next].time_us / 1e6 - time.monotonic()

    def _issue(self) -> None:
        request = self._trace[self._next]
        self._connections[request.client].ask(self._next, request, self._data(request))
        self._next += 1
        self._under_way += 1
        if self._outstanding_max and self._answered_at:
            self.think_times_us.append((time.monotonic() - self._answered_at.popleft()) * 1e6)

    def _data(self, request: Request) -> bytes:
        if request.op != "W":
            return b""
        if not request.contents:
            return self._random.randbytes(request.count * BLOCK)
        return b"".join(
            random.Random(f"{self._export} {name}").randbytes(BLOCK) if name else bytes(BLOCK)
            for name in request.contents
        )

    def _wait(self) -> None:
        is_timed = not self._outstanding_max and self._next < len(self._trace)
        limit = max(self._until_due(), 0.0) if is_timed else STALLED_S
        for each in self._connections.values():
            self._selector.modify(each, each.events, each)
        ready = self._selector.select(limit)
        if not ready and not is_timed:
            raise TimeoutError(f"{self._under_way} requests are not answered")
        came_at = time.monotonic()
        for key, events in ready:
            connection: Connection = key.data
            if events & selectors.EVENT_WRITE:
                connection.send()
            if events & selectors.EVENT_READ:
                for done in connection.receive():
                    self._under_way -= 1
                    self._answered_at.append(came_at)
                    self.latencies_ms[done.index] = (came_at - done.sent_at) * 1e3


@dataclass(frozen=True)
class Played:
    latencies_ms: list[float]
    """Of each request of the trace."""
    think_times_us: list[float]
    """Of the player, between an answer and the request that takes its place."""


def play(
    nbd_socket: Path, export: str, trace: Path, outstanding_max: int, part: str, limit_s: float = 1200.0
) -> Played:
    """In a process of its own."""
    job = {
        "socket": str(nbd_socket),
        "export": export,
        "trace": str(trace),
        "outstanding_max": outstanding_max,
        "part": part,
    }
    command = [sys.executable, "-m", "harness.trace_player", json.dumps(job)]
    return Played(**json.loads(run(command, limit_s, cwd=REPOSITORY / "tests").stdout))


def main(job: dict[str, Any]) -> None:
    trace = load(Path(job["trace"]))
    clients = {request.client for request in trace}
    connections = {client: Connection(Path(job["socket"]), job["export"]) for client in sorted(clients)}
    player = Player(trace, connections, job["outstanding_max"], job["export"], job["part"])
    player.play()
    json.dump({"latencies_ms": player.latencies_ms, "think_times_us": player.think_times_us}, sys.stdout)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
