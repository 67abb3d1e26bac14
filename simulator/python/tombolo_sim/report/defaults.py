"""Which policies a gateway should run with when nothing is set: a rule, and what it chooses on the traces at hand."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, geometric_mean

from tombolo_sim import engine, policies
from tombolo_sim.engine import Json
from tombolo_sim.jobs import Choice
from tombolo_sim.models import operation_usd
from tombolo_sim.policies import policy
from tombolo_sim.report import markdown
from tombolo_sim.report.markdown import Table
from tombolo_sim.report.options import ReportOptions
from tombolo_sim.report.results import quantile
from tombolo_sim.report.tombolo import analyse_all
from tombolo_sim.sources import Trace
from tombolo_sim.sweep import Task, execute

NAME = "defaults"
BASELINE = "lru+none"
REPLACEMENTS = ("lru", "sarc", "arc", "2q", "s3-fifo", "sieve", "w-tinylfu", "lirs", "adaptive")
CANDIDATES = tuple(f"{replacement}+{prefetch}" for prefetch in ("amp", "graph") for replacement in REPLACEMENTS)
PERCENTS = (10, 30)
CLOUD = "modern"
EQUAL_USD = 1.05
"""Bills up to this many times the present default's count as equal to it."""
EQUAL_LATENCY = 1.01
WORST_MAX = 1.05
"""Of a trace's mean latency without prefetch."""

RULE = (
    f"A cell is a trace and a cache of {' or '.join(f'{percent} %' for percent in PERCENTS)} of its distinct blocks; "
    f"all values are in relation to {BASELINE} there, and means over cells are geometric. The present default is "
    "left only for a pair of policies that",
    f"1. makes reads in no cell slower than {WORST_MAX:g} times those without prefetch,",
    f"2. costs no more than {EQUAL_USD:g} times the present default's dollars, requests and transfer, on average,",
    f"3. has the least mean latency of those; within {EQUAL_LATENCY:g} times of the least, the fewest dollars,",
    "4. and is chosen by 1 to 3 also when any one of the traces is left out.",
)


@dataclass(frozen=True)
class Cell:
    trace: str
    percent: int


@dataclass(frozen=True)
class Outcome:
    """Of reads, in milliseconds; dollars of requests and transfer. Means over the seeds."""

    hit_ratio: float
    mean_ms: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    usd: float


Outcomes = Mapping[tuple[str, Cell], Outcome]


@dataclass(frozen=True)
class Score:
    """In relation to the baseline."""

    name: str
    latency: float
    p95: float
    usd: float
    worst: float


def present() -> str:
    return policies.DEFAULT.replace("_", "+")


def scores(outcomes: Outcomes, cells: Sequence[Cell]) -> dict[str, Score]:
    found = {}
    for name in CANDIDATES:
        pairs = [(outcomes[name, cell], outcomes[BASELINE, cell]) for cell in cells]
        latencies = [ours.mean_ms / base.mean_ms for ours, base in pairs]
        found[name] = Score(
            name,
            geometric_mean(latencies),
            geometric_mean([ours.p95_ms / base.p95_ms for ours, base in pairs]),
            geometric_mean([ours.usd / base.usd for ours, base in pairs]),
            max(latencies),
        )
    return found


def best(found: Mapping[str, Score], today: str) -> str | None:
    """By the first three parts of the rule; the present default itself may be it, or nothing."""
    usd_max = EQUAL_USD * found[today].usd
    fit = [score for score in found.values() if score.worst <= WORST_MAX and score.usd <= usd_max]
    if not fit:
        return None
    latency_max = EQUAL_LATENCY * min(score.latency for score in fit)
    return min((score for score in fit if score.latency <= latency_max), key=lambda score: score.usd).name


def left_out(outcomes: Outcomes, cells: Sequence[Cell], today: str) -> dict[str, str | None]:
    """What is chosen without each of the traces."""
    traces = dict.fromkeys(cell.trace for cell in cells)
    return {
        trace: best(scores(outcomes, [cell for cell in cells if cell.trace != trace]), today)
        for trace in traces
        if len(traces) > 1
    }


