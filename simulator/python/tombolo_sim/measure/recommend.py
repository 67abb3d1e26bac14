"""Size and parallelism by the procedure of Hou et al., section V.

Size: the smallest whose single-stream bandwidth is within 5 % of the peak. Parallelism: from the largest size on,
doubled until the mean latency rises by more than 10 % over that of one request at a time; each smaller size begins
where the larger one ended. Where repeats differ so much that the rise may be above the bound, the lower parallelism is
taken.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import log
from typing import Any

from tombolo_sim.measure.table import Cell

BANDWIDTH_TOLERANCE = 0.05
LATENCY_RISE_MAX = 0.10


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

    def parallelism(self, size_bytes: int) -> int:
        """Between measured sizes it is interpolated, by the logarithm of the size, and rounded down."""
        sizes = [degree.size_bytes for degree in self.degrees]
        right = min(bisect_left(sizes, size_bytes), len(sizes) - 1)
        left = right - 1 if sizes[right] > size_bytes and right else right
        low, high = self.degrees[left].parallelism, self.degrees[right].parallelism
        if left == right:
            return low
        share = (log(size_bytes) - log(sizes[left])) / (log(sizes[right]) - log(sizes[left]))
        return int(low + (high - low) * share + 1e-9)

    def saturating_parallelism(self, size_bytes: int) -> int:
        """Of the nearest size that was measured."""
        return self.saturating[min(self.saturating, key=lambda size: abs(log(size) - log(size_bytes)))]

    def data(self) -> dict[str, Any]:
        return asdict(self) | {"parallelism": self.parallelism(self.size_bytes)}


def smallest_size(cells: Sequence[Cell]) -> tuple[int, float]:
    """The size, and the peak."""
    single = {cell.size_bytes: cell.bytes_per_s for cell in cells if cell.parallelism == 1}
    peak = max(single.values())
    return min(size for size, rate in single.items() if rate >= (1 - BANDWIDTH_TOLERANCE) * peak), peak


def degrees(cells: Sequence[Cell]) -> tuple[Degree, ...]:
    found: list[Degree] = []
    start = 1
    for size in sorted({cell.size_bytes for cell in cells}, reverse=True):
        row = {cell.parallelism: cell for cell in cells if cell.size_bytes == size}
        bound = row[1].mean_ms * (1 + LATENCY_RISE_MAX)
        chosen, unsure = start, False
        higher = [count for count in sorted(row) if count > start]
        for count in higher:
            cell = row[count]
            if cell.mean_ms + cell.mean_ms_deviation > bound:
                unsure = cell.mean_ms <= bound
                break
            chosen = count
        found.append(Degree(size, chosen, unsure, bounded=bool(row) and chosen >= max(row)))
        start = chosen
    return tuple(reversed(found))


def saturating(cells: Sequence[Cell]) -> dict[int, int]:
    found = {}
    for size in sorted({cell.size_bytes for cell in cells}):
        row = [cell for cell in cells if cell.size_bytes == size]
        enough = (1 - BANDWIDTH_TOLERANCE) * max(cell.bytes_per_s for cell in row)
        found[size] = min(cell.parallelism for cell in row if cell.bytes_per_s >= enough)
    return found


def advise(cells: Sequence[Cell]) -> Advice:
    size, peak = smallest_size(cells)
    best = max(cells, key=lambda cell: cell.bytes_per_s)
    return Advice(size, peak, degrees(cells), best.size_bytes, best.parallelism, best.bytes_per_s, saturating(cells))
