"""The simulator against reality: one trace through the daemon, over NBD, S3 and a slow network, and through the
simulator's engine gives the same hits, partial and complete misses.

What the daemon takes for a hit and for a miss, and the player to ask again, is measured on a volume of its own with
other requests, before and after each play, and is all that the simulator is told of times. Latencies of both are
printed, and noted in a file when TOMBOLO_REALITY names one; no time decides a test.
"""

import json
import os
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from conftest import SEED, GatewayFactory, s3_settings
from harness.fault_proxy import FaultProxy
from harness.gateway import Gateway, merged
from harness.object_store import S3Server
from harness.tools import replay_binary, run
from harness.trace_player import Played, play
from harness.traces import (
    BLOCK,
    PAGE_BLOCKS,
    Request,
    arc_slice,
    capture_slice,
    large,
    mixed,
    pages_before,
    save,
    volume_bytes,
    with_copies,
)
from test_policies import COMBINATIONS, metric

MIB = 1 << 20
PACK_BLOCKS = 64
LANES = 16
DELAY_S = 0.03
TIMED_OUTSTANDING = 4
"""About what is under way when requests come at their own times."""
WINDOW_BLOCKS = 256
DISTANCE_MAX = 0.01
"""Of each share of the reads, from what the simulator's seeds give."""
SEEDS = 8
"""With many requests at a time, which of two comes first is chance, in the daemon and between seeds alike."""
QUANTILES = [0.01, *(index / 20 for index in range(1, 20)), 0.99]
LATENCIES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
RESULTS = ("hit", "partial_miss", "complete_miss")
PROBE_PACKS = 128


@dataclass(frozen=True)
class Play:
    """What is played, how, and against which cache."""

    name: str
    trace: list[Request]
    cache_blocks: int
    outstanding_max: int = 1
    """0: at the trace's own times."""
    warming: int = 0
    """Requests before those that count, without delay: what they leave in the cache and in the history is there."""

    @property
    def dirty_blocks_max(self) -> int:
        return self.cache_blocks // 4

    @property
    def counted(self) -> list[Request]:
        return self.trace[self.warming :]

    @property
    def clients(self) -> int:
        return len({request.client for request in self.trace})

    @property
    def writes(self) -> bool:
        return any(request.op == "W" for request in self.trace)


@dataclass(frozen=True)
class Outcome:
    """Shares of the reads by result, their latencies, and what it came to."""

    shares: dict[str, float]
    times_ms: dict[str, float]
    """`mean`, and the quantiles of `LATENCIES`."""
    gets: int
    copies: float
    """Share of the blocks flushed whose content was there. How many are overwritten before is a matter of time."""


@dataclass(frozen=True)
class Probe:
    """Milliseconds of reads of one block that is cached, of one that is not, and of a whole pack that is not."""

    warm_ms: list[float]
    cold_ms: list[float]
    pack_ms: list[float]
    think_times_us: list[float]

    def __add__(self, other: "Probe") -> "Probe":
        return Probe(
            self.warm_ms + other.warm_ms,
            self.cold_ms + other.cold_ms,
            self.pack_ms + other.pack_ms,
            self.think_times_us + other.think_times_us,
        )

    @property
    def ms_per_mib(self) -> float:
        extra_ms = max(quantile(self.pack_ms, 0.5) - quantile(self.cold_ms, 0.5), 0.0)
        return extra_ms / ((PACK_BLOCKS - 1) * BLOCK / MIB)

    @property
    def think_time_us(self) -> int:
        return round(quantile(self.think_times_us, 0.5)) if self.think_times_us else 0


