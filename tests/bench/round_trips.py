"""The cloud path over a network: drains and cold sequential reads through a proxy that delays, beside the best that
plain parallel requests reach over the same path, of all sizes and parallelisms tried."""

import json
import shutil
import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.blocks import FILL
from bench.cloud import COLD_READ, held_back, raw_binary
from bench.fio import measure
from bench.memory import touch_memory
from bench.report import Section
from bench.rotation import Figures, Measurements, beside, rotate
from harness.gateway import Gateway, Settings
from harness.object_store import S3Server
from harness.process import Process
from harness.tools import REPOSITORY, can_connect, free_port, run

MIB = 1 << 20
SIZES = (1 << 20, 4 << 20, 16 << 20)
PARALLELISMS = (4, 8, 16, 32)
BUCKET = "tombolo-round-trips"
DRAIN, READ = "drain", "cold sequential read"
UNITS = {DRAIN: "MiB/s", READ: "MiB/s"}
TOUCHED = 6
"""Times the data: slots, the server's files and what lies in sockets and buffers."""
OURS, PLAIN, OTHER = "gateway", "best plain requests", "the other build"


@dataclass(frozen=True)
class Route:
    """Between gateway and server."""

    round_trip_ms: float = 0
    link_mib_s: float | None = None
    """Each way, shared by all connections."""

    def __str__(self) -> str:
        link = "" if self.link_mib_s is None else f", a link of {self.link_mib_s:g} MiB/s"
        return f"{self.round_trip_ms:g} ms{link}"


def measure_round_trips(
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
            once: dict[str, Callable[[], Figures]] = {
                OURS: partial(one_round, folder / "gateway", None, endpoint, server, size),
                PLAIN: partial(plain, endpoint, server, size),
            }
            if other is not None:
                once[OTHER] = partial(one_round, folder / "other", other, endpoint, server, size)
            measured = rotate(once, rounds, lambda: None)
        best = best_of(measured)
        remark = "; ".join(f"best for the {workload}: {combination}" for workload, combination in best.items())
        sections += [
            Section(
                f"{route}, beside {name}",
                (OURS, name),
                beside(measured, OURS, name, UNITS),
                f"Of {len(SIZES) * len(PARALLELISMS)} combinations by their medians, {remark}."
                if name == PLAIN
                else "",
            )
            for name in once
            if name != OURS
        ]
    return sections


def best_of(measured: Measurements) -> dict[str, str]:
    """Sets the plain requests' figures to those of the combination with the highest median, and says which that is."""
    figures, best = measured[PLAIN], {}
    for workload in UNITS:
        of_workload = {name: values for name, values in figures.items() if name.startswith(f"{workload}: ")}
        name = max(of_workload, key=lambda name: statistics.median(of_workload[name]))
        figures[workload] = figures[name]
        best[workload] = name.removeprefix(f"{workload}: ")
    return best


def endpoint_behind(route: Route, server: S3Server, folder: Path, stack: ExitStack) -> str:
    if route == Route():
        return server.endpoint
    port = free_port()
    proxy = Process("delay_proxy", folder / "delay_proxy.log")
    stack.callback(proxy.kill9)
    binary = raw_binary().with_name("delay_proxy")
    words: list[str | Path] = [binary, f"127.0.0.1:{port}", f"127.0.0.1:{server.port}", str(route.round_trip_ms)]
    proxy.start([*words, str(route.link_mib_s)] if route.link_mib_s is not None else words)
    proxy.wait_until(lambda: can_connect(port), 20, "listening socket")
    return f"http://127.0.0.1:{port}"


def one_round(folder: Path, binary: Path | None, endpoint: str, server: S3Server, size: int) -> Figures:
    """A new gateway and prefix each time, so that all rounds begin alike."""
    prefix = f"{folder.name}-{time.monotonic_ns()}"
    settings: Settings = {
        "store": {"url": f"s3://{BUCKET}/{prefix}", "endpoint": endpoint, "allow_http": True},
        "cache": {"size": f"{4 * size // MIB}MiB"},
    } | held_back(size, binary)
    gateway = Gateway(folder, settings, server.environment, binary)
    gateway.start()
    try:
        gateway.create_volume("bench", str(size))
        measure(FILL, gateway.nbd_uri("bench"), size, None)
        touch_memory(folder.parent, TOUCHED * size)
        begun = time.monotonic()
        gateway.drain(600)
        drained = size / MIB / (time.monotonic() - begun)
        gateway.stop()
        gateway.cache_file.unlink()
        gateway.start()
        touch_memory(folder.parent, TOUCHED * size)
        read = measure(COLD_READ, gateway.nbd_uri("bench"), size, None).value
        return dict(zip(UNITS, (drained, read), strict=True))
    finally:
        gateway.close()
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(server.folder / BUCKET / prefix, ignore_errors=True)


def plain(endpoint: str, server: S3Server, size: int) -> Figures:
    """Of each combination of size and parallelism."""
    figures = {}
    touch_memory(server.folder.parent, TOUCHED * size)
    for object_bytes in SIZES:
        words: list[str | Path] = [raw_binary(), "--store", f"s3://{BUCKET}/plain", "--endpoint", endpoint]
        words += ["--sizes", str(object_bytes), "--concurrency", ",".join(map(str, PARALLELISMS))]
        words += ["--count", str(size // object_bytes)]
        done = run(words, limit_s=600, environment=server.environment, cwd=REPOSITORY)
        for line in done.stdout.splitlines():
            measured = json.loads(line)
            combination = f"{object_bytes // MIB} MiB, {measured['concurrency']} at once"
            for workload, operation in ((DRAIN, "put"), (READ, "get")):
                figures[f"{workload}: {combination}"] = float(measured[operation]["mebibytes_per_second"])
    return figures
