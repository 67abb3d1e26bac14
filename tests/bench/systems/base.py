"""What all measured systems have in common: a place to live in, a mounted folder, and ends that are bounded in time.

Nothing here looks into the mounted folder itself: whoever does waits for the system, and one that hangs could not be
ended from there. Children do it, which are waited for no longer than a limit, and which end with the system.
"""

import contextlib
import shutil
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from harness.mount import detach, mounted_type
from harness.object_store import S3Server
from harness.process import Process
from harness.tools import folder_bytes, run

MOUNT_LIMIT_S = 60.0
STOP_LIMIT_S = 300.0
ATTEMPT_WAIT_S = 0.2
PARTS = ".sgwtmp"
"""Where versitygw keeps parts."""


@dataclass(frozen=True)
class Place:
    """Where one system lives. Nothing of it is elsewhere."""

    folder: Path
    """Its caches, settings and logs."""
    server: S3Server
    endpoint: str
    """The way to the server, which may lead through a proxy."""
    bucket: str
    data_bytes_max: int
    """No more is written to it."""

    @property
    def stored(self) -> Path:
        return self.server.folder / self.bucket

    def stored_bytes(self) -> int:
        """Of whole objects: parts of uploads that are under way lie elsewhere."""
        return folder_bytes(self.stored) - folder_bytes(self.stored / PARTS)


@dataclass
class MountedSystem(ABC):
    """`prepare`, then `mount`; after `unmount` and `forget` it may be mounted again, with empty caches. `close` ends
    it in whatever state it is."""

    name: ClassVar[str]
    options: ClassVar[str]
    """What differs from its own defaults, for the reader of the results."""
    deduplicates: ClassVar[bool] = False
    place: Place
    folder: Path = field(init=False)
    children: list[Process] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        self.place.folder.mkdir(parents=True)
        self.folder = self.new_mount_point("mount")

    def new_mount_point(self, kind: str) -> Path:
        """Not below what is removed with the system."""
        return Path(tempfile.mkdtemp(prefix=f"tombolo-bench-{kind}-"))

    @classmethod
    @abstractmethod
    def version(cls) -> str:
        """As the program itself says it."""

    @abstractmethod
    def prepare(self) -> None:
        """Makes the empty file system, once."""

    @abstractmethod
    def mount(self) -> None: ...

    @abstractmethod
    def settle(self, limit_s: float) -> None:
        """Waits until the system says that all that was written and closed is in the bucket."""

    @abstractmethod
    def unmount(self) -> None: ...

    @abstractmethod
    def forget(self) -> None:
        """Loses what it has cached of the bucket's data, while it is not mounted."""

    @abstractmethod
    def end(self) -> None:
        """Takes all mounts away and kills all processes, whatever they are doing."""

    def close(self) -> None:
        self.end()
        for child in self.children:
            child.kill9()
        self.folder.rmdir()

    def act(self, words: Sequence[str | Path], limit_s: float) -> None:
        """A child's work in the mounted folder. One that is late is left to `close`: the kernel may not let it go
        before the system has ended."""
        child = Process(str(words[0]), self.place.folder / f"{words[0]}.log")
        self.children.append(child)
        child.start(words)
        if (code := child.wait(limit_s)) != 0:
            raise RuntimeError(f"{self.name}: {' '.join(map(str, words))}: exit code {code}\n{child.log_tail()}")


@dataclass
class FuseProcess:
    """One process that serves one FUSE mount in the foreground."""

    name: str
    folder: Path
    log: Path
    process: Process = field(init=False)

    def __post_init__(self) -> None:
        self.process = Process(self.name, self.log)

    def start(self, words: Sequence[str | Path], environment: dict[str, str] | None = None) -> None:
        self.process.start(words, environment)
        self.process.wait_until(lambda: mounted_type(self.folder) is not None, MOUNT_LIMIT_S, "mount")

    def stop(self) -> None:
        """An orderly end: what is to be written is written."""
        unmount(self.folder)
        self.process.wait(STOP_LIMIT_S)

    def end(self) -> None:
        with contextlib.suppress(OSError):
            detach(self.folder)
        self.process.kill9_family()


@dataclass
class ServedSystem(MountedSystem):
    """One process serves the mount, and caches on the local disk."""

    program: ClassVar[str]
    served: FuseProcess = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.served = FuseProcess(self.program, self.folder, self.place.folder / f"{self.program}.log")

    @property
    def cache(self) -> Path:
        return self.place.folder / "cache"

    def unmount(self) -> None:
        self.served.stop()

    def forget(self) -> None:
        shutil.rmtree(self.cache, ignore_errors=True)

    def end(self) -> None:
        self.served.end()


def unmount(folder: Path) -> None:
    """Busy for a moment is what a file system is that somebody has just been done with."""
    deadline = time.monotonic() + STOP_LIMIT_S
    while True:
        done = run(["umount", folder], STOP_LIMIT_S, expected_codes=range(256))
        if done.returncode == 0:
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f"{folder} is not unmounted within {STOP_LIMIT_S} s: {done.stderr}")
        time.sleep(ATTEMPT_WAIT_S)
