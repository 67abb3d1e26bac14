"""`history`: the history graph that a trace leaves."""

from pathlib import Path
from typing import Annotated

import typer

from tombolo_sim import engine
from tombolo_sim import history as histories
from tombolo_sim.cli import options
from tombolo_sim.cli.options import AsJson, Format, Limit, TimeOrder, TraceArgument, output, print_json, print_pairs
from tombolo_sim.output import writing_to
from tombolo_sim.progress import watching


def register(app: typer.Typer) -> None:
    app.command()(history)


def history(
    path: TraceArgument,
    folder: Annotated[Path, typer.Option("--output", "-o", help="Folder of the graph and the pictures.")],
    scope: Annotated[
        str, typer.Option("--scope", help="Whose previous read counts: client, or global as in the paper.")
    ] = "client",
    every_read: Annotated[bool, typer.Option("--every-read", help="Count reads that belong to a stream, too.")] = False,
    file_format: Format = "auto",
    limit: Limit = None,
    time_order: TimeOrder = "error",
    as_json: AsJson = False,
) -> None:
    """Writes the graph as GraphML and as a list of edges, with pictures, and says what is in it."""
    job = {
        "trace": options.trace_of(path, file_format, limit, time_order).source(),
        "global": histories.is_global(scope),
        "every_read": every_read,
    }
    with writing_to(folder):
        with watching("learning") as progress:
            exported = engine.history(job, progress)
        found = histories.write(exported, folder)
    if as_json:
        print_json(found)
    else:
        print_pairs(str(path), [(name.replace("_", " "), histories.shown(value)) for name, value in found.items()])
        output.print(f"{folder}: history.graphml, history.edgelist, history.png")
