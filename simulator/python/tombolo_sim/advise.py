"""What another cache would change: the trace replayed with other sizes and policies, and the answer in plain words.

A policy is recommended when it costs less, or makes fewer reads wait at a price in proportion: the bill may grow by no
larger share than that by which misses fall. Where nothing does, the advice is to stay. What a larger cache gains is
told, but not weighed: what its disk costs is not known here.

A gateway compares replacement policies over a sample of its own reads, without prefetch and without a bill. The policy
that it names is tried here with both.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tombolo_sim import engine, plots
from tombolo_sim.engine import EngineError, Json
from tombolo_sim.jobs import BLOCK_BYTES, Choice, cache_blocks, cloud_of
from tombolo_sim.models import operation_usd
from tombolo_sim.policies import COMBINATIONS, policy
from tombolo_sim.progress import watching
from tombolo_sim.report.results import quantile
from tombolo_sim.sources import Trace
from tombolo_sim.sweep import Task, execute

SIZES = ("2%", "5%", "10%", "20%", "30%", "50%")
POLICIES = ("lru+none", "lru+ramp", "lru_amp", "2q+amp", "lru_graph", "2q+graph", "arc+graph", "s3-fifo+amp")
MONTH_SECONDS = 30 * 86_400
_BLOCKS_MIN = 64
"""Smaller caches are no choice for anybody; of the usual sizes they are left out."""
_POINT = 0.01
"""Below it, a difference of misses is not worth mentioning: one read in a hundred."""
_SAVING = 0.10
"""A bill that is lower by this share is worth a change by itself."""
_TAIL = 0.10
"""No more than this may the tail latency grow."""
_QUEUE_MS = 10_000.0
"""Beyond it, reads wait for each other rather than for the cloud."""
_MIB = 1 << 20
_GIB = 1 << 30


@dataclass(frozen=True)
class Comparison:
    """What a gateway has found by itself."""

    replacement: str
    prefetch: str
    blocks_read: int
    hits: Mapping[str, int]
    better: str | None

    @classmethod
    def read(cls, path: Path) -> "Comparison":
        """Of what `tombolo policy show --json` printed."""
        try:
            status = json.loads(path.read_text())
            found = status["comparison"]
            hits = {one["replacement"]: int(one["hits"]) for one in found["policies"]}
            comparison = cls(
                str(status["replacement"]), str(status["prefetch"]), int(found["blocks_read"]), hits, found["better"],
            )  # fmt: skip
            comparison._require_sense()
        except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            raise EngineError(f"{path}: not what `tombolo policy show --json` prints: {error}") from error
        return comparison

    def _require_sense(self) -> None:
        for name, hits in self.hits.items():
            if not 0 <= hits <= self.blocks_read:
                raise ValueError(f"{name} holds {hits} of {self.blocks_read} blocks read")
        if self.blocks_read and not self.hits:
            raise ValueError("blocks were read, but no policies are compared")
        if self.better is not None and not {self.better, self.replacement} <= self.hits.keys():
            raise ValueError(f"better is {self.better}, but it or {self.replacement} is not among the policies")

    def present(self) -> str:
        return self._with_prefetch(self.replacement)

    def named(self) -> str | None:
        return self.better and self._with_prefetch(self.better)

    def share(self, replacement: str) -> float:
        """Of the blocks read, those that it would hold."""
        return self.hits[replacement] / self.blocks_read

    def _with_prefetch(self, replacement: str) -> str:
        of_the_paper = f"{replacement}_{self.prefetch}"
        return of_the_paper if of_the_paper in COMBINATIONS else f"{replacement}+{self.prefetch}"


@dataclass(frozen=True)
class Question:
    trace: Trace
    cache: str
    policy: str
    sizes: tuple[str, ...] | None
    """None: the usual ones."""
    policies: tuple[str, ...]
    cloud: str
    disk: str | None
    arrivals: Any
    comparison: Comparison | None = None


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
        return f"{self.policy} with {self.cache()} ({self.size})"

    def cache(self) -> str:
        return _size(self.blocks)

    def outcome(self) -> str:
        return f"{self.miss_ratio:.1%} of the reads wait, p99 {milliseconds(self.p99_ms)} ms, {dollars(self.usd_cloud)}"

    def gains(self, now: "Option") -> bool:
        return self.miss_ratio <= now.miss_ratio - _POINT

    def is_in_proportion(self, now: "Option") -> bool:
        """Whether the bill grows by no larger share than misses fall, and the tail hardly."""
        less_missed = 1 - self.miss_ratio / now.miss_ratio if now.miss_ratio else 0.0
        is_affordable = self.usd_cloud <= now.usd_cloud * (1 + max(0.0, less_missed))
        return is_affordable and self.p99_ms <= now.p99_ms * (1 + _TAIL)

    def saves(self, now: "Option") -> bool:
        is_cheaper = self.usd_cloud < now.usd_cloud * (1 - _SAVING)
        return is_cheaper and self.miss_ratio <= now.miss_ratio + _POINT and self.p99_ms <= now.p99_ms * (1 + _TAIL)


@dataclass(frozen=True)
class Advice:
    now: Option
    options: tuple[Option, ...]
    """All that were tried, the present one included."""
    span_seconds: float
    """Zero: the trace has no times."""
    plot: str
    comparison: Comparison | None = None

    @property
    def monthly(self) -> bool:
        return self.span_seconds > 0

    def recommended(self) -> Option:
        """Of the policies at the present size: the fewest misses of those that are worth it, within a point of it the
        lowest bill. The present one, where there is none."""
        same = [option for option in self.options if option.blocks == self.now.blocks and option != self.now]
        worth = [
            option
            for option in same
            if option.saves(self.now) or (option.gains(self.now) and option.is_in_proportion(self.now))
        ]
        return _best(worth, lambda option: option.usd_cloud) if worth else self.now

    def text(self) -> str:
        lines = [
            f"Now: {self.now.described()}: {self.now.outcome()} for requests and transfer {self._period()}. "
            f"Storage costs {dollars(self.now.usd_storage_month)} a month whatever the cache.",
            self._recommendation(),
            *self._tempting(),
            *self._compared(),
            self._larger(),
            self._smaller(),
            *self._queues(),
            f"Plot: {self.plot}",
        ]
        return "\n".join(line for line in lines if line)

    def _period(self) -> str:
        if self.monthly:
            return f"a month, if the {_span(self.span_seconds)} of the trace are like the rest"
        return "for the whole trace, which has no times and so no month"

    def _recommendation(self) -> str:
        best = self.recommended()
        if best == self.now:
            return (
                f"Recommended: stay with {self.now.policy}. No other policy makes fewer reads wait by a point or more "
                "at a price in proportion, and none saves a tenth of the bill."
            )
        reason = "fewer reads wait" if best.gains(self.now) else "it costs less and misses no more"
        return (
            f"Recommended: {best.policy} with the cache as it is, because {reason}: {best.outcome()} "
            f"(now {self.now.outcome()}). {_how(best.policy)}"
        )

    def _tempting(self) -> list[str]:
        """What misses least, where it is not what is recommended."""
        chosen = self.recommended()
        same = [option for option in self.options if option.blocks == self.now.blocks]
        least = _best(same, lambda option: option.usd_cloud)
        if least == chosen or not least.gains(chosen):
            return []
        reasons = [f"its bill is {_times(least.usd_cloud, self.now.usd_cloud)} the present one"]
        if least.p99_ms > self.now.p99_ms * (1 + _TAIL):
            reasons.append("its tail is longer")
        return [f"Not recommended: {least.policy}: {least.outcome()}; {' and '.join(reasons)}."]

    def _compared(self) -> list[str]:
        """What the gateway's own comparison names, and whether the trace bears it out."""
        if self.comparison is None:
            return []
        told = self.comparison
        if not told.blocks_read:
            return ["The gateway's own comparison has not seen a block read yet."]
        begin = f"The gateway's own comparison, of {told.blocks_read:,} blocks read and without prefetch, "
        if told.replacement not in told.hits:
            most = max(told.hits, key=told.hits.__getitem__)
            return [
                f"{begin}has {told.replacement}, which is at work, not among its policies; of those that it compares "
                f"{most} would hold most: {told.share(most):.1%} of them."
            ]
        if (name := told.named()) is None or told.better is None:
            return [f"{begin}names no other replacement policy."]
        better, present = told.share(told.better), told.share(told.replacement)
        begin += f"names {told.better}: it would hold {better:.1%} of them, {told.replacement} {present:.1%}. "
        if self.recommended().policy == name:
            return [begin + "The trace bears it out."]
        tried = next(option for option in self.options if option.blocks == self.now.blocks and option.policy == name)
        return [begin + f"On this trace {name} is not what is recommended: {tried.outcome()}."]

    def _ladder(self) -> list[Option]:
        chosen = self.recommended().policy
        found = [option for option in self.options if option.policy == chosen]
        return sorted(found, key=lambda option: option.blocks)

    def _larger(self) -> str:
        """Up to where more cache gains a point or more."""
        chosen = self.recommended()
        larger = [option for option in self._ladder() if option.blocks > chosen.blocks]
        if not larger:
            return ""
        best = _best(larger, lambda option: option.blocks)
        if not best.gains(chosen):
            return f"A larger cache: up to {larger[-1].cache()}, nothing gains a point or more."
        return (
            f"A larger cache: {best.cache()} ({best.size}) with {best.policy}: {best.outcome()}. "
            "Weigh it against the price of the disk."
        )

    def _smaller(self) -> str:
        chosen = self.recommended()
        enough = [
            option
            for option in self._ladder()
            if option.blocks < chosen.blocks
            and not chosen.gains(option)
            and option.usd_cloud <= chosen.usd_cloud * (1 + _SAVING)
            and option.p99_ms <= chosen.p99_ms * (1 + _TAIL)
        ]
        if not enough:
            return ""
        return f"A smaller cache: {enough[0].cache()} ({enough[0].size}) would do as well: {enough[0].outcome()}."

    def _queues(self) -> list[str]:
        if self.recommended().p99_ms <= _QUEUE_MS:
            return []
        return [
            "Beware: reads come faster than cache and cloud answer, so latencies are those of a growing queue; "
            "--arrivals closed-loop tells them without it."
        ]

    def data(self) -> dict[str, Any]:
        return {
            "now": vars(self.now),
            "recommended": vars(self.recommended()),
            "stay": self.recommended() == self.now,
            "options": [vars(option) for option in self.options],
            "dollars_are_monthly": self.monthly,
            "comparison": vars(self.comparison) if self.comparison else None,
            "plot": self.plot,
            "text": self.text(),
        }


