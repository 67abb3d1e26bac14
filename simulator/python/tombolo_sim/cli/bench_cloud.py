"""`plot-bench-cloud`: pictures of what `tombolo bench cloud` has found."""

from pathlib import Path
from typing import Annotated

import typer

from tombolo_sim import bench_cloud
from tombolo_sim.cli.options import output
from tombolo_sim.output import writing_to


def register(app: typer.Typer) -> None:
    app.command("plot-bench-cloud")(plot)


def plot(
    files: Annotated[list[Path], typer.Argument(help="Reports by `tombolo bench cloud --json`, one of each system.")],
    folder: Annotated[Path, typer.Option("--output", "-o", help="Folder of the plots.")] = Path("bench-cloud"),
) -> None:
    """Draw the workloads of `tombolo bench cloud`: medians, and distributions over the rounds."""
    reports = {path.stem: bench_cloud.read(path) for path in files}
    with writing_to(folder):
        for name in bench_cloud.plot(reports, folder):
            output.print(str(folder / name), soft_wrap=True, highlight=False)
