"""The runs behind the report on the Tombolo paper: which they are, and their results by what they are.

Cache sizes are 10, 20 and 30 % of *accessed data*. The paper's 30 GB are 10 % of its traffic, not of its footprint, so
both readings are run: of the distinct blocks (`footprint`), and of all blocks read and written (`traffic`).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tombolo_sim.engine import Json
from tombolo_sim.jobs import Choice
from tombolo_sim.policies import COMBINATIONS, policy
from tombolo_sim.sources import Trace
from tombolo_sim.sweep import Outcome, Task

PERCENTS = (10, 20, 30)
DENOMINATORS = ("footprint", "traffic")
CLOUDS = ("s3-2014", "cloudfront-2014", "modern")
WINDOWS = (64, 1024)
CONTROLLED = ("lru_amp", "lru_graph")
TRACK_BLOCKS = (1, 4, 8, 16, 32, 64)
DAY_US = 86_400_000_000
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
    """`track=N`, `populate=every`, `shuffled=N`, or nothing."""


@dataclass
class Results:
    traces: list[Trace]
    analyses: dict[str, Json]
    seeds: tuple[int, ...]
    reports: dict[Key, Json] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    sizes: dict[tuple[str, str, int], int] = field(default_factory=dict)

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
        return self.reports.get(Key(trace, denominator, percent, algorithm, cloud, wanted, variant))

    def value(
        self, path: str, trace: str, denominator: str, percent: int, algorithm: str, cloud: str, variant: str = ""
    ) -> float | None:
        """A number of the report by its dotted name, the mean over all seeds."""
        values = []
        for seed in self.seeds:
            report = self.get(trace, denominator, percent, algorithm, cloud, variant, seed)
            if report is None:
                return None
            values.append(number(report, path))
        return sum(values) / len(values)


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


def interval_us(span_us: int) -> int:
    """A day, as in figure 4; of shorter traces a fortieth."""
    return DAY_US if span_us >= 4 * DAY_US else max(1, -(-(span_us + 1) // INTERVALS))


def cache_sizes(analysis: Json) -> dict[tuple[str, int], int]:
    whole = {
        "footprint": analysis["distinct"],
        "traffic": analysis["read_units"] + analysis["written_units"],
    }
    return {(name, percent): int(whole[name] * percent / 100) for name in DENOMINATORS for percent in PERCENTS}


def plan(
    trace: Trace, analysis: Json, seeds: tuple[int, ...], controls: Mapping[int, Trace]
) -> Iterator[tuple[Key, Task]]:
    """`controls` are the trace with its jumps shuffled, by window. Caches that would hold everything are left out."""
    sizes = {place: blocks for place, blocks in cache_sizes(analysis).items() if 0 < blocks < analysis["distinct"]}
    for seed in seeds:
        for (denominator, percent), blocks in sizes.items():
            for cloud in CLOUDS:
                for algorithm in COMBINATIONS:
                    yield _run(Key(trace.name, denominator, percent, algorithm, cloud, seed), trace, blocks, {})
        small = sizes.get(("footprint", PERCENTS[0]))
        if small is None:
            continue
        for track in TRACK_BLOCKS:
            key = Key(trace.name, "footprint", PERCENTS[0], "sarc_graph", "cloudfront-2014", seed, f"track={track}")
            yield _run(key, trace, small, {"track_blocks": track})
        key = Key(trace.name, "footprint", PERCENTS[0], "lru_graph", "cloudfront-2014", seed, "populate=every")
        yield _run(key, trace, small, {"populate": "every"})
        for window, control in controls.items():
            for algorithm in CONTROLLED:
                variant = f"shuffled={window}"
                key = Key(trace.name, "footprint", PERCENTS[0], algorithm, "cloudfront-2014", seed, variant)
                yield _run(key, control, small, {})


def _run(key: Key, trace: Trace, blocks: int, settings: dict[str, Any]) -> tuple[Key, Task]:
    choice = Choice(trace, policy(key.algorithm), blocks, cloud=key.cloud, seed=key.seed, settings=settings)
    label = " ".join(
        [key.trace, f"{key.percent}% of {key.denominator}", key.algorithm, key.cloud, f"seed {key.seed}", key.variant]
    )
    return key, Task("replay", choice.job(), label.strip())


def collect(results: Results, keys: list[Key], outcomes: list[Outcome]) -> None:
    for key, outcome in zip(keys, outcomes, strict=True):
        if outcome.report is None:
            results.failures.append(f"{outcome.task.label}: {outcome.error}")
        else:
            results.reports[key] = outcome.report
