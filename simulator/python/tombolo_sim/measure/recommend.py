"""Size and parallelism by the procedure of Hou et al., section V, which is the gateway's own
(`cloud_driver/src/latency_table/recommendation.rs`): it starts with what it finds in a table."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from tombolo_sim import _engine
from tombolo_sim.measure.table import Cell


@dataclass(frozen=True)
class Degree:
    size_bytes: int
    parallelism: int
    unsure: bool
    """The next one may have done as well; repeats differ too much to tell."""
    bounded: bool
    """The largest that was measured: more may do as well."""


@dataclass(frozen=True)
class Advice:
    size_bytes: int
    peak_bytes_per_s: float
    """Of one request at a time."""
    degrees: tuple[Degree, ...]
    """By ascending size."""
    best_size_bytes: int
    best_parallelism: int
    best_bytes_per_s: float
    """Of all cells."""
    saturating: dict[int, int]
    """For each size the least parallelism within 5 % of the most bandwidth that it has."""
    found: _engine.Recommendation = field(repr=False, compare=False)

    def parallelism(self, size_bytes: int) -> int:
        """Between measured sizes it is interpolated, by the logarithm of the size, and rounded down."""
        return self.found.parallelism(size_bytes)

    def saturating_parallelism(self, size_bytes: int) -> int:
        """Of the nearest size that was measured."""
        return self.found.saturating_parallelism(size_bytes)

    def data(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.found.data())
        return found | {"saturating": self.saturating, "parallelism": self.parallelism(self.size_bytes)}


def advise(cells: Sequence[Cell]) -> Advice:
    recommendation = _engine.Recommendation(json.dumps([asdict(cell) for cell in cells]))
    data = json.loads(recommendation.data())
    degrees = tuple(Degree(**degree) for degree in data.pop("degrees"))
    saturating = dict(data.pop("saturating"))
    return Advice(**data, degrees=degrees, saturating=saturating, found=recommendation)
