"""Writes self-describing blocks, remembers what was promised about them, and checks the promises after a crash.

Every block carries its own index and a sequence number that only rises, and the rest of its bytes follow from
these two. So any block read back tells which write it came from, and one that mixes two writes, or sits at the
wrong place, is seen.

| what is known of a write | what may be found afterwards |
|---|---|
| covered by an answered FLUSH | it, or a later one |
| acknowledged, not flushed | as above when `keeps_acknowledged`, else anything from the last flushed one on |
| sent, not acknowledged | it, or what was there before |

One thread's writes are acknowledged in their order, so what is left of those that were not flushed is the first few.
"""

import random
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

BLOCK_BYTES = 4096
HEADER = struct.Struct(">8sQQQ")
MAGIC = b"TOMBOLO\x00"


class Disk(Protocol):
    size: int

    def read(self, offset: int, length: int) -> bytes: ...

    def write(self, offset: int, data: bytes, fua: bool = False) -> None: ...

    def flush(self) -> None: ...

    def close(self) -> None: ...


class LostData(AssertionError):
    """A block does not hold what it was promised to hold."""


def block_content(seed: int, block: int, sequence: int) -> bytes:
    """The bytes of one write; sequence 0 is a block that was never written."""
    if sequence == 0:
        return bytes(BLOCK_BYTES)
    filler = random.Random(f"{seed}/{block}/{sequence}").randbytes(BLOCK_BYTES - HEADER.size)
    return HEADER.pack(MAGIC, seed, block, sequence) + filler


@dataclass
class BlockHistory:
    flushed: int = 0
    acknowledged: int = 0
    sent: int = 0


@dataclass
class StampedRange:
    """The blocks `first..first + count` of a disk, written by one thread over one connection at a time."""

    seed: int
    first: int
    count: int
    flush_every: int = 8
    writes: int = 0
    flushes: int = 0
    history: dict[int, BlockHistory] = field(default_factory=dict)
    order: list[tuple[int, int]] = field(default_factory=list)
    """Block and sequence number of each write since the last check."""

    def write_until(self, disk: Disk, stop: Callable[[], bool]) -> None:
        """Random overwrites with a flush (or a FUA write) now and then, until `stop` or an I/O error."""
        generator = random.Random(self.seed * 1_000_003 + self.writes)
        while not stop():
            block = self.first + generator.randrange(self.count)
            fua = generator.random() < 0.1
            self._write(disk, block, fua)
            if self.writes % self.flush_every == 0:
                self.flush(disk)

    def _write(self, disk: Disk, block: int, fua: bool) -> None:
        known = self.history.setdefault(block, BlockHistory())
        known.sent += 1
        self.order.append((block, known.sent))
        disk.write(block * BLOCK_BYTES, block_content(self.seed, block, known.sent), fua)
        known.acknowledged = known.sent
        if fua:
            known.flushed = known.sent
        self.writes += 1

    def flush(self, disk: Disk) -> None:
        disk.flush()
        for known in self.history.values():
            known.flushed = known.acknowledged
        self.flushes += 1

    def verify(self, disk: Disk, keeps_acknowledged: bool = False) -> None:
        """Checks every block written so far; what is found and then flushed is promised from here on."""
        left: dict[int, int] = {}
        for block, known in sorted(self.history.items()):
            found = self._sequence_of(disk.read(block * BLOCK_BYTES, BLOCK_BYTES), block)
            oldest = known.acknowledged if keeps_acknowledged else known.flushed
            if not oldest <= found <= known.sent:
                raise LostData(
                    f"block {block} (seed {self.seed}): found write {found}; flushed {known.flushed}, "
                    f"acknowledged {known.acknowledged}, sent {known.sent}"
                )
            left[block] = known.acknowledged = found
            # A write that was sent and is not there can no longer arrive: its connection is gone.
            known.sent = max(found, known.sent)
        self._check_order(left)
        self.flush(disk)

    def _check_order(self, left: dict[int, int]) -> None:
        missing: tuple[int, int] | None = None
        for block, sequence in self.order:
            if left[block] < sequence:
                missing = missing or (block, sequence)
            elif missing and left[block] == sequence:
                raise LostData(
                    f"write {missing[1]} of block {missing[0]} (seed {self.seed}) is lost, and the later write "
                    f"{sequence} of block {block} is there"
                )
        self.order.clear()

    def _sequence_of(self, data: bytes, block: int) -> int:
        magic, seed, index, sequence = HEADER.unpack_from(data)
        if data == bytes(BLOCK_BYTES):
            return 0
        if (magic, seed, index) != (MAGIC, self.seed, block):
            raise LostData(f"block {block} (seed {self.seed}): holds {magic!r} of seed {seed}, block {index}")
        if data != block_content(self.seed, block, sequence):
            raise LostData(f"block {block} (seed {self.seed}): write {sequence} is torn or altered")
        return int(sequence)


class Writers:
    """Several `StampedRange`s written at once, each by a thread with a connection of its own."""

    def __init__(self, seed: int, threads: int, blocks_each: int, flush_every: int = 8) -> None:
        self.ranges = [
            StampedRange(seed + index, index * blocks_each, blocks_each, flush_every) for index in range(threads)
        ]
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []
        self._faults: list[BaseException] = []

    @property
    def writes(self) -> int:
        return sum(part.writes for part in self.ranges)

    @property
    def flushes(self) -> int:
        return sum(part.flushes for part in self.ranges)

    @property
    def running(self) -> bool:
        return any(thread.is_alive() for thread in self._threads)

    def start(self, connect: Callable[[], Disk], survives: type[Exception] | tuple[type[Exception], ...] = ()) -> None:
        """Starts to write. An error of a kind in `survives` ends a thread quietly: its server was killed."""
        self._stopping.clear()
        self._faults.clear()
        self._threads = [
            threading.Thread(target=self._write, args=(part, connect, survives), daemon=True) for part in self.ranges
        ]
        for thread in self._threads:
            thread.start()

    def stop(self, limit_s: float = 120.0) -> None:
        """Lets every thread finish its request; raises the first error that was not to be survived."""
        self._stopping.set()
        for thread in self._threads:
            thread.join(limit_s)
            if thread.is_alive():
                raise TimeoutError(f"a writer is stuck in a request for {limit_s} s")
        if self._faults:
            raise self._faults[0]

    def verify(self, connect: Callable[[], Disk], keeps_acknowledged: bool = False) -> None:
        disk = connect()
        try:
            for part in self.ranges:
                part.verify(disk, keeps_acknowledged)
        finally:
            disk.close()

    def _write(
        self, part: StampedRange, connect: Callable[[], Disk], survives: type[Exception] | tuple[type[Exception], ...]
    ) -> None:
        try:
            disk = connect()
            try:
                part.write_until(disk, self._stopping.is_set)
            finally:
                disk.close()
        except survives:
            return
        except BaseException as fault:  # Handed to the thread that calls stop().
            self._faults.append(fault)
