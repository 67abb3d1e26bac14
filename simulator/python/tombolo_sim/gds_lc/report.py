"""The report on the GDS-LC paper: its figures over objects of unlike sizes and prices, and its claims."""

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from tombolo_sim._engine import EngineError
from tombolo_sim.gds_lc import figures, runs
from tombolo_sim.gds_lc.checks import all_checks
from tombolo_sim.gds_lc.figures import METRICS, MIDDLE, TITLES
from tombolo_sim.gds_lc.runs import Results, point
from tombolo_sim.gds_lc.scenarios import CACHE_SHARES, SCENARIOS, Json, Workload, workloads
from tombolo_sim.report import markdown
from tombolo_sim.report.checks.base import Check
from tombolo_sim.report.markdown import Table
from tombolo_sim.report.options import ReportOptions

NAME = "gds_lc"


def run(options: ReportOptions) -> Path:
    """Writes `gds_lc.md`, `gds_lc.json` and `figures/` into the output folder; returns the Markdown's path."""
    if options.dask is not None:
        raise EngineError("the report on GDS-LC runs on this machine's cores only, not on Dask")
    limit = options.traces.limit if options.traces else None
    chosen = [limited(workload, limit) for workload in workloads(options.traces)]
    wanted = runs.points([scenario.name for scenario in SCENARIOS], chosen, CACHE_SHARES, MIDDLE)
    results = runs.execute(wanted, SCENARIOS, chosen, options.seeds, options.workers)
    return _write(results, chosen, options)


def limited(workload: Workload, limit: int | None) -> Workload:
    if limit is None:
        return workload
    (kind, settings), *_ = workload.specification.items()
    if kind.endswith("-trace"):
        shorter = settings | {"requests_max": limit}
    else:
        shorter = settings | {"requests": min(limit, settings["requests"])}
    return replace(workload, specification={kind: shorter})


def _write(results: Results, chosen: Sequence[Workload], options: ReportOptions) -> Path:
    options.output.mkdir(parents=True, exist_ok=True)
    drawn = figures.draw_all(results, chosen, options.output / "figures")
    found = all_checks(results, chosen)
    page = options.output / f"{NAME}.md"
    page.write_text("\n".join(_page(results, chosen, options, drawn, found)) + "\n")
    data = {"checks": [asdict(check) for check in found], "seeds": list(options.seeds), "runs": runs.as_json(results)}
    (options.output / f"{NAME}.json").write_text(json.dumps(data) + "\n")
    return page


def _page(
    results: Results, chosen: Sequence[Workload], options: ReportOptions, drawn: dict[str, str], found: Sequence[Check]
) -> list[str]:
    seeds = ", ".join(str(seed) for seed in options.seeds)
    lines = [
        "# The GDS-LC paper's evaluation",
        "",
        f"Hou and Chen, ACM TOS 2017, section 5, repeated with the product's policies in virtual time; seeds {seeds} "
        "of the clouds' fluctuation, means over them. One request at a time, the next when the last has been answered. "
        "The n-th transfer of an object takes equally long under every policy.",
        "",
        "The paper's traces and cloud cannot be had. What stands in for them is below; absolute numbers are not "
        "comparable, orders and ratios are. No constant was fitted to a result.",
        "",
        *_inputs(results, chosen),
        "## Claims",
        "",
        *markdown.checks(found),
        "## Figures",
        "",
    ]
    for name, caption in drawn.items():
        lines += [f"### {caption}", "", f"![{caption}](figures/{name})", ""]
    return [*lines, "## Numbers", "", *_numbers(results, chosen)]


def _inputs(results: Results, chosen: Sequence[Workload]) -> list[str]:
    rows = []
    for workload in chosen:
        report = results.reports[point(SCENARIOS[0].name, workload.name, "lru", MIDDLE)][0]
        counts = [f"{report[kind]['requests']:,}" for kind in ("gets", "puts")]
        size = f"{report['object_bytes'] / (1 << 20):,.0f}"
        rows.append([workload.name, workload.stands_for, *counts, f"{report['objects']:,}", size, workload.about])
    rows += [
        ["(printed)", "Clark", "229,233", "645", "", "164", "table 1"],
        ["(printed)", "Netfs", "135,949", "594,433", "", "707", "table 1"],
        ["(printed)", "Media", "166,366", "0", "", "1,294", "table 1"],
    ]
    head = ["workload", "for", "GETs", "PUTs", "objects", "MiB", "what it is"]
    places = [[scenario.title, *_place(location)] for scenario in SCENARIOS for location in scenario.locations]
    clouds = ["cloud", "location", "round trip, ms", "small GET, ms", "small PUT, ms", "MiB/s down", "up",
              "$/10,000 GET", "$/1,000 PUT", "$/GiB out"]  # fmt: skip
    return [*markdown.table(Table("", head, rows)), "", *markdown.table(Table("", clouds, places)), ""]


def _place(location: Json) -> list[str]:
    prices = location["prices"]
    service = [location[name] for name in ("round_trip_ms", "get_ms", "put_ms", "get_mib_per_s", "put_mib_per_s")]
    fees = [prices["get_usd_per_1000"] * 10, prices["put_usd_per_1000"], prices["egress_usd_per_gib"]]
    return [location["name"], *(f"{value:g}" for value in (*service, *fees))]


def _numbers(results: Results, chosen: Sequence[Workload]) -> list[str]:
    """Figures 6, 9 and 11 in numbers: hit ratio, latency with its standard error, dollars."""
    lines = []
    policies = (*runs.BASIC, runs.BASELINE)
    for scenario in SCENARIOS:
        rows = []
        for workload in chosen:
            for share in CACHE_SHARES:
                cells = []
                for policy in policies:
                    at = point(scenario.name, workload.name, policy, share)
                    hit, latency, dollars = (results.mean(at, metric) for _, metric in METRICS)
                    error = results.error(at, runs.latency_ms)
                    cells.append(f"{hit:.3f}, {latency:.2f}±{error:.2f}, {dollars:.4f}")
                rows.append([f"{workload.name}, {share:.0%}", *cells])
        head = ["hit ratio, ms, $", *(TITLES[policy] for policy in policies)]
        title = f"### Figure {scenario.figure} in numbers: {scenario.title}"
        lines += [title, "", *markdown.table(Table("", head, rows)), ""]
    return lines
