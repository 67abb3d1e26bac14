"""Progress on standard error, for people; nothing when nobody watches."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

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
