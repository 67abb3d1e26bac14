"""Which files of a folder are traces, and how each is to be read."""

import fnmatch
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tombolo_sim.engine import EngineError

_COMPRESSED = (".zst", ".gz", ".xz")
# Of one trace in several formats the first is taken: the one that says most.
_PREFERRED = ("tbtr", "vscsi", "blocks", "files", "csv", "oracle-general")


@dataclass(frozen=True)
class Trace:
    name: str
    path: Path
    format: str = "auto"
    limit: int | None = None

    def source(self, **fields: Any) -> dict[str, Any]:
        """For a job of the engine. Times that go back are put right: real captures of several CPUs have them."""
        source: dict[str, Any] = {"path": str(self.path), "format": self.format, "time_order": "sort"}
        if self.limit is not None:
            source["limit"] = self.limit
        return source | fields


def name_of(path: Path) -> str:
    """The file's name up to its first dot."""
    return path.name.split(".", 1)[0]


def given_format(path: Path, formats: Mapping[str, str]) -> str:
    """`formats` maps patterns of file names to formats; the first that fits counts."""
    for pattern, name in formats.items():
        if fnmatch.fnmatch(path.name, pattern):
            return name
    return "auto"


def find(
    folder: Path,
    formats: Mapping[str, str],
    only: Iterable[str] = (),
    skip: Iterable[str] = (),
    limit: int | None = None,
) -> list[Trace]:
    """The files of a folder that could be traces, one for each name."""
    if not folder.is_dir():
        raise EngineError(f"{folder}: no such folder")
    only, skip = tuple(only), tuple(skip)
    found: dict[str, Trace] = {}
    for path in sorted(folder.iterdir()):
        wanted = not only or any(fnmatch.fnmatch(path.name, pattern) for pattern in only)
        if not path.is_file() or not wanted or any(fnmatch.fnmatch(path.name, pattern) for pattern in skip):
            continue
        trace = Trace(name_of(path), path, given_format(path, formats), limit)
        before = found.get(trace.name)
        if before is None or _rank(path) < _rank(before.path):
            found[trace.name] = trace
    return list(found.values())


def _rank(path: Path) -> int:
    words = path.name.replace("_", "-").lower()
    for suffix in _COMPRESSED:
        words = words.removesuffix(suffix)
    for rank, word in enumerate(_PREFERRED):
        if word.replace("-", "") in words.replace("-", ""):
            return rank
    return len(_PREFERRED)
