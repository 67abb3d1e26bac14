"""A recovered gateway serves iSCSI, NFS, SMB and the mount before its metadata is here. Their servers have lived
through the loss of its local disk."""

from collections.abc import Callable, Sequence
from functools import partial

import pytest

from conftest import SEED, GatewayFactory, s3_settings
from harness.exerciser import Exerciser
from harness.fault_proxy import FaultProxy
from harness.front_ends import FrontEnd, LocalFrontEnd
from harness.ganesha import Ganesha
from harness.gateway import Gateway, merged
from harness.mount import Mount
from harness.object_store import S3Server
from harness.smbd import Smbd
from harness.target import Tgtd
from harness.tools import wait_for
from test_front_ends import exerciser_of
from test_kills_together import PROGRESS_LIMIT_S, Blocks, Files
from test_recover import checked_store, wait_complete
from test_recover_lazily import SETTINGS, is_complete, nothing_is_brought

OLD_FILES = 60
BLOCKS = 128
FEW_AT_A_TIME = {"memory": {"fingerprint_memtable_entries": 1024}}
"""Metadata is brought in many steps."""
Load = Blocks | Files


@pytest.fixture
def gateway(make_gateway: GatewayFactory, s3: S3Server, proxy: FaultProxy) -> Gateway:
    """A running gateway whose store is behind the proxy."""
    settings = merged(merged(s3_settings(proxy.endpoint), SETTINGS), FEW_AT_A_TIME)
    return make_gateway(settings, s3.environment).start()


@pytest.fixture
def loads(gateway: Gateway, mount: Mount, ganesha: Ganesha, smbd: Smbd, tgtd: Tgtd) -> list[Load]:
    """Who writes to a volume over iSCSI and to a share through all of its front ends."""
    return [
        Blocks(gateway, tgtd, BLOCKS),
        Files("mount", mount.front_end, mount, exactly_once=True),
        Files("nfs", ganesha.front_end, mount, exactly_once=False),
        Files("smb", smbd.front_end, mount, exactly_once=True),
    ]


def write_meanwhile(loads: Sequence[Load], action: Callable[[], None]) -> None:
    """What was acknowledged before it, beside it and after it is there."""
    for load in loads:
        load.start()
    has_gone_on(loads)
    action()
    has_gone_on(loads)
    for load in loads:
        load.verify()


def verify(loads: Sequence[Load]) -> None:
    """After a recovery, of which sessions hear that have lived through it: it might have lost what they had flushed."""
    for load in loads:
        if isinstance(load, Blocks):
            load.hears_of_a_loss()
        load.verify()


def has_gone_on(loads: Sequence[Load]) -> None:
    for load in loads:
        wait_for(partial(is_beyond, load, load.done() + 5), PROGRESS_LIMIT_S, "progress")


def is_beyond(load: Load, count: int) -> bool:
    return load.done() > count


def nothing() -> None:
    """To be done meanwhile."""


def content_of(number: int) -> bytes:
    return b"%d" % number * 1000


class OldFiles:
    """A folder of many small files; some are read, renamed and removed through each front end in turn."""

    FOLDER = "old"

    def __init__(self, front_end: FrontEnd) -> None:
        self._there = {f"file {number}": content_of(number) for number in range(OLD_FILES)}
        self._untouched = list(self._there)
        front_end.mkdir(self.FOLDER)
        for name, content in self._there.items():
            front_end.create(self._path(name))
            front_end.write(self._path(name), 0, content)

    def change(self, front_ends: Sequence[FrontEnd]) -> None:
        for front_end in front_ends:
            removed, renamed, cut, *_ = (self._untouched.pop(len(self._untouched) // 2) for _ in range(3))
            front_end.unlink(self._path(removed))
            del self._there[removed]
            front_end.rename(self._path(renamed), self._path(f"new {renamed}"))
            self._there[f"new {renamed}"] = self._there.pop(renamed)
            front_end.write(self._path(cut), 100, b"written over")
            self._there[cut] = self._there[cut][:100] + b"written over" + self._there[cut][112:]

    def verify(self, front_ends: Sequence[FrontEnd]) -> None:
        """Each lists all, and reads some."""
        for turn, front_end in enumerate(front_ends):
            wait_for(partial(self._is_listed, front_end), 5, f"the names, through {front_end.name}")
            for name in sorted(self._there)[turn :: len(front_ends)]:
                found = front_end.read(self._path(name), 0, 10_000)
                assert found == self._there[name], (front_end.name, name)

    def _is_listed(self, front_end: FrontEnd) -> bool:
        """Ganesha hears of what others change a moment later."""
        return sorted(front_end.names(self.FOLDER)) == sorted(self._there)

    def _path(self, name: str) -> str:
        return f"{self.FOLDER}/{name}"


@pytest.fixture
def old_files(mount: Mount) -> OldFiles:
    return OldFiles(LocalFrontEnd(mount.folder))


@pytest.fixture
def exerciser(front_ends: dict[str, FrontEnd], mount: Mount) -> Exerciser:
    (mount.folder / "exercised").mkdir()
    return exerciser_of(front_ends, SEED, "exercised")


def lose_the_disk(gateway: Gateway) -> None:
    """After everything got to the store."""
    gateway.drain()
    gateway.lose_state()
    gateway.recover("--take-over")


def test_all_front_ends_serve_and_change_what_is_in_the_store(
    gateway: Gateway,
    proxy: FaultProxy,
    front_ends: dict[str, FrontEnd],
    loads: list[Load],
    old_files: OldFiles,
    exerciser: Exerciser,
) -> None:
    ways = list(front_ends.values())

    def kill() -> None:
        gateway.kill9()
        gateway.start()

    def kill_when_some_is_here() -> None:
        wait_for(
            lambda: is_complete(gateway) or gateway.status()["metadata"]["loaded_records"] > 0,
            30,
            "something to be brought here",
        )
        kill()

    exerciser.run(60)
    write_meanwhile(loads, nothing)
    lose_the_disk(gateway)
    with nothing_is_brought(proxy):
        gateway.start()
        old_files.verify(ways)
        verify(loads)
        exerciser.run(40)
        old_files.change(ways)
        write_meanwhile(loads, kill)
        assert not is_complete(gateway)
        old_files.verify(ways)
        exerciser.run(20)
        gateway.check()
    write_meanwhile(loads, kill_when_some_is_here)
    wait_complete(gateway)
    old_files.verify(ways)
    exerciser.run(20)
    gateway.check()
    # All that was changed meanwhile got to the store.
    lose_the_disk(gateway)
    gateway.start()
    old_files.verify(ways)
    exerciser.compare_all()
    verify(loads)
    gateway.check()
    gateway.drain()
    checked_store(gateway)
