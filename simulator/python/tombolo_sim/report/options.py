"""What every report is told."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tombolo_sim.jobs import OptionError
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

    def require_heeded(self, report: str, *heeded: str) -> None:
        """Refuses options that a report would ignore; output, seeds and workers every one heeds."""
        if ignored := [option for option in self._given() if option not in heeded]:
            raise OptionError(f"{', '.join(ignored)}: `report {report}` would ignore that")

    def _given(self) -> Iterator[str]:
        if self.traces is not None:
            yield "--traces"
            yield from self.traces.given()
        if self.standins:
            yield "--stand-ins"
        if self.dask is not None:
            yield "--dask"