def _best(options: list[Option], price: Callable[[Option], float]) -> Option:
    """The fewest misses, and within a point of them the lowest price."""
    least = min(option.miss_ratio for option in options)
    close = [option for option in options if option.miss_ratio < least + _POINT]
    return min(close, key=lambda option: (price(option), option.miss_ratio))


def _how(name: str) -> str:
    if name in COMBINATIONS:
        return f"To try it: tombolo policy set combination={name}"
    chosen = policy(name)
    return f"To try it: tombolo policy set replacement={chosen.replacement} policy={chosen.prefetch}"


def _size(blocks: int) -> str:
    size = blocks * BLOCK_BYTES
    if size >= _GIB:
        return f"{size / _GIB:,.1f} GiB"
    return f"{size / _MIB:,.0f} MiB" if size >= 10 * _MIB else f"{size / _MIB:.2g} MiB"


def milliseconds(amount: float) -> str:
    return f"{amount:,.0f}" if amount >= 10 else f"{amount:.2g}"


def dollars(amount: float) -> str:
    """For people: three digits or so."""
    if amount >= 100:
        return f"${amount:,.0f}"
    return f"${amount:.2f}" if amount >= 1 else f"${amount:.2g}"


def _times(value: float, of: float) -> str:
    return f"{value / of:.1f} times" if of else "more than"


