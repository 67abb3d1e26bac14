"""Progress on standard error, for people; nothing when nobody watches."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

console = Console(stderr=True)
_LINE_S = 60


def bars() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )


class Lines:
    """Where there is no terminal for bars: a line a minute, with how long the rest takes at the pace so far."""

    def __init__(self, total: int, done: int, clock: Callable[[], float] = monotonic) -> None:
        self._total, self._begun, self._clock = total, done, clock
        self._since = self._told = clock()

    def line(self, done: int) -> str | None:
        now = self._clock()
        if now - self._told < _LINE_S:
            return None
        self._told = now
        left_s = (now - self._since) / max(1, done - self._begun) * (self._total - done)
        return f"{done:,} of {self._total:,} jobs; some {left_s / 60:.0f} minutes to go"


@contextmanager
def watching(description: str) -> Iterator[Callable[[int, int], None]]:
    """A bar for one job of the engine: gives what the engine is to call."""
    with bars() as progress:
        task = progress.add_task(description, total=None)

        def on_progress(done: int, total: int) -> None:
            show(progress, task, done, total)

        yield on_progress


def show(progress: Progress, task: TaskID, done: int, total: int) -> None:
    progress.update(task, completed=done, total=total or None)
