"""Latency tables: written here, checked and read by the parser that the gateway has."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

from tombolo_sim import _engine
from tombolo_sim.engine import EngineError

Json: TypeAlias = dict[str, Any]
VERSION = 1
FILE = "latency-table.json"


@dataclass(frozen=True)
class Cell:
    """Requests of one kind, size and parallelism; the fields of the file."""

    size_bytes: int
    parallelism: int
    requests: int
    failed: int
    repeats: int
    dropped: int
    bytes_per_s: float
    mean_ms: float
    mean_ms_deviation: float
    latency_ms: list[tuple[float, float]]


def table_of(origin: Json, round_trip_ms: float, cells: dict[str, list[Cell]]) -> Json:
    """Cells come in their order."""
    found = {
        "format": "tombolo-latency-table",
        "version": VERSION,
        "measured": origin,
        "round_trip_ms": round_trip_ms,
        "get": [asdict(cell) for cell in cells["get"]],
        "put": [asdict(cell) for cell in cells["put"]],
    }
    return checked(json.dumps(found))


def checked(text: str) -> Json:
    table = json.loads(_engine.latency_table(text))
    assert isinstance(table, dict)
    return table


def read(path: Path) -> Json:
    try:
        return checked(path.read_text())
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise EngineError(f"{path}: {reason}") from error
    except EngineError as error:
        raise EngineError(f"{path}: {error}") from error


def write(table: Json, path: Path) -> None:
    """Whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    partial.write_text(json.dumps(table, indent=1) + "\n")
    partial.replace(path)


def cells_of(table: Json, operation: str) -> list[Cell]:
    return [Cell(**cell) for cell in table[operation]]
