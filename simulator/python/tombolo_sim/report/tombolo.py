"""The report on the Tombolo paper (MSST'16): its figures and tables for the traces at hand, and its claims."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tombolo_sim import engine, synthetic
from tombolo_sim.engine import EngineError, Json
from tombolo_sim.models import CLOUDS as CLOUD_MODELS
from tombolo_sim.models import DISK_OF_CLOUD, DISKS
from tombolo_sim.report import berkeley, controls, figures, markdown, standins, tables
from tombolo_sim.report.checks import Check, additions, tombolo
from tombolo_sim.report.checks.measures import GAIN_MIN
from tombolo_sim.report.conditions import AMP_THRESHOLD, CONDITIONS, GATEWAY, PAPER
from tombolo_sim.report.markdown import Table
from tombolo_sim.report.options import ReportOptions
from tombolo_sim.report.parameters import PARAMETERS, SHIPPED, Parameters, chosen, cross_validated, grid, loss
from tombolo_sim.report.results import (
    CLOUDS,
    PERCENTS,
    Key,
    Plan,
    Results,
    cache_sizes,
    collect,
    interval_us,
    sizes_of,
)
from tombolo_sim.report.standins import Group
from tombolo_sim.sources import Trace, Window, find, fitting
from tombolo_sim.sweep import Task, execute

NAME = "tombolo"
NAMES_ONLY = ("ids", "objects")

WHOLE_RECORDS_MAX = 2_000_000
WINDOW = Window(1_000_000, 1_000_000)
"""Of traces that are longer, unless another is given."""
READS_MIN = 100
"""Of what counts of a window: those of which a p99 is one."""

RULES = (
    "A cell is a trace and a cache of some size. One in which the six combinations miss alike, within "
    f"{GAIN_MIN:.1%} of the reads, decides nothing, neither about misses nor about tails of latencies; nor does one "
    "in which the 95 % intervals of what is compared overlap.",
    "A claim holds when it does in more than half of the cells that decide. How many those are stands beside it, and "
    "on how many traces it holds in most of them. Where a claim is about a trace and not about a cache, the trace "
    "is the cell.",
    "A claim that the paper makes at one size of the cache is judged at that size: tables 4 and 5, and the order of "
    "all six, at 30 %.",
    "A claim about the paper's own traces is not decided on others, nor is one that the paper itself finds on one and "
    "not on the other. Stand-ins are judged apart.",
    "Controls of ours, and what is measured of things that are ours (the width of the graph's nodes, tables of fixed "
    "size, the time of a whole replay), stand apart and are not counted.",
    "What the paper leaves open is chosen on other traces than those on which it is judged.",
)


def run(options: ReportOptions) -> Path:
    """Writes `tombolo.md`, `tombolo.json` and `figures/` into the output folder; returns the Markdown's path."""
    results, skipped = analyse_all(options)
    groups = standins.groups(options.standins)
    made_up = synthetic.traces([wanted for group in groups for wanted in group.wanted], options.output / "made-up")
    _analyse(results, made_up, options, {})
    parameters = _choose(results, made_up, options)
    runs = [*_real_runs(results, parameters, options), *_made_up_runs(results, made_up, parameters)]
    outcomes = execute([task for _, task in runs], options.output, options.workers, options.dask)
    collect(results, [key for key, _ in runs], outcomes)
    return write(Found(results, skipped, parameters, groups, made_up), options)


def _real_runs(
    results: Results, parameters: Mapping[str, Parameters], options: ReportOptions
) -> Iterator[tuple[Key, Task]]:
    for trace in results.traces:
        sizes = sizes_of(results.analyses[trace.name])
        shuffled = controls.write(trace, options.output / "controls")
        for condition, parameters_there in ((PAPER, parameters[trace.name]), (GATEWAY, SHIPPED)):
            plan = Plan(trace, sizes, condition, parameters_there)
            yield from plan.main(options.seeds)
            if condition is PAPER:
                yield from plan.varied(options.seeds, shuffled)


def _made_up_runs(
    results: Results, made_up: Sequence[Trace], parameters: Mapping[str, Parameters]
) -> Iterator[tuple[Key, Task]]:
    """The paper's sizes are tenths of the traffic."""
    for trace in made_up:
        sizes = sizes_of(results.analyses[trace.name])
        of_traffic = {place: blocks for place, blocks in sizes.items() if place[0] == "traffic"}
        yield from Plan(trace, of_traffic, PAPER, parameters[trace.name]).main(results.seeds[:1])