def run(options: ReportOptions) -> Path:
    """Writes `defaults.md` and `defaults.json` into the output folder; returns the Markdown's path."""
    results, skipped = analyse_all(options)
    runs = [
        (name, Cell(trace.name, percent), task)
        for trace in results.traces
        for percent in PERCENTS
        for name in (BASELINE, *CANDIDATES)
        for task in _tasks(trace, results.analyses[trace.name]["distinct"] * percent // 100, name, options.seeds)
    ]
    done = execute([task for *_, task in runs], options.output, options.workers, options.dask)
    reports: dict[tuple[str, Cell], list[Json]] = {}
    for (name, cell, _), outcome in zip(runs, done, strict=True):
        reports.setdefault((name, cell), []).append(outcome.require())
    outcomes = {key: _outcome(of) for key, of in reports.items()}
    cells = list(dict.fromkeys(cell for _, cell, _ in runs))
    page = options.output / f"{NAME}.md"
    page.write_text("\n".join(_page(outcomes, cells, options, skipped, results.traces)) + "\n")
    data = [{"policies": name, **asdict(cell), **asdict(outcome)} for (name, cell), outcome in outcomes.items()]
    (options.output / f"{NAME}.json").write_text(json.dumps({"engine": engine.digest(), "outcomes": data}) + "\n")
    return page


def _tasks(trace: Trace, blocks: int, name: str, seeds: Sequence[int]) -> Iterator[Task]:
    """As the gateway runs: what follows no stream by place is looked at in the order of the log."""
    for seed in seeds:
        choice = Choice(
            trace,
            policy(name),
            max(8, blocks),
            cloud=CLOUD,
            seed=seed,
            addressing="both",
            warmup_requests=trace.warming,
        )
        yield Task("replay", choice.job(), f"{trace.name} {blocks} blocks {name} seed {seed}")


def _outcome(reports: Sequence[Json]) -> Outcome:
    p50_ms, p95_ms, p99_ms = (fmean(quantile(report, wanted) for report in reports) for wanted in (0.5, 0.95, 0.99))
    return Outcome(
        hit_ratio=fmean(1 - report["reads"]["miss_ratio"] for report in reports),
        mean_ms=fmean(report["read_latency"]["mean"] for report in reports),
        p50_ms=p50_ms,
        p95_ms=p95_ms,
        p99_ms=p99_ms,
        usd=fmean(operation_usd(report["dollars"]) for report in reports),
    )


def _page(
    outcomes: Outcomes, cells: Sequence[Cell], options: ReportOptions, skipped: Sequence[str], traces: Sequence[Trace]
) -> list[str]:
    today = present()
    found = scores(outcomes, cells)
    without = left_out(outcomes, cells, today)
    winner = best(found, today)
    stays = winner is None or any(other != winner for other in without.values())
    verdict = f"{today} stays" if stays or winner == today else f"{winner} takes the place of {today}"
    rows = [
        [_marked(score.name, today, winner), *(f"{value:.2f}" for value in list(asdict(score).values())[1:])]
        for score in sorted(found.values(), key=lambda score: score.latency)
    ]
    seeds = ", ".join(str(seed) for seed in options.seeds)
    lines = [
        *("# Which policies a gateway should run with when nothing is set", ""),
        f"Engine {engine.digest()}, seeds {seeds}, cloud {CLOUD}, one request at a time, the gateway's own settings "
        "of each policy; `adaptive` begins with lru and follows what `tombolo policy show` would recommend. "
        + "; ".join(f"{trace.name}: {_part(trace)}" for trace in traces)
        + ".",
        *("", "## The rule", "", *RULE, "", "## What it chooses", "", f"**{verdict}.**", ""),
        *markdown.table(Table("", ["policies", "mean latency", "p95", "dollars", "worst cell's latency"], rows)),
        *("", "Without one of the traces it chooses:", ""),
        *markdown.table(Table("", ["without", "chosen"], [[name, chosen or "-"] for name, chosen in without.items()])),
        *("", "## Cell by cell", ""),
    ]
    shown = list(dict.fromkeys((BASELINE, today, winner or today)))
    for name in shown:
        lines += [f"### {name}", "", *markdown.table(_cells(outcomes, cells, name)), ""]
    return [*lines, "## Files that were left out", "", *([f"* {reason}" for reason in skipped] or ["None."])]


def _marked(name: str, today: str, winner: str | None) -> str:
    words = [word for word, is_it in (("present", name == today), ("chosen", name == winner)) if is_it]
    return f"**{name}** ({', '.join(words)})" if words else name


def _part(trace: Trace) -> str:
    return f"records {trace.warming:,} to {trace.limit:,}" if trace.warming else "whole"


def _cells(outcomes: Outcomes, cells: Sequence[Cell], name: str) -> Table:
    rows = []
    for cell in cells:
        of = outcomes[name, cell]
        times = (f"{value:.3g}" for value in (of.mean_ms, of.p50_ms, of.p95_ms, of.p99_ms))
        rows.append([f"{cell.trace}, {cell.percent} %", f"{of.hit_ratio:.1%}", *times, f"{of.usd:.3g}"])
    return Table("", ["", "hits", "mean, ms", "p50", "p95", "p99", "dollars"], rows)
