"""Alternating rounds and what is made of them."""

import statistics
from collections.abc import Callable
from dataclasses import dataclass, field

Measure = Callable[[], float]


@dataclass
class Comparison:
    """Two contenders under one workload; `ratio` above 1 means that ours is higher."""

    name: str
    unit: str
    ours: list[float] = field(default_factory=list)
    other: list[float] = field(default_factory=list)
    notes: dict[str, float] = field(default_factory=dict)

    @property
    def ratio(self) -> float:
        return statistics.median(self.ours) / statistics.median(self.other)

    def row(self) -> str:
        return f"| {self.name} | {spread(self.ours)} | {spread(self.other)} | {self.unit} | {self.ratio:.2f} |"

    def as_json(self) -> dict[str, object]:
        return {
            "name": self.name,
            "unit": self.unit,
            "ours": self.ours,
            "other": self.other,
            "ratio_of_medians": round(self.ratio, 4),
            "notes": self.notes,
        }


def spread(values: list[float]) -> str:
    """The median, and the range it was taken from."""
    return f"{statistics.median(values):,.0f} ({min(values):,.0f}-{max(values):,.0f})"


def alternate(comparison: Comparison, rounds: int, ours: Measure, other: Measure) -> Comparison:
    """A B, B A, A B, ...: a machine that drifts harms both alike."""
    for index in range(rounds):
        for is_ours in (True, False) if index % 2 == 0 else (False, True):
            if is_ours:
                comparison.ours.append(ours())
            else:
                comparison.other.append(other())
    return comparison
