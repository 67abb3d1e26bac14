"""Which files of a folder are traces, and how each is to be read."""

import fnmatch
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from tombolo_sim.engine import EngineError

Given = TypeVar("Given")

_COMPRESSED = (".zst", ".gz", ".xz")
# Of one trace in several formats the first is taken: the one that says most.
_PREFERRED = ("tbtr", "vscsi", "blocks", "files", "csv", "oracle-general")


FORMATS = (
    "auto", "tbtr", "arc", "oracle-general", "vscsi", "csv", "msr", "blktrace", "blkparse", "blocks", "files",
    "nfsdump", "mqsim", "objects", "ids", "u32-le", "u32-be",
)  # fmt: skip
TIME_ORDERS = ("error", "clamp", "sort")
"""What to do about times that go back. Both are the engine's own words."""

OF_FILES = ("--format", "--only", "--skip", "--limit", "--time-order", "--window")
"""Options of a `Selection` beside its folder."""


@dataclass(frozen=True)
class Window:
    """A part of a trace, in records: one that fills caches and history, and the one after it that counts."""

    warming: int
    counted: int

    @property
    def end(self) -> int:
        return self.warming + self.counted

    def __str__(self) -> str:
        return f"{self.warming}+{self.counted}"


@dataclass(frozen=True)
class Trace:
    name: str
    path: Path
    format: str = "auto"
    limit: int | None = None
    time_order: str = "error"
    """One of `TIME_ORDERS`."""
    warming: int = 0
    """Requests at the beginning that are replayed and not counted."""

    def within(self, window: Window) -> "Trace":
        return replace(self, limit=window.end, warming=window.warming)

    def source(self, **fields: object) -> dict[str, Any]:
        """For a job of the engine."""
        source: dict[str, Any] = {"path": str(self.path), "format": self.format, "time_order": self.time_order}
        if self.limit is not None:
            source["limit"] = self.limit
        return source | fields


def name_of(path: Path) -> str:
    """The file's name up to its first dot."""
    return path.name.split(".", 1)[0]


def fitting(path: Path, given: Mapping[str, Given]) -> Given | None:
    """What is given for the first pattern that the file's name fits."""
    return next((value for pattern, value in given.items() if fnmatch.fnmatch(path.name, pattern)), None)


def given_format(path: Path, formats: Mapping[str, str]) -> str:
    return fitting(path, formats) or "auto"


@dataclass(frozen=True)
class Selection:
    """Which files of a folder, and how they are to be read."""

    folder: Path
    formats: Mapping[str, str] = field(default_factory=dict)
    """Patterns of file names, and the format of the files that they fit."""
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    limit: int | None = None
    time_order: str = "error"
    windows: Mapping[str, Window] = field(default_factory=dict)
    """Patterns of file names, and which part of the files that they fit is replayed."""

    def given(self) -> list[str]:
        """Which of `OF_FILES`."""
        values = (self.formats, self.only, self.skip, self.limit, self.time_order != "error", self.windows)
        return [option for option, value in zip(OF_FILES, values, strict=True) if value]

    def takes(self, path: Path) -> bool:
        wanted = not self.only or _fits(path, self.only)
        return path.is_file() and wanted and not _fits(path, self.skip)


def _fits(path: Path, patterns: Iterable[str]) -> bool:
    return any(fnmatch.fnmatch(path.name, pattern) for pattern in patterns)


def find(selection: Selection) -> list[Trace]:
    """The files that could be traces, one for each name."""
    if not selection.folder.is_dir():
        raise EngineError(f"{selection.folder}: no such folder")
    paths = [path for path in sorted(selection.folder.iterdir()) if selection.takes(path)]
    for pattern, given in selection.windows.items():
        if not fnmatch.filter((path.name for path in paths), pattern):
            raise EngineError(f"--window {pattern}={given}: none of the files matches")
    found: dict[str, Trace] = {}
    for path in paths:
        chosen = given_format(path, selection.formats)
        trace = Trace(name_of(path), path, chosen, selection.limit, selection.time_order)
        if (window := fitting(path, selection.windows)) is not None:
            trace = trace.within(window)
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
