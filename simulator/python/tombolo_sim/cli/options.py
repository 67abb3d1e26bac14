"""Options that several subcommands share."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from tombolo_sim.jobs import OptionError
from tombolo_sim.sources import FORMATS, TIME_ORDERS, Trace, name_of

output = Console()


def one_of(known: Sequence[str], word: str, given: str) -> str:
    """The word, or a refusal of the option as it was given."""
    if word not in known:
        raise OptionError(f"{given}: it must be one of {', '.join(known)}")
    return word


TraceArgument = Annotated[Path, typer.Argument(metavar="TRACE", help="A trace, compressed or not.")]
Format = Annotated[
    str,
    typer.Option(
        "--format",
        help="The trace's format, where contents and name do not show it.",
        callback=lambda word: one_of(FORMATS, word, f"--format {word}"),
    ),
]
Limit = Annotated[int | None, typer.Option("--limit", min=1, help="Read only this many records.")]
TimeOrder = Annotated[
    str,
    typer.Option(
        "--time-order",
        help=f"If the trace's time goes back: {', '.join(TIME_ORDERS)}.",
        callback=lambda word: one_of(TIME_ORDERS, word, f"--time-order {word}"),
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Formats = Annotated[
    list[str] | None, typer.Option("--format", metavar="GLOB=FORMAT", help="The format of files whose names match.")
]
Seeds = Annotated[list[int], typer.Option("--seed", min=0, help="Several times for several.")]
Workers = Annotated[int | None, typer.Option("--workers", min=1, help="Processes; one for each core by default.")]
Dask = Annotated[
    str | None, typer.Option("--dask", metavar="ADDRESS", help="Run on the workers of this Dask scheduler.")
]


def trace_of(path: Path, file_format: str, limit: int | None, time_order: str) -> Trace:
    return Trace(name_of(path), path, file_format, limit, time_order)


def formats_of(given: list[str] | None) -> dict[str, str]:
    formats = dict(split_pair("--format", item) for item in given or [])
    return {pattern: one_of(FORMATS, word, f"--format {pattern}={word}") for pattern, word in formats.items()}


def split_pair(option: str, item: str) -> tuple[str, str]:
    name, separator, value = item.partition("=")
    if not name or not separator:
        raise OptionError(f"{option} {item}: it must be NAME=VALUE")
    return name, value


def settings_of(given: list[str] | None) -> dict[str, Any]:
    """`NAME=VALUE` pairs."""
    return {name: _value(value) for name, value in (split_pair("--set", item) for item in given or [])}


def value_lists_of(given: list[str] | None) -> dict[str, list[Any]]:
    """`NAME=V1,V2,...`; a name that comes again brings further values."""
    found: dict[str, list[Any]] = {}
    for item in given or []:
        name, text = split_pair("--set", item)
        values = found.setdefault(name, [])
        for word in text.split(","):
            if not word.strip():
                raise OptionError(f"--set {item}: a value is missing")
            if (value := _value(word.strip())) not in values:
                values.append(value)
    return found


def _value(word: str) -> object:
    """JSON where it can be, else the word."""
    try:
        return json.loads(word)
    except ValueError:
        return word


def print_json(value: object) -> None:
    output.print_json(json.dumps(value))


def print_pairs(heading: str, pairs: list[tuple[str, str]]) -> None:
    table = Table(title=heading, show_header=False, title_justify="left")
    for name, value in pairs:
        table.add_row(name, value)
    output.print(table)
