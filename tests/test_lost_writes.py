"""Clients that live through a restart of the daemon which has lost what they were answered hear of it at their next
sync; those that live through any other restart hear nothing."""

import contextlib
import errno
import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from conftest import GatewayFactory
from harness.failing_disk import FailingDisk
from harness.gateway import Gateway, merged
from harness.iscsi import MEDIUM_ERROR, UNIT_ATTENTION, IscsiDisk, ScsiError
from harness.mount import Mount
from harness.target import Tgtd
from harness.tools import wait_for

SMALL = {"cache": {"size": "64MiB"}, "flush": {"dirty_bytes_max": "32MiB", "flush_delay_ms": 3_600_000}}
BLOCK_BYTES = 4096
OLD, NEW = b"\x11" * BLOCK_BYTES, b"\x22" * BLOCK_BYTES
WRITE_ERROR, POWER_ON_OCCURRED = 0x0C00, 0x2901

HARMLESS: dict[str, Callable[[Gateway], object]] = {"stopped": Gateway.stop, "killed": Gateway.kill9}


@pytest.fixture
def unstarted(make_gateway: GatewayFactory) -> Gateway:
    return make_gateway(SMALL)


@pytest.fixture
def disk(unstarted: Gateway) -> FailingDisk:
    """The disk of a gateway, which runs."""
    made = FailingDisk(unstarted)
    unstarted.start()
    return made


@pytest.fixture
def running(disk: FailingDisk, unstarted: Gateway) -> Gateway:
    assert disk
    return unstarted


@pytest.fixture
def mounted(running: Gateway, closing: ExitStack) -> Mount:
    running.create_share("share")
    mount = Mount(running, "share")
    closing.callback(mount.close)
    return mount.start()


