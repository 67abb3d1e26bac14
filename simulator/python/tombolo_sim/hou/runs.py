"""Which runs the claims need, by name, and their results over all seeds."""

from collections.abc import Callable, Iterator, Sequence
from statistics import fmean
from typing import TypeAlias

from tombolo_sim.engine import Json
from tombolo_sim.hou import scenarios
from tombolo_sim.hou.scenarios import CHUNKS, DEGREES, MIXES, PREFETCHED, STORES
from tombolo_sim.report.options import ReportOptions
from tombolo_sim.sweep import Task, execute

Metric: TypeAlias = Callable[[Json], float]


def tasks(seeds: Sequence[int]) -> Iterator[Task]:
    for seed in seeds:
        for name, kind, job in _of_seed(seed):
            yield Task(kind, job, f"{name}, seed {seed}")


def _of_seed(seed: int) -> Iterator[tuple[str, str, Json]]:
    for chunk in CHUNKS:
        yield f"chunks {chunk}", "chunks", scenarios.chunk_job(chunk, 0, seed)
        for degree in DEGREES:
            yield f"degree {degree} of {chunk}", "load", scenarios.degree_job(chunk, degree, seed)
    for chunk in PREFETCHED:
        yield f"prefetched {chunk}", "chunks", scenarios.chunk_job(chunk, scenarios.WINDOW, seed)
    for limiter, limit in scenarios.limiters().items():
        for title, store in STORES.items():
            for mix in MIXES:
                yield f"{limiter}, {title}, {mix}", "load", scenarios.limit_job(store, mix, limit, seed)
        yield f"{limiter}, slow hour", "load", scenarios.slow_hour_job(limit, seed)


class Results:
    def __init__(self, reports: dict[str, Json], seeds: Sequence[int]) -> None:
        self.reports = reports
        self.seeds = seeds

    def mean(self, name: str, metric: Metric) -> float:
        return fmean(metric(self.reports[f"{name}, seed {seed}"]) for seed in self.seeds)

    def window(self, name: str, field: str, number: int = 0) -> float:
        return self.mean(name, lambda report: float(report["windows"][number][field]))

    def latency_ms(self, name: str, kind: str) -> float:
        """Of `reads` or `writes` through a cache of chunks."""
        return self.mean(name, lambda report: float(report[kind]["latency_ms"]["mean"]))

    def hit_ratio(self, name: str, kind: str) -> float:
        return self.mean(name, lambda report: report[kind]["hits"] / report[kind]["latency_ms"]["count"])

    def download_ms(self, chunk: str, degree: int) -> float:
        return self.mean(
            f"degree {degree} of {chunk}",
            lambda report: fmean(float(found["mean"]) for found in report["windows"][0]["request_ms"].values()),
        )

    def bandwidth(self, chunk: str, degree: int = 1) -> float:
        return self.window(f"degree {degree} of {chunk}", "mib_per_s")

    def prefetch_gain(self, chunk: str, kind: str) -> float:
        return 1 - self.latency_ms(f"prefetched {chunk}", kind) / self.latency_ms(f"chunks {chunk}", kind)

    def best_degree(self, chunk: str, tolerance: float) -> int:
        """The highest at which a download takes at most so much longer than alone (section V.B)."""
        alone = self.download_ms(chunk, 1)
        return max(degree for degree in DEGREES if self.download_ms(chunk, degree) <= alone * (1 + tolerance))

    def throughput(self, limiter: str, store: str, mix: str) -> float:
        return self.window(f"{limiter}, {store}, {mix}", "requests_per_s")

    def large_ms(self, limiter: str, store: str, mix: str) -> float:
        """Mean latency of the largest size."""
        return self.mean(
            f"{limiter}, {store}, {mix}",
            lambda report: float(report["windows"][0]["request_ms"][largest(report)]["mean"]),
        )


def largest(report: Json) -> str:
    return str(max(report["windows"][0]["request_ms"], key=int))


def carry_out(options: ReportOptions) -> Results:
    outcomes = execute(list(tasks(options.seeds)), options.output, options.workers)
    return Results({outcome.task.label: outcome.require() for outcome in outcomes}, options.seeds)
