"""Cold reads in other orders than one plain stream: backwards, with gaps, several at once, by the tools that copy disks
and trees. The store is behind a proxy that delays; each scan begins with an empty cache and no history, and stands
beside the plain forward read of the same build."""

import os
import random
import shutil
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.blocks import FILL
from bench.cloud import COLD_READ, held_back
from bench.fio import measure
from bench.report import Figure, Section
from bench.rotation import Figures, Measurements, rotate
from bench.round_trips import Route, endpoint_behind
from bench.rounds import Comparison
from harness.ganesha import Ganesha
from harness.gateway import Gateway, Settings
from harness.mount import Mount
from harness.nfs import NfsFrontEnd
from harness.object_store import S3Server
from harness.tools import run

KIB, MIB = 1 << 10, 1 << 20
BUCKET = "tombolo-scans"
EXPORT, SHARE, LARGE, TREE = "scans", "scans", "large", "tree"
FORWARD = "forwards by 64 KiB"
FILES, FILE_BYTES, FILES_PER_FOLDER = 1000, 16 * KIB, 100
OURS, OTHER = "this build", "the other build"
RATE, REQUESTS, FETCHED = "rate", "GETs", "fetched"
RATES = (
    "Each scan begins with all data in the store only and without history; the rate counts the bytes that the client"
    " asked for. Volume, file and tree were written forwards. Several at once: each reads a part of the volume of its"
    " own, by 64 KiB."
)
SCAN_LIMIT_S = 300.0


@dataclass(frozen=True)
class Stage:
    """A gateway whose data lies in the store."""

    gateway: Gateway
    folder: Path
    size: int


@dataclass(frozen=True)
class Done:
    read_bytes: int
    seconds: float


Scan = Callable[[Stage], Done]


def measure_scans(
    folder: Path, routes: list[Route], other: Path | None, size: int, rounds: int, stack: ExitStack
) -> list[Section]:
    server = S3Server(folder / "s3")
    stack.callback(server.close)
    server.start()
    server.create_bucket(BUCKET)
    sections = []
    for route in routes:
        with ExitStack() as path:
            endpoint = endpoint_behind(route, server, folder, path)
            builds: dict[str, Path | None] = {OURS: None} if other is None else {OURS: None, OTHER: other}
            stages = {
                name: filled(folder / f"gateway-{index}", binary, endpoint, server, size, path)
                for index, (name, binary) in enumerate(builds.items())
            }
            once = {
                f"{name}: {scan}": partial(one_scan, stage, read)
                for scan, read in scans().items()
                for name, stage in stages.items()
            }
            measured = rotate(once, rounds, lambda: None)
        by_build = {name: {scan: measured[f"{name}: {scan}"] for scan in scans()} for name in builds}
        sections += sections_of(str(route), by_build)
    return sections


