"""Maps of blocks, as runs."""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Run:
    first: int
    count: int
    pvbn: int | None
    """None: holes, which hide what lies below."""

    @property
    def end(self) -> int:
        return self.first + self.count

    def within(self, first: int, end: int) -> "Run":
        """The part of it that lies in a range, which must touch it."""
        low, high = max(self.first, first), min(self.end, end)
        return Run(low, high - low, None if self.pvbn is None else self.pvbn + low - self.first)


class Extents:
    """Runs that ascend and do not overlap; what is put later replaces what was there."""

    def __init__(self) -> None:
        self._runs: list[Run] = []

    def put(self, run: Run) -> None:
        if run.count == 0:
            return
        runs = self._runs
        begin = bisect_right(runs, run.first, key=lambda found: found.first)
        if begin > 0 and runs[begin - 1].end > run.first:
            begin -= 1
        end = begin
        kept: list[Run] = []
        while end < len(runs) and runs[end].first < run.end:
            found = runs[end]
            if found.first < run.first:
                kept.append(found.within(found.first, run.first))
            if found.end > run.end:
                kept.append(found.within(run.end, found.end))
            end += 1
        runs[begin:end] = sorted([*kept, run], key=lambda part: part.first)

    def __iter__(self) -> Iterator[Run]:
        return iter(self._runs)