@contextlib.contextmanager
def opened(path: Path) -> Iterator[int]:
    """May have been lost before it is closed."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        yield handle
    finally:
        with contextlib.suppress(OSError):
            os.close(handle)


def fails_with(expected: int, call: Callable[[], object]) -> None:
    with pytest.raises(OSError) as caught:
        call()
    assert caught.value.errno == expected


def write_synced(handle: int, data: bytes) -> None:
    os.pwrite(handle, data, 0)
    os.fsync(handle)


def is_lost(handle: int) -> None:
    """For good, whatever is asked."""
    for _ in range(2):
        fails_with(errno.EIO, lambda: os.fsync(handle))
    fails_with(errno.EIO, lambda: os.pwrite(handle, NEW, 0))
    fails_with(errno.EIO, lambda: fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB))


def works_when_opened_anew(path: Path, found: bytes) -> None:
    with opened(path) as handle:
        assert os.pread(handle, BLOCK_BYTES, 0) == found
        fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        write_synced(handle, OLD)


# The mount


def test_mount_hears_of_writes_that_a_failed_sync_has_lost(disk: FailingDisk, running: Gateway, mounted: Mount) -> None:
    one, two = mounted.folder / "one", mounted.folder / "two"
    with opened(one) as first, opened(two) as second:
        fcntl.lockf(second, fcntl.LOCK_EX)
        for handle in (first, second):
            write_synced(handle, OLD)
        disk.fail()
        for handle in (first, second):
            os.pwrite(handle, NEW, 0)
        fails_with(errno.EIO, lambda: os.fsync(first))
        assert running.status()["failure"]
        disk.restart()
        is_lost(second)
        works_when_opened_anew(two, OLD)
        with opened(one) as after:
            write_synced(after, OLD)
            # Restarts that lose nothing bring nothing back, and take nothing more.
            for end in HARMLESS.values():
                end(running)
                running.start()
                is_lost(second)
                write_synced(after, NEW)
    assert "its locks are gone" in mounted.process.log_tail()
    running.check()


def test_mount_hears_of_an_older_state_directory_under_it(running: Gateway, mounted: Mount) -> None:
    # One that the store knows to be older is refused: it is told nothing meanwhile.
    running.settings = merged(running.settings, {"flush": {"recovery_point_ms": 3_600_000}})
    running.restart()
    path, copy = mounted.folder / "file", running.folder / "copy"
    with opened(path) as handle:
        write_synced(handle, OLD)
        running.stop()
        shutil.copytree(running.state_directory, copy)
        running.start()
        write_synced(handle, NEW)
        running.stop()
        shutil.rmtree(running.state_directory)
        copy.rename(running.state_directory)
        running.start()
        is_lost(handle)
        works_when_opened_anew(path, OLD)
    running.check()


@pytest.mark.parametrize("ended", HARMLESS)
def test_mount_hears_nothing_when_nothing_is_lost(running: Gateway, mounted: Mount, ended: str) -> None:
    with opened(mounted.folder / "file") as handle:
        for data in (OLD, NEW, OLD):
            os.pwrite(handle, data, 0)
            HARMLESS[ended](running)
            running.start()
            os.fsync(handle)
            assert os.pread(handle, BLOCK_BYTES, 0) == data


# The target


def initiators(running: Gateway, tgtd: Tgtd, closing: ExitStack) -> tuple[IscsiDisk, IscsiDisk]:
    """Two, of one LUN."""
    running.create_volume("vol", "64MiB")
    iqn = tgtd.create_target(1, "lost")
    tgtd.add_lun(1, 1, running.nbd_socket, "vol")
    made = tgtd.disk(iqn), tgtd.disk(iqn)
    for initiator in made:
        closing.callback(initiator.close)
    return made


def sense_of(call: Callable[[], object]) -> tuple[int, int]:
    with pytest.raises(ScsiError) as caught:
        call()
    return caught.value.sense_key, caught.value.ascq


@pytest.mark.parametrize("told_by", ["SYNCHRONIZE CACHE", "FUA"])
def test_initiators_hear_of_writes_that_a_failed_sync_has_lost(
    disk: FailingDisk, running: Gateway, tgtd: Tgtd, closing: ExitStack, told_by: str
) -> None:
    one, two = initiators(running, tgtd, closing)

    def sync() -> None:
        if told_by == "FUA":
            one.write(BLOCK_BYTES, NEW, fua=True)
        else:
            one.flush()

    one.write(0, OLD)
    one.flush()
    disk.fail()
    one.write(0, NEW)
    assert sense_of(two.flush) == (MEDIUM_ERROR, WRITE_ERROR)
    disk.restart()
    # Commands that are held until then hear no unit attention.
    wait_for(lambda: "server is back" in tgtd.process.log_tail(), 20, "the target's connection")
    assert sense_of(lambda: one.read(0, BLOCK_BYTES)) == (UNIT_ATTENTION, POWER_ON_OCCURRED)
    assert sense_of(lambda: two.read(0, BLOCK_BYTES)) == (UNIT_ATTENTION, POWER_ON_OCCURRED)
    assert one.read(0, BLOCK_BYTES) == OLD
    assert sense_of(sync) == (MEDIUM_ERROR, WRITE_ERROR)
    sync()
    two.flush()
    assert "has lost writes" in tgtd.process.log_tail()


def test_initiators_hear_nothing_when_all_was_flushed(
    disk: FailingDisk, running: Gateway, tgtd: Tgtd, closing: ExitStack
) -> None:
    one, two = initiators(running, tgtd, closing)
    one.write(0, OLD)
    two.flush()
    disk.fail()
    # Something of another client is lost.
    with running.disk("vol") as other:
        other.write(BLOCK_BYTES, NEW)
    disk.restart()
    for initiator in (one, two):
        assert initiator.read(0, BLOCK_BYTES) == OLD
        initiator.flush()


@pytest.mark.parametrize("ended", HARMLESS)
def test_initiators_hear_nothing_when_nothing_is_lost(
    running: Gateway, tgtd: Tgtd, closing: ExitStack, ended: str
) -> None:
    one, two = initiators(running, tgtd, closing)
    for data in (OLD, NEW, OLD):
        one.write(0, data)
        HARMLESS[ended](running)
        running.start()
        two.flush()
        assert two.read(0, BLOCK_BYTES) == data
