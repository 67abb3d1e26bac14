"""One share through the mount, NFS and SMB at once: what one does, the others see at once; locks hold for all."""

import contextlib
import fcntl
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import permutations
from typing import Protocol

import pytest

from conftest import SEED
from harness.exerciser import Exerciser
from harness.front_ends import FrontEnd
from harness.ganesha import Ganesha
from harness.gateway import Gateway
from harness.mount import Mount
from harness.smbd import Smbd
from harness.tools import wait_for

MIB = 1 << 20
FRONT_ENDS = ("mount", "nfs", "smb")
LATE = "nfs3"
NEWS_S = 0.5
"""News of a change reaches ganesha's memory on a connection of its own, and may be overtaken by the next question. The
others ask the daemon each time."""
LATE_SHARE_MAX = 0.1
"""Of the looks through ganesha at what another front end has changed."""


def exerciser_of(front_ends: dict[str, FrontEnd], seed: int, folder: str = "") -> Exerciser:
    return Exerciser(seed, list(front_ends.values()), folder, may_be_late=[LATE], settle_s=NEWS_S)


def checked(exerciser: Exerciser, steps: int) -> None:
    exerciser.run(steps)
    print(f"{exerciser.late_looks} of {exerciser.looks} looks were late")
    assert exerciser.looks > steps / 4
    assert exerciser.late_looks <= LATE_SHARE_MAX * exerciser.looks


@pytest.mark.parametrize("seed", [SEED, SEED + 1])
def test_front_ends_see_each_other_at_once(front_ends: dict[str, FrontEnd], seed: int) -> None:
    checked(exerciser_of(front_ends, seed), 400)


def test_front_ends_agree_while_the_daemon_is_restarted(front_ends: dict[str, FrontEnd], gateway: Gateway) -> None:
    exerciser = exerciser_of(front_ends, SEED)
    for _ in range(3):
        exerciser.run(100)
        gateway.kill9()
        gateway.start()
    exerciser.run(100)


@pytest.mark.parametrize(("writer", "reader"), list(permutations(FRONT_ENDS, 2)))
def test_large_file_of_one_front_end_is_read_by_another(
    front_ends: dict[str, FrontEnd], writer: str, reader: str
) -> None:
    first, second = front_ends[writer], front_ends[reader]
    data = random.Random(SEED).randbytes(4 * MIB)
    first.create("file")
    first.write("file", 0, data)
    assert second.read("file", 0, 5 * MIB) == data
    # Now the reader may have it cached.
    first.write("file", MIB, b"changed")
    assert second.read("file", MIB - 10, 20) == data[MIB - 10 : MIB] + b"changed" + data[MIB + 7 : MIB + 10]
    first.truncate("file", MIB + 3)
    assert second.read("file", MIB - 10, 20) == data[MIB - 10 : MIB] + b"cha"
    first.unlink("file")
    # Ganesha hears of it a moment after it was answered.
    wait_for(lambda: not has(second, "file"), 5, "end of the name")


def has(front_end: FrontEnd, path: str) -> bool:
    try:
        front_end.status(path)
    except OSError:
        return False
    return True


# Locks


class Locks(Protocol):
    """Holds locks of one owner on one file, through some front end."""

    def try_lock(self, start: int, length: int) -> bool: ...

    def close(self) -> None:
        """Gives back all locks."""
        ...


class MountLocks:
    def __init__(self, mount: Mount, name: str) -> None:
        self._file = (mount.folder / name).open("r+b")

    def try_lock(self, start: int, length: int) -> bool:
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, length, start)
        except BlockingIOError:
            return False
        return True

    def close(self) -> None:
        self._file.close()


class NfsLocks:
    def __init__(self, ganesha: Ganesha, name: str) -> None:
        self._ganesha = ganesha
        self._name = name
        self._closing = ExitStack()

    def try_lock(self, start: int, length: int) -> bool:
        lock = self._ganesha.lock(self._name, start, length)
        self._closing.callback(lock.release)
        return lock.held

    def close(self) -> None:
        self._closing.close()


class SmbLocks:
    def __init__(self, smbd: Smbd, name: str) -> None:
        self._front_end = smbd.front_end()
        self._locks = self._front_end.open_to_lock(name)

    def try_lock(self, start: int, length: int) -> bool:
        return self._locks.try_lock(start, length)

    def close(self) -> None:
        self._locks.close()
        self._front_end.close()


LockFactory = Callable[[str], contextlib.AbstractContextManager[Locks]]


@pytest.fixture
def locks(mount: Mount, ganesha: Ganesha, smbd: Smbd) -> LockFactory:
    """A file to lock is there; opens it through a front end."""
    (mount.folder / "locked").write_bytes(bytes(1000))

    @contextlib.contextmanager
    def take(front_end: str) -> Iterator[Locks]:
        made: dict[str, Callable[[], Locks]] = {
            "mount": lambda: MountLocks(mount, "locked"),
            "nfs": lambda: NfsLocks(ganesha, "locked"),
            "smb": lambda: SmbLocks(smbd, "locked"),
        }
        with contextlib.closing(made[front_end]()) as opened:
            yield opened

    return take


@pytest.mark.parametrize(("holder", "other"), list(permutations(FRONT_ENDS, 2)))
def test_lock_of_one_front_end_keeps_another_out(locks: LockFactory, holder: str, other: str) -> None:
    with locks(other) as second:
        with locks(holder) as first:
            assert first.try_lock(100, 50)
            assert not second.try_lock(149, 10)
            assert second.try_lock(150, 10)
        assert second.try_lock(100, 50)


@pytest.mark.parametrize("holder", FRONT_ENDS)
def test_lock_is_kept_over_a_restart_of_the_daemon(gateway: Gateway, locks: LockFactory, holder: str) -> None:
    with locks("mount" if holder != "mount" else "smb") as second:
        with locks(holder) as first:
            assert first.try_lock(0, 10)
            gateway.kill9()
            gateway.start()
            assert not second.try_lock(5, 10)
        assert second.try_lock(0, 10)


# Long runs


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(SEED, SEED + 20))
def test_front_ends_see_each_other_over_long_runs(front_ends: dict[str, FrontEnd], seed: int) -> None:
    checked(exerciser_of(front_ends, seed), 3000)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_front_ends_agree_over_fifty_restarts(front_ends: dict[str, FrontEnd], gateway: Gateway) -> None:
    exerciser = exerciser_of(front_ends, SEED)
    for _ in range(50):
        exerciser.run(60)
        gateway.kill9()
        gateway.start()
    exerciser.run(60)
