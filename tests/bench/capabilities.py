"""`tombolo bench cloud` over ours and its peers: what each does on the wire, side by side.

Verdicts follow from bytes and requests, not from times: all systems are asked at once. Workloads follow one by one.
"""

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from shutil import rmtree
from statistics import median
from typing import Any

from bench.peers import STEP_LIMIT_S
from bench.report import Section
from bench.systems import PEERS, MountedSystem, Place, Tombolo
from harness.bench_cloud import BenchCloud
from harness.object_store import S3Server
from harness.tools import free_port

MIB = 1 << 20
DATA_BYTES_MAX = 1024 * MIB
"""All files of all probes and workloads, and what systems keep of those that were removed."""
RUN_LIMIT_S = 5_400.0
LEAST_MS = 0.1
"""What passes in one piece takes no time that could be seen."""
METRICS = {"startup_s": "start-up", "upload_s": "upload", "download_s": "download", "overhead": "overhead ratio"}
BEST_FIRST = ("yes", "smart", "always", "delta encoding", "changed chunks", "not after deletion", "partly", "no")
REASONS = {
    "start-up": "ours gathers what is written for `flush_delay_ms`; who uploads at close begins at once",
    "upload": "ours waits and gathers, and its recovery point comes up to `recovery_point_ms` after the data",
    "download": "ours verifies each block and stores it in its cache; windows and parallelism take round trips to grow",
    "overhead ratio": "metadata, journal, roots and leases of ours pass the wire too, also in the silence at the end",
    "bundling": "ours fills objects from what is dirty at one time; what comes later goes into another",
    "chunking": "ours has objects of up to 1,024 blocks, and puts small changes together rather than apart",
    "compression": "ours tries each block and keeps what does not shrink as it is; it looks at no names",
    "dedup": "ours knows only blocks that the fingerprint index has",
    "delta": "blocks of ours have fixed places: what an insertion moves is new to it",
    "peer-to-peer": "gateways do not talk to each other",
}
REASONS_REMARK = (
    "Why: what is known of our design to work against it there, not what was found in that row; a difference of a few"
    " tenths of a millisecond, or in a single round, has no reason that was measured."
)
FAILED = "no verdict: it has failed"


@dataclass
class Surveyed:
    """The report of one system, or why there is none."""

    name: str
    report: dict[str, Any] | None
    failure: str = ""


def survey(folder: Path, workloads: str, repeats: int, quiet_s: int, stack: ExitStack) -> list[Section]:
    server = S3Server(folder / "s3")
    stack.callback(server.close)
    server.start()
    systems: tuple[type[MountedSystem], ...] = (Tombolo, *PEERS)
    once = partial(survey_one, server=server, folder=folder, quiet_s=quiet_s)
    with ThreadPoolExecutor(len(systems)) as pool:
        asked = list(pool.map(partial(once, words=("--workloads", "none")), systems))
    measure = ("--probes", "none", "--workloads", workloads, "--repeats", str(repeats))
    measured = [] if workloads == "none" else [once(system, words=measure) for system in systems]
    return [*capabilities(asked), *workload_sections(measured)]


def survey_one(
    system: type[MountedSystem], words: Sequence[str], server: S3Server, folder: Path, quiet_s: int
) -> Surveyed:
    """One that fails has no figures, and spoils nobody else's."""
    bucket = f"survey-{system.__name__.lower()}-{time.monotonic_ns()}"
    server.create_bucket(bucket)
    listen = f"127.0.0.1:{free_port()}"
    place = Place(folder / bucket, server, f"http://{listen}", bucket, DATA_BYTES_MAX)
    bench = BenchCloud(folder / f"{bucket}-bench")
    try:
        with ExitStack() as stack:
            stack.callback(rmtree, place.stored, ignore_errors=True)
            stack.callback(rmtree, place.folder, ignore_errors=True)
            mounted = system(place)
            stack.callback(mounted.close)
            stack.callback(bench.close)
            actions = {"start": partial(start, mounted), "remount": partial(remount, mounted)}
            common = ("--quiet-s", str(quiet_s), "--gap-s", "1")
            store = f"127.0.0.1:{server.port}"
            report = bench.run(listen, store, mounted.folder, actions, [*common, *words], RUN_LIMIT_S)
            return Surveyed(system.name, report)
    except Exception as failure:
        if system is Tombolo:
            raise
        said = str(failure).splitlines() or [type(failure).__name__]
        return Surveyed(system.name, None, f"{said[0]}; {said[-1]}")