class Reality:
    """A daemon whose store is far away."""

    def __init__(self, gateway: Gateway, proxy: FaultProxy, folder: Path) -> None:
        self._gateway = gateway
        self._proxy = proxy
        self._folder = folder
        self._filled: set[str] = set()

    def fill(self, name: str, size_bytes: int, pages: list[int]) -> None:
        """These pages of a new volume, in their order, so that every object is a whole pack of neighbours."""
        content = random.Random(f"{SEED} {name}")
        self._filled.add(name)
        self._gateway.create_volume(name, str(size_bytes))
        with self._gateway.disk(name) as disk:
            for page in pages:
                disk.write(page * PAGE_BLOCKS * BLOCK, content.randbytes(PAGE_BLOCKS * BLOCK))
        self._gateway.drain()

    def begin_cold(self, settings: dict[str, Any]) -> None:
        """A start with an empty cache and without any history."""
        self._gateway.stop()
        self._gateway.cache_file.unlink()
        (self._gateway.state_directory / "history").unlink(missing_ok=True)
        self._gateway.settings = merged(self._gateway.settings, settings)
        self._gateway.start()

    def play(self, volume: str, trace: list[Request], outstanding_max: int, delay_s: float = DELAY_S) -> Played:
        path = self._folder / "played.csv"
        save(path, trace)
        self._proxy.faults.delay_s = delay_s
        try:
            return play(self._gateway.nbd_socket, volume, path, outstanding_max, f"{delay_s} s away")
        finally:
            self._proxy.faults.delay_s = 0.0

    def probe(self, outstanding: int, clients: int) -> Probe:
        """With so many requests under way, on as many connections: requests of one wait for each other's replies. Whole
        packs come among single blocks, as prefetch does: many packs at a time would wait for each other, and what
        they take then is not what one takes. In turn, all three kinds meet the same machine."""
        self.begin_cold({"prefetch": {"policy": "none"}})
        packs = list(range(PROBE_PACKS))
        random.Random(SEED).shuffle(packs)
        half = PROBE_PACKS // 2
        known = [Request(0, "R", pack * PACK_BLOCKS, 1, 0) for pack in packs[:half]]
        self.play("probe", known, outstanding)
        trace = []
        for index, whole in enumerate(packs[half:]):
            near = packs[index] * PACK_BLOCKS
            for place in range(16, PACK_BLOCKS, 16):
                trace += [Request(0, "R", near + place, 1, 0), known[index]]
            trace.append(Request(0, "R", whole * PACK_BLOCKS, PACK_BLOCKS, 0))
        trace = [replace(request, client=index % clients) for index, request in enumerate(trace)]
        played = self.play("probe", trace, outstanding)
        cycle = len(trace) // half
        kinds: tuple[list[float], ...] = ([], [], [])
        for index, latency in enumerate(played.latencies_ms):
            kinds[2 if index % cycle == cycle - 1 else index % cycle % 2].append(latency)
        cold, warm, large = kinds
        return Probe(warm, cold, large, played.think_times_us)

    def outcome(self, combination: str, play: Play) -> Outcome:
        """On a volume of its own if the trace writes."""
        volume = f"play-{combination}" if play.writes else "play"
        if volume not in self._filled:
            self.fill(volume, volume_bytes(play.trace), pages_before(play.trace))
        replacement, _, prefetch = combination.partition("_")
        self.begin_cold({"cache": {"replacement": replacement}, "prefetch": {"policy": prefetch}})
        if play.warming:
            self.play(volume, play.trace[: play.warming], play.outstanding_max, delay_s=0.0)
        before = self._counts(replacement, prefetch)
        played = self.play(volume, play.counted, play.outstanding_max)
        self._gateway.drain()
        counts = {name: count - before[name] for name, count in self._counts(replacement, prefetch).items()}
        reads = zip(played.latencies_ms, play.counted, strict=True)
        latencies = [latency for latency, request in reads if request.op == "R"]
        assert sum(counts[name] for name in RESULTS) == len(latencies), "the daemon has counted other reads"
        return Outcome(
            {name: counts[name] / len(latencies) for name in RESULTS},
            {"mean": fmean(latencies)} | {name: quantile(latencies, at) for name, at in LATENCIES.items()},
            round(counts["gets"]),
            copies_in(counts["duplicate"], counts["unique"]),
        )

    def _counts(self, replacement: str, prefetch: str) -> dict[str, float]:
        labels = {"replacement": replacement, "prefetch": prefetch}
        reads = {name: metric(self._gateway, "tombolo_policy_reads_total", result=name, **labels) for name in RESULTS}
        causes = ("demand", "prefetch")
        gets = (metric(self._gateway, "tombolo_store_requests_total", operation="get", cause=cause) for cause in causes)
        outcomes = ("duplicate", "unique")
        blocks = {name: metric(self._gateway, "tombolo_dedup_blocks_total", outcome=name) for name in outcomes}
        return reads | blocks | {"gets": sum(gets)}


def copies_in(duplicate: float, unique: float) -> float:
    return duplicate / max(1, duplicate + unique)


def quantile(latencies: list[float], at: float) -> float:
    return sorted(latencies)[min(int(at * len(latencies)), len(latencies) - 1)]


def table(latencies: list[float]) -> list[tuple[float, float]]:
    return [(at, quantile(latencies, at)) for at in QUANTILES]


def prefetch_settings(combination: str) -> dict[str, Any]:
    """The daemon's settings of the prefetcher, in the engine's words."""
    sarc_threshold = {"threshold": 3} if combination == "sarc_amp" else {}
    return {
        "none": {},
        "seq": {},
        "amp": {"degree_blocks_max": WINDOW_BLOCKS, **sarc_threshold},
        "graph": {"amp.degree_blocks_max": WINDOW_BLOCKS},
    }[combination.partition("_")[2]]


