"""`report tombolo`, `report defaults`, `report gds-lc`, `report stout` and `report hou`."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from tombolo_sim.cli.options import Dask, Formats, Limit, Seeds, TimeOrder, Workers, formats_of, output, split_pair
from tombolo_sim.gds_lc import report as gds_lc_report
from tombolo_sim.hou import report as hou_report
from tombolo_sim.jobs import OptionError
from tombolo_sim.output import writing_to
from tombolo_sim.report import defaults as defaults_report
from tombolo_sim.report import tombolo as tombolo_report
from tombolo_sim.report.options import ReportOptions
from tombolo_sim.sources import OF_FILES, Selection, Window
from tombolo_sim.stout import report as stout_report

Run: TypeAlias = Callable[[ReportOptions], Path]

Output = Annotated[
    Path, typer.Option("--output", "-o", help="Folder of the report; finished runs in it are not done again.")
]
Traces = Annotated[Path | None, typer.Option("--traces", metavar="DIR", help="Folder of traces.")]
Only = Annotated[list[str] | None, typer.Option("--only", metavar="GLOB", help="Only files whose names match.")]
Skip = Annotated[list[str] | None, typer.Option("--skip", metavar="GLOB", help="Leave out files whose names match.")]
Windows = Annotated[
    list[str] | None,
    typer.Option(
        "--window", metavar="GLOB=N+M", help="Of files whose names match, N records warm and the M after them count."
    ),
]
StandIns = Annotated[
    int, typer.Option("--stand-ins", min=0, help="Made-up traces of each kind, in place of the paper's own.")
]


def register(app: typer.Typer) -> None:
    group = typer.Typer(
        help="A paper's evaluation on the traces at hand, beside its printed numbers.", no_args_is_help=True
    )

    def add(name: str, about: str, run: Run, *heeded: str) -> None:
        group.command(name, help=about)(command(name, run, *heeded))

    add(
        "tombolo",
        "Figures 4, 5, 8-13 and tables 1, 3-7 of the Tombolo paper, and whether its claims hold.",
        tombolo_report.run, "--traces", *OF_FILES, "--stand-ins", "--dask",
    )  # fmt: skip
    add(
        "defaults",
        "Which policies to run with when nothing is set, by a rule.",
        defaults_report.run, "--traces", *OF_FILES, "--dask",
    )  # fmt: skip
    add(
        "gds-lc",
        "The evaluation of the GDS-LC paper: cost-aware caching of objects.",
        gds_lc_report.run, "--traces", "--only", "--skip", "--limit",
    )  # fmt: skip
    add("stout", "Stout's evaluation: intervals between batches to a store under load.", stout_report.run)
    add(
        "hou",
        "Chunks, prefetch and parallelism as Hou et al. have them, and adaptive parallelism.",
        hou_report.run,
    )
    app.add_typer(group, name="report")


def selected(
    folder: Path | None,
    formats: list[str] | None,
    only: list[str] | None,
    skip: list[str] | None,
    limit: int | None,
    time_order: str,
    windows: list[str] | None,
) -> Selection | None:
    selection = Selection(
        folder or Path(),
        formats_of(formats),
        tuple(only or ()),
        tuple(skip or ()),
        limit,
        time_order,
        windows_of(windows),
    )
    if folder is not None:
        if not folder.is_dir():
            raise OptionError(f"--traces {folder}: it must be a folder")
        return selection
    if of_files := selection.given():
        raise OptionError(f"{', '.join(of_files)}: there are no files without --traces DIR")
    return None


def windows_of(given: list[str] | None) -> dict[str, Window]:
    found = {}
    for item in given or []:
        pattern, text = split_pair("--window", item)
        match = re.fullmatch(r"([0-9]+)\+([1-9][0-9]*)", text)
        if match is None:
            raise OptionError(f"--window {item}: it must be GLOB=N+M, such as 'nas*=100000+200000'")
        found[pattern] = Window(int(match[1]), int(match[2]))
    return found


def command(name: str, run: Run, *heeded: str) -> Callable[..., None]:
    """The command line of one paper's report, which heeds some of the options."""

    def report(
        folder: Output,
        traces: Traces = None,
        formats: Formats = None,
        only: Only = None,
        skip: Skip = None,
        limit: Limit = None,
        time_order: TimeOrder = "error",
        seeds: Seeds = [1],  # noqa: B006
        windows: Windows = None,
        standins: StandIns = 0,
        workers: Workers = None,
        dask: Dask = None,
    ) -> None:
        if twice := [seed for seed in dict.fromkeys(seeds) if seeds.count(seed) > 1]:
            raise OptionError(f"--seed {twice[0]}: it is given twice, and the same runs again say nothing of the error")
        selection = selected(traces, formats, only, skip, limit, time_order, windows)
        chosen = ReportOptions(folder, selection, tuple(seeds), standins, workers, dask)
        chosen.require_heeded(name, *heeded)
        with writing_to(folder):
            output.print(str(run(chosen)))

    return report
