"""Promise 1 when everything falls at once: daemon, Ganesha, smbd and tgtd are killed together, in random company, while
blocks are written over iSCSI and files through the mount, NFS and SMB."""

import random
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass

import pytest

from conftest import SEED
from harness.file_verifier import FileWriters
from harness.front_ends import FrontEnd
from harness.ganesha import Ganesha
from harness.gateway import Gateway
from harness.iscsi import MEDIUM_ERROR, UNIT_ATTENTION, IscsiDisk, ScsiError
from harness.mount import Mount
from harness.smbd import Smbd
from harness.target import Tgtd
from harness.tools import wait_for
from harness.verifier import Writers

BLOCKS = 2048
LOAD_S = (0.1, 1.0)
PROGRESS_LIMIT_S = 120
SERVERS = ("daemon", "ganesha", "smbd", "tgtd")


class Blocks:
    """A LUN and who writes to it."""

    def __init__(self, gateway: Gateway, tgtd: Tgtd, blocks_each: int = BLOCKS) -> None:
        self._gateway = gateway
        self._tgtd = tgtd
        self._iqn = ""
        self._writers = Writers(SEED, threads=2, blocks_each=blocks_each)
        gateway.create_volume("vol", "64MiB")
        self.serve()

    def serve(self) -> None:
        """tgtd forgets its targets when it ends."""
        self._iqn = self._tgtd.create_target(1, "together")
        self._tgtd.add_lun(1, 1, self._gateway.nbd_socket, "vol")

    def start(self) -> None:
        self._writers.start(self._disk, survives=(ConnectionError, OSError))

    def done(self) -> int:
        return self._writers.writes

    def verify(self) -> None:
        """What was acknowledged is there: nothing has lost its power."""
        self._writers.stop()
        self._writers.verify(self._disk, keeps_acknowledged=True)

    def hears_of_a_loss(self) -> None:
        """Once, by the next flush, and perhaps by a unit attention before."""
        told = UNIT_ATTENTION
        while told == UNIT_ATTENTION:
            with closing(self._disk()) as disk, pytest.raises(ScsiError) as refused:
                disk.flush()
            told = refused.value.sense_key
        assert told == MEDIUM_ERROR

    def _disk(self) -> IscsiDisk:
        return self._tgtd.disk(self._iqn)


class Files:
    """Folders of a front end and who writes to them."""

    def __init__(self, name: str, connect: Callable[[], FrontEnd], mount: Mount, exactly_once: bool) -> None:
        self._connect = connect
        self._mount = mount
        self._writers = FileWriters(SEED, 1, exactly_once)
        for worker in self._writers.workers:
            worker.folder = f"{name}-{worker.folder}"

    def start(self) -> None:
        self._writers.start(self._connect, survives=ConnectionError)

    def done(self) -> int:
        return self._writers.changes

    def verify(self) -> None:
        self._writers.stop()
        self._writers.verify(self._mount.front_end())


@dataclass
class House:
    gateway: Gateway
    ganesha: Ganesha
    smbd: Smbd
    tgtd: Tgtd
    blocks: Blocks
    files: list[Files]

    def load(self) -> list[Blocks | Files]:
        return [self.blocks, *self.files]

    def kill(self, names: set[str]) -> None:
        kills: dict[str, Callable[[], None]] = {
            "daemon": self.gateway.kill9,
            "ganesha": self.ganesha.kill9,
            "smbd": self.smbd.kill9,
            "tgtd": self.tgtd.kill9,
        }
        for name in names:
            kills[name]()

    def restart(self, names: set[str]) -> None:
        """The daemon first: the others wait for it."""
        if "daemon" in names:
            self.gateway.start()
        if "ganesha" in names:
            self.ganesha.start()
        if "smbd" in names:
            self.smbd.start()
        if "tgtd" in names:
            self.tgtd.start()
            self.blocks.serve()


@pytest.fixture
def house(gateway: Gateway, mount: Mount, ganesha: Ganesha, smbd: Smbd, tgtd: Tgtd) -> House:
    files = [
        Files("mount", mount.front_end, mount, exactly_once=True),
        Files("nfs", ganesha.front_end, mount, exactly_once=False),
        Files("smb", smbd.front_end, mount, exactly_once=True),
    ]
    return House(gateway, ganesha, smbd, tgtd, Blocks(gateway, tgtd), files)


def kills_together(house: House, rounds: int) -> None:
    chance = random.Random(SEED)
    for _ in range(rounds):
        before = [load.done() for load in house.load()]
        for load in house.load():
            load.start()
        for load, count in zip(house.load(), before, strict=True):
            wait_for(lambda load=load, count=count: load.done() > count + 5, PROGRESS_LIMIT_S, "progress")  # type: ignore[misc]
        time.sleep(chance.uniform(*LOAD_S))
        killed = set(chance.sample(SERVERS, chance.randint(2, len(SERVERS))))
        house.kill(killed)
        house.restart(killed)
        for load in house.load():
            load.verify()
    house.gateway.check()


def test_nothing_is_lost_when_servers_are_killed_together(house: House) -> None:
    kills_together(house, rounds=3)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_nothing_is_lost_over_forty_kills_together(house: House) -> None:
    kills_together(house, rounds=40)
