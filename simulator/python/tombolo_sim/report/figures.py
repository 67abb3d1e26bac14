"""Figures 4, 5 and 8 to 13 of the Tombolo paper, one panel for each trace at hand."""

from collections.abc import Callable
from pathlib import Path

from matplotlib.axes import Axes

from tombolo_sim import plots
from tombolo_sim.engine import Json
from tombolo_sim.jobs import BLOCK_BYTES
from tombolo_sim.models import CLOUDS as CLOUD_MODELS
from tombolo_sim.models import operation_usd
from tombolo_sim.policies import COMBINATIONS, title
from tombolo_sim.report.results import CLOUDS, DENOMINATORS, PERCENTS, TRACK_BLOCKS, Results, percents_on

_GIB = 1 << 30


def draw_all(results: Results, folder: Path) -> dict[str, list[str]]:
    """The pictures' names by figure."""
    drawn = {
        "4": [_working_sets(results, folder)],
        "5": [_runs(results, folder, weighted) for weighted in (False, True)],
        "8": [_misses(results, folder, denominator) for denominator in DENOMINATORS],
        "9-10": [_latencies(results, folder, cloud, percent) for cloud in CLOUDS for percent in percents_on(cloud)],
        "11": [_efficiency(results, folder), _tracks(results, folder)],
        "12": [_access_counts(results, folder)],
        "13": [_cost(results, folder, cloud) for cloud in CLOUDS],
    }
    return {figure: names for figure, names in drawn.items() if names}


def _each_trace(results: Results, folder: Path, name: str, heading: str, draw: Callable[[Axes, str], None]) -> str:
    figure, axes = plots.panels(len(results.traces), heading)
    for axis, trace in zip(axes, results.traces, strict=True):
        draw(axis, trace.name)
        axis.set_title(trace.name)
        if axis.get_legend_handles_labels()[0]:
            axis.legend(fontsize="x-small")
    return plots.save(figure, folder, name)


def _working_sets(results: Results, folder: Path) -> str:
    def draw(axis: Axes, trace: str) -> None:
        found = results.analyses[trace]["working_set"]
        if results.analyses[trace]["span_us"] == 0:
            axis.text(0.5, 0.5, "no times in this trace", ha="center", transform=axis.transAxes)
            return
        hours = found["interval_us"] / 3.6e9
        sizes = [interval["distinct"] * BLOCK_BYTES / _GIB for interval in found["intervals"]]
        points = [(place * hours, size) for place, size in enumerate(sizes)]
        plots.lines(axis, {f"in each {hours:.3g} h": points}, "hours", "GiB used", marker=".")

    return _each_trace(results, folder, "figure-04-working-set", "Figure 4: working set", draw)


def _runs(results: Results, folder: Path, weighted: bool) -> str:
    def draw(axis: Axes, trace: str) -> None:
        runs = results.analyses[trace]["runs"]
        for kind in ("strict", "streams"):
            pairs = [(run["units"], run["runs"] * (run["units"] if weighted else 1)) for run in runs[kind]]
            if pairs:
                label = "broken by any read" if kind == "strict" else "64 streams followed"
                plots.steps(axis, {label: plots.cumulative(pairs)}, "blocks in the run", "share up to it")
        axis.set_xscale("log")
        axis.axvline(10, color="grey", linewidth=0.8)

    what = "blocks" if weighted else "runs"
    return _each_trace(
        results, folder, f"figure-05-runs-by-{what}", f"Figure 5: sequential runs, share of {what}", draw
    )


def _misses(results: Results, folder: Path, denominator: str) -> str:
    def draw(axis: Axes, trace: str) -> None:
        series = {
            title(name): [
                results.value("reads.miss_ratio", trace, denominator, percent, name, "cloudfront-2014") or 0.0
                for percent in PERCENTS
            ]
            for name in COMBINATIONS
        }
        plots.grouped_bars(axis, [f"{percent} %" for percent in PERCENTS], series, "read requests that miss")

    heading = f"Figure 8: miss ratio, cache in % of {denominator}"
    return _each_trace(results, folder, f"figure-08-misses-{denominator}", heading, draw)


