"""The runs behind the report on the Tombolo paper: which they are, and their results by what they are.

Cache sizes are 10, 20 and 30 % of *accessed data*. The paper's 30 GB are 10 % of its traffic, not of its footprint, so
both readings are run: of the distinct blocks (`footprint`), and of all blocks read and written (`traffic`).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tombolo_sim.engine import EngineError, Json
from tombolo_sim.jobs import Choice
from tombolo_sim.models import operation_usd
from tombolo_sim.policies import COMBINATIONS, policy
from tombolo_sim.report import printed
from tombolo_sim.report.conditions import PAPER, Condition, amp_settings
from tombolo_sim.report.estimate import Estimate, estimate
from tombolo_sim.report.parameters import DEGREE_BLOCKS, Parameters
from tombolo_sim.sources import Trace
from tombolo_sim.sweep import Outcome, Task

PERCENTS = (10, 20, 30)
DENOMINATORS = ("footprint", "traffic")
CLOUDS = ("s3-2014", "cloudfront-2014")
MISSES_ON = "cloudfront-2014"
WINDOWS = (64, 1024)
CONTROLLED = ("lru_amp", "lru_graph")
TRACK_BLOCKS = (1, 4, 8, 16, 32, 64)
DAY_US = 86_400_000_000
MONTH_US = 30 * DAY_US
INTERVALS = 40


@dataclass(frozen=True)
class Key:
    trace: str
    denominator: str
    percent: int
    algorithm: str
    cloud: str
    seed: int
    variant: str = ""
    """`track=N`, `degree=N`, `populate=every`, `shuffled=N`, or nothing."""
    condition: str = PAPER.name


@dataclass
class Results:
    """What is found of some traces under one condition; others are one step away."""

    traces: list[Trace]
    analyses: dict[str, Json]
    """Of the part of each trace that is replayed."""
    seeds: tuple[int, ...]
    reports: dict[Key, Json] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    sizes: dict[tuple[str, str, int], int] = field(default_factory=dict)
    condition: str = PAPER.name
    whole: dict[str, Json] = field(default_factory=dict)
    """Analyses of whole traces of which a part is replayed."""

    def under(self, condition: Condition) -> "Results":
        return replace(self, condition=condition.name)

    def of(self, traces: Sequence[Trace]) -> "Results":
        return replace(self, traces=list(traces))

    def get(
        self,
        trace: str,
        denominator: str,
        percent: int,
        algorithm: str,
        cloud: str,
        variant: str = "",
        seed: int | None = None,
    ) -> Json | None:
        wanted = self.seeds[0] if seed is None else seed
        return self.reports.get(Key(trace, denominator, percent, algorithm, cloud, wanted, variant, self.condition))

    def estimate(
        self, path: str, trace: str, denominator: str, percent: int, algorithm: str, cloud: str, variant: str = ""
    ) -> Estimate | None:
        """A number of the report by its dotted name, over all seeds."""
        values = []
        for seed in self.seeds:
            report = self.get(trace, denominator, percent, algorithm, cloud, variant, seed)
            if report is None:
                return None
            values.append(number(report, path))
        return estimate(values)

    def value(
        self, path: str, trace: str, denominator: str, percent: int, algorithm: str, cloud: str, variant: str = ""
    ) -> float | None:
        """Its mean alone."""
        found = self.estimate(path, trace, denominator, percent, algorithm, cloud, variant)
        return None if found is None else found.mean


def percents_on(cloud: str) -> tuple[int, ...]:
    """Misses are counted on one cloud at all sizes; the others are for the tails of latencies, at the largest."""
    return PERCENTS if cloud == MISSES_ON else PERCENTS[-1:]


def quantile(report: Mapping[str, Any], wanted: float, what: str = "read_latency") -> float:
    """In milliseconds; one of the quantiles that the report has."""
    for found, milliseconds in report[what]["quantiles"]:
        if abs(found - wanted) < 1e-9:
            return float(milliseconds)
    raise KeyError(f"the report has no quantile {wanted}")


def number(report: Mapping[str, Any], path: str) -> float:
    """`reads.miss_ratio`, or `read_latency.p95`."""
    *parts, last = path.split(".")
    value: Any = report
    for part in parts:
        value = value[part]
    if last.startswith("p") and last[1:].isdigit():
        return quantile(report, int(last[1:]) / 100, parts[-1])
    return float(value[last])


def operation_usd_over_term(report: Json, span_us: int) -> float:
    """Requests and transfer of a trace of this length, extrapolated to the paper's 36 months."""
    return operation_usd(report["dollars"]) * printed.MONTHS * MONTH_US / span_us


