"""All combinations of what a sweep is over, and what is told of each.

A setting of the prefetcher is an axis like the cache's size: each of its values is run with everything else. Names of
runs say only what differs between them.
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tombolo_sim.engine import Json
from tombolo_sim.models import CLOUDS, operation_usd
from tombolo_sim.policies import title
from tombolo_sim.report.results import quantile


@dataclass(frozen=True)
class Point:
    """One run of a trace."""

    policy: str
    cache: str
    cloud: str
    seed: int
    addressing: str
    settings: Mapping[str, Any]


@dataclass(frozen=True)
class Grid:
    policies: Sequence[str]
    caches: Sequence[str]
    clouds: Sequence[str]
    seeds: Sequence[int]
    addressings: Sequence[str] = ("logical",)
    settings: Mapping[str, Sequence[Any]] = field(default_factory=dict)

    def points(self) -> Iterator[Point]:
        axes = (self.policies, self.caches, self.clouds, self.seeds, self.addressings)
        for policy, cache, cloud, seed, addressing in itertools.product(*axes):
            for values in itertools.product(*self.settings.values()):
                settings = dict(zip(self.settings, values, strict=True))
                yield Point(policy, cache, cloud, seed, addressing, settings)

    def label(self, point: Point) -> str:
        varied = {name: point.settings[name] for name, values in self.settings.items() if len(values) > 1}
        if len(self.addressings) > 1:
            varied = {"addressing": point.addressing, **varied}
        return " ".join([point.policy, point.cache, point.cloud, f"seed {point.seed}", *words(varied)])


def words(settings: Mapping[str, Any]) -> list[str]:
    return [f"{name}={value}" for name, value in settings.items()]


@dataclass(frozen=True)
class Summary:
    """Ratios are of read requests; dollars are those of requests and transfer."""

    miss_ratio: float
    partial_misses: int
    partial_miss_ratio: float
    prefetch_efficiency: float
    """Prefetched blocks that were used; nothing was prefetched: zero."""
    mean_ms: float | None
    p95_ms: float | None
    usd: float


def summary(report: Json) -> Summary:
    reads, dollars = report["reads"], report["dollars"]
    is_timed = report["read_latency"]["count"] > 0
    return Summary(
        miss_ratio=reads["miss_ratio"],
        partial_misses=reads["partial_misses"],
        partial_miss_ratio=reads["partial_misses"] / max(1, reads["requests"]),
        prefetch_efficiency=report["prefetched"]["efficiency"],
        mean_ms=report["read_latency"]["mean"] if is_timed else None,
        p95_ms=quantile(report, 0.95) if is_timed else None,
        usd=operation_usd(dollars),
    )


def series_names(jobs: Iterable[Json]) -> list[str]:
    """A name for each job: its policies, and what jobs of these policies differ in besides trace and cache size."""
    found = [(_policies(job), _axes(job)) for job in jobs]
    values: dict[tuple[str, str], set[str]] = {}
    for policies, axes in found:
        for name in {name for other, others in found if other == policies for name in others}:
            values.setdefault((policies, name), set()).add(repr(axes.get(name)))
    return [
        " ".join([policies, *words({name: axes[name] for name in axes if len(values[policies, name]) > 1})])
        for policies, axes in found
    ]


def _policies(job: Json) -> str:
    return title(f"{job['replacement']}_{job['prefetch']}")


def _axes(job: Json) -> dict[str, Any]:
    fields = {name: job[name] for name in ("cloud", "prices")}
    clouds = (cloud.name for cloud in CLOUDS.values() if cloud.job_fields() == fields)
    axes: dict[str, Any] = {"cloud": next(clouds, "other"), "seed": job["seed"], "addressing": job["addressing"]}
    axes.update(job["prefetch_settings"])
    return axes