def simulated(combination: str, play: Play, probe: Probe, folder: Path) -> list[Outcome]:
    """One of each seed."""
    path = folder / "simulated.csv"
    save(path, play.trace)
    replacement, _, prefetch = combination.partition("_")
    hit_ms, miss_ms = table(probe.warm_ms), table(probe.cold_ms)
    job = {
        "trace": {"path": str(path)},
        "cache_blocks": play.cache_blocks,
        "dirty_blocks_max": play.dirty_blocks_max,
        "replacement": replacement,
        "prefetch": prefetch,
        "addressing": "both" if prefetch == "graph" else "logical",
        "prefetch_settings": prefetch_settings(combination),
        "arrivals": "closed-loop" if play.outstanding_max else "trace",
        "outstanding_max": max(play.outstanding_max, 1),
        "think_time_us": probe.think_time_us,
        "warmup_requests": play.warming,
        "pack_blocks": PACK_BLOCKS,
        "cloud": {
            "get_ms": miss_ms,
            "put_ms": miss_ms,
            "ms_per_mib": probe.ms_per_mib,
            "parallel_requests": LANES,
        },
        "disk": {"read_ms": hit_ms, "write_ms": hit_ms},
    }
    return [outcome_of(job | {"seed": SEED + index}, folder / "job.json") for index in range(SEEDS)]


def outcome_of(job: dict[str, Any], path: Path) -> Outcome:
    path.write_text(json.dumps(job))
    report = json.loads(run([replay_binary(), "blocks", path], limit_s=600).stdout)
    reads, quantiles = report["reads"], dict(map(tuple, report["read_latency"]["quantiles"]))
    counts = dict(zip(RESULTS, (reads["hits"], reads["partial_misses"], reads["complete_misses"]), strict=True))
    return Outcome(
        {name: count / reads["requests"] for name, count in counts.items()},
        {"mean": report["read_latency"]["mean"]} | {name: quantiles[at] for name, at in LATENCIES.items()},
        report["cloud"]["gets"],
        copies_in(report["writes"]["blocks_duplicate"], report["writes"]["blocks_unique"]),
    )


def mean(outcomes: list[Outcome]) -> Outcome:
    return Outcome(
        {name: fmean(outcome.shares[name] for outcome in outcomes) for name in RESULTS},
        {name: fmean(outcome.times_ms[name] for outcome in outcomes) for name in ("mean", *LATENCIES)},
        round(fmean(outcome.gets for outcome in outcomes)),
        fmean(outcome.copies for outcome in outcomes),
    )


def is_far(real: Outcome, models: list[Outcome]) -> bool:
    """One share at least is further than it may be from all that the seeds give."""
    pairs = [(real.shares[name], [model.shares[name] for model in models]) for name in RESULTS]
    pairs.append((real.copies, [model.copies for model in models]))
    return any(not min(of) - DISTANCE_MAX <= share <= max(of) + DISTANCE_MAX for share, of in pairs)


def note(combination: str, play: Play, real: Outcome, model: Outcome, probe: Probe) -> None:
    """A row of the table in docs/results/simulator-reality.md: reality / simulator, the mean of its seeds."""
    shares = [f"{real.shares[name]:.2%} / {model.shares[name]:.2%}" for name in RESULTS]
    times = [f"{real.times_ms[name]:.3g} / {model.times_ms[name]:.3g}" for name in ("mean", *LATENCIES)]
    times.insert(3, f"{model.times_ms['p95'] / real.times_ms['p95'] - 1:+.1%}")
    counts = [f"{real.gets:,} / {model.gets:,}", f"{real.copies:.2%} / {model.copies:.2%}"]
    row = "| " + " | ".join([play.name, combination, *shares, *times, *counts]) + " |"
    cold = " ".join(f"{quantile(probe.cold_ms, at):.1f}" for at in (0.5, 0.95))
    print(f"cold {cold} ms, {probe.ms_per_mib:.1f} ms a MiB, think time {probe.think_time_us} us")
    print(row)
    if path := os.environ.get("TOMBOLO_REALITY"):
        with Path(path).open("a") as file:
            file.write(row + "\n")


Compare = Callable[[Play, list[str]], None]


