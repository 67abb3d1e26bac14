"""Chunks, parallelism and prefetch over a path such as the one of Hou et al. (MSST 2016), live: plain downloads by the
driver, and a gateway whose objects are the chunks.

The path is the paper's campus run ten times as fast: rates ten times as high, times a tenth. What depends on sizes
alone (which chunk fills a connection, how many fill the link) stays as it is.
"""

import json
import shutil
import statistics
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from random import Random

from bench import claims
from bench.capacity import Capacity, LimitedStore
from bench.claims import Claim
from bench.cloud import example_binary
from bench.report import Section
from harness.gateway import Gateway, Settings, merged
from harness.nbd import NbdDisk
from harness.object_store import S3Server
from harness.process import Process
from harness.tools import REPOSITORY, can_connect, free_port, run

KIB, MIB = 1 << 10, 1 << 20
BUCKET = "tombolo-chunks"
REQUEST_BYTES = 16 * KIB
HOUR_MS = 3_600_000
FILE_BYTES = 12 * MIB
OBJECT_BYTES_MIN = 256 * KIB
PEAK, AFFECTED = 0.05, 0.10
"""Within the peak, and not affected: as the simulation of the same figures has them."""
PRINTED_DEGREES = {64 * KIB: 16, MIB: 8, 4 * MIB: 4}
PRINTED_GAINS = {64 * KIB: 0.704, MIB: 0.569, 4 * MIB: 0.226}
"""Table VI, reads."""


@dataclass(frozen=True)
class Route:
    """From the gateway to the bucket."""

    round_trip_ms: float = 6.0
    base_ms: float = 31.0
    """What the store takes for a request, beside the transfer."""
    link_mib_s: float = 49.0
    connection_mib_s: float = 11.3


CAMPUS = Route()


@dataclass(frozen=True)
class Plan:
    path: Route = CAMPUS
    sizes: tuple[int, ...] = (64 * KIB, 256 * KIB, MIB, 4 * MIB, 8 * MIB, 16 * MIB)
    degrees: tuple[int, ...] = (1, 2, 4, 8, 16, 32)
    chunks: tuple[int, ...] = (64 * KIB, MIB, 4 * MIB)
    prefetchers: tuple[str, ...] = ("none", "hou", "graph")
    """The first fetches nothing ahead, the second is the paper's, the third the product's default."""
    files: int = 20
    requests: int = 3_000
    """Of 16 KiB, for each cell."""
    run_requests: float = 400.0
    think_ms: float = 1.0
    seconds: float = 2.0
    """About what a cell of plain downloads takes."""


def size_name(size: int) -> str:
    return f"{size // MIB} MiB" if size >= MIB else f"{size // KIB} KiB"


class Campus:
    """An S3 server at the end of the path."""

    def __init__(self, path: Route, folder: Path, stack: ExitStack) -> None:
        self.server = S3Server(folder / "s3")
        stack.callback(self.server.close)
        self.server.start()
        self.server.create_bucket(BUCKET)
        store = LimitedStore(Capacity(1000, path.base_ms), self.server, folder, stack)
        port = free_port()
        proxy = Process("delay_proxy", folder / "delay_proxy.log")
        stack.callback(proxy.kill9)
        rates = [str(path.round_trip_ms), str(path.link_mib_s), str(path.connection_mib_s)]
        proxy.start([example_binary("delay_proxy"), f"127.0.0.1:{port}", f"127.0.0.1:{store.port}", *rates])
        proxy.wait_until(lambda: can_connect(port), 20, "listening socket")
        self.endpoint, self.near = f"http://127.0.0.1:{port}", store.endpoint


@dataclass(frozen=True)
class Download:
    """GETs of one size, so many at a time."""

    mean_ms: float
    mib_s: float