def _latencies(results: Results, folder: Path, cloud: str, percent: int) -> str:
    def draw(axis: Axes, trace: str) -> None:
        for name in COMBINATIONS:
            report = results.get(trace, "footprint", percent, name, cloud)
            if report is not None and report["read_latency"]["count"]:
                distribution = plots.cumulative(report["read_latency"]["histogram"])
                plots.steps(axis, {title(name): distribution}, "ms", "share of reads up to it")
        table = CLOUD_MODELS[cloud].get_ms()
        axis.plot([ms for _, ms in table], [q for q, _ in table], color="black", linestyle="--", label="cloud")
        axis.set_xscale("log")

    heading = f"Figures 9, 10: latency, {CLOUD_MODELS[cloud].title}, cache of {percent} % of the footprint"
    return _each_trace(results, folder, f"figure-09-10-latency-{cloud}-{percent}", heading, draw)


def _efficiency(results: Results, folder: Path) -> str:
    def draw(axis: Axes, trace: str) -> None:
        series = {
            title(name): [
                results.value("prefetched.efficiency", trace, "footprint", percent, name, "cloudfront-2014") or 0.0
                for percent in PERCENTS
            ]
            for name in COMBINATIONS
        }
        plots.grouped_bars(axis, [f"{percent} %" for percent in PERCENTS], series, "prefetch efficiency")

    return _each_trace(results, folder, "figure-11-efficiency", "Figure 11 (up): prefetch efficiency", draw)


def _tracks(results: Results, folder: Path) -> str:
    def draw(axis: Axes, trace: str) -> None:
        for label, path in (("miss ratio", "reads.miss_ratio"), ("PE", "prefetched.efficiency")):
            key = (trace, "footprint", PERCENTS[0], "sarc_graph", "cloudfront-2014")
            found = [(track, results.value(path, *key, variant=f"track={track}")) for track in TRACK_BLOCKS]
            points = [(float(track), value) for track, value in found if value is not None]
            plots.lines(axis, {label: points}, "track, blocks", "", marker="o")
        axis.set_xscale("log", base=2)

    heading = "Figure 11 (down): track size, SARC_GRAPH, cache of 10 % of the footprint"
    return _each_trace(results, folder, "figure-11-tracks", heading, draw)


def _access_counts(results: Results, folder: Path) -> str:
    def draw(axis: Axes, trace: str) -> None:
        for name in COMBINATIONS:
            report = results.get(trace, "footprint", PERCENTS[0], name, "cloudfront-2014")
            counts = report["prefetched"]["blocks_by_reads"] if report else []
            if sum(counts):
                distribution = plots.cumulative(list(enumerate(counts)))
                plots.steps(axis, {title(name): distribution}, "reads of a prefetched block", "share up to it")
        axis.set_xlim(0, 5)

    heading = "Figure 12: reads of prefetched blocks before eviction (5: five or more)"
    return _each_trace(results, folder, "figure-12-access-counts", heading, draw)


def operation_usd_per_gib(report: Json, analysis: Json) -> float:
    """Requests and transfer for each GiB that clients read or wrote."""
    traffic = (analysis["read_units"] + analysis["written_units"]) * BLOCK_BYTES / _GIB
    return operation_usd(report["dollars"]) / traffic if traffic else 0.0


def _cost(results: Results, folder: Path, cloud: str) -> str:
    def draw(axis: Axes, trace: str) -> None:
        series = {}
        for name in COMBINATIONS:
            reports = [results.get(trace, "footprint", percent, name, cloud) for percent in percents_on(cloud)]
            analysis = results.analyses[trace]
            series[title(name)] = [operation_usd_per_gib(report, analysis) if report else 0.0 for report in reports]
        plots.grouped_bars(
            axis, [f"{percent} %" for percent in percents_on(cloud)], series, "$ per GiB of client traffic"
        )

    heading = f"Figure 13: operational cost, {CLOUD_MODELS[cloud].title}"
    return _each_trace(results, folder, f"figure-13-cost-{cloud}", heading, draw)
