"""Which runs the claims need, by name, and their results over all seeds."""

from collections.abc import Callable, Iterator, Sequence
from statistics import fmean
from typing import TypeAlias

from tombolo_sim.engine import Json
from tombolo_sim.report.options import ReportOptions
from tombolo_sim.stout import scenarios
from tombolo_sim.stout.scenarios import SENDERS
from tombolo_sim.sweep import Task, execute

Metric: TypeAlias = Callable[[Json], float]

STEADY = (60.0, 120.0)
BEFORE, AFTER = (30.0, 60.0), (80.0, 140.0)
FAIR = (30.0, 120.0)
"""Section 5.5: 30 to 120 seconds after the gateways were set apart."""
LATER = (120.0, 240.0)
PAUSE_AT, PAUSE_S = 60.0, 2.696
"""Figure 14's spike."""
FAST_MS = (3.0, 20.0, 100.0)


def latency_ms(window: Json) -> float:
    return float(window["latency_ms"]["mean"])


def done_share(window: Json) -> float:
    return float(window["done_per_s"]) / max(1.0, float(window["offered_per_s"]))


def interval_ms(window: Json) -> float:
    return float(window["interval_ms"])


def fairness(window: Json) -> float:
    return float(window["latency_fairness"])


def is_sustained(window: Json) -> bool:
    """All that comes is done, in less than a second."""
    return done_share(window) > 0.98 and latency_ms(window) < 1000


def last_interval_ms(window: Json) -> float:
    return max(float(ms) for ms in window["intervals_ms"])


def tasks(seeds: Sequence[int]) -> Iterator[Task]:
    for seed in seeds:
        for name, job in _of_seed(seed):
            yield Task("load", job, f"{name}, seed {seed}")


def _of_seed(seed: int) -> Iterator[tuple[str, Json]]:
    for sender, batching in SENDERS.items():
        for rate in scenarios.REQUESTS_PER_S:
            yield f"{sender} at {rate}", scenarios.job(rate, batching, [STEADY], seed)
    for rate in (24_000, 26_400):
        for ms in (30, 50, 60, 100):
            yield f"fixed {ms} ms at {rate}", scenarios.job(rate, {"fixed-ms": ms}, [STEADY], seed)
    for reading, batching in scenarios.READINGS_OF_STOUT.items():
        for rate in (6_000, 18_000, 36_000):
            yield f"{reading} at {rate}", scenarios.job(rate, batching, [STEADY, LATER], seed)
    for later in (6_000, 18_000):
        for sender in ("Stout", "fixed 20 ms"):
            steps = [(0.0, 12_000.0), (60.0, float(later))]
            yield f"{sender} from 12000 to {later}", scenarios.job(steps, SENDERS[sender], [BEFORE, AFTER], seed)
    apart = {"stout": {"initial_ms": [80.0, 400.0]}}
    for rate in (12_000, 24_000, 36_000):
        yield f"apart at {rate}", scenarios.job(rate, apart, [FAIR, LATER], seed)
    yield "two apart", scenarios.job(24_000, apart, [FAIR, LATER], seed, gateways=2)
    paused = scenarios.STORE | {"partitions": 1, "pauses": [{"at_s": PAUSE_AT, "for_s": PAUSE_S}]}
    whole = [(30.0, PAUSE_AT), (PAUSE_AT, 240.0)]
    yield "paused", scenarios.job(3_000, SENDERS["Stout"], whole, seed, gateways=1, store=paused)
    for base_ms in FAST_MS:
        fast = {"servers": 1000, "base_ms": base_ms}
        job = scenarios.job(200, SENDERS["Stout"], [(600.0, 700.0)], seed, gateways=1, store=fast)
        yield f"a store of {base_ms:g} ms", job
    for limiter, limit in scenarios.UPLOAD_LIMITERS.items():
        for sender, batching in scenarios.UPLOAD_SENDERS.items():
            for mib_per_s in scenarios.UPLOAD_MIB_PER_S:
                name = f"uploads {sender}, {limiter} in flight, {mib_per_s} MiB/s"
                yield name, scenarios.upload_job(batching, limit, mib_per_s, seed)


class Results:
    def __init__(self, reports: dict[str, Json], seeds: Sequence[int]) -> None:
        self.reports = reports
        self.seeds = seeds

    def windows(self, name: str, number: int = 0) -> list[Json]:
        """One a seed."""
        return [self.reports[f"{name}, seed {seed}"]["windows"][number] for seed in self.seeds]

    def mean(self, name: str, metric: Metric, number: int = 0) -> float:
        return fmean(metric(window) for window in self.windows(name, number))

    def is_sustained(self, name: str) -> bool:
        return all(is_sustained(window) for window in self.windows(name))

    def highest(self, sender: str) -> int:
        """The highest rate that is sustained together with all below it."""
        highest = 0
        for rate in scenarios.REQUESTS_PER_S:
            if not self.is_sustained(f"{sender} at {rate}"):
                break
            highest = rate
        return highest

    def recoveries_s(self) -> list[float]:
        """From the pause until the interval is at most twice what it was on average before."""
        found = []
        for seed, before in zip(self.seeds, self.windows("paused"), strict=True):
            usual = 2 * interval_ms(before)
            series = [sample for sample in self.reports[f"paused, seed {seed}"]["series"] if sample["at_s"] > PAUSE_AT]
            peak = max(range(len(series)), key=lambda number: float(series[number]["interval_ms"]))
            after = [sample["at_s"] for sample in series[peak:] if sample["interval_ms"] <= usual]
            found.append(float(after[0]) - PAUSE_AT if after else float("inf"))
        return found

    def highest_intervals_ms(self) -> list[float]:
        """From the pause on."""
        return [
            max(
                float(sample["interval_ms"])
                for sample in self.reports[f"paused, seed {seed}"]["series"]
                if sample["at_s"] > PAUSE_AT
            )
            for seed in self.seeds
        ]


def carry_out(options: ReportOptions) -> Results:
    outcomes = execute(list(tasks(options.seeds)), options.output, options.workers)
    return Results({outcome.task.label: outcome.require() for outcome in outcomes}, options.seeds)
