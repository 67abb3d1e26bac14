"""What every report is told."""

from dataclasses import dataclass
from pathlib import Path

from tombolo_sim.sources import Selection


@dataclass(frozen=True)
class ReportOptions:
    output: Path
    traces: Selection | None = None
    seeds: tuple[int, ...] = (1,)
    standins: int = 0
    """Made-up traces of each kind."""
    workers: int | None = None
    dask: str | None = None
