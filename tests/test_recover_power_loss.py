"""Promise 1 after the loss of the local disk, when the power fails in the recovery, and while what it has left in the
store is brought here. The store is elsewhere and loses nothing."""

import signal
from collections.abc import Callable
from typing import Protocol

import pytest

from conftest import SEED, GatewayFactory, s3_settings
from harness.fault_proxy import FaultProxy
from harness.file_verifier import FileWriters
from harness.gateway import Settings, merged
from harness.nbd import NbdError
from harness.object_store import S3Server
from harness.process import ProcessFailed
from harness.verifier import LostData, Writers
from test_power_loss import SMALL, Machine, change_files_until_cut, rounds_until, verify_files, write_until_cut
from test_recover import MIB, checked_store, noise, read, wait_complete, write
from test_recover_lazily import is_complete, nothing_is_brought

AWAY: Settings = {
    "store": {"retry_delay_ms_max": 200},
    "flush": {"recovery_point_ms": 300},
    "journal": {"store_checkpoint_interval_ms": 500},
    # Metadata is brought in many steps.
    "memory": {"fingerprint_memtable_entries": 1024},
}


@pytest.fixture
def machine(make_gateway: GatewayFactory, s3: S3Server, proxy: FaultProxy) -> Machine:
    """Its store is behind the proxy."""
    settings = merged(merged(s3_settings(proxy.endpoint), SMALL), AWAY)
    return Machine(make_gateway(settings, s3.environment), SEED, has_store=False)


def recover_over_power_cuts(machine: Machine, *cuts_after: int) -> None:
    """The power is cut after so many changes to the disk, each time in what the cut before has left, and once more when
    all is done."""
    for cut_after in (*cuts_after, 0):
        machine.gateway.state_directory.mkdir(exist_ok=True)
        done = machine.try_recover(cut_after)
        if "is a state directory already" in done.stderr:
            return
        assert done.returncode in (0, -signal.SIGKILL), done.stderr
        machine.lose_power()
        if done.returncode == 0:
            return


def changes_of_recovery(machine: Machine) -> int:
    machine.gateway.lose_state()
    machine.gateway.state_directory.mkdir()
    done = machine.try_recover()
    assert done.returncode == 0, done.stderr
    return machine.changes()


def filled(machine: Machine) -> bytes:
    """What a volume has, all of which is in the store."""
    data = noise(4)
    machine.start()
    machine.gateway.create_volume("vol", "64MiB")
    for number in range(4):
        write(machine.gateway, data[number * MIB : (number + 1) * MIB], at=number * MIB)
        machine.gateway.drain()
    return data


def all_is_recovered(machine: Machine, data: bytes, *cuts_after: int) -> None:
    machine.gateway.lose_state()
    recover_over_power_cuts(machine, *cuts_after)
    machine.start()
    assert read(machine.gateway, len(data)) == data, f"power was cut after {cuts_after} changes"


def test_power_cuts_in_a_recovery_are_harmless(machine: Machine) -> None:
    data = filled(machine)
    changes = changes_of_recovery(machine)
    # In the last ones the state directory gets its name.
    for cut_after in [*range(changes - 5, changes + 1), *machine.chance.sample(range(1, changes - 5), 2)]:
        all_is_recovered(machine, data, cut_after)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_power_cuts_at_any_change_of_a_recovery_are_harmless(machine: Machine) -> None:
    data = filled(machine)
    changes = changes_of_recovery(machine)
    for cut_after in range(1, changes + 1):
        for _ in range(3):
            again_after = machine.chance.randrange(1, changes)
            all_is_recovered(machine, data, cut_after, again_after)


class Load(Protocol):
    """Writes until the power is cut, and looks at everything afterwards."""

    def prepare(self, machine: Machine) -> None: ...

    def write_until_cut(self, machine: Machine) -> None: ...

    def verify(self, machine: Machine) -> None: ...

    def done(self) -> int: ...


class BlockLoad:
    def __init__(self, seed: int) -> None:
        self._writers = Writers(seed, threads=4, blocks_each=2048)

    def prepare(self, machine: Machine) -> None:
        machine.gateway.create_volume("vol", "64MiB")

    def write_until_cut(self, machine: Machine) -> None:
        write_until_cut(machine, self._writers)

    def verify(self, machine: Machine) -> None:
        self._writers.verify(lambda: machine.gateway.disk("vol"))

    def done(self) -> int:
        return self._writers.flushes


class FileLoad:
    def __init__(self, seed: int) -> None:
        self._writers = FileWriters(seed, threads=3, syncs_all=True)

    def prepare(self, machine: Machine) -> None:
        machine.gateway.create_share("share")

    def write_until_cut(self, machine: Machine) -> None:
        change_files_until_cut(machine, self._writers)

    def verify(self, machine: Machine) -> None:
        verify_files(machine, self._writers)

    def done(self) -> int:
        return self._writers.changes


def power_cuts_while_incomplete(
    machine: Machine, proxy: FaultProxy, load: Load, rounds: int, ignored: str = ""
) -> None:
    """Each round: the local disk is lost; power is cut in the recovery, under load while nothing is brought here, and
    under load while all is."""
    machine.start()
    load.prepare(machine)
    machine.gateway.drain()
    machine.lose_power()
    load.write_until_cut(machine)
    machine.start()
    load.verify(machine)
    machine.ignored = ignored
    for _ in rounds_until(rounds, lambda: load.done() > 25 * rounds):
        machine.gateway.drain()
        machine.gateway.lose_state()
        recover_over_power_cuts(machine, machine.chance.randrange(1, 200))
        with nothing_is_brought(proxy):
            load.write_until_cut(machine)
            machine.start()
            assert not is_complete(machine.gateway)
            load.verify(machine)
            machine.lose_power()
        proxy.faults.delay_s = 0.02
        load.write_until_cut(machine)
        proxy.faults.delay_s = 0
        machine.start()
        load.verify(machine)
    wait_complete(machine.gateway)
    load.verify(machine)
    machine.gateway.check()
    machine.gateway.drain()
    checked_store(machine.gateway)


LOADS: dict[str, Callable[[int], Load]] = {"blocks": BlockLoad, "files": FileLoad}


@pytest.mark.parametrize("kind", LOADS)
def test_flushed_is_kept_over_power_cuts_while_metadata_is_not_here(
    machine: Machine, proxy: FaultProxy, kind: str
) -> None:
    power_cuts_while_incomplete(machine, proxy, LOADS[kind](SEED), rounds=2)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(SEED, SEED + 3))
@pytest.mark.parametrize("kind", LOADS)
def test_flushed_is_kept_over_many_power_cuts_while_metadata_is_not_here(
    machine: Machine, proxy: FaultProxy, kind: str, seed: int
) -> None:
    machine.chance.seed(seed)
    power_cuts_while_incomplete(machine, proxy, LOADS[kind](seed), rounds=15)


def test_syncs_of_the_journal_that_do_nothing_are_found_out(machine: Machine, proxy: FaultProxy) -> None:
    with pytest.raises((LostData, ProcessFailed, NbdError)):
        power_cuts_while_incomplete(machine, proxy, BlockLoad(SEED), 20, "state/journal")
