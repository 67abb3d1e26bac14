"""The simulator part: replays of keys beside libCacheSim's, and how long a sweep of the paper's policies takes."""

import json
import sys
import time
from functools import partial
from importlib.metadata import version
from pathlib import Path

from bench.key_replay import CONTENDERS
from bench.key_traces import KeyTrace, PageTrace, key_traces, pages
from bench.report import Figure, Section
from bench.rotation import Figures, beside, rotate
from bench.rounds import Comparison
from harness.tools import REPOSITORY, run

POLICIES = ("lru", "arc", "s3-fifo", "sieve")
SHARE = 0.1
"""The cache, of the trace's distinct keys."""
WORKERS = 2
SWEEP_LIMIT_S = 3600.0
UNIT = "requests/s"
COMMAND = REPOSITORY / ".venv/bin/tombolo-sim"
REMARK = (
    "A process a replay; ours reads the file on a second thread. From opening the file to the miss ratio, which is the "
    "same to the last miss. Rates are by processor time, user and system; those by the clock follow."
)


def replay(contender: str, trace: KeyTrace, policy: str) -> dict[str, float]:
    words: list[str | Path] = [sys.executable, "-m", "bench.key_replay", contender]
    words += [trace.file, policy, str(int(trace.distinct * SHARE))]
    done = run(words, cwd=REPOSITORY / "tests")
    measured: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return measured


def compare_replay(trace: KeyTrace, policy: str, rounds: int) -> list[Comparison]:
    """By processor time and by the clock. All replays must miss the same number of requests."""
    misses: set[int] = set()
    name = f"{policy}, {trace.name}"
    names = {name: "processor_s", f"{name}, by the clock": "wall_s"}

    def rates(contender: str) -> Figures:
        measured = replay(contender, trace, policy)
        misses.add(round(measured["miss_ratio"] * trace.requests))
        return {name: trace.requests / measured[time] for name, time in names.items()}

    contenders = {contender: partial(rates, contender) for contender in CONTENDERS}
    measured = rotate(contenders, rounds, lambda: None)
    if len(misses) != 1:
        raise AssertionError(f"{name}: the replays disagree on the misses: {sorted(misses)}")
    return beside(measured, "ours", "libcachesim", dict.fromkeys(names, UNIT))


def compare_replays(traces: list[KeyTrace], rounds: int) -> Section:
    compared = [compare_replay(trace, policy, rounds) for trace in traces for policy in POLICIES]
    counts = ", ".join(f"{trace.name}: {trace.requests:,} requests for {trace.distinct:,} keys" for trace in traces)
    return Section(
        f"Replay of keys, beside libCacheSim {version('libcachesim')}",
        ("simulator", "libCacheSim"),
        [comparison for pair in compared for comparison in pair],
        f"{REMARK} {counts}; caches of a tenth of the keys.",
    )


def measure_sweep(trace: PageTrace, folder: Path) -> Section:
    """`tombolo-sim sweep` as people call it: six policies, three sizes, the modern cloud."""
    results = folder / "sweep"
    words: list[str | Path] = [
        COMMAND,
        "sweep",
        trace.file,
        "--format",
        f"{trace.file.name}=u32-le",
        "--cloud",
        "modern",
        "-o",
        results,
    ]
    begun = time.monotonic()
    run([*words, "--workers", str(WORKERS), "--json"], limit_s=SWEEP_LIMIT_S)
    seconds = time.monotonic() - begun
    jobs = [json.loads(path.read_text()) for path in sorted((results / "jobs").glob("*.json"))]
    by_policy: dict[str, list[float]] = {}
    for job in jobs:
        name = f"{job['job']['replacement']}_{job['job']['prefetch']}"
        by_policy.setdefault(name, []).append(float(job["report"]["requests_per_second"]))
    figures = [Figure(f"whole sweep, {len(jobs)} replays, {WORKERS} workers", "s", [seconds])]
    figures += [Figure(f"{name}, one replay of each size", UNIT, rates) for name, rates in sorted(by_policy.items())]
    return Section(
        "Sweep: six policies at 10, 20 and 30 % of the blocks",
        remark=f"{trace.name}, {trace.requests:,} requests; rates are by the clock while the other worker works too.",
        figures=figures,
    )


def measure_simulator(folder: Path, rounds: int) -> list[Section]:
    long = pages(folder)
    return [compare_replays(key_traces(long, folder), rounds), measure_sweep(long, folder)]