def _choose(results: Results, made_up: Sequence[Trace], options: ReportOptions) -> dict[str, Parameters]:
    """What the paper leaves open, for each trace from others; for what is made up from all that are real."""
    runs = []
    for trace in results.traces:
        plan = Plan(trace, sizes_of(results.analyses[trace.name]), PAPER, SHIPPED)
        for prefetch, place, settings in grid():
            if ("footprint", PERCENTS[0]) in plan.sizes:
                seed = results.seeds[0]
                _, task = plan.small(f"lru_{prefetch}", seed, f"{prefetch} {place}", settings)
                runs.append(((trace.name, prefetch, place), task))
    outcomes = execute([task for _, task in runs], options.output, options.workers, options.dask)
    losses = {
        place: loss(outcome.report)
        for (place, _), outcome in zip(runs, outcomes, strict=True)
        if outcome.report is not None
    }
    found = cross_validated(results.traces, losses)
    on_all = chosen([trace.name for trace in results.traces], losses) if losses else SHIPPED
    return found | {trace.name: on_all for trace in made_up}


def analyse_all(options: ReportOptions) -> tuple[Results, list[str]]:
    """Which files can be replayed, with their structure; and why the others cannot."""
    if options.traces is None:
        raise EngineError("the report needs a folder of traces: --traces DIR")
    found, skipped, spans_us = [], [], {}
    for trace in find(options.traces):
        try:
            information = engine.info(trace.source())
        except EngineError as error:
            skipped.append(str(error))
            continue
        if (reason := _unfit(trace, information)) is not None:
            skipped.append(f"{trace.path.name}: {reason}")
            continue
        spans_us[trace] = information["duration_us"]
        is_long = trace.limit is None and information["records"] > WHOLE_RECORDS_MAX
        window = WINDOW if is_long else fitting(trace.path, options.traces.windows)
        if window is not None:
            trace = trace.within(window)
            _require_reads(trace, window)
        found.append(trace)
    if not found:
        raise EngineError(f"{options.traces.folder}: none of its files can be replayed")
    wholes = [replace(trace, limit=None, warming=0) for trace in found if trace.warming]
    results = Results(found, {}, options.seeds, whole=_structures(wholes, spans_us, options))
    _analyse(results, found, options, spans_us)
    return results, skipped


def _structures(traces: Sequence[Trace], spans_us: Mapping[Trace, int], options: ReportOptions) -> dict[str, Json]:
    """By name; `spans_us` are the traces' lengths, as far as they are known."""
    tasks = []
    for trace in traces:
        span_us = spans_us[trace] if trace in spans_us else engine.info(trace.source())["duration_us"]
        job = {"trace": trace.source(), "interval_us": interval_us(span_us)}
        tasks.append(Task("analyse", job, f"{trace.name} structure"))
    outcomes = execute(tasks, options.output, options.workers, options.dask)
    return {trace.name: outcome.require() for trace, outcome in zip(traces, outcomes, strict=True)}


def _analyse(results: Results, traces: Sequence[Trace], options: ReportOptions, spans_us: Mapping[Trace, int]) -> None:
    for name, analysis in _structures(traces, spans_us, options).items():
        results.analyses[name] = analysis
        for (denominator, percent), blocks in cache_sizes(analysis).items():
            results.sizes[name, denominator, percent] = blocks


def _require_reads(trace: Trace, window: Window) -> None:
    """Refuses a window of which too little counts to be judged by."""
    until = engine.info(trace.source())
    reads = until["reads"]
    if window.warming:
        reads -= engine.info(replace(trace, limit=window.warming).source())["reads"]
    if until["records"] < window.end:
        raise EngineError(f"{trace.path}: --window {window}: the trace has only {until['records']:,} records")
    if reads < READS_MIN:
        raise EngineError(f"{trace.path}: --window {window}: {reads} reads would count; at least {READS_MIN} must")


def _unfit(trace: Trace, information: Json) -> str | None:
    """Why a trace says nothing of a block gateway."""
    if not information["reads"]:
        return "it has no reads"
    if trace.format == "auto" and information["format"] in NAMES_ONLY:
        return "it names objects, which have no neighbours; --format takes its numbers for blocks"
    return None


@dataclass(frozen=True)
class Found:
    results: Results
    skipped: Sequence[str]
    parameters: Mapping[str, Parameters]
    groups: Sequence[Group]
    made_up: Sequence[Trace]


