"""The report on Hou et al.: chunks, prefetch and parallelism, and limits of requests in flight beside fixed ones."""

import sys
from pathlib import Path

from tombolo_sim.engine import Json
from tombolo_sim.hou import runs, scenarios
from tombolo_sim.hou.checks import all_checks
from tombolo_sim.hou.runs import Results
from tombolo_sim.hou.scenarios import CHUNKS, DEGREES, MIXES, PREFETCHED, STORES
from tombolo_sim.report import markdown
from tombolo_sim.report.made_load import MadeLoad, command_line, parameters
from tombolo_sim.report.markdown import Table
from tombolo_sim.report.options import ReportOptions

NAME = "hou"


def run(options: ReportOptions) -> Path:
    """Writes `hou.md` and `hou.json` into the output folder; returns the Markdown's path."""
    report = MadeLoad(NAME, runs.carry_out, all_checks, _head, _sections, _data)
    return report.run(options)


def _sections(results: Results) -> list[str]:
    return [*_chunks(results), *_limits(results)]


def _data(results: Results) -> Json:
    return {"reports": {name: report.get("windows", report) for name, report in results.reports.items()}}


def _head(options: ReportOptions) -> list[str]:
    return [
        "# Chunks, prefetch and parallelism",
        "",
        f"`{command_line(options, NAME)}` (Python {sys.version_info.major}.{sys.version_info.minor}). "
        "Hou et al., MSST 2016, figures 12 to 17 and table VI, and limits of requests in flight, in virtual time. "
        "Prefetch is the product's (`hou`), so is the adaptive limit (`flow_control`).",
        "",
        f"The way from the paper's campus: {parameters(scenarios.CAMPUS)}. Base, connection and link follow from four "
        "printed numbers (4 MB in 4 s, 16 MB in 14.2 s, 95.2 ms at 77.8 % hits, no more than four downloads of 4 MB).",
        "",
        f"The files: {parameters(scenarios.FILES)}. Number and size are the paper's, everything else is ours, so hit "
        "ratios and latencies are not comparable, orders are.",
        "",
    ]


def _chunks(results: Results) -> list[str]:
    rows = []
    for chunk in CHUNKS:
        name = f"chunks {chunk}"
        cells = [
            f"{results.hit_ratio(name, kind):.1%}, {results.latency_ms(name, kind):.1f} ms"
            for kind in ("reads", "writes")
        ]
        if chunk in PREFETCHED:
            ahead = f"prefetched {chunk}"
            cells += [f"{results.latency_ms(ahead, kind):.1f} ms ({-results.prefetch_gain(chunk, kind):+.1%})"
                      for kind in ("reads", "writes")]  # fmt: skip
        else:
            cells += ["", ""]
        rows.append([chunk, f"{results.bandwidth(chunk):.3f}", *cells])
    head = ["chunk", "MiB/s of one download", "reads", "writes", "reads with prefetch", "writes with prefetch"]
    lines = ["## Figures 12 to 14, 16 and 17 in numbers", "", *markdown.table(Table("", head, rows)), ""]
    rows = [[chunk, *(f"{results.download_ms(chunk, degree):,.0f}" for degree in DEGREES)] for chunk in PREFETCHED]
    head = ["ms of a download", *(f"{degree} at a time" for degree in DEGREES)]
    return [*lines, "## Figure 15 in numbers", "", *markdown.table(Table("", head, rows)), ""]


def _limits(results: Results) -> list[str]:
    rows = []
    for store in STORES:
        for mix in MIXES:
            cells = []
            for limiter in scenarios.limiters():
                name = f"{limiter}, {store}, {mix}"
                cell = (
                    f"{results.throughput(limiter, store, mix):,.4g}/s, {results.large_ms(limiter, store, mix):,.0f} ms"
                )
                refused = results.window(name, "slow_downs")
                if limiter in scenarios.CONTROLLERS:
                    cell += f", {results.window(name, 'limit'):.1f}"
                cells.append(cell + (f", {refused:,.0f} refused" if refused else ""))
            rows.append([store, mix, *cells])
    head = ["store", "sizes", *scenarios.limiters()]
    near = parameters(scenarios.STORES["no limit"])
    about = (
        "As much is asked for as may be in flight; from second 60 to 180. Requests done, mean latency of the largest "
        f"size, mean limit. The store, where nothing else is said: {near}. Sizes: {parameters(MIXES)} (bytes, weight)."
    )
    return ["## Limits of requests in flight", "", about, "", *markdown.table(Table("", head, rows)), ""]
