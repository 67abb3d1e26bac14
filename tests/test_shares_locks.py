"""Locks of open file descriptions (F_OFD_SETLK), as Samba takes them, through kernel mounts."""

import contextlib
import fcntl
import os
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from conftest import MountFactory
from harness.gateway import Gateway
from harness.mount import Mount

RANGE = (0, 10)
WAIT_S = 20.0


def ofd(command: int, file: int, kind: int, start: int = RANGE[0], length: int = RANGE[1]) -> None:
    fcntl.fcntl(file, command, struct.pack("hhqqi4x", kind, os.SEEK_SET, start, length, 0))


def lock(file: int, start: int = RANGE[0], length: int = RANGE[1]) -> None:
    ofd(fcntl.F_OFD_SETLK, file, fcntl.F_WRLCK, start, length)


def wait_for_lock(file: int) -> None:
    ofd(fcntl.F_OFD_SETLKW, file, fcntl.F_WRLCK)


@contextlib.contextmanager
def opened(path: Path) -> Iterator[int]:
    file = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        yield file
    finally:
        os.close(file)


@pytest.fixture
def path(mount: Mount) -> Path:
    return mount.folder / "file"


@pytest.fixture
def other_path(make_mount: MountFactory) -> Path:
    """The same file through another mount: what its kernel is told comes from the gateway."""
    return make_mount().start().folder / "file"


def test_lock_of_an_open_file_ends_with_it(path: Path, other_path: Path) -> None:
    with opened(path) as holder, opened(path) as second, opened(other_path) as third:
        lock(holder)
        for file in (second, third):
            with pytest.raises(BlockingIOError):
                lock(file)
        copy = os.dup(holder)
        os.close(copy)
        with pytest.raises(BlockingIOError):
            lock(third)
    with opened(path) as second, opened(other_path) as third:
        wait_for_lock(third)
        with pytest.raises(BlockingIOError):
            lock(second)


@pytest.mark.parametrize("through", ["path", "other_path"])
def test_waiter_gets_the_lock_when_its_holder_is_closed(
    path: Path, other_path: Path, through: str, gateway: Gateway
) -> None:
    waiting_path = {"path": path, "other_path": other_path}[through]
    holder = os.open(path, os.O_RDWR | os.O_CREAT)
    lock(holder)
    with opened(waiting_path) as waiting, ThreadPoolExecutor(1) as pool:
        waiter = pool.submit(wait_for_lock, waiting)
        # Those who hold other bytes are no matter.
        lock(waiting, 100, 10)
        assert not waiter.done()
        os.close(holder)
        waiter.result(WAIT_S)
    assert gateway.process.running


def test_lock_of_a_process_that_ends_goes_with_it(path: Path, other_path: Path) -> None:
    child = os.fork()
    if child == 0:
        lock(os.open(path, os.O_RDWR | os.O_CREAT))
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    with opened(other_path) as file:
        wait_for_lock(file)


def test_lock_ends_with_its_file_after_a_restart_of_the_daemon(path: Path, other_path: Path, gateway: Gateway) -> None:
    """The gateway knows after it which open file a lock was taken through before."""
    with opened(path) as holder, opened(path) as staying, opened(other_path) as other:
        lock(holder)
        lock(staying, 100, 10)
        gateway.kill9()
        gateway.start()
        for start in (0, 100):
            with pytest.raises(BlockingIOError):
                lock(other, start, 10)
    with opened(path) as staying, opened(other_path) as other:
        wait_for_lock(other)
        lock(other, 100, 10)


def test_closing_one_file_leaves_the_locks_of_others(path: Path, other_path: Path) -> None:
    with opened(path) as staying, opened(other_path) as other:
        lock(staying, 20, 10)
        fcntl.lockf(staying, fcntl.LOCK_EX, 10, 40)
        for _ in range(50):
            with opened(path) as passing:
                # The kernel tells of the end of the one before on its own time.
                wait_for_lock(passing)
            # The process' own POSIX lock goes with any close; it is taken again before the release may be heard of.
            fcntl.lockf(staying, fcntl.LOCK_EX, 10, 40)
        for start in (20, 40):
            with pytest.raises(BlockingIOError):
                lock(other, start, 10)
        wait_for_lock(other)


def test_flock_and_posix_locks_end_as_before(path: Path, other_path: Path) -> None:
    with opened(path) as holder, opened(other_path) as other:
        fcntl.flock(holder, fcntl.LOCK_EX)
        fcntl.lockf(holder, fcntl.LOCK_EX, 10, 0)
        with pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with pytest.raises(BlockingIOError):
            lock(other)
    with opened(other_path) as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        fcntl.lockf(other, fcntl.LOCK_EX, 10, 0)
