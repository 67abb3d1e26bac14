"""Promise 1, flushed is kept, when the power fails: the daemon's disk loses or tears what was not synced.

The daemon's changes to its state directory and its store are recorded. At a random one of them its power is cut, and it
is started again on a disk as `harness/power_loss.py` says that it may look.
"""

import random
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from conftest import SEED, GatewayFactory
from harness.file_verifier import FileWriters, LostFile
from harness.gateway import READY_LIMIT_S, Gateway, Settings
from harness.mount import Mount, mounted_type
from harness.nbd import NbdError
from harness.power_loss import Disk, recorded, write_out
from harness.process import ProcessFailed
from harness.tools import wait_for
from harness.verifier import LostData, Writers

CUT_WAIT_S = 120
CHANGES_MAX = 3000
"""Between a start and a power cut."""
ROUNDS_MAX = 5
"""For each that there would be on a fast machine: on a slow one more of the changes are the gateway's own."""
SMALL: Settings = {
    "cache": {"size": "16MiB"},
    "prefetch": {"window_bytes_max": "4MiB"},
    "flush": {"dirty_bytes_max": "8MiB", "flush_delay_ms": 20},
    "journal": {"segment_bytes": "1MiB", "checkpoint_journal_bytes": "4MiB", "checkpoint_interval_ms": 1000},
}
"""What happens seldom happens often: evictions, uploads, new segments, checkpoints."""


class Machine:
    """A gateway that has its state directory on a disk whose power can be cut, and there its store too, unless that is
    elsewhere. Not running yet."""

    def __init__(self, gateway: Gateway, seed: int | str, has_store: bool = True) -> None:
        self.gateway = gateway
        self.chance = random.Random(seed)
        self.ignored = ""
        """Syncs of files with this in their path do nothing."""
        self._folder = gateway.folder / "disk"
        self._disk = Disk()
        self._log = gateway.folder / "records"
        gateway.state_directory = self._folder / "state"
        gateway.state_directory.mkdir(parents=True)
        gateway.settings |= {"state_directory": str(gateway.state_directory)}
        if has_store:
            gateway.store_directory = self._folder / "store"
            gateway.store_directory.mkdir()
            gateway.settings |= {"store": {"url": f"dir:{gateway.store_directory}"}}

    def start(self) -> None:
        self.launch()
        self.gateway.process.wait_until(self.gateway.answers, READY_LIMIT_S, "answer to status")

    def launch(self, cut_after: int = 0) -> None:
        """Starts the gateway without waiting for it. Its power is cut after that many changes, if not 0."""
        self._record(cut_after)
        self.gateway.launch()

    def try_recover(self, cut_after: int = 0) -> "subprocess.CompletedProcess[str]":
        """`tombolo recover --take-over`. The power is cut after that many changes, if not 0."""
        self._record(cut_after)
        return self.gateway.try_recover("--take-over")

    def _record(self, cut_after: int) -> None:
        self._log.unlink(missing_ok=True)
        self._disk = Disk.of(self._folder)
        self.gateway.daemon_environment = recorded(self._folder, self._log, cut_after, self.ignored)

    def is_ready_before_cut(self) -> bool:
        while self.gateway.process.running:
            if self.gateway.answers():
                return True
            time.sleep(0.02)
        return False

    def lose_power(self) -> None:
        """Now, if it was not cut before."""
        self.gateway.kill9()
        self._disk.take_in(self._log)
        left = self._disk.after_power_cut(self.chance)
        shutil.rmtree(self._folder)
        self._folder.mkdir()
        write_out(left, self._folder)

    def changes(self) -> int:
        """Since the start."""
        self._disk.take_in(self._log)
        return self._disk.records

    def durable_names(self) -> set[str]:
        """Which no power cut would take away now."""
        self._disk.take_in(self._log)
        return set(self._disk.names)

    def compare(self) -> None:
        """The records tell of every byte that is there."""
        self._disk.take_in(self._log)
        noted, there = self._disk.as_it_is(), Disk.of(self._folder).as_it_is()
        there = {name: content for name, content in there.items() if not name.endswith("/lock.mdb")}
        assert sorted(noted) == sorted(there)
        assert [name for name in noted if noted[name] != there[name]] == []


@pytest.fixture
def machine(make_gateway: GatewayFactory) -> Machine:
    return Machine(make_gateway(SMALL), SEED)


def write_until_cut(machine: Machine, writers: Writers) -> None:
    machine.launch(cut_after=machine.chance.randrange(1, CHANGES_MAX))
    if machine.is_ready_before_cut():
        writers.start(lambda: machine.gateway.disk("vol"), survives=(ConnectionError, NbdError))
        wait_for(lambda: not writers.running, CUT_WAIT_S, "power cut")
        writers.stop()
    machine.lose_power()


def rounds_until(rounds: int, is_enough: Callable[[], bool]) -> Iterator[int]:
    """So many, and more as long as it is not."""
    for number in range(ROUNDS_MAX * rounds):
        if number >= rounds and is_enough():
            return
        yield number
    assert is_enough(), "there was hardly any load"


def power_cuts(machine: Machine, rounds: int, ignored: str = "") -> Writers:
    """Each round: a start, load, a power cut; a start, a look at everything, another power cut."""
    writers = Writers(SEED, threads=4, blocks_each=2048)
    machine.start()
    machine.gateway.create_volume("vol", "64MiB")
    machine.ignored = ignored
    for _ in rounds_until(rounds, lambda: writers.flushes > 10 * rounds):
        machine.lose_power()
        write_until_cut(machine, writers)
        machine.start()
        writers.verify(lambda: machine.gateway.disk("vol"))
    return writers


