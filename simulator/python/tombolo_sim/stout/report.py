"""The report on Stout: latency by load, claims, intervals and requests in flight together."""

import sys
from pathlib import Path

from tombolo_sim.engine import Json
from tombolo_sim.report import markdown
from tombolo_sim.report.made_load import MadeLoad, command_line, parameters
from tombolo_sim.report.markdown import Table
from tombolo_sim.report.options import ReportOptions
from tombolo_sim.stout import runs, scenarios
from tombolo_sim.stout.checks import all_checks
from tombolo_sim.stout.runs import Results

NAME = "stout"


def run(options: ReportOptions) -> Path:
    """Writes `stout.md` and `stout.json` into the output folder; returns the Markdown's path."""
    report = MadeLoad(NAME, runs.carry_out, all_checks, _head, _sections, _data)
    return report.run(options)


def _sections(results: Results) -> list[str]:
    return [*_loads(results), *_uploads(results)]


def _data(results: Results) -> Json:
    return {"windows": {name: report["windows"] for name, report in results.reports.items()}}


def _head(options: ReportOptions) -> list[str]:
    return [
        "# Stout's evaluation",
        "",
        f"`{command_line(options, NAME)}` (Python {sys.version_info.major}.{sys.version_info.minor}). "
        "McCullough et al., USENIX ATC 2010, section 5, with the product's own loop (`flow_control`) in virtual time.",
        "",
        f"{scenarios.GATEWAYS} gateways, each with {scenarios.DOCUMENTS} documents of 256 bytes, Poisson arrivals; "
        "half of the requests are writes, which alone reach the store and whose latency is shown, from arrival to "
        "answer.",
        "",
        f"The store: {parameters(scenarios.STORE)}. Service times follow from two printed maxima of load (12,000 "
        "requests/s with intervals of 20 ms, 41,000 with large batches), so these two are no findings; what is found "
        "is whether the loop gets there. Absolute latencies are not comparable.",
        "",
    ]


def _loads(results: Results) -> list[str]:
    rows = []
    for rate in scenarios.REQUESTS_PER_S:
        cells = []
        for sender in scenarios.SENDERS:
            name = f"{sender} at {rate}"
            if results.is_sustained(name):
                cells.append(f"{results.mean(name, runs.latency_ms):.4g}")
            else:
                cells.append(f"queues ({results.mean(name, runs.done_share):.0%} done)")
        cells.append(f"{results.mean(f'Stout at {rate}', runs.interval_ms):.3g}")
        rows.append([f"{rate:,}", *cells])
    head = ["requests/s", *scenarios.SENDERS, "Stout's interval"]
    title = "## Figure 8 in numbers: mean latency of writes, ms"
    return [title, "", *markdown.table(Table("", head, rows)), ""]


def _uploads(results: Results) -> list[str]:
    """Requests, objects' sizes and latencies of a gateway's uploads."""
    rows = []
    for limiter in scenarios.UPLOAD_LIMITERS:
        for sender in scenarios.UPLOAD_SENDERS:
            cells = []
            for mib_per_s in scenarios.UPLOAD_MIB_PER_S:
                windows = results.windows(f"uploads {sender}, {limiter} in flight, {mib_per_s} MiB/s")
                cells.append(_upload(windows[0]))
            rows.append([sender, limiter, *cells])
    head = ["batches", "in flight", *(f"{rate} MiB/s" for rate in scenarios.UPLOAD_MIB_PER_S)]
    job = scenarios.upload_job("none", "none", 1, 1)
    about = (
        "Intervals and limits together: packs of 256 KiB that come at random, up to 16 in an object. Stout is "
        "calibrated to a median of 200 ms and dirty data of 5 s at the most; its latencies begin when a request is "
        f"ready, those of the limit when it is sent. The store: {parameters(job['store'])}. Cells: MiB/s done, "
        "requests/s, mean latency of a pack; first seed."
    )
    return ["## Uploads over a distance", "", about, "", *markdown.table(Table("", head, rows)), ""]


def _upload(window: Json) -> str:
    latency = runs.latency_ms(window)
    shown = f"{latency / 1000:.1f} s" if latency >= 1000 else f"{latency:.0f} ms"
    return f"{window['mib_per_s']:.1f}, {window['requests_per_s']:.1f}/s, {shown}"
