"""`info`, `convert`, `generate`, `capture`: traces themselves."""

from pathlib import Path
from typing import Annotated

import typer

from tombolo_sim import capture as capturing
from tombolo_sim import engine
from tombolo_sim.cli.options import (
    AsJson,
    Format,
    Limit,
    TimeOrder,
    TraceArgument,
    output,
    print_json,
    print_pairs,
    trace_of,
)
from tombolo_sim.engine import Json
from tombolo_sim.progress import watching
from tombolo_sim.report.results import interval_us
from tombolo_sim.synthetic import Synthetic, write

_GIB = 1 << 30
_BLOCK_BYTES = 4096


def register(app: typer.Typer) -> None:
    app.command()(info)
    app.command()(convert)
    app.command()(generate)
    app.command()(capture)


def info(
    path: TraceArgument,
    file_format: Format = "auto",
    limit: Limit = None,
    time_order: TimeOrder = "error",
    as_json: AsJson = False,
) -> None:
    """What a trace holds: counts, footprint, run lengths, reuse, how predictable its jumps are."""
    source = trace_of(path, file_format, limit, time_order).source()
    with watching("counting") as progress:
        counts = engine.info(source, progress)
    with watching("analysing") as progress:
        found = engine.analyse(source, interval_us(counts["duration_us"]), progress)
    if as_json:
        print_json({"info": counts, "analysis": found})
    else:
        print_pairs(str(path), _lines(counts, found))


def _lines(counts: Json, found: Json) -> list[tuple[str, str]]:
    successors, runs = found["successors"], found["runs"]
    jumps = successors["jumps"] or 1
    to_last, to_any = successors["to_last"] / jumps, successors["to_any_of_4"] / jumps
    longest = f"{runs['strict_longest']:,}, {runs['streams_longest']:,} by stream"
    read_share = _share(found["reads"], found["reads"] + found["writes"])
    return [
        ("format", counts["format"]),
        ("requests", f"{found['requests']:,} by {found['clients']} clients to {found['volumes']} volumes"),
        ("reads, writes", f"{found['reads']:,}, {found['writes']:,} ({read_share} reads)"),
        ("discards, flushes", f"{found['discards']:,}, {found['flushes']:,}"),
        ("read, written", f"{_gib(found['read_units'])}, {_gib(found['written_units'])}"),
        ("footprint", f"{_gib(found['distinct'])}, {_share(found['one_touch'], found['distinct'])} of it used once"),
        ("span", f"{counts['duration_us'] / 3.6e9:.3g} h"),
        ("blocks read in runs < 10", f"{_short_runs(found)}; longest run {longest}"),
        ("jumps to the last successor", f"{to_last:.1%}; to one of the last four {to_any:.1%}"),
        ("LRU read miss ratio", ", ".join(f"{_lru(found, percent):.1%} at {percent} %" for percent in (10, 20, 30))),
        ("contents", f"{found['distinct_contents']:,} different of {found['named_contents']:,} named"),
    ]  # fmt: skip


def _gib(blocks: int) -> str:
    return f"{blocks * _BLOCK_BYTES / _GIB:.3g} GiB"


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "-"


def _short_runs(found: Json) -> str:
    strict = found["runs"]["strict"]
    short = sum(run["units"] * run["runs"] for run in strict if run["units"] < 10)
    return _share(short, sum(run["units"] * run["runs"] for run in strict))


def _lru(found: Json, percent: int) -> float:
    """At the largest size of the curve that does not exceed so much of the footprint."""
    size = found["distinct"] * percent / 100
    return next((point["reads"] for point in reversed(found["reuse"]["lru"]) if point["size"] <= size), 1.0)


def convert(
    path: TraceArgument,
    target: Annotated[Path, typer.Argument(help="The .tbtr file to write.")],
    file_format: Format = "auto",
    limit: Limit = None,
    time_order: TimeOrder = "error",
) -> None:
    """Writes a trace anew in the project's own columnar format."""
    with watching("converting") as progress:
        records = engine.convert(trace_of(path, file_format, limit, time_order).source(), target, progress)
    output.print(f"{target}: {records:,} records")


def generate(
    dataset: Annotated[str, typer.Argument(metavar="corp|eng", help="Whose printed totals.")],
    target: Annotated[Path, typer.Option("--output", "-o", metavar="FILE.tbtr", help="The file to write.")],
    scale: Annotated[float, typer.Option("--scale", help="Of the printed clients, requests and bytes.")] = 0.01,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Decides everything that is drawn.")] = 1,
    templates: Annotated[
        int | None,
        typer.Option("--templates", min=0, help="Repeated tasks of a project; 0: a control whose jumps do not repeat."),
    ] = None,
) -> None:
    """Writes a made-up stand-in for one of the Tombolo paper's traces, which are not public."""
    records = write(Synthetic(dataset, scale, seed, templates), target)
    output.print(f"{target}: {records:,} records")


def capture(
    target: Annotated[Path, typer.Argument(help="The trace to write; `.gz` compresses it.")],
    device: Annotated[Path | None, typer.Option("--device", help="A block device, or a file or mount on one.")] = None,
    nbd: Annotated[str | None, typer.Option("--nbd", metavar="URI", help="An NBD export, recorded by a proxy.")] = None,
    socket: Annotated[Path | None, typer.Option("--socket", help="Where the proxy for --nbd listens.")] = None,
    seconds: Annotated[
        float | None, typer.Option("--seconds", min=0.1, help="Stop after this long; by default with Ctrl-C.")
    ] = None,
) -> None:
    """Records what is asked of a block device (as root, by the kernel's tracepoints) or of an NBD export."""
    if (device is None) == (nbd is None):
        raise capturing.CaptureError("name either --device or --nbd")
    if nbd is not None and socket is None:
        raise capturing.CaptureError("--nbd needs --socket, which clients connect to in place of the export's")
    with watching("recording") as progress:
        if device is not None:
            records = capturing.record_device(device, target, seconds, progress)
        else:
            assert nbd is not None
            assert socket is not None
            records = capturing.record_nbd(nbd, socket, target, seconds, progress)
    output.print(f"{target}: {records:,} records")
