"""What every report is told."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class ReportOptions:
    output: Path
    traces: Path | None = None
    formats: Mapping[str, str] = field(default_factory=dict)
    """Patterns of file names, and the format of the files that they fit."""
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    limit: int | None = None
    """Records of each trace."""
    seeds: tuple[int, ...] = (1,)
    workers: int | None = None
    dask: str | None = None
