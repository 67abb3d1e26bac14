"""`advise`: what another cache would change."""

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from tombolo_sim import advise as advising
from tombolo_sim.cli import options
from tombolo_sim.cli.options import AsJson, Format, Limit, TimeOrder, TraceArgument, Workers, output, print_json
from tombolo_sim.cli.replay import CloudName, DiskName, arrivals_of
from tombolo_sim.output import writing_to
from tombolo_sim.policies import DEFAULT


def register(app: typer.Typer) -> None:
    app.command()(advise)


def advise(
    path: TraceArgument,
    folder: Annotated[Path, typer.Option("--output", "-o", help="Folder of the plot and the runs.")],
    cache: Annotated[str, typer.Option("--cache", help="The present size of the cache.")] = "10%",
    policy_name: Annotated[
        str | None, typer.Option("--policy", help=f"The present policy of the cache; {DEFAULT} unless told.")
    ] = None,
    policy_status: Annotated[
        Path | None,
        typer.Option(
            "--policy-status",
            help="What `tombolo policy show --json` printed: the present policy, and the one that the gateway names.",
        ),
    ] = None,
    sizes: Annotated[list[str] | None, typer.Option("--size", help="Other sizes to try.")] = None,
    policies: Annotated[list[str] | None, typer.Option("--try", help="Other policies to try.")] = None,
    cloud: CloudName = "modern",
    disk: DiskName = None,
    arrivals: Annotated[str, typer.Option("--arrivals", help="trace, closed-loop, or a rate such as 50/s.")] = "trace",
    file_format: Format = "auto",
    limit: Limit = None,
    time_order: TimeOrder = "error",
    workers: Workers = None,
    as_json: AsJson = False,
) -> None:
    """What the misses, the tail latency and the monthly bill would be with another cache size or policy."""
    comparison = advising.Comparison.read(policy_status) if policy_status else None
    present = policy_name or (comparison.present() if comparison else DEFAULT)
    question = advising.Question(
        options.trace_of(path, file_format, limit, time_order), cache, present, tuple(sizes) if sizes else None,
        tuple(policies or advising.POLICIES), cloud, disk, arrivals_of(arrivals), comparison,
    )  # fmt: skip
    with writing_to(folder):
        advice = advising.answer(question, folder, workers)
    if as_json:
        print_json(advice.data())
    else:
        output.print(advice.text(), soft_wrap=True, highlight=False)
        output.print(_table(advice))


def _table(advice: advising.Advice) -> Table:
    """All that was tried, the smallest cache first."""
    dollars = "$ a month" if advice.monthly else "$ for the trace"
    table = Table("cache", "policy", title="All that was tried", title_justify="left")
    for name in ("reads that wait", "p99 ms", dollars):
        table.add_column(name, justify="right")
    for option in sorted(advice.options, key=lambda option: (option.blocks, option.miss_ratio)):
        style = {advice.recommended(): "bold", advice.now: "italic"}.get(option)
        cells = (f"{option.miss_ratio:.1%}", advising.milliseconds(option.p99_ms), advising.dollars(option.usd_cloud))
        table.add_row(f"{option.cache()} ({option.size})", option.policy, *cells, style=style)
    return table
