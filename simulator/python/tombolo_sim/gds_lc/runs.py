"""Which runs the figures need, and their results over all seeds."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev
from typing import Any, TypeAlias

from tombolo_sim.gds_lc.scenarios import Json, Scenario, Workload
from tombolo_sim.report.estimate import Estimate, estimate
from tombolo_sim.report.options import ReportOptions
from tombolo_sim.sweep import Task
from tombolo_sim.sweep import execute as execute_tasks

Metric: TypeAlias = Callable[[Json], float]

BASIC = ("lru", "arc", "gds-latency", "gds-price", "gds-lc", "gds-lcf")
"""Figures 6, 9 and 11."""
BASELINE = "sieve"
"""Ours, of 2024: whether a policy that weighs nothing has caught up since."""
FREQUENCY = ("gdsf-latency", "gdsf-price")
CLEAN_DIRTY = ("gds-l", "gds-lf")
RATIOS = ((1, 2), (1, 1), (2, 1), (1, 3))
FACTORS: tuple[int | None, ...] = (None, 1, 10, 100)
"""Multiples of the round trip; none: latencies as they are."""
NORMALISED = ("gds-latency", "gds-lc", "gds-lcf")
_WEIGHED = ("gds-l", "gds-lf", "gds-lc", "gds-lcf")
PAPERS_FACTOR = 10
PAPERS_RATIO = (1, 2)


@dataclass(frozen=True)
class Point:
    """One configuration; `factor` is 0 where a policy does not normalise by itself and is not made to."""

    scenario: str
    workload: str
    policy: str
    share: float
    factor: int | None = 0
    ratio: tuple[int, int] = PAPERS_RATIO

    def label(self, seed: int) -> str:
        place = f"{self.scenario} {self.workload} {self.policy} {self.share:.0%}"
        return f"{place} round trips {self.factor} regions {self.ratio[0]}:{self.ratio[1]} seed {seed}"


def point(scenario: str, workload: str, policy: str, share: float) -> Point:
    """As in the paper's basic experiments: what normalises does so by ten round trips."""
    return Point(scenario, workload, policy, share, PAPERS_FACTOR if policy in _WEIGHED else 0)


def job_of(at: Point, scenario: Scenario, workload: Workload, seed: int) -> Json:
    job: Json = {
        "workload": workload.specification,
        "policy": at.policy,
        "cache_share": at.share,
        "locations": list(scenario.locations),
        "write_mode": workload.write_mode,
        "passes_large_objects": True,
        "region_shares": list(at.ratio),
        "seed": seed,
    }
    if at.factor is None:
        job["normalisation"] = "none"
    elif at.factor:
        job["normalisation"] = {"round-trips": at.factor}
    return job


def hit_ratio(report: Json) -> float:
    return float(report["hit_ratio"])


def latency_ms(report: Json) -> float:
    return float(report["latency_ms"]["mean"])


def dollars(report: Json) -> float:
    return float(report["dollars"]["total"])


def fee(item: str) -> Metric:
    return lambda report: float(report["dollars"][item])


def uploads(kind: str) -> Metric:
    return lambda report: float(report["uploads"][kind]["objects"])


def all_uploads(report: Json) -> float:
    return sum(uploads(kind)(report) for kind in ("on_demand", "background", "through"))


def share_above_20_kib(report: Json) -> float:
    above: int = sum(bucket["objects"] for bucket in report["downloads_by_size"] if (bucket["kib_max"] or 1e9) > 20)
    downloads: int = report["downloads"]["objects"]
    return above / max(1, downloads)


class Results:
    """Reports by configuration, one a seed."""

    def __init__(self, reports: dict[Point, list[Json]]) -> None:
        self.reports = reports

    def values(self, at: Point, metric: Metric) -> list[float]:
        return [metric(report) for report in self.reports[at]]

    def mean(self, at: Point, metric: Metric) -> float:
        return fmean(self.values(at, metric))

    def error(self, at: Point, metric: Metric) -> float:
        """The paper's standard error (section 5.1.4), which is the deviation over the runs."""
        return pstdev(self.values(at, metric))

    def change(self, at: Point, base: Point, metric: Metric) -> Estimate:
        """From one configuration to another, in parts of the former. Both have the same network under each seed."""
        pairs = zip(self.values(at, metric), self.values(base, metric), strict=True)
        return estimate([value / former - 1 if former else float(value > 0) for value, former in pairs])

    def basic(self, scenario: str, workload: str, policy: str, share: float, metric: Metric) -> float:
        return self.mean(point(scenario, workload, policy, share), metric)


def points(
    scenarios: Iterable[str], workloads: Sequence[Workload], shares: Sequence[float], middle: float
) -> list[Point]:
    """All configurations of the figures, each once."""
    wanted: dict[Point, None] = {}
    for scenario in scenarios:
        for workload in workloads:
            for share in shares:
                for policy in (*BASIC, BASELINE):
                    wanted[point(scenario, workload.name, policy, share)] = None
            for policy in NORMALISED:
                for factor in FACTORS:
                    wanted[Point(scenario, workload.name, policy, middle, factor)] = None
            if scenario == "internet":
                wanted |= dict.fromkeys(_internet_only(workload, shares))
    return list(wanted)


def _internet_only(workload: Workload, shares: Sequence[float]) -> Iterable[Point]:
    """Figures 15 and 19 to 21."""
    for share in shares:
        for policy in (*FREQUENCY, *(CLEAN_DIRTY if workload.stands_for == "Netfs" else ())):
            yield point("internet", workload.name, policy, share)
        for ratio in RATIOS:
            yield Point("internet", workload.name, "gds-lcf", share, PAPERS_FACTOR, ratio)


def execute(
    wanted: Sequence[Point],
    scenarios: Sequence[Scenario],
    workloads: Sequence[Workload],
    options: ReportOptions,
) -> Results:
    places = {scenario.name: scenario for scenario in scenarios}
    loads = {workload.name: workload for workload in workloads}
    runs = [(at, seed) for at in wanted for seed in options.seeds]
    tasks = [
        Task("objects", job_of(at, places[at.scenario], loads[at.workload], seed), at.label(seed)) for at, seed in runs
    ]
    outcomes = execute_tasks(tasks, options.output, options.workers)
    reports: dict[Point, list[Json]] = defaultdict(list)
    for (at, _), outcome in zip(runs, outcomes, strict=True):
        reports[at].append(outcome.require())
    return Results(dict(reports))


def as_json(results: Results) -> list[dict[str, Any]]:
    return [
        {
            "scenario": at.scenario,
            "workload": at.workload,
            "policy": at.policy,
            "cache_share": at.share,
            "normalisation_round_trips": at.factor,
            "region_shares": list(at.ratio),
            "reports": reports,
        }
        for at, reports in results.reports.items()
    ]
