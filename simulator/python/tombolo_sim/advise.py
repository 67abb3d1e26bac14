"""What another cache would change: the trace replayed with other sizes and policies, and the answer in plain words."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tombolo_sim import engine, plots
from tombolo_sim.engine import EngineError, Json
from tombolo_sim.jobs import BLOCK_BYTES, Choice, cache_blocks
from tombolo_sim.models import CLOUDS
from tombolo_sim.policies import policy
from tombolo_sim.progress import watching
from tombolo_sim.report.results import quantile
from tombolo_sim.sources import Trace
from tombolo_sim.sweep import Task, execute

SIZES = ("2%", "5%", "10%", "20%", "30%", "50%")
POLICIES = ("lru_seq", "lru_amp", "sarc_amp", "lru_graph", "sarc_graph", "s3-fifo+amp")
MONTH_SECONDS = 30 * 86_400
# Below it, a difference is not worth mentioning: one read in a hundred.
_POINT = 0.01
_MIB = 1 << 20
_GIB = 1 << 30


@dataclass(frozen=True)
class Question:
    trace: Trace
    cache: str
    policy: str
    sizes: tuple[str, ...]
    policies: tuple[str, ...]
    cloud: str
    disk: str | None
    arrivals: Any


@dataclass(frozen=True)
class Option:
    """A size and a policy, and what came of them. The dollars are a month's when the trace says how long it took."""

    size: str
    blocks: int
    policy: str
    miss_ratio: float
    p99_ms: float
    usd_cloud: float
    usd_storage_month: float

    def described(self) -> str:
        return f"{self.policy} with {self.blocks * BLOCK_BYTES / _MIB:,.0f} MiB ({self.size})"


@dataclass(frozen=True)
class Advice:
    now: Option
    options: tuple[Option, ...]
    """All that were tried, the present one included."""
    monthly: bool
    plot: str

    def text(self) -> str:
        unit = "a month" if self.monthly else "for the whole trace, which has no times"
        lines = [
            f"Now: {self.now.described()}: {self.now.miss_ratio:.1%} of the reads wait for the cloud, one in a "
            f"hundred takes more than {self.now.p99_ms:,.0f} ms; requests and transfer "
            f"cost ${self.now.usd_cloud:,.4g} {unit}, storage "
            f"${self.now.usd_storage_month:,.4g} a month.",
            self._best([tried for tried in self.options if tried.blocks == self.now.blocks], "Another policy"),
            self._best([tried for tried in self.options if tried.policy == self.now.policy], "Another size"),
            self._best(list(self.options), "Both together"),
            self._knee(),
            f"Plot: {self.plot}",
        ]
        return "\n".join(lines)

    def _best(self, options: list[Option], heading: str) -> str:
        """The fewest misses; of those within a point of it the smallest cache, then the lowest bill."""
        least = min(option.miss_ratio for option in options)
        close = [option for option in options if option.miss_ratio <= least + _POINT]
        best = min(close, key=lambda option: (option.blocks, option.usd_cloud))
        if best.miss_ratio > self.now.miss_ratio - _POINT:
            return f"{heading}: nothing gains a point or more."
        return (
            f"{heading}: {best.described()} would miss {best.miss_ratio:.1%} (now {self.now.miss_ratio:.1%}), p99 "
            f"{best.p99_ms:,.0f} ms (now {self.now.p99_ms:,.0f}), "
            f"${best.usd_cloud:,.4g} (now ${self.now.usd_cloud:,.4g})."
        )

    def _knee(self) -> str:
        """From which size on more cache gains less than a point."""
        same = [option for option in self.options if option.policy == self.now.policy]
        ladder = sorted(same, key=lambda option: option.blocks)
        best = ladder[-1].miss_ratio
        enough = next(option for option in ladder if option.miss_ratio <= best + _POINT)
        size = f"{enough.blocks * BLOCK_BYTES / _MIB:,.0f} MiB"
        return f"More than {size} gains less than a point with {self.now.policy}, as far as was tried."

    def data(self) -> dict[str, Any]:
        return {
            "now": vars(self.now),
            "options": [vars(option) for option in self.options],
            "dollars_are_monthly": self.monthly,
            "plot": self.plot,
            "text": self.text(),
        }


def answer(question: Question, folder: Path, workers: int | None) -> Advice:
    with watching(f"footprint of {question.trace.name}") as progress:
        counts = engine.info(question.trace.source(), progress)
    if not counts["reads"]:
        raise EngineError(f"{question.trace.path}: it has no reads, so a cache changes nothing")
    timed = counts["duration_us"] > 0
    chosen = _chosen(question, counts["distinct_units"], timed)
    tasks = [
        Task("replay", choice.job(), f"{question.trace.name} {choice.policy.name} {size}") for size, choice in chosen
    ]
    outcomes = execute(tasks, folder, workers)
    monthly = timed
    scale = MONTH_SECONDS / (counts["duration_us"] / 1e6) if monthly else 1.0
    storage_price = CLOUDS[question.cloud].storage_usd_per_gib_month
    options = [
        _option(size, choice, outcome.require(), scale, storage_price)
        for (size, choice), outcome in zip(chosen, outcomes, strict=True)
    ]
    return Advice(options[0], tuple(options), monthly, str(folder / _draw(options, question.trace.name, folder)))


def _chosen(question: Question, distinct: int, timed: bool) -> list[tuple[str, Choice]]:
    """The present one first, each once."""
    pairs = [(question.cache, question.policy)]
    pairs += [
        (size, name) for size in (question.cache, *question.sizes) for name in (question.policy, *question.policies)
    ]
    arrivals = question.arrivals if timed or question.arrivals != "trace" else "closed-loop"
    found: dict[tuple[int, str], tuple[str, Choice]] = {}
    for size, name in pairs:
        blocks = cache_blocks(size, distinct)
        choice = Choice(question.trace, policy(name), blocks, question.cloud, question.disk, arrivals=arrivals)
        found.setdefault((blocks, name), (size, choice))
    return list(found.values())


def _option(size: str, choice: Choice, report: Json, scale: float, storage_price: float) -> Option:
    dollars = report["dollars"]
    return Option(
        size,
        choice.cache_blocks,
        choice.policy.name,
        report["reads"]["miss_ratio"],
        quantile(report, 0.99),
        (dollars["get"] + dollars["put"] + dollars["egress"]) * scale,
        report["cloud"]["stored_bytes"] / _GIB * storage_price,
    )


def _draw(options: list[Option], trace: str, folder: Path) -> str:
    figure, axes = plots.panels(3, f"{trace}: other caches")
    measures: tuple[tuple[str, Callable[[Option], float]], ...] = (
        ("reads that miss", lambda option: option.miss_ratio),
        ("p99 of reads, ms", lambda option: option.p99_ms),
        ("requests and transfer, $", lambda option: option.usd_cloud),
    )
    for axis, (label, measure) in zip(axes, measures, strict=True):
        series: dict[str, list[tuple[float, float]]] = {}
        for option in options:
            series.setdefault(option.policy, []).append((option.blocks * BLOCK_BYTES / _MIB, measure(option)))
        plots.lines(axis, {name: sorted(points) for name, points in series.items()}, "cache, MiB", label, "o")
    axes[0].legend(fontsize="x-small")
    return plots.save(figure, folder, "advice")
