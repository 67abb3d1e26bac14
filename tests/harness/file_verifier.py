"""Writes files whose bytes tell where they belong, remembers what was acknowledged, and checks it after a crash.

Each worker has a directory and a few names in it. What a name holds follows from the worker's seed, the name and a
version that only rises, so a stale, foreign, torn or mixed file is seen.

| what is known of a change | what may be found afterwards |
|---|---|
| acknowledged (with `syncs_all`: and synced) | it, or a later one |
| sent, not acknowledged | it, or what was there before; of an append, also a part from its front |
"""

import errno
import random
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from harness.front_ends import FrontEnd

NAME_COUNT = 12
FILE_BYTES_MAX = 60_000
APPEND_BYTES_MAX = 9_000
Survived = type[Exception] | tuple[type[Exception], ...]


class LostFile(AssertionError):
    """A name does not hold what it was promised to hold."""


def content_of(seed: int, name: str, version: int, length_max: int = FILE_BYTES_MAX) -> bytes:
    generator = random.Random(f"{seed}/{name}/{version}")
    head = f"{seed}/{name}/{version}\n".encode()
    return head + generator.randbytes(generator.randrange(length_max))


@dataclass
class NameHistory:
    """`None` stands for a name that is not there."""

    acknowledged: bytes | None = None
    sent: bytes | None = None
    """The same as `acknowledged` unless a change is under way."""

    def allows(self, found: bytes | None) -> bool:
        if found in (self.acknowledged, self.sent):
            return True
        if found is None or self.sent is None or self.acknowledged is None:
            return False
        return found.startswith(self.acknowledged) and self.sent.startswith(found)


@dataclass
class FileWorker:
    """The names of one directory, changed by one thread through one front end at a time."""

    seed: int
    folder: str
    exactly_once: bool = True
    """Whether the front end hides the repetition of requests. If not, one that was carried out before its answer was
    lost may be answered with "exists" or "is not there"."""
    syncs_all: bool = False
    """Whether each change is on stable storage before it counts as acknowledged."""
    changes: int = 0
    history: dict[str, NameHistory] = field(default_factory=dict)
    versions: int = 0

    def prepare(self, front_end: FrontEnd) -> None:
        try:
            front_end.mkdir(self.folder)
            if self.syncs_all:
                front_end.sync("")
        except OSError as refused:
            if refused.errno != errno.EEXIST:
                raise

    def change_until(self, front_end: FrontEnd, stop: Callable[[], bool]) -> None:
        generator = random.Random(self.seed * 1_000_003 + self.changes)
        while not stop():
            self._change(front_end, generator)

    def _change(self, front_end: FrontEnd, generator: random.Random) -> None:
        name = f"file{generator.randrange(NAME_COUNT)}"
        known = self.history.setdefault(name, NameHistory())
        self.versions += 1
        if known.acknowledged is None or generator.random() < 0.4:
            known.sent = content_of(self.seed, name, self.versions)
            self._replace(front_end, name, known.sent)
        elif generator.random() < 0.7:
            record = content_of(self.seed, name, self.versions, APPEND_BYTES_MAX)
            known.sent = known.acknowledged + record
            front_end.write(self._path(name), len(known.acknowledged), record)
            if generator.random() < 0.5:
                front_end.sync(self._path(name))
        else:
            known.sent = None
            self._once(lambda: front_end.unlink(self._path(name)), errno.ENOENT)
        if self.syncs_all:
            self._sync(front_end, name, known.sent)
        known.acknowledged = known.sent
        self.changes += 1

    def _sync(self, front_end: FrontEnd, name: str, content: bytes | None) -> None:
        if content is not None:
            front_end.sync(self._path(name))
        front_end.sync(self.folder)

    def _replace(self, front_end: FrontEnd, name: str, content: bytes) -> None:
        """As an editor saves: a new file, synced, renamed over the old one."""
        new = self._path(f"new{self.versions}")
        self._once(lambda: front_end.create(new), errno.EEXIST)
        front_end.write(new, 0, content)
        front_end.sync(new)
        self._once(lambda: front_end.rename(new, self._path(name)), errno.ENOENT)

    def _once(self, request: Callable[[], None], if_repeated: int) -> None:
        try:
            request()
        except OSError as refused:
            if self.exactly_once or refused.errno != if_repeated:
                raise

    def verify(self, front_end: FrontEnd) -> None:
        """Checks every name; what is found is promised from here on."""
        present = {name for name in front_end.names(self.folder) if not name.startswith("new")}
        strangers = present - set(self.history)
        if strangers:
            raise LostFile(f"{self.folder} (seed {self.seed}) holds {sorted(strangers)}, which were never made")
        for name, known in sorted(self.history.items()):
            found = self._content(front_end, name) if name in present else None
            if not known.allows(found):
                raise LostFile(f"{self._path(name)} (seed {self.seed}): {self._described(found, known)}")
            known.acknowledged = known.sent = found

    def _content(self, front_end: FrontEnd, name: str) -> bytes:
        path = self._path(name)
        return front_end.read(path, 0, front_end.status(path).size)

    def _path(self, name: str) -> str:
        return f"{self.folder}/{name}"

    @staticmethod
    def _described(found: bytes | None, known: NameHistory) -> str:
        def brief(content: bytes | None) -> str:
            return "nothing" if content is None else f"{len(content)} bytes {content[:24]!r}"

        return f"found {brief(found)}; acknowledged {brief(known.acknowledged)}, sent {brief(known.sent)}"


class FileWriters:
    """Several `FileWorker`s at once, each in a thread with a front end of its own."""

    def __init__(self, seed: int, threads: int, exactly_once: bool = True, syncs_all: bool = False) -> None:
        self.workers = [FileWorker(seed + index, f"worker{index}", exactly_once, syncs_all) for index in range(threads)]
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []
        self._faults: list[BaseException] = []

    @property
    def changes(self) -> int:
        return sum(worker.changes for worker in self.workers)

    def start(self, connect: Callable[[], FrontEnd], survives: Survived = ()) -> None:
        """Starts to write. An error of a kind in `survives` ends a thread quietly: its server was killed."""
        self._stopping.clear()
        self._faults.clear()
        self._threads = [
            threading.Thread(target=self._work, args=(worker, connect, survives), daemon=True)
            for worker in self.workers
        ]
        for thread in self._threads:
            thread.start()

    @property
    def running(self) -> bool:
        return any(thread.is_alive() for thread in self._threads)

    def stop(self, limit_s: float = 120.0) -> None:
        """Lets every thread finish its change; raises the first error that was not to be survived."""
        self._stopping.set()
        for thread in self._threads:
            thread.join(limit_s)
            if thread.is_alive():
                raise TimeoutError(f"a writer is stuck in a request for {limit_s} s")
        if self._faults:
            raise self._faults[0]

    def verify(self, front_end: FrontEnd) -> None:
        for worker in self.workers:
            worker.verify(front_end)

    def _work(self, worker: FileWorker, connect: Callable[[], FrontEnd], survives: Survived) -> None:
        try:
            front_end = connect()
            try:
                worker.prepare(front_end)
                worker.change_until(front_end, self._stopping.is_set)
            finally:
                with suppress(OSError):
                    front_end.close()
        except survives:
            return
        except BaseException as fault:  # Handed to the thread that calls stop().
            self._faults.append(fault)
