"""Means over seeds with their 95 % intervals, and what may be said of two of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import mean, stdev

# Student's t for 95 %, two-sided, by degrees of freedom; the last for all beyond.
_T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)


@dataclass(frozen=True)
class Estimate:
    mean: float
    half_width: float = 0.0
    """Of the interval; zero of one value alone, which says nothing of its own error."""

    def is_below(self, other: "Estimate") -> bool:
        return self.mean + self.half_width < other.mean - other.half_width


def estimate(values: Sequence[float]) -> Estimate:
    if len(values) < 2:
        return Estimate(values[0])
    t = _T[min(len(values) - 1, len(_T)) - 1]
    return Estimate(mean(values), t * stdev(values) / len(values) ** 0.5)


def falling(values: Sequence[Estimate]) -> bool | None:
    """Whether each is below the one before it; None: some intervals overlap, and no pair rises."""
    if any(before.is_below(after) for before, after in pairwise(values)):
        return False
    return True if all(after.is_below(before) for before, after in pairwise(values)) else None


def staying(values: Sequence[Estimate]) -> bool:
    """Whether none is above the one before it."""
    return not any(before.is_below(after) for before, after in pairwise(values))


def share(found: Estimate) -> str:
    error = f"±{found.half_width * 100:.2g}" if found.half_width >= 0.0005 else ""
    return f"{found.mean * 100:.1f}{error} %"


def shares(values: Sequence[Estimate]) -> str:
    return " -> ".join(share(value) for value in values)