def _span(seconds: float) -> str:
    for unit, length in (("days", 86_400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:,.0f} {unit}"
    return f"{seconds:,.0f} seconds"


def answer(question: Question, folder: Path, workers: int | None) -> Advice:
    with watching(f"footprint of {question.trace.name}") as progress:
        counts = engine.info(question.trace.source(), progress)
    if not counts["reads"]:
        raise EngineError(f"{question.trace.path}: the trace has no reads, so a cache makes no difference")
    span_seconds = counts["duration_us"] / 1e6
    chosen = _chosen(question, counts["distinct_units"], span_seconds > 0)
    tasks = [
        Task("replay", choice.job(), f"{question.trace.name} {choice.policy.name} {size}") for size, choice in chosen
    ]
    outcomes = execute(tasks, folder, workers)
    scale = MONTH_SECONDS / span_seconds if span_seconds else 1.0
    storage_price = cloud_of(question.cloud).prices["storage_usd_per_gib_month"]
    options = [
        _option(size, choice, outcome.require(), scale, storage_price)
        for (size, choice), outcome in zip(chosen, outcomes, strict=True)
    ]
    plot = str(folder / _draw(options, question.trace.name, span_seconds > 0, folder))
    return Advice(options[0], tuple(options), span_seconds, plot, question.comparison)


def _chosen(question: Question, distinct: int, timed: bool) -> list[tuple[str, Choice]]:
    """The present one first, each once."""
    sizes = (question.cache, *(question.sizes or _usual_sizes(distinct)))
    named = question.comparison and question.comparison.named()
    others = (*question.policies, *([named] if named else []))
    pairs = [(question.cache, question.policy)]
    pairs += [(size, name) for size in sizes for name in (question.policy, *others)]
    arrivals = question.arrivals if timed or question.arrivals != "trace" else "closed-loop"
    found: dict[tuple[int, str], tuple[str, Choice]] = {}
    for size, name in pairs:
        blocks = cache_blocks(size, distinct)
        choice = Choice(question.trace, policy(name), blocks, question.cloud, question.disk, arrivals=arrivals)
        found.setdefault((blocks, name), (size, choice))
    return list(found.values())


def _usual_sizes(distinct: int) -> tuple[str, ...]:
    return tuple(size for size in SIZES if distinct * float(size.removesuffix("%")) / 100 >= _BLOCKS_MIN)


def _option(size: str, choice: Choice, report: Json, scale: float, storage_price: float) -> Option:
    return Option(
        size,
        choice.cache_blocks,
        choice.policy.name,
        report["reads"]["miss_ratio"],
        quantile(report, 0.99),
        operation_usd(report["dollars"]) * scale,
        report["cloud"]["stored_bytes"] / _GIB * storage_price,
    )


def _draw(options: list[Option], trace: str, monthly: bool, folder: Path) -> str:
    figure, axes = plots.panels(3, f"{trace}: other caches")
    period = "a month" if monthly else "for the trace"
    measures: tuple[tuple[str, Callable[[Option], float]], ...] = (
        ("reads that wait", lambda option: option.miss_ratio),
        ("p99 of reads, ms", lambda option: option.p99_ms),
        (f"requests and transfer, $ {period}", lambda option: option.usd_cloud),
    )
    for axis, (label, measure) in zip(axes, measures, strict=True):
        series: dict[str, list[tuple[float, float]]] = {}
        for option in options:
            series.setdefault(option.policy, []).append((option.blocks * BLOCK_BYTES / _MIB, measure(option)))
        plots.lines(axis, {name: sorted(points) for name, points in series.items()}, "cache, MiB", label, "o")
    axes[0].legend(fontsize="x-small")
    return plots.save(figure, folder, "advice")