def interval_us(span_us: int) -> int:
    """A day, as in figure 4; of shorter traces a fortieth."""
    return DAY_US if span_us >= 4 * DAY_US else max(1, -(-(span_us + 1) // INTERVALS))


def cache_sizes(analysis: Json) -> dict[tuple[str, int], int]:
    whole = {
        "footprint": analysis["distinct"],
        "traffic": analysis["read_units"] + analysis["written_units"],
    }
    return {(name, percent): int(whole[name] * percent / 100) for name in DENOMINATORS for percent in PERCENTS}


def sizes_of(analysis: Json) -> dict[tuple[str, int], int]:
    """Those at which the cache does not hold everything."""
    return {place: blocks for place, blocks in cache_sizes(analysis).items() if 0 < blocks < analysis["distinct"]}


@dataclass(frozen=True)
class Plan:
    """The runs over one trace under one condition."""

    trace: Trace
    sizes: Mapping[tuple[str, int], int]
    condition: Condition
    parameters: Parameters

    def main(self, seeds: Sequence[int]) -> Iterator[tuple[Key, Task]]:
        """The six combinations at all sizes."""
        for seed in seeds:
            for denominator, percent in self.sizes:
                for cloud in (cloud for cloud in CLOUDS if percent in percents_on(cloud)):
                    for algorithm in COMBINATIONS:
                        yield self.run(Key(self.trace.name, denominator, percent, algorithm, cloud, seed))

    def varied(self, seeds: Sequence[int], controls: Mapping[int, Trace]) -> Iterator[tuple[Key, Task]]:
        """What differs in one thing, at the smallest size. `controls` are the trace with jumps shuffled, by window."""
        if ("footprint", PERCENTS[0]) not in self.sizes:
            return
        for seed in seeds:
            for track in TRACK_BLOCKS:
                yield self.small("sarc_graph", seed, f"track={track}", {"track_blocks": track})
            for degree in DEGREE_BLOCKS:
                yield self.small("lru_seq", seed, f"degree={degree}", {"degree_blocks": degree})
            yield self.small("lru_graph", seed, "populate=every", {"populate": "every"})
            for window, control in controls.items():
                for algorithm in CONTROLLED:
                    yield self.small(algorithm, seed, f"shuffled={window}", {}, control)

    def small(
        self, algorithm: str, seed: int, variant: str, settings: Mapping[str, Any], trace: Trace | None = None
    ) -> tuple[Key, Task]:
        key = Key(self.trace.name, "footprint", PERCENTS[0], algorithm, MISSES_ON, seed, variant)
        return self.run(key, settings, trace)

    def run(self, key: Key, settings: Mapping[str, Any] | None = None, trace: Trace | None = None) -> tuple[Key, Task]:
        key = replace(key, condition=self.condition.name)
        chosen = policy(key.algorithm)
        choice = Choice(
            trace or self.trace,
            chosen,
            self.sizes[key.denominator, key.percent],
            cloud=key.cloud,
            seed=key.seed,
            settings=amp_settings(chosen.prefetch) | dict(self.parameters.of(chosen.prefetch)) | dict(settings or {}),
            warmup_requests=self.trace.warming,
            **self.condition.options,
        )
        place = f"{key.percent}% of {key.denominator}"
        words = [key.trace, key.condition, place, key.algorithm, key.cloud, f"seed {key.seed}", key.variant]
        return key, Task("replay", choice.job(), " ".join(words).strip())


def collect(results: Results, keys: list[Key], outcomes: list[Outcome]) -> None:
    """Runs that failed are told on the page; where all have, there is nothing to judge."""
    for key, outcome in zip(keys, outcomes, strict=True):
        if outcome.report is None:
            results.failures.append(f"{outcome.task.label}: {outcome.error}")
        else:
            results.reports[key] = outcome.report
    if results.failures and not results.reports:
        raise EngineError(f"all {len(outcomes)} replays failed; the first: {results.failures[0]}")
