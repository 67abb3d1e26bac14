"""Starts programs from threads that share no open file with the tests.

A process that is started gets a copy of every file its parent has open, and closes it again before it runs. For a file
on a mounted share that close is a request to the daemon; if the program to be started is that very daemon, both would
wait for ever. So programs are started by a few threads that have had a table of open files of their own since before
the first test.
"""

import ctypes
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

THREADS = 8
CLONE_FILES = 0x400
Result = TypeVar("Result")


def _leave_open_files() -> None:
    library = ctypes.CDLL(None, use_errno=True)
    if library.unshare(CLONE_FILES) != 0:
        raise OSError(ctypes.get_errno(), "unshare")


def _started_threads() -> ThreadPoolExecutor:
    """All of them, now: a pool makes a thread only when there is work for it."""
    pool = ThreadPoolExecutor(THREADS, "launching", _leave_open_files)
    together = threading.Barrier(THREADS)
    for done in [pool.submit(together.wait, 20) for _ in range(THREADS)]:
        done.result()
    return pool


_POOL = _started_threads()


def launching(action: Callable[[], Result]) -> Result:
    """The result of an action that starts a program and, perhaps, waits for its end."""
    return _POOL.submit(action).result()