def start(mounted: MountedSystem) -> None:
    mounted.prepare()
    mounted.mount()


def remount(mounted: MountedSystem) -> None:
    mounted.settle(STEP_LIMIT_S)
    mounted.unmount()
    mounted.forget()
    mounted.mount()


def capabilities(surveyed: list[Surveyed]) -> list[Section]:
    """A row for each capability, with the reason where a peer does better; and what the verdicts follow from."""
    names = tuple(each.name for each in surveyed)
    found = [findings(each) for each in surveyed]
    rows, details = [], []
    for probe in found[0]:
        verdicts = [each[probe]["verdict"] if each else FAILED for each in found]
        better = any(rank(verdict) < rank(verdicts[0]) for verdict in verdicts[1:])
        rows.append([probe, *verdicts, REASONS[probe] if better else ""])
        details.append([probe, *(each[probe]["detail"] if each else "" for each in found)])
    remark = "\n".join(failures(surveyed))
    return [
        Section("Capabilities", (*names, "where a peer is better"), remark=remark, words=rows),
        Section("What the verdicts follow from", names, words=details),
    ]


def findings(surveyed: Surveyed) -> dict[str, dict[str, str]]:
    """By what was asked."""
    report = surveyed.report or {"capabilities": []}
    return {each["probe"]: each for each in report["capabilities"]}


def rank(verdict: str) -> int:
    return BEST_FIRST.index(verdict) if verdict in BEST_FIRST else len(BEST_FIRST)


def failures(surveyed: list[Surveyed]) -> list[str]:
    return [f"{each.name} has no figures: {each.failure}." for each in surveyed if each.report is None]


def workload_sections(surveyed: list[Surveyed]) -> list[Section]:
    if not surveyed:
        return []
    names = tuple(each.name for each in surveyed)
    remark = " ".join([f"Medians; less is better. {LEAST_MS:g} ms is what passes in one piece.", *failures(surveyed)])
    rows = []
    worse = []
    for number, metric, values in measured_rows(surveyed):
        shown = ["not measured" if value is None else f"{value:,.2f}" for value in values]
        unit = "" if metric == "overhead ratio" else ", ms"
        rows.append([f"workload {number}: {metric}{unit}", *shown])
        if values[0] is not None:
            for name, value in zip(names[1:], values[1:], strict=True):
                if value is not None and value < values[0]:
                    compared = f"{name}, workload {number}: {metric}{unit}"
                    worse.append([compared, f"{values[0]:,.2f}", f"{value:,.2f}", REASONS[metric]])
    sections = [Section("Workloads", names, remark=remark, words=rows)]
    if worse:
        columns = ("Tombolo", "the peer", "why")
        sections.append(Section("Where a peer is better", columns, remark=REASONS_REMARK, words=worse))
    return sections


def measured_rows(surveyed: list[Surveyed]) -> list[tuple[int, str, list[float | None]]]:
    numbers = [each["number"] for each in (surveyed[0].report or {"workloads": []})["workloads"]]
    return [
        (number, name, [middle(each, place, key) for each in surveyed])
        for place, number in enumerate(numbers)
        for key, name in METRICS.items()
    ]


def middle(surveyed: Surveyed, place: int, key: str) -> float | None:
    if surveyed.report is None:
        return None
    rounds = surveyed.report["workloads"][place]["rounds"]
    values: list[float] = [each[key] for each in rounds if each[key] is not None]
    if not values:
        return None
    return median(values) if key == "overhead" else max(LEAST_MS, 1e3 * median(values))