def kept_over_power_cuts(machine: Machine, rounds: int) -> None:
    writers = power_cuts(machine, rounds)
    machine.gateway.drain()
    writers.verify(lambda: machine.gateway.disk("vol"), keeps_acknowledged=True)


def test_flushed_is_kept_over_power_cuts(machine: Machine) -> None:
    kept_over_power_cuts(machine, rounds=6)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(SEED, SEED + 5))
def test_flushed_is_kept_over_forty_power_cuts(machine: Machine, seed: int) -> None:
    machine.chance.seed(seed)
    kept_over_power_cuts(machine, rounds=40)


def found_out(machine: Machine, ignored: str) -> None:
    with pytest.raises((LostData, ProcessFailed, NbdError)):
        power_cuts(machine, 40, ignored)


@pytest.mark.parametrize("ignored", ["state/cache", "state/journal"])
def test_syncs_that_do_nothing_are_found_out(machine: Machine, ignored: str) -> None:
    found_out(machine, ignored)


@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("ignored", ["state/metadata", "store/objects"])
def test_syncs_of_metadata_and_store_that_do_nothing_are_found_out(machine: Machine, ignored: str) -> None:
    found_out(machine, ignored)


def cut_first_start(machine: Machine, cut_after: int) -> None:
    machine.launch(cut_after)
    machine.gateway.process.wait(CUT_WAIT_S)
    machine.lose_power()
    machine.start()
    machine.gateway.create_volume("vol", "64MiB")


def changes_of_first_start(machine: Machine) -> int:
    machine.start()
    machine.gateway.kill9()
    return machine.changes()


def test_power_cut_in_the_first_start_is_harmless(make_gateway: GatewayFactory) -> None:
    changes = changes_of_first_start(Machine(make_gateway(SMALL), SEED))
    for cut_after in sorted(random.Random(SEED).sample(range(1, changes), 6)):
        cut_first_start(Machine(make_gateway(SMALL), cut_after), cut_after)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_power_cut_at_any_change_of_the_first_start_is_harmless(make_gateway: GatewayFactory) -> None:
    for cut_after in range(1, changes_of_first_start(Machine(make_gateway(SMALL), SEED))):
        for seed in range(20):
            machine = Machine(make_gateway(SMALL), f"{cut_after}/{seed}")
            cut_first_start(machine, cut_after)
            machine.gateway.close()


@pytest.mark.parametrize("made_by", ["start", "recover"])
def test_a_state_directory_that_was_made_is_there_after_a_power_cut(make_gateway: GatewayFactory, made_by: str) -> None:
    machine = Machine(make_gateway(SMALL), SEED, has_store=False)
    gateway = machine.gateway
    gateway.state_directory /= "made"
    gateway.settings |= {"state_directory": str(gateway.state_directory)}
    machine.start()
    if made_by == "recover":
        gateway.drain()
        gateway.lose_state()
        assert machine.try_recover().returncode == 0
    else:
        gateway.create_volume("vol", "64MiB")
        with gateway.disk("vol") as disk:
            disk.write(0, bytes([1]) * 4096)
            disk.flush()
        gateway.kill9()
    assert "state/made" in machine.durable_names()


# Files


def change_files_until_cut(machine: Machine, writers: FileWriters) -> None:
    machine.launch(cut_after=machine.chance.randrange(1, CHANGES_MAX))
    if machine.is_ready_before_cut():
        mount = Mount(machine.gateway, "share")
        with closing(mount):
            mount.launch()
            wait_for(lambda: mounted_type(mount.folder) is not None or not machine.gateway.process.running, 60, "mount")
            if mounted_type(mount.folder) is not None:
                writers.start(mount.front_end, survives=OSError)
            machine.gateway.process.wait(CUT_WAIT_S)
            # The machine is off, and with it the mount: who waits there gets an error.
            mount.kill9()
            writers.stop()
    machine.lose_power()


def verify_files(machine: Machine, writers: FileWriters) -> None:
    machine.gateway.check()
    mount = Mount(machine.gateway, "share")
    with closing(mount):
        mount.start()
        for worker in writers.workers:
            if worker.changes:
                worker.verify(mount.front_end())


def file_power_cuts(machine: Machine, rounds: int, ignored: str = "") -> None:
    writers = FileWriters(SEED, threads=3, syncs_all=True)
    machine.start()
    machine.gateway.create_share("share")
    machine.ignored = ignored
    for _ in rounds_until(rounds, lambda: writers.changes > 25 * rounds):
        machine.lose_power()
        change_files_until_cut(machine, writers)
        machine.start()
        verify_files(machine, writers)


def test_synced_files_are_kept_over_power_cuts(machine: Machine) -> None:
    file_power_cuts(machine, rounds=4)


def test_syncs_of_the_journal_that_do_nothing_lose_files(machine: Machine) -> None:
    with pytest.raises((LostFile, ProcessFailed, OSError)):
        file_power_cuts(machine, 40, "state/journal")


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(SEED, SEED + 5))
def test_synced_files_are_kept_over_forty_power_cuts(machine: Machine, seed: int) -> None:
    machine.chance.seed(seed)
    file_power_cuts(machine, rounds=40)


# The tool


def test_all_that_the_daemon_writes_is_recorded(machine: Machine) -> None:
    writers = Writers(SEED, threads=2, blocks_each=1024)
    machine.start()
    machine.gateway.create_volume("vol", "64MiB")
    writers.start(lambda: machine.gateway.disk("vol"))
    wait_for(lambda: writers.writes > 1000, 60, "1,000 writes")
    writers.stop()
    machine.gateway.drain()
    machine.gateway.stop()
    machine.compare()
