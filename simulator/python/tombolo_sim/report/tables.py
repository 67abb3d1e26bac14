"""Tables 1 and 3 to 7 of the Tombolo paper, printed numbers beside those found here."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tombolo_sim.engine import Json
from tombolo_sim.jobs import BLOCK_BYTES
from tombolo_sim.models import CLOUDS as CLOUD_MODELS
from tombolo_sim.policies import COMBINATIONS, title
from tombolo_sim.report import printed
from tombolo_sim.report.conditions import CONDITIONS
from tombolo_sim.report.estimate import share
from tombolo_sim.report.markdown import Table
from tombolo_sim.report.results import (
    CLOUDS,
    DENOMINATORS,
    MISSES_ON,
    PERCENTS,
    Results,
    operation_usd_over_term,
    quantile,
)

_GIB = 1 << 30
_MIB = 1 << 20
_PRINTED_TAILS = {"s3-2014": ("4", printed.TABLE_4), "cloudfront-2014": ("5", printed.TABLE_5)}


def all_tables(results: Results) -> Iterator[Table]:
    yield _workloads(results)
    yield _combinations()
    yield _sizes(results)
    for condition in CONDITIONS:
        of = results.under(condition)
        found = [_misses(of), *(table for cloud in CLOUDS for table in _tails(of, cloud)), _cost(of), _metadata(of)]
        for table in found:
            yield replace(table, title=f"{table.title}; {condition.title}")


def _workloads(results: Results) -> Table:
    rows = [
        [
            f"{name} (printed)",
            f"{row['reads']:,}",
            f"{row['writes']:,}",
            f"{row['read_gb']}",
            f"{row['written_gb']}",
            "",
            "",
            "",
        ]
        for name, row in printed.TABLE_1.items()
    ]
    for trace in results.traces:
        found = results.analyses[trace.name]
        whole = results.whole.get(trace.name, found)
        rows.append([
            trace.name, f"{found['reads']:,}", f"{found['writes']:,}",
            f"{found['read_units'] * BLOCK_BYTES / _GIB:.2f}",
            f"{found['written_units'] * BLOCK_BYTES / _GIB:.2f}", f"{found['distinct'] * BLOCK_BYTES / _GIB:.2f}",
            *(_repeats(found, whole, kind) for kind in ("to_last", "to_any_of_4")),
        ])  # fmt: skip
    head = [
        "",
        "reads",
        "writes",
        "GiB read",
        "GiB written",
        "GiB distinct",
        "jumps to the last successor",
        "to one of four",
    ]
    return Table("Table 1: workloads", head, rows)


def _repeats(part: Json, whole: Json, kind: str) -> str:
    """Share of jumps that repeat; of the whole trace, too, where a part of it is replayed."""
    shares = [found["successors"][kind] / (found["successors"]["jumps"] or 1) for found in (part, whole)]
    return f"{shares[0]:.1%}" if part is whole else f"{shares[0]:.1%} (whole: {shares[1]:.1%})"


def _combinations() -> Table:
    rows = [[title(name), *printed.TABLE_3[name]] for name in COMBINATIONS]
    return Table("Table 3: techniques", ["", "cache", "prefetch"], rows)


def _sizes(results: Results) -> Table:
    rows = []
    for trace in results.traces:
        distinct = results.analyses[trace.name]["distinct"]
        cells = []
        for denominator in DENOMINATORS:
            for percent in PERCENTS:
                blocks = results.sizes[trace.name, denominator, percent]
                everything = " (everything)" if blocks >= distinct else ""
                cells.append(f"{blocks * BLOCK_BYTES / _MIB:,.0f} MiB{everything}")
        rows.append([trace.name, *cells])
    head = ["", *(f"{percent} % of {denominator}" for denominator in DENOMINATORS for percent in PERCENTS)]
    return Table("Cache sizes", head, rows)


def _misses(results: Results) -> Table:
    rows = []
    for trace in results.traces:
        for denominator in DENOMINATORS:
            for percent in PERCENTS:
                key = (trace.name, denominator, percent)
                if results.get(*key, COMBINATIONS[0], MISSES_ON) is None:
                    continue
                cells = []
                for name in COMBINATIONS:
                    missed = results.estimate("reads.miss_ratio", *key, name, MISSES_ON)
                    partial, requests = (
                        results.value(f"reads.{what}", *key, name, MISSES_ON) for what in ("partial_misses", "requests")
                    )
                    if missed is None or partial is None or requests is None:
                        cells.append("-")
                    else:
                        cells.append(f"{share(missed)} ({partial / max(1, requests) * 100:.1f})")
                rows.append([f"{trace.name}, {percent} % of {denominator}", *cells])
    head = ["read requests that miss (partial misses of them)", *(title(name) for name in COMBINATIONS)]
    return Table("Figure 8 in numbers (CloudFront 2014)", head, rows)


def _tails(results: Results, cloud: str) -> Iterator[Table]:
    number, tails = _PRINTED_TAILS.get(cloud, ("4, 5", {}))
    model = CLOUD_MODELS[cloud]
    head = ["cache of 30 % of footprint", *(title(name) for name in COMBINATIONS), "cloud"]
    rows = []
    if tails:
        rows.append(["Corp, 90 GB (printed)", *(_slashed(tails[name]) for name in (*COMBINATIONS, "cloud"))])
    cloud_tail = _slashed(
        [ms for wanted in printed.PERCENTILES for quantile_, ms in model.get_ms() if quantile_ == wanted]
    )
    for trace in results.traces:
        cells = []
        for name in COMBINATIONS:
            report = results.get(trace.name, "footprint", PERCENTS[-1], name, cloud)
            has_reads = report is not None and report["read_latency"]["count"] > 0
            cells.append(
                _slashed([quantile(report, wanted) for wanted in printed.PERCENTILES]) if report and has_reads else "-"
            )
        rows.append([trace.name, *cells, cloud_tail])
    yield Table(f"Table {number}: p90/p95/p99 of reads in ms, {model.title}", head, rows)


def _slashed(values: Sequence[float]) -> str:
    return "/".join(f"{value:.0f}" if value >= 10 else f"{value:.2g}" for value in values)


def _cost(results: Results) -> Table:
    rows = [[f"{name} (printed)", *(f"{value:.3f}" for value in row), ""] for name, row in printed.TABLE_6.items()]
    for trace in results.traces:
        report = results.get(trace.name, "footprint", PERCENTS[-1], "sarc_graph", "cloudfront-2014")
        if report is None:
            continue
        stored = report["cloud"]["stored_bytes"] / _GIB
        span_us = results.analyses[trace.name]["span_us"]
        storage = CLOUD_MODELS["cloudfront-2014"].prices["storage_usd_per_gib_month"] * printed.MONTHS
        if not span_us or not stored:
            rows.append([trace.name, f"{storage:.3f}", "-", "-", "no times in this trace"])
            continue
        operation = operation_usd_over_term(report, span_us) / stored
        note = f"{span_us / 3.6e9:.3g} h extrapolated to 36 months; only what the trace touches is stored"
        rows.append([trace.name, f"{storage:.3f}", f"{operation:.3f}", f"{storage + operation:.3f}", note])
    head = ["$/GB over 3 years, SARC_GRAPH, 30 %, CloudFront", "storage", "operation", "total", ""]
    return Table("Table 6: cost", head, rows)


def _metadata(results: Results) -> Table:
    rows = [
        ["Corp, GB (printed)", *(_plain(printed.TABLE_7[name]) for name in COMBINATIONS)],
    ]
    for trace in results.traces:
        cells = []
        for name in COMBINATIONS:
            reports = [results.get(trace.name, "footprint", percent, name, "cloudfront-2014") for percent in PERCENTS]
            sizes = [
                (report["policy"]["cache_bytes"] + report["policy"]["prefetch_bytes"]) / _MIB
                for report in reports
                if report
            ]
            cells.append(_plain(sizes))
        rows.append([f"{trace.name}, MiB", *cells])
    return Table("Table 7: metadata at 10/20/30 %", ["", *(title(name) for name in COMBINATIONS)], rows)


def _plain(values: Sequence[float]) -> str:
    return "/".join(f"{value:.1f}" for value in values)
