"""`sweep` and `plot`: many replays."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from tombolo_sim import plots, sweep
from tombolo_sim.cli import options
from tombolo_sim.cli.options import AsJson, Dask, Formats, Limit, Seeds, TimeOrder, Workers, output, print_json
from tombolo_sim.cli.replay import (
    ArrivalsOption,
    Clients,
    FetchUnit,
    Preload,
    SequentialBy,
    SequentialFloor,
    WaitPrice,
    arrivals_of,
    distinct_blocks,
)
from tombolo_sim.engine import EngineError, Json
from tombolo_sim.grid import Grid, Point, series_names, summary
from tombolo_sim.jobs import Choice, cache_blocks
from tombolo_sim.models import CLOUDS
from tombolo_sim.output import writing_to
from tombolo_sim.policies import policy
from tombolo_sim.progress import console
from tombolo_sim.report.results import quantile
from tombolo_sim.sources import Trace, given_format

PolicyNames = Annotated[list[str], typer.Option("--policy", help="lru_seq … sarc_graph, or REPLACEMENT+PREFETCH.")]
CacheSizes = Annotated[list[str], typer.Option("--cache", help="10% of the footprint, 64MiB, or blocks.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=V1,V2,...", help="A setting of the prefetcher, and the values to run."),
]
Addressings = Annotated[
    list[str], typer.Option("--addressing", help="What the prefetcher sees: logical, pvbn or both.")
]


def register(app: typer.Typer) -> None:
    app.command(name="sweep")(sweep_command)
    app.command()(plot)


def sweep_command(
    paths: Annotated[list[Path], typer.Argument(metavar="TRACE...", help="Traces.")],
    results: Annotated[
        Path, typer.Option("--output", "-o", help="Folder of results; finished jobs in it are not done again.")
    ],
    policies: PolicyNames = ["lru_seq", "lru_amp", "sarc_seq", "sarc_amp", "lru_graph", "sarc_graph"],  # noqa: B006
    caches: CacheSizes = ["10%", "20%", "30%"],  # noqa: B006
    clouds: Annotated[
        list[str], typer.Option("--cloud", help=f"One or several of {', '.join(CLOUDS)}, or FILE.json.")
    ] = ["modern"],  # noqa: B006
    seeds: Seeds = [1],  # noqa: B006
    settings: Settings = None,
    arrivals: ArrivalsOption = "closed-loop",
    addressings: Addressings = ["logical"],  # noqa: B006
    clients: Clients = "trace",
    wait_price: WaitPrice = None,
    sequential_floor: SequentialFloor = False,
    fetch_unit: FetchUnit = "range",
    sequential_by: SequentialBy = "prefetcher",
    preload: Preload = "pages",
    formats: Formats = None,
    limit: Limit = None,
    time_order: TimeOrder = "error",
    workers: Workers = None,
    dask: Dask = None,
    as_json: AsJson = False,
) -> None:
    """Replays every trace with every policy, cache size, cloud, seed, addressing and value of a setting."""
    grid = Grid(policies, caches, clouds, seeds, addressings, options.value_lists_of(settings))
    chosen_formats = options.formats_of(formats)
    tasks, points = [], []
    with writing_to(results):
        for path in paths:
            trace = options.trace_of(path, given_format(path, chosen_formats), limit, time_order)
            distinct = distinct_blocks(trace, caches)
            for point in grid.points():
                choice = Choice(
                    trace, policy(point.policy), cache_blocks(point.cache, distinct), point.cloud, seed=point.seed,
                    arrivals=arrivals_of(arrivals), addressing=point.addressing, clients=clients,
                    settings=dict(point.settings), wait_microdollars_per_second=wait_price,
                    sequential_floor=sequential_floor, fetch_unit=fetch_unit, sequential_by=sequential_by,
                    preload=preload,
                )  # fmt: skip
                tasks.append(sweep.Task("replay", choice.job(), f"{trace.name} {grid.label(point)}"))
                points.append((trace, point))
        outcomes = sweep.execute(tasks, results, workers, dask)
    if as_json:
        print_json([_described(*place, outcome) for place, outcome in zip(points, outcomes, strict=True)])
    else:
        _print_tables(grid, points, outcomes)
    if failed := sweep.failures(outcomes):
        raise EngineError(f"{len(failed)} of {len(tasks)} jobs failed; the first: {failed[0]}")


def _described(trace: Trace, point: Point, outcome: sweep.Outcome) -> Json:
    report = outcome.report
    return {
        "label": outcome.task.label,
        "trace": trace.name,
        **vars(point),
        "summary": None if report is None else vars(summary(report)),
        "report": report,
        "error": outcome.error,
    }


def _print_tables(grid: Grid, points: list[tuple[Trace, Point]], outcomes: list[sweep.Outcome]) -> None:
    """One table for each trace."""
    tables: dict[Path, Table] = {}
    for (trace, point), outcome in zip(points, outcomes, strict=True):
        if trace.path not in tables:
            tables[trace.path] = _table(trace.name)
        tables[trace.path].add_row(grid.label(point), *_cells(outcome))
    for table in tables.values():
        output.print(table)


def _table(trace: str) -> Table:
    table = Table(title=f"{trace}: shares of read requests; latency of reads", title_justify="left")
    table.add_column("run", overflow="fold")
    for name in ("miss", "partial", "PE", "mean ms", "p95 ms", "dollars"):
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _cells(outcome: sweep.Outcome) -> list[str]:
    if outcome.report is None:
        return ["failed"]
    found = summary(outcome.report)
    times = ["-" if ms is None else f"{ms:.3g}" for ms in (found.mean_ms, found.p95_ms)]
    ratios = (found.miss_ratio, found.partial_miss_ratio, found.prefetch_efficiency)
    return [*(f"{ratio:.2%}" for ratio in ratios), *times, f"{found.usd:.4g}"]


def plot(
    results: Annotated[Path, typer.Argument(help="The folder of a sweep.")],
    folder: Annotated[
        Path | None, typer.Option("--output", "-o", help="Where the pictures go; by default to the results.")
    ] = None,
) -> None:
    """Draws a sweep: miss ratio, prefetch efficiency and p99 over the cache's size, for each trace."""
    target = folder or results
    found = [result for result in sweep.load(results) if result["kind"] == "replay"]
    names = series_names(result["job"] for result in found)
    measures: dict[str, tuple[str, Callable[[Json], float]]] = {
        "miss-ratio": ("read requests that miss", lambda report: report["reads"]["miss_ratio"]),
        "efficiency": ("prefetch efficiency", lambda report: report["prefetched"]["efficiency"]),
        "p99": ("p99 of reads, ms", lambda report: quantile(report, 0.99) if report["read_latency"]["count"] else 0.0),
    }
    traces = sorted({_trace_of(result) for result in found})
    for name, (label, measure) in measures.items():
        figure, axes = plots.panels(len(traces), label)
        for axis, trace in zip(axes, traces, strict=True):
            series: dict[str, list[tuple[float, float]]] = {}
            for line, result in zip(names, found, strict=True):
                if _trace_of(result) == trace:
                    point = (result["job"]["cache_blocks"] / 256, measure(result["report"]))
                    series.setdefault(line, []).append(point)
            plots.lines(axis, {key: sorted(points) for key, points in sorted(series.items())}, "cache, MiB", label, "o")
            axis.set_title(trace)
            axis.legend(fontsize="x-small")
        with writing_to(target):
            saved = plots.save(figure, target, name)
        console.print(f"{target / saved}")
    output.print(f"{len(found)} results")


def _trace_of(result: Json) -> str:
    return Path(result["job"]["trace"]["path"]).name
