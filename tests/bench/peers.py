"""Ours beside other file systems over the same bucket and path: until data is in the bucket, read cold, stored twice.

What counts as "in the bucket" is the same for all: the system says that it has nothing left to upload, and the bucket
holds no fewer bytes than were written, which nobody can compress. All begin with a new bucket, no caches and an empty
file system.
"""

import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from shutil import rmtree

from bench.memory import touch_memory
from bench.report import Section
from bench.rotation import Figures, Measurements, beside, rotate
from bench.round_trips import Route, endpoint_behind
from bench.rounds import Comparison
from bench.systems import PEERS, MountedSystem, Place, Tombolo
from harness.object_store import S3Server
from harness.tools import wait_for

MIB = 1 << 20
WRITE, READ, SECOND = "write until it is in the bucket", "cold sequential read", "a second copy adds to the bucket"
UNITS = {WRITE: "MiB/s", READ: "MiB/s", SECOND: "KiB"}
LESS_IS_BETTER = {SECOND}
STEP_LIMIT_S = 300.0
"""Of one step of one system: one that takes longer is given up."""
QUIET_S = 3.0
TOUCHED = 6
"""Times the data: a system's cache, the server's files and what lies between."""
TITLE = "Where a peer is better"
REMARK = (
    "New data that does not shrink, written into one file by dd in pieces of 1 MiB with fsync and close. In the bucket:"
    " the system has nothing left to upload (ours: `drain --wait`; rclone: no uploads in its statistics; s3fs, JuiceFS:"
    " fsync and close have returned; s3backer: ext4 synced and no dirty block in its statistics), and the bucket holds"
    " as many bytes. Before each timed step as much memory as it may need was touched and freed. Then mounted anew with"
    " empty caches, and read from the beginning to the end by dd. The second copy"
    " is the same bytes written under another name; less is better. What the systems promise at fsync is not the same:"
    " ours has the data on the local disk then, s3fs and JuiceFS in the bucket, rclone and s3backer neither."
)


@dataclass
class Contest:
    """One path to the server, and what became of those who took it."""

    server: S3Server
    endpoint: str
    folder: Path
    size: int
    failures: list[str] = field(default_factory=list)

    def contender(self, system: type[MountedSystem]) -> Callable[[], Figures]:
        return partial(self._once, system)

    def _once(self, system: type[MountedSystem]) -> Figures:
        """One round in a bucket of its own. A peer that fails has no figures, and spoils nobody else's."""
        bucket = f"peers-{system.__name__.lower()}-{time.monotonic_ns()}"
        self.server.create_bucket(bucket)
        place = Place(self.folder / bucket, self.server, self.endpoint, bucket, 2 * self.size)
        try:
            with ExitStack() as stack:
                stack.callback(rmtree, place.stored, ignore_errors=True)
                stack.callback(rmtree, place.folder, ignore_errors=True)
                return one_round(system, place, self.size, stack)
        except Exception as failure:
            if system is Tombolo:
                raise
            said = str(failure).splitlines() or [type(failure).__name__]
            self.failures.append(f"{system.name} has failed in a round: {said[0]}")
            return {}


def measure_peers(folder: Path, routes: list[Route], size: int, rounds: int, stack: ExitStack) -> list[Section]:
    systems: tuple[type[MountedSystem], ...] = (Tombolo, *PEERS)
    server = S3Server(folder / "s3")
    stack.callback(server.close)
    server.start()
    sections: list[Section] = []
    for route in routes:
        with ExitStack() as path:
            contest = Contest(server, endpoint_behind(route, server, folder, path), folder, size)
            contenders = {system.name: contest.contender(system) for system in systems}
            measured = rotate(contenders, rounds, os.sync)
        sections += [section(str(route), peer, measured, contest.failures) for peer in PEERS]
    return [better(sections), *sections]


def one_round(system: type[MountedSystem], place: Place, size: int, stack: ExitStack) -> Figures:
    source = new_data(place.folder.with_suffix(".source"), size)
    stack.callback(source.unlink)
    mounted = system(place)
    stack.callback(mounted.close)
    mounted.prepare()
    mounted.mount()
    touch_memory(place.folder.parent, TOUCHED * size)
    figures = {WRITE: size / MIB / seconds(partial(write, mounted, source, "first"))}
    mounted.unmount()
    mounted.forget()
    mounted.mount()
    touch_memory(place.folder.parent, TOUCHED * size)
    file = mounted.folder / "first"
    words: list[str | Path] = ["dd", f"if={file}", "of=/dev/null", "bs=1M", "status=none"]
    figures[READ] = size / MIB / seconds(lambda: mounted.act(words, STEP_LIMIT_S))
    mounted.act(["cmp", source, file], STEP_LIMIT_S)
    before = place.stored_bytes()
    write(mounted, source, "second")
    wait_until_quiet(place)
    figures[SECOND] = (place.stored_bytes() - before) / 1024
    return figures


def seconds(action: Callable[[], None]) -> float:
    begun = time.monotonic()
    action()
    return time.monotonic() - begun


def new_data(file: Path, size: int) -> Path:
    with file.open("wb") as opened:
        for _ in range(size // MIB):
            opened.write(os.urandom(MIB))
    return file


def write(mounted: MountedSystem, source: Path, name: str) -> None:
    """Until it is in the bucket."""
    least = mounted.place.stored_bytes() + source.stat().st_size
    words: list[str | Path] = [
        "dd",
        f"if={source}",
        f"of={mounted.folder / name}",
        "bs=1M",
        "conv=fsync",
        "status=none",
    ]
    mounted.act(words, STEP_LIMIT_S)
    mounted.settle(STEP_LIMIT_S)
    # A file is closed in the kernel before its server hears of it, which may not have known yet that it had work to do.
    if not (mounted.deduplicates and name == "second"):
        wait_for(lambda: mounted.place.stored_bytes() >= least, STEP_LIMIT_S, f"{least} bytes in the bucket")


def wait_until_quiet(place: Place) -> None:
    """Nothing has come into the bucket, and nothing gone, for a while."""
    deadline = time.monotonic() + STEP_LIMIT_S
    seen, since = place.stored_bytes(), time.monotonic()
    while time.monotonic() - since < QUIET_S:
        if time.monotonic() > deadline:
            raise TimeoutError(f"the bucket is not quiet within {STEP_LIMIT_S} s")
        time.sleep(0.1)
        if (now := place.stored_bytes()) != seen:
            seen, since = now, time.monotonic()


def section(path: str, peer: type[MountedSystem], measured: Measurements, failures: list[str]) -> Section:
    units = {workload: unit for workload, unit in UNITS.items() if workload in measured[peer.name]}
    remark = " ".join(
        [f"{peer.version()}; {peer.options}."] + [each for each in failures if each.startswith(peer.name)]
    )
    columns = (Tombolo.name, peer.name)
    return Section(f"{path}, beside {peer.name}", columns, beside(measured, *columns, units), remark)


def is_better(row: Comparison) -> bool:
    """Whether the other one is."""
    return row.ratio > 1 if row.name in LESS_IS_BETTER else row.ratio < 1


def better(sections: list[Section]) -> Section:
    rows = [
        Comparison(f"{section.title}: {row.name}", row.unit, row.ours, row.other, row.notes)
        for section in sections
        for row in section.comparisons
        if is_better(row)
    ]
    return Section(TITLE, (Tombolo.name, "the peer"), rows, f"{REMARK} Ours: {Tombolo.options}.")