def downloads(campus: Campus, plan: Plan, size: int, degrees: Sequence[int]) -> dict[int, Download]:
    found = {}
    for degree in degrees:
        path = plan.path
        one_s = (path.base_ms + path.round_trip_ms) / 1e3 + size / MIB / path.connection_mib_s
        rate = min(degree / one_s, path.link_mib_s * MIB / size)
        count = max(2 * degree, 4, min(200, int(plan.seconds * rate)))
        words: list[str | Path] = [example_binary("raw_throughput"), "--store", f"s3://{BUCKET}/plain"]
        words += ["--endpoint", campus.endpoint, "--sizes", str(size)]
        words += ["--concurrency", str(degree), "--count", str(count)]
        done = run(words, limit_s=600, environment=campus.server.environment, cwd=REPOSITORY)
        get = json.loads(done.stdout.splitlines()[-1])["get"]
        found[degree] = Download(float(get["mean_ms"]), float(get["mebibytes_per_second"]))
    return found


@dataclass(frozen=True)
class Reading:
    """What the clients of one gateway saw."""

    reads_ms: list[float]
    hits: float
    """The share of reads that did not wait for a download."""

    @property
    def mean_ms(self) -> float:
        return statistics.fmean(self.reads_ms)


class Client:
    """Reads files in requests of 16 KiB, in runs as the simulation's stand-in for the paper's trace has them. As the
    paper's client it takes the whole chunk when it enters one, and has the rest of it then."""

    def __init__(self, disk: NbdDisk, plan: Plan, chunk: int, seed: int) -> None:
        self.disk, self.plan, self.chunk, self.chance = disk, plan, chunk, Random(seed)
        self.held = -1
        self.reads_ms: list[float] = []

    def run(self) -> Reading:
        file_requests = FILE_BYTES // REQUEST_BYTES
        while len(self.reads_ms) < self.plan.requests:
            file = min(int(self.chance.paretovariate(1.0)) - 1, self.plan.files - 1)
            begins = self.chance.random() < 0.7
            at = 0 if begins else self.chance.randrange(file_requests)
            length = 1 + int(self.chance.expovariate(1 / self.plan.run_requests))
            for request in range(at, min(at + length, file_requests)):
                self._read(file * FILE_BYTES + request * REQUEST_BYTES)
                time.sleep(self.plan.think_ms / 1e3)
        waited = sum(ms > self.plan.path.base_ms / 2 for ms in self.reads_ms)
        return Reading(self.reads_ms, 1 - waited / len(self.reads_ms))

    def _read(self, offset: int) -> None:
        begun = time.perf_counter()
        if offset // self.chunk != self.held:
            self.disk.read(offset // self.chunk * self.chunk, self.chunk)
            self.held = offset // self.chunk
        self.reads_ms.append((time.perf_counter() - begun) * 1e3)


def readings(campus: Campus, plan: Plan, folder: Path, chunk: int) -> dict[str, Reading]:
    """By prefetcher. The files lie in objects of one chunk, as far as objects may be so small."""
    size = plan.files * FILE_BYTES
    own = folder / "gateway"
    settings: Settings = {
        "store": {"url": f"s3://{BUCKET}/{chunk}", "endpoint": campus.near, "allow_http": True},
        "cache": {"size": f"{max(32, size // MIB // 6)}MiB"},
    }
    settings["store"]["object_bytes_max"] = f"{max(chunk, OBJECT_BYTES_MIN) // KIB}KiB"
    gateway = Gateway(
        own,
        merged(settings, {"flush": {"dirty_bytes_max": "16MiB", "flush_delay_ms": HOUR_MS}}),
        campus.server.environment,
    )
    try:
        gateway.start()
        gateway.create_volume("files", str(size))
        with gateway.disk("files") as disk:
            chance = Random(chunk)
            for offset in range(0, size, 4 * MIB):
                disk.write(offset, chance.randbytes(4 * MIB))
        gateway.drain(600)
        found = {}
        gateway.settings["store"]["endpoint"] = campus.endpoint
        for name in plan.prefetchers:
            gateway.stop()
            gateway.cache_file.unlink()
            gateway.settings = merged(gateway.settings, {"prefetch": {"policy": name}})
            gateway.start()
            with gateway.disk("files") as disk:
                found[name] = Client(disk, plan, chunk, seed=7).run()
        return found
    finally:
        gateway.close()
        shutil.rmtree(own, ignore_errors=True)


Readings = Mapping[int, Mapping[str, Reading]]
Downloads = Mapping[int, Mapping[int, Download]]


def measure_chunks(folder: Path, plan: Plan, stack: ExitStack) -> list[Section]:
    campus = Campus(plan.path, folder, stack)
    degrees = {size: plan.degrees if size in plan.chunks else (1,) for size in plan.sizes}
    loaded = {size: downloads(campus, plan, size, degrees[size]) for size in plan.sizes}
    read = {chunk: readings(campus, plan, folder, chunk) for chunk in plan.chunks}
    said = [of_peak(plan, loaded), *of_degrees(plan, loaded), *of_chunks(plan, read), *of_prefetch(plan, read)]
    return [claims.section("Claims", said), *tables(plan, loaded, read)]


def tables(plan: Plan, loaded: Downloads, read: Readings) -> list[Section]:
    path = plan.path
    remark = (
        f"A round trip of {path.round_trip_ms:g} ms, {path.base_ms:g} ms for each request, {path.connection_mib_s:g}"
        f" MiB/s for each connection, {path.link_mib_s:g} MiB/s for all: the paper's campus ten times as fast. GETs by"
        " the product's driver: mean latency, ms, and MiB/s of all."
    )
    words = [
        [
            size_name(size),
            *(
                f"{found[degree].mean_ms:,.0f}, {found[degree].mib_s:.1f}" if degree in found else ""
                for degree in plan.degrees
            ),
        ]
        for size, found in loaded.items()
    ]
    read_remark = (
        f"{plan.files} files of {size_name(FILE_BYTES)} on a volume, a cache of a sixth of them, {plan.requests:,}"
        f" requests of 16 KiB in runs of {plan.run_requests:g} on average, reads alone,"
        f" {plan.think_ms:g} ms between them. Objects are as large as chunks ({size_name(OBJECT_BYTES_MIN)} at the"
        " least, which is the product's bound), and the client reads whole chunks. Mean latency of a read, ms, and"
        " share of reads that wait for no download."
    )
    cells = [
        [
            size_name(chunk),
            *(f"{each.mean_ms:.2f}, {each.hits:.1%}" for each in found.values()),
        ]
        for chunk, found in read.items()
    ]
    degrees = tuple(f"{degree} at a time" for degree in plan.degrees)
    return [
        Section("Downloads", degrees, remark=remark, words=words),
        Section(
            "Reads through the gateway",
            tuple(f"`{name}`" for name in plan.prefetchers),
            remark=read_remark,
            words=cells,
        ),
    ]


def of_peak(plan: Plan, loaded: Downloads) -> Claim:
    rates = {size: loaded[size][1].mib_s for size in plan.sizes}
    peak = max(rates.values())
    smallest = min(size for size, rate in rates.items() if rate >= peak * (1 - PEAK))
    shown = ", ".join(f"{size_name(size)} {rate:.1f}" for size, rate in rates.items())
    nearly = min(size for size, rate in rates.items() if rate >= peak * 0.9)
    return Claim(
        "One download: 4 MB is the smallest size within 5 % of the peak",
        "figure 12",
        "4 MB",
        f"{shown} MiB/s: {size_name(smallest)}",
        smallest == 4 * MIB,
        "by the paper's own figures 4 MB take 4 s and 16 MB 14.2 s, so 4 MB are 11 % below what 16 MB get; within 10 %"
        f" here: {size_name(nearly)}",
    )


def of_degrees(plan: Plan, loaded: Downloads) -> list[Claim]:
    found = {}
    for size in plan.chunks:
        alone = loaded[size][1].mean_ms
        unaffected = [degree for degree in plan.degrees if loaded[size][degree].mean_ms <= alone * (1 + AFFECTED)]
        slowed = [degree for degree in plan.degrees if degree not in unaffected]
        found[size] = max(degree for degree in unaffected if degree < min(slowed, default=1 << 30))
    shown = ", ".join(f"{size_name(size)}: {degree}" for size, degree in found.items())
    degrees = list(found.values())
    apart = [size for size, degree in found.items() if not 0.5 <= degree / PRINTED_DEGREES.get(size, degree) <= 2]
    return [
        Claim(
            "The degree that does not slow downloads does not rise with the chunk's size",
            "figure 15",
            "16, 8, 4",
            shown,
            degrees == sorted(degrees, reverse=True),
        ),
        Claim(
            "That degree, within a factor of two",
            "figure 15",
            "16, 8, 4",
            shown,
            not apart,
            "the paper's is bound by the client's processor for small chunks, and by the link for large ones",
        ),
    ]


def of_chunks(plan: Plan, read: Readings) -> list[Claim]:
    without = {chunk: read[chunk][plan.prefetchers[0]] for chunk in plan.chunks}
    smallest, largest = plan.chunks[0], plan.chunks[-1]
    cut = 1 - without[largest].mean_ms / without[smallest].mean_ms
    shown = ", ".join(f"{size_name(chunk)} {each.mean_ms:.2f}" for chunk, each in without.items())
    hits = ", ".join(f"{size_name(chunk)} {each.hits:.1%}" for chunk, each in without.items())
    ratios = [each.hits for each in without.values()]
    return [
        Claim(
            "From 64 KB to 4 MB mean read latency falls by half of the printed part or more",
            "figure 13",
            "95.2 to 50.2 ms, -47.3 %",
            f"{shown} ms: {-cut:+.1%}",
            cut >= 0.473 / 2,
            "more of a large chunk is never read",
        ),
        Claim(
            "Hit ratio of reads rises from 64 KB to 4 MB",
            "figure 14",
            "77.8 to 98.4 %",
            hits,
            ratios == sorted(set(ratios)),
        ),
    ]


def of_prefetch(plan: Plan, read: Readings) -> list[Claim]:
    said = []
    without = plan.prefetchers[0]
    for name in plan.prefetchers[1:]:
        latencies = {chunk: read[chunk][name].mean_ms for chunk in plan.chunks}
        gains = {chunk: 1 - latencies[chunk] / read[chunk][without].mean_ms for chunk in plan.chunks}
        shown = ", ".join(f"{size_name(chunk)} {ms:.2f}" for chunk, ms in latencies.items())
        gained = ", ".join(f"{size_name(chunk)} {gain:+.1%}" for chunk, gain in gains.items())
        falling = list(gains.values())
        said += [
            Claim(
                f"With prefetch (`{name}`), 1 MB has the lowest mean read latency",
                "figure 16",
                "1 MB",
                f"{shown} ms",
                min(latencies, key=latencies.__getitem__) == MIB,
                "the client waits between requests, and what it does not wait for is fetched meanwhile, at any size",
            ),
            Claim(
                f"Prefetch (`{name}`) takes less off read latency the larger the chunk",
                "table VI",
                "70.4, 56.9, 22.6 %",
                gained,
                falling == sorted(falling, reverse=True),
                "the gateway's windows are counted in bytes and not in chunks",
            ),
            Claim(
                f"Prefetch (`{name}`) takes half of the printed part or more off reads, 64 KB and 1 MB",
                "table VI",
                "70.4, 56.9 %",
                gained,
                all(gains[chunk] >= PRINTED_GAINS[chunk] / 2 for chunk in plan.chunks[:2]),
                "windows begin anew with each run, and grow while the reader waits",
            ),
        ]
    said.append(
        Claim(
            "Prefetch takes 31.1 and 24.6 % off writes of 64 KB and 1 MB",
            "figure 17, table VI",
            "31.1, 24.6, -1.2 %",
            "a write of whole blocks waits for no download, so prefetch has nothing to save it",
            None,
        )
    )
    return said