@pytest.fixture
def compare(make_gateway: GatewayFactory, s3: S3Server, proxy: FaultProxy, folder: Path) -> Compare:
    def through_both(play: Play, combinations: list[str]) -> None:
        settings: dict[str, Any] = s3_settings(proxy.endpoint)
        settings["store"] |= {"downloads_in_flight_max": LANES, "uploads_in_flight_max": LANES}
        settings |= {
            "cache": {"size": play.cache_blocks * BLOCK},
            "flush": {"dirty_bytes_max": play.dirty_blocks_max * BLOCK},
            "prefetch": {"window_bytes_max": WINDOW_BLOCKS * BLOCK, "policy": "none"},
        }
        gateway = make_gateway(settings, s3.environment).start()
        reality = Reality(gateway, proxy, folder)
        probe_bytes = PROBE_PACKS * PACK_BLOCKS * BLOCK
        reality.fill("probe", probe_bytes, list(range(probe_bytes // BLOCK // PAGE_BLOCKS)))
        outstanding = play.outstanding_max or TIMED_OUTSTANDING
        far = []
        before = reality.probe(outstanding, play.clients)
        for combination in combinations:
            real = reality.outcome(combination, play)
            after = reality.probe(outstanding, play.clients)
            models = simulated(combination, play, before + after, folder)
            note(combination, play, real, mean(models), before + after)
            before = after
            if is_far(real, models):
                far.append((combination, real, models))
        assert not far

    return through_both


def test_one_request_at_a_time_misses_as_often_as_simulated(compare: Compare) -> None:
    trace = mixed(SEED, 1_500, 64 * PAGE_BLOCKS)
    compare(Play("mixed", trace, 16 * MIB // BLOCK), ["lru_none"])


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_all_combinations_miss_as_often_as_simulated(compare: Compare) -> None:
    trace = mixed(SEED, 4_000, 64 * PAGE_BLOCKS)
    compare(Play("mixed, 4,000", trace, 16 * MIB // BLOCK), ["lru_none", *COMBINATIONS])


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_many_requests_at_a_time_miss_as_often_as_simulated(compare: Compare) -> None:
    trace = mixed(SEED, 12_000, 96 * PAGE_BLOCKS)
    compare(
        Play("mixed, 12,000, 8 at a time", trace, 24 * MIB // BLOCK, 8), ["lru_none", "lru_seq", "lru_amp", "lru_graph"]
    )


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_timed_arrivals_miss_as_often_as_simulated(compare: Compare) -> None:
    trace = mixed(SEED, 6_000, 64 * PAGE_BLOCKS, per_second=150.0)
    compare(Play("mixed, 6,000, timed", trace, 16 * MIB // BLOCK, 0), ["lru_none", "lru_amp"])


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_a_public_trace_misses_as_often_as_simulated(compare: Compare) -> None:
    compare(Play("arc P3, 2,000", public_trace(2_000), 16 * MIB // BLOCK), ["lru_none", "sarc_amp", "sarc_graph"])


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_a_public_trace_at_many_at_a_time_misses_as_often_as_simulated(compare: Compare) -> None:
    play = Play("arc P3, 6,000, 8 at a time", public_trace(6_000), 32 * MIB // BLOCK, 8)
    compare(play, ["lru_none", "lru_seq", "sarc_amp"])


def public_trace(requests: int) -> list[Request]:
    return arc_slice(public_traces() / "arc_P3.lis.zst", requests)


def public_traces() -> Path:
    folder = os.environ.get("TOMBOLO_TRACES")
    if not folder:
        pytest.skip("TOMBOLO_TRACES names no folder of public traces")
    return Path(folder)


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_writes_with_copies_are_stored_and_missed_as_simulated(compare: Compare) -> None:
    trace = with_copies(SEED, mixed(SEED, 6_000, 64 * PAGE_BLOCKS, written=0.5), share=0.4, different=500)
    compare(Play("mixed, 6,000, half written, copies", trace, 16 * MIB // BLOCK), ["lru_none", "2q_graph"])


@pytest.mark.soak
@pytest.mark.timeout(2400)
def test_a_large_cache_misses_as_often_as_simulated(compare: Compare) -> None:
    trace = large(SEED, 12_000, 2048 * PAGE_BLOCKS)
    compare(Play("64 blocks each, 1 GiB, 8 at a time", trace, 1024 * MIB // BLOCK, 8), ["lru_none", "2q_graph"])


@pytest.mark.soak
@pytest.mark.timeout(2400)
@pytest.mark.parametrize("name", ["arc P2", "arc P3", "eng1"])
def test_the_default_and_its_rivals_do_as_simulated_once_they_know_a_trace(compare: Compare, name: str) -> None:
    folder = public_traces()
    warming, counted = 50_000, 6_000
    match name:
        case "eng1":
            warming = 30_000
            path = folder / "eng1_block.t_op_blk4k_n_cids.txt.zst"
            trace = capture_slice(path, 335_091, warming + counted)
        case _:
            trace = arc_slice(folder / f"{name.replace(' ', '_')}.lis.zst", warming + counted)
    distinct = len({block for request in trace for block in range(request.block, request.block + request.count)})
    cache_blocks = max(16 * MIB // BLOCK, distinct // 10)
    compare(
        Play(f"{name}, after {warming:,}", trace, cache_blocks, warming=warming),
        ["lru_none", "lru_graph", "2q_graph"],
    )
