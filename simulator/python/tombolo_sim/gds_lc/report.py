"""The report on the GDS-LC paper: its figures over objects of unlike sizes and prices, and its claims."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from tombolo_sim.gds_lc import figures, runs
from tombolo_sim.gds_lc.checks import RULES, all_checks
from tombolo_sim.gds_lc.conditions import CONDITIONS, Condition
from tombolo_sim.gds_lc.figures import METRICS, MIDDLE, TITLES
from tombolo_sim.gds_lc.runs import Point, Results, point
from tombolo_sim.gds_lc.scenarios import CACHE_SHARES, SCENARIOS, Json, Workload, scenarios, workloads
from tombolo_sim.report import markdown
from tombolo_sim.report.checks.base import Check
from tombolo_sim.report.markdown import Table
from tombolo_sim.report.options import ReportOptions

NAME = "gds_lc"


@dataclass(frozen=True)
class Found:
    """All that was run under one condition."""

    workloads: Sequence[Workload]
    results: Results
    checks: Sequence[Check]


def run(options: ReportOptions) -> Path:
    """Writes `gds_lc.md`, `gds_lc.json` and `figures/` into the output folder; returns the Markdown's path."""
    return _write({condition: found_under(condition, options) for condition in CONDITIONS}, options)


def found_under(condition: Condition, options: ReportOptions) -> Found:
    limit = options.traces.limit if options.traces else None
    chosen = [limited(workload, limit) for workload in workloads(options.traces, condition)]
    wanted = runs.points([scenario.name for scenario in SCENARIOS], chosen, CACHE_SHARES, MIDDLE)
    results = runs.execute(wanted, scenarios(condition), chosen, options)
    return Found(chosen, results, all_checks(results, chosen))


def limited(workload: Workload, limit: int | None) -> Workload:
    if limit is None:
        return workload
    (kind, settings), *_ = workload.specification.items()
    if kind.endswith("-trace"):
        shorter = settings | {"requests_max": limit}
    else:
        shorter = settings | {"requests": min(limit, settings["requests"])}
    return replace(workload, specification={kind: shorter})


def _write(found: Mapping[Condition, Found], options: ReportOptions) -> Path:
    page = options.output / f"{NAME}.md"
    page.write_text("\n".join(_page(found, options)) + "\n")
    data = {
        "seeds": list(options.seeds),
        "checks": {condition.name: [asdict(check) for check in of.checks] for condition, of in found.items()},
        "runs": {condition.name: runs.as_json(of.results) for condition, of in found.items()},
    }
    (options.output / f"{NAME}.json").write_text(json.dumps(data) + "\n")
    return page


def _page(found: Mapping[Condition, Found], options: ReportOptions) -> list[str]:
    seeds = ", ".join(str(seed) for seed in options.seeds)
    judged = {condition.title: of.checks for condition, of in found.items()}
    return [
        "# The GDS-LC paper's evaluation",
        "",
        f"Hou and Chen, ACM TOS 2017, section 5, repeated with the product's policies in virtual time; seeds {seeds} "
        "of the clouds' fluctuation, means over them. One request at a time, the next when the last has been answered. "
        "The n-th transfer of an object takes equally long under every policy, but for what the time of day adds.",
        "",
        "The paper's traces and cloud cannot be had. What stands in for them is below; absolute numbers are not "
        "comparable, orders and ratios are. No constant was fitted to a result.",
        "",
        "## Rules of judgement",
        "",
        *(f"* {rule}" for rule in RULES),
        "",
        "## Conditions",
        "",
        *(f"* **{condition.title}**: {condition.says}." for condition in found),
        "",
        *_inputs(found),
        *markdown.judged(judged),
        *markdown.cells(judged),
        *_figures(found, options.output / "figures"),
        *_numbers(found),
    ]


def _figures(found: Mapping[Condition, Found], folder: Path) -> list[str]:
    lines = ["## Figures", ""]
    for condition, of in found.items():
        for name, caption in figures.draw_all(of.results, of.workloads, folder / condition.name).items():
            title = f"{caption}; {condition.title}"
            lines += [f"### {title}", "", f"![{title}](figures/{condition.name}/{name})", ""]
    return lines


def _inputs(found: Mapping[Condition, Found]) -> list[str]:
    rows: dict[tuple[str, ...], None] = {}
    for of in found.values():
        for workload in of.workloads:
            report = of.results.reports[point(SCENARIOS[0].name, workload.name, "lru", MIDDLE)][0]
            counts = [f"{report[kind]['requests']:,}" for kind in ("gets", "puts")]
            size = f"{report['object_bytes'] / (1 << 20):,.0f}"
            rows[workload.name, workload.stands_for, *counts, f"{report['objects']:,}", size, workload.about] = None
    shown = [
        *rows,
        ("(printed)", "Clark", "229,233", "645", "", "164", "table 1"),
        ("(printed)", "Netfs", "135,949", "594,433", "", "707", "table 1"),
        ("(printed)", "Media", "166,366", "0", "", "1,294", "table 1"),
    ]
    head = ["workload", "for", "GETs", "PUTs", "objects", "MiB", "what it is"]
    places = [[scenario.title, *_place(location)] for scenario in SCENARIOS for location in scenario.locations]
    clouds = ["cloud", "location", "round trip, ms", "small GET, ms", "small PUT, ms", "MiB/s down", "up",
              "$/10,000 GET", "$/1,000 PUT", "$/GiB out"]  # fmt: skip
    return [*markdown.table(Table("", head, shown)), "", *markdown.table(Table("", clouds, places)), ""]


def _place(location: Json) -> list[str]:
    prices = location["prices"]
    service = [location[name] for name in ("round_trip_ms", "get_ms", "put_ms", "get_mib_per_s", "put_mib_per_s")]
    fees = [prices["get_usd_per_1000"] * 10, prices["put_usd_per_1000"], prices["egress_usd_per_gib"]]
    return [location["name"], *(f"{value:g}" for value in (*service, *fees))]


def _numbers(found: Mapping[Condition, Found]) -> list[str]:
    """Figures 6, 9 and 11 in numbers: hit ratio, latency with its standard error, dollars."""
    lines = ["## Numbers", ""]
    policies = (*runs.BASIC, runs.BASELINE)
    head = ["hit ratio, ms, $", *(TITLES[policy] for policy in policies)]
    for condition, of in found.items():
        for scenario in SCENARIOS:
            rows = [
                [
                    f"{workload.name}, {share:.0%}",
                    *(_cell(of.results, point(scenario.name, workload.name, policy, share)) for policy in policies),
                ]
                for workload in of.workloads
                for share in CACHE_SHARES
            ]
            title = f"### Figure {scenario.figure} in numbers: {scenario.title}; {condition.title}"
            lines += [title, "", *markdown.table(Table("", head, rows)), ""]
    return lines


def _cell(results: Results, at: Point) -> str:
    hit, latency, dollars = (results.mean(at, metric) for _, metric in METRICS)
    return f"{hit:.3f}, {latency:.2f}±{results.error(at, runs.latency_ms):.2f}, {dollars:.4f}"