def scans() -> dict[str, Scan]:
    return {
        FORWARD: in_order(64 * KIB, lambda size: range(0, size, 64 * KIB)),
        "forwards by 1 MiB, depth 8 (fio)": forwards_at_depth,
        "backwards by 64 KiB": in_order(64 * KIB, lambda size: range(size - 64 * KIB, -1, -64 * KIB)),
        "64 KiB of every 256": in_order(64 * KIB, lambda size: range(0, size, 256 * KIB)),
        "64 KiB of every 256, backwards": in_order(64 * KIB, lambda size: range(size - 256 * KIB, -1, -256 * KIB)),
        "4 KiB of every 64": in_order(4 * KIB, lambda size: range(0, size // 4, 64 * KIB)),
        "4 KiB of every 1,024": in_order(4 * KIB, lambda size: range(0, size, 1024 * KIB)),
        "4 streams at once": partial(at_once, 4),
        "16 streams at once": partial(at_once, 16),
        "at random by 64 KiB, an eighth": in_order(64 * KIB, an_eighth_at_random),
        "nbdcopy": copied,
        "mount: dd by 128 KiB": partial(through_mount, partial(dd, "128K")),
        "mount: dd by 1 MiB": partial(through_mount, partial(dd, "1M")),
        "mount: tar of small files": partial(through_mount, archived),
        "NFS: one file by 256 KiB": partial(over_nfs, large_file),
        "NFS: small files": partial(over_nfs, small_files),
    }


def filled(folder: Path, binary: Path | None, endpoint: str, server: S3Server, size: int, stack: ExitStack) -> Stage:
    """A gateway with a volume, a file of the same size and a tree, all of it in the store."""
    prefix = f"{folder.name}-{time.monotonic_ns()}"
    settings: Settings = {
        "store": {"url": f"s3://{BUCKET}/{prefix}", "endpoint": endpoint, "allow_http": True},
        "cache": {"size": f"{4 * size // MIB}MiB"},
    } | held_back(size, binary)
    gateway = Gateway(folder, settings, server.environment, binary)
    stack.callback(shutil.rmtree, server.folder / BUCKET / prefix, ignore_errors=True)
    stack.callback(shutil.rmtree, folder, ignore_errors=True)
    stack.callback(gateway.close)
    gateway.start()
    gateway.create_volume(EXPORT, str(size))
    measure(FILL, gateway.nbd_uri(EXPORT), size, None)
    gateway.drain(600)
    gateway.create_share(SHARE)
    mounted = Mount(gateway, SHARE).start()
    with (mounted.folder / LARGE).open("wb") as large:
        for _ in range(size // MIB):
            large.write(os.urandom(MIB))
    for index in range(FILES):
        file = mounted.folder / TREE / f"{index // FILES_PER_FOLDER:03}" / f"{index:05}"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(os.urandom(FILE_BYTES))
    mounted.stop()
    mounted.close()
    gateway.drain(600)
    return Stage(gateway, folder, size)


def one_scan(stage: Stage, scan: Scan) -> Figures:
    gateway = stage.gateway
    gateway.stop()
    for cached in (gateway.cache_file, gateway.state_directory / "history"):
        cached.unlink(missing_ok=True)
    gateway.start()
    before = gets(gateway)
    done = scan(stage)
    requests, fetched = (now - then for now, then in zip(gets(gateway), before, strict=True))
    rate = done.read_bytes / KIB / done.seconds
    return {RATE: rate, REQUESTS: requests, FETCHED: fetched / done.read_bytes}


def timed(read: Callable[[], int]) -> Done:
    """Of what says how many bytes it has read."""
    begun = time.monotonic()
    count = read()
    return Done(count, time.monotonic() - begun)


def gets(gateway: Gateway) -> tuple[float, float]:
    """Requests for data, and their bytes."""
    causes = [f'cause="{cause}"' for cause in ("demand", "prefetch")]
    lines = [
        line
        for line in gateway.metrics().splitlines()
        if 'operation="get"' in line and any(cause in line for cause in causes)
    ]

    def total(name: str) -> float:
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name + "{"))

    return total("tombolo_store_requests_total"), total("tombolo_store_cause_bytes_total")


def in_order(length: int, places: Callable[[int], Iterable[int]]) -> Scan:
    """One request at a time."""

    return lambda stage: timed(lambda: read_at(stage, places(stage.size), length))


def read_at(stage: Stage, places: Iterable[int], length: int) -> int:
    count = 0
    with stage.gateway.disk(EXPORT) as disk:
        for place in places:
            disk.read(place, length)
            count += length
    return count


def an_eighth_at_random(size: int) -> list[int]:
    """Each place once, so that nothing can be foreseen."""
    return random.Random(1).sample(range(0, size, 64 * KIB), size // (8 * 64 * KIB))


def forwards_at_depth(stage: Stage) -> Done:
    """Timed by fio, which takes a while to start."""
    rate = measure(COLD_READ, stage.gateway.nbd_uri(EXPORT), stage.size, None).value
    return Done(stage.size, stage.size / MIB / rate)


def at_once(streams: int, stage: Stage) -> Done:
    part = stage.size // streams
    parts = [range(first, first + part, 64 * KIB) for first in range(0, stage.size, part)]
    with ThreadPoolExecutor(streams) as pool:
        return timed(lambda: sum(pool.map(lambda places: read_at(stage, places, 64 * KIB), parts)))


def copied(stage: Stage) -> Done:
    return act(["nbdcopy", stage.gateway.nbd_uri(EXPORT), "null:"], stage.size)


def act(command: list[str | Path], read_bytes: int) -> Done:
    def read() -> int:
        run(command, limit_s=SCAN_LIMIT_S)
        return read_bytes

    return timed(read)


def through_mount(scan: Callable[[Stage, Path], Done], stage: Stage) -> Done:
    mounted = Mount(stage.gateway, SHARE).start()
    try:
        return scan(stage, mounted.folder)
    finally:
        mounted.close()


def dd(block: str, stage: Stage, mounted: Path) -> Done:
    return act(["dd", f"if={mounted / LARGE}", "of=/dev/null", f"bs={block}", "status=none"], stage.size)


def archived(_: Stage, mounted: Path) -> Done:
    # To a pipe: tar does not read what it writes to /dev/null.
    return act(["sh", "-c", 'tar -cf - -C "$0" . | cat >/dev/null', mounted / TREE], FILES * FILE_BYTES)


def over_nfs(read: Callable[[NfsFrontEnd, Stage], int], stage: Stage) -> Done:
    ganesha = Ganesha(stage.folder / f"ganesha-{time.monotonic_ns()}")
    ganesha.serve_share(stage.gateway, SHARE)
    ganesha.start()
    try:
        client = ganesha.front_end()
        try:
            return timed(lambda: read(client, stage))
        finally:
            client.close()
    finally:
        ganesha.close()


def large_file(client: NfsFrontEnd, stage: Stage) -> int:
    return len(client.read(LARGE, 0, stage.size))


def small_files(client: NfsFrontEnd, _: Stage) -> int:
    folders = [f"{TREE}/{name}" for name in sorted(client.names(TREE))]
    files = [f"{folder}/{name}" for folder in folders for name in sorted(client.names(folder))]
    return sum(len(client.read(file, 0, FILE_BYTES)) for file in files)


def sections_of(route: str, measured: dict[str, Measurements]) -> list[Section]:
    ours = measured[OURS]
    forward = ours[FORWARD][RATE]
    rates = [Comparison(scan, "KiB/s", figures[RATE], forward) for scan, figures in ours.items()]
    sections = [Section(f"{route}, beside a plain forward read", ("this scan", FORWARD), rates, RATES)]
    if OTHER in measured:
        beside = [
            Comparison(scan, "KiB/s", figures[RATE], measured[OTHER][scan][RATE]) for scan, figures in ours.items()
        ]
        sections.append(Section(f"{route}, beside {OTHER}", (OURS, OTHER), beside))
    return sections + [requests_of(f"{route}, {name}", figures) for name, figures in measured.items()]


def requests_of(title: str, measured: Measurements) -> Section:
    figures = []
    for scan, each in measured.items():
        figures.append(Figure(scan, "GETs", each[REQUESTS]))
        figures.append(Figure(f"{scan}: bytes fetched", "% of those read", [100 * share for share in each[FETCHED]]))
    return Section(f"{title}: what was asked of the store", figures=figures)
