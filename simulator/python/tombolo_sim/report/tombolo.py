"""The report on the Tombolo paper (MSST'16): its figures and tables for the traces at hand, and its claims."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from tombolo_sim import engine
from tombolo_sim.engine import EngineError, Json
from tombolo_sim.models import CLOUDS as CLOUD_MODELS
from tombolo_sim.models import DISK_OF_CLOUD, DISKS
from tombolo_sim.progress import console
from tombolo_sim.report import controls, figures, markdown, tables
from tombolo_sim.report.checks import Check, additions, tombolo
from tombolo_sim.report.checks.measures import GAIN_MIN
from tombolo_sim.report.options import ReportOptions
from tombolo_sim.report.results import CLOUDS, Key, Results, cache_sizes, collect, interval_us, plan
from tombolo_sim.sources import Trace, find
from tombolo_sim.sweep import Task, execute

NAME = "tombolo"
NAMES_ONLY = ("ids", "objects")

RULES = (
    "A cell is a trace and a cache of some size. One in which the six combinations miss alike, within "
    f"{GAIN_MIN:.1%} of the reads, decides nothing, neither about misses nor about tails of latencies.",
    "A claim holds when it does in more than half of the cells that decide. How many those are stands beside it, and "
    "on how many traces it holds in most of them. Where a claim is about a trace and not about a cache, the trace "
    "is the cell.",
    "A claim that the paper makes at one size of the cache is judged at that size: tables 4 and 5, and the order of "
    "all six, at 30 %.",
    "A claim about the paper's own traces is not decided on others, nor is one that the paper itself finds on one and "
    "not on the other.",
    "Controls of ours, and what is measured of things that are ours (the width of the graph's nodes, tables of fixed "
    "size, the time of a whole replay), stand apart and are not counted.",
)


def run(options: ReportOptions) -> Path:
    """Writes `tombolo.md`, `tombolo.json` and `figures/` into the output folder; returns the Markdown's path."""
    if options.traces is None:
        raise EngineError("the report needs a folder of traces: --traces DIR")
    results, skipped = analyse_all(options)
    if not results.traces:
        raise EngineError(f"{options.traces.folder}: none of its files can be replayed")
    runs: list[tuple[Key, Task]] = []
    for trace in results.traces:
        shuffled = controls.write(trace, options.output / "controls")
        runs += plan(trace, results.analyses[trace.name], options.seeds, shuffled)
    console.print(f"{len(runs)} runs over {len(results.traces)} traces")
    outcomes = execute([task for _, task in runs], options.output, options.workers, options.dask)
    collect(results, [key for key, _ in runs], outcomes)
    return write(results, skipped, options.output)


def analyse_all(options: ReportOptions) -> tuple[Results, list[str]]:
    """Which files can be replayed, with their structure; and why the others cannot."""
    assert options.traces is not None
    found: list[tuple[Trace, int]] = []
    skipped = []
    for trace in find(options.traces):
        try:
            information = engine.info(trace.source())
        except EngineError as error:
            skipped.append(str(error))
            continue
        if (reason := _unfit(trace, information)) is not None:
            skipped.append(f"{trace.path.name}: {reason}")
            continue
        found.append((trace, information["duration_us"]))
    tasks = [
        Task("analyse", {"trace": trace.source(), "interval_us": interval_us(span)}, f"{trace.name} structure")
        for trace, span in found
    ]
    outcomes = execute(tasks, options.output, options.workers, options.dask)
    analyses = {trace.name: outcome.require() for (trace, _), outcome in zip(found, outcomes, strict=True)}
    sizes = {
        (name, denominator, percent): blocks
        for name, analysis in analyses.items()
        for (denominator, percent), blocks in cache_sizes(analysis).items()
    }
    return Results([trace for trace, _ in found], analyses, options.seeds, sizes=sizes), skipped


def _unfit(trace: Trace, information: Json) -> str | None:
    """Why a trace says nothing of a block gateway."""
    if not information["reads"]:
        return "it has no reads"
    if trace.format == "auto" and information["format"] in NAMES_ONLY:
        return "it names objects, which have no neighbours; --format takes its numbers for blocks"
    return None


def write(results: Results, skipped: Sequence[str], folder: Path) -> Path:
    drawn = figures.draw_all(results, folder / "figures")
    found, apart = tombolo(results), additions(results)
    page = folder / f"{NAME}.md"
    page.write_text("\n".join(_page(results, skipped, drawn, found, apart)) + "\n")
    (folder / f"{NAME}.json").write_text(json.dumps(_data(results, skipped, found, apart), indent=1) + "\n")
    return page


def _page(
    results: Results,
    skipped: Sequence[str],
    drawn: dict[str, list[str]],
    found: Sequence[Check],
    apart: Sequence[Check],
) -> list[str]:
    seeds = ", ".join(str(seed) for seed in results.seeds)
    lines = [
        "# The Tombolo paper's evaluation on other traces",
        "",
        f"Engine {engine.digest()}, seeds {seeds}. Requests are replayed back to back, one at a time, as in the "
        "paper. No setting depends on the trace. "
        "The paper's own traces are not public: a claim about them is not decided here, "
        "and what stands in for it is marked as such.",
        "",
        "## Rules of judgement",
        "",
        *(f"* {rule}" for rule in RULES),
        "",
        "## The paper's claims",
        "",
        *markdown.checks(found),
        "## What is not counted",
        "",
        *markdown.checks(apart),
        "## Tables",
        "",
    ]
    for content in tables.all_tables(results):
        lines += [f"### {content.title}", "", *markdown.table(content), ""]
    lines += ["## Figures", ""]
    for figure, names in drawn.items():
        lines += [f"### Figure {figure}", "", *(f"![{name}](figures/{name})" for name in names), ""]
    lines += ["## Models", ""]
    for name in CLOUDS:
        cloud, disk = CLOUD_MODELS[name], DISKS[DISK_OF_CLOUD[name]]
        lines += [f"* **{cloud.title}**: {cloud.basis}. Cache on: {disk.title} ({disk.basis})."]
    lines += ["", "## Files that were left out, and runs that failed", ""]
    lines += [f"* {reason}" for reason in (*skipped, *results.failures)] or ["None."]
    return lines


def _data(
    results: Results, skipped: Sequence[str], found: Sequence[Check], apart: Sequence[Check]
) -> dict[str, object]:
    return {
        "engine": engine.digest(),
        "seeds": results.seeds,
        "traces": {trace.name: results.analyses[trace.name] for trace in results.traces},
        "checks": [asdict(check) for check in found],
        "not_counted": [asdict(check) for check in apart],
        "runs": [{**asdict(key), "report": report} for key, report in results.reports.items()],
        "left_out": list(skipped),
        "failures": results.failures,
    }
