"""Work on all cores that a signal ends: nothing hangs, and no worker stays behind.

Signals are for the process that began the work, which tells its workers: one that is killed may hold a lock that others
wait for. Here an exception that a handler raises anywhere can leave a lock of the standard library locked for ever, so
signals are looked at where nothing is held.
"""

import os
import signal
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from multiprocessing import parent_process
from queue import Empty, SimpleQueue
from threading import Thread, current_thread, main_thread
from types import FrameType
from typing import TypeVar

POLL_S = 0.2
T = TypeVar("T")


class Ended(Exception):
    """The work was ended while this job was under way; it is done another time."""


def ignore_signals() -> None:
    """For a worker, at its beginning."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def end_with_parent() -> None:
    """For a worker, at its beginning: one whose parent was killed would do what is queued, and wait for ever."""
    parent = parent_process()
    if parent is None:
        return

    def wait() -> None:
        parent.join()
        os._exit(1)

    Thread(target=wait, daemon=True).start()


@contextmanager
def signals_deferred() -> Iterator[Callable[[], None]]:
    """Gives what is to be called where a signal may end the work."""
    if current_thread() is not main_thread():
        yield lambda: None
        return
    came: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        came.append(number)

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def check() -> None:
        if came:
            restore()
            signal.raise_signal(came[0])

    try:
        yield check
    finally:
        restore()
    if came:
        signal.raise_signal(came[0])


def as_done(futures: Iterable[Future[T]], check: Callable[[], None]) -> Iterator[Future[T]]:
    """In the order in which they end; `check` is that of `signals_deferred`."""
    finished: SimpleQueue[Future[T]] = SimpleQueue()
    count = 0
    for future in futures:
        future.add_done_callback(finished.put)
        count += 1
    for _ in range(count):
        yield _next(finished, check)


def _next(finished: "SimpleQueue[Future[T]]", check: Callable[[], None]) -> Future[T]:
    while True:
        check()
        try:
            return finished.get(timeout=POLL_S)
        except Empty:
            continue