def write(found: Found, options: ReportOptions) -> Path:
    judged = {condition: tombolo(found.results.under(condition)) for condition in CONDITIONS}
    apart = additions(found.results.under(PAPER))
    page = options.output / f"{NAME}.md"
    by_title = {condition.title: of for condition, of in judged.items()}
    lines = [*_head(found, options), *markdown.judged(by_title), *_standins(found), *_not_counted(apart)]
    lines += markdown.cells(by_title)
    lines += [
        *_tables(found),
        *_berkeley(found, options.output),
        *_figures(found, options.output / "figures"),
        *_end(found),
    ]
    page.write_text("\n".join(lines) + "\n")
    data = {
        "engine": engine.digest(),
        "seeds": found.results.seeds,
        "traces": {trace.name: found.results.analyses[trace.name] for trace in found.results.traces},
        "checks": {condition.name: [asdict(check) for check in of] for condition, of in judged.items()},
        "not_counted": [asdict(check) for check in apart],
        "parameters": {name: chosen.by_prefetcher for name, chosen in found.parameters.items()},
        "runs": [{**asdict(key), "report": report} for key, report in found.results.reports.items()],
        "left_out": list(found.skipped),
        "failures": found.results.failures,
    }
    (options.output / f"{NAME}.json").write_text(json.dumps(data, indent=1) + "\n")
    return page


def _head(found: Found, options: ReportOptions) -> list[str]:
    seeds = ", ".join(str(seed) for seed in options.seeds)
    lines = [
        "# The Tombolo paper's evaluation on other traces",
        "",
        f"Engine {engine.digest()}, seeds {seeds}; what is averaged over them stands with its 95 % interval where "
        "that is 0.05 points or more. Requests are replayed back to back, one at a time, as in the paper. Traces "
        "are replayed whole, the beginning without history included, but for those with a window below. The paper's "
        "own traces are not public: a claim about them is not decided here.",
        "",
        "## Rules of judgement",
        "",
        *(f"* {rule}" for rule in RULES),
        "",
        "## Conditions and parameters",
        "",
        *(f"* **{condition.title}**: {condition.says}." for condition in CONDITIONS),
        f"* In both: AMP follows a stream from its read {AMP_THRESHOLD} on, in all combinations. {PARAMETERS}",
        "",
    ]
    rows = [
        [name, *(_words(chosen.of(prefetch)) for prefetch in ("seq", "graph"))]
        for name, chosen in found.parameters.items()
        if name in {trace.name for trace in found.results.traces}
    ]
    lines += [*markdown.table(Table("", ["judged with, under the paper's conditions", "SEQ", "GRAPH"], rows)), ""]
    windows = [
        [trace.name, f"{trace.warming:,}", f"{(trace.limit or 0) - trace.warming:,}"]
        for trace in found.results.traces
        if trace.warming
    ]
    if windows:
        lines += [*markdown.table(Table("", ["window of", "records that warm", "that count"], windows)), ""]
    return lines


def _words(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in settings.items()) or "as shipped"


def _standins(found: Found) -> list[str]:
    if not found.made_up:
        return []
    results = [(group, standins.only(found.results, group, found.made_up)) for group in found.groups]
    judged = [(group.title, standins.checks(of, group)) for group, of in results]
    intro = (
        f"{len(found.groups[0].wanted)} made-up traces of each kind, {standins.SCALE:g} of the printed size, under the "
        "paper's conditions. In the control no task is done twice, so that nothing can be foreseen. They are no "
        "evidence for an order among policies: how often work repeats is a parameter of the model."
    )
    table = standins.misses(results)
    return [
        *("## Stand-ins for Corp and Eng", "", intro, ""),
        *(*markdown.beside(judged), ""),
        *(f"### {table.title}", "", *markdown.table(table), ""),
    ]


def _not_counted(apart: Sequence[Check]) -> list[str]:
    return ["## What is not counted", "", *markdown.checks(apart)]


def _tables(found: Found) -> list[str]:
    lines = ["## Tables", ""]
    for content in tables.all_tables(found.results):
        lines += [f"### {content.title}", "", *markdown.table(content), ""]
    return lines


def _berkeley(found: Found, folder: Path) -> list[str]:
    table = berkeley.beside_tables(found.results, found.parameters, folder)
    if table is None:
        return []
    intro = "Objects by the SHA-256 of their blocks' digests, in a B-tree; contents are verified when they come back."
    return [f"### {table.title}", "", intro, "", *markdown.table(table), ""]


def _figures(found: Found, folder: Path) -> list[str]:
    lines = ["## Figures", ""]
    for condition in CONDITIONS:
        drawn = figures.draw_all(found.results.under(condition), folder / condition.name)
        for figure, names in drawn.items():
            pictures = (f"![{name}](figures/{condition.name}/{name})" for name in names)
            lines += [f"### Figure {figure}, {condition.title}", "", *pictures, ""]
    return lines


def _end(found: Found) -> list[str]:
    lines = ["## Models", ""]
    for name in CLOUDS:
        cloud, disk = CLOUD_MODELS[name], DISKS[DISK_OF_CLOUD[name]]
        lines += [f"* **{cloud.title}**: {cloud.basis}. Cache on: {disk.title} ({disk.basis})."]
    lines += ["", "## Files that were left out, and runs that failed", ""]
    return lines + ([f"* {reason}" for reason in (*found.skipped, *found.results.failures)] or ["None."])
