"""One gateway writes to a store: who takes it over shuts the one before out, and neither a second gateway nor a copy of
a state directory gets in beside it."""

import random
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conftest import BUCKET, SEED, GatewayFactory, s3_settings
from harness.fault_proxy import FaultProxy
from harness.gateway import Gateway, merged
from harness.nbd import NbdError
from harness.object_store import S3Server
from harness.store_reader.bucket import Bucket
from harness.store_reader.journal import Root
from harness.store_reader.stores import DirectoryStore
from harness.tools import run, wait_for
from test_recover import MIB, checked_store, noise, read, wait_covered, write

LEASE_MS = 1500
LEASE_S = LEASE_MS / 1000
# What a busy machine may add.
SLACK_S = 2.0
QUICK = {"flush": {"recovery_point_ms": 300, "flush_delay_ms": 100}, "store": {"lease_ms": LEASE_MS}}


def key_kept_elsewhere(gateway: Gateway) -> Path:
    """The master key of a gateway that has run, copied out of its state directory; it uses the copy from now on."""
    kept = gateway.folder / "kept.key"
    shutil.copy(gateway.state_directory / "master.key", kept)
    kept.chmod(0o600)
    gateway.settings = merged(gateway.settings, {"store": {"master_key_file": str(kept)}})
    return kept


def beside(make_gateway: GatewayFactory, first: Gateway, changes: dict[str, Any] | None = None) -> Gateway:
    """Another gateway, not started, with a state directory of its own and the same store."""
    key_kept_elsewhere(first)
    shared = {section: first.settings[section] for section in ("store", "flush")}
    return make_gateway(merged(shared, changes or {}), first.environment)


def writer_of_a_mebibyte(make_gateway: GatewayFactory, changes: dict[str, Any] | None = None) -> Gateway:
    """It runs, and its store has everything."""
    gateway = make_gateway(merged(QUICK, changes or {})).start()
    gateway.create_volume("vol", "64MiB")
    write(gateway, noise(1))
    wait_covered(gateway)
    return gateway


def accepts(gateway: Gateway, data: bytes) -> bool:
    """Whether a change is accepted. It may take what the gateway needs to find out."""
    try:
        write(gateway, data, at=60 * MIB)
    except NbdError:
        return False
    return True


def store_files(folder: Path) -> dict[str, bytes]:
    """What is in a directory store."""
    paths = (path for path in folder.rglob("*") if path.is_file() and ".tombolo-store" not in path.parts)
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def is_alive_message(gateway: Gateway) -> str:
    return (
        f"{gateway.writer_name} is the store's writer and has put a root while it was watched: it is alive. Stop it, "
        "or take the store over from it with --take-over; it then stops accepting changes, and what it has not "
        "uploaded stays in its state directory"
    )


def is_shut_out(gateway: Gateway, new: Gateway) -> None:
    """It says why, changes nothing any more, and reads what it has."""
    expected = (
        f"{new.writer_name} has taken over the store; what this gateway has not uploaded is in its state directory "
        "alone: copy it from the exports, or stop this gateway and run `tombolo salvage`"
    )
    assert gateway.status()["failure"] == expected
    assert not any(accepts(gateway, noise(1, SEED + count)) for count in range(3))
    for words in (["volume", "create", "more", "--size", "8MiB"], ["share", "create", "more"]):
        refused = gateway.try_cli(*words)
        assert refused.returncode == 1, refused
        assert expected in refused.stderr


Freedom = Callable[[], None]


def take_over(old: Gateway, new: Gateway, held: str, proxy: FaultProxy | None, number: int) -> None:
    """`old` serves; afterwards `new` does, and has all that was covered before."""
    data = noise(2, SEED + number)
    write(old, data)
    wait_covered(old)
    if held == "alive":
        refused = new.try_recover(limit_s=30)
        assert (refused.returncode, refused.stderr.splitlines()[-1]) == (1, f"tombolo: {is_alive_message(old)}")
    elif held == "paused":
        old.process.signal(signal.SIGSTOP)
    else:
        assert proxy is not None
        proxy.refuse()
    # It is not told of what comes now.
    lost = noise(1, SEED + 1000 + number)
    if held == "partitioned":
        assert accepts(old, lost), "the store is away, which is no reason to refuse"
    said = new.recover("--take-over")
    assert f"as {old.writer_name} had them at 20" in said
    new.start()
    later = noise(1, SEED + 2000 + number)
    write(new, later, at=20 * MIB)
    if held == "paused":
        old.process.signal(signal.SIGCONT)
    elif held == "partitioned":
        assert proxy is not None
        proxy.listen()
    free_at = time.monotonic()
    wait_for(lambda: not accepts(old, lost), 60, "a change is refused")
    waited_s = time.monotonic() - free_at
    is_shut_out(old, new)
    assert read(old, len(data)) == data
    wait_covered(new)
    assert read(new, len(data)) == data
    assert read(new, MIB, 20 * MIB) == later
    assert read(new, MIB, 60 * MIB) == bytes(MIB)
    assert new.status()["failure"] is None
    write(new, bytes(MIB), at=20 * MIB)
    new.check()
    checked_store(new)
    assert waited_s < LEASE_S + SLACK_S, f"it has accepted changes for {waited_s:.1f} s"
    old.kill9()
    code, said = old.refused_start()
    assert code == 1
    assert f"the store's writer is {new.writer_name}; one gateway serves one prefix" in said
    assert read(new, len(data)) == data


def in_turn(make_gateway: GatewayFactory, first: Gateway, held: str, proxy: FaultProxy | None, rounds: int) -> None:
    """Two gateways take the store from each other."""
    first.start()
    first.create_volume("vol", "64MiB")
    direct = {} if proxy is None else {"store": {"endpoint": f"http://127.0.0.1:{proxy.upstream_port}"}}
    second = beside(make_gateway, first, direct)
    endpoints = [first.settings["store"].get("endpoint"), second.settings["store"].get("endpoint")]
    old, new = first, second
    for number in range(rounds):
        take_over(old, new, held, proxy, number)
        shutil.rmtree(old.state_directory)
        if number + 1 == rounds:
            break
        # The one that is cut off next goes through the proxy, the other one does not.
        if proxy is not None:
            new.stop()
        for gateway, endpoint in zip((new, old), endpoints, strict=True):
            if endpoint is not None:
                gateway.settings = merged(gateway.settings, {"store": {"endpoint": endpoint}})
        if proxy is not None:
            new.start()
        old, new = new, old


@pytest.mark.parametrize("held", ["alive", "paused"])
def test_who_is_taken_over_from_accepts_nothing_any_more(make_gateway: GatewayFactory, held: str) -> None:
    in_turn(make_gateway, make_gateway(QUICK), held, None, rounds=2)


@pytest.mark.parametrize("held", ["alive", "paused", "partitioned"])
def test_who_is_taken_over_from_accepts_nothing_any_more_over_s3(
    make_gateway: GatewayFactory, s3: S3Server, proxy: FaultProxy, held: str
) -> None:
    first = make_gateway(merged(s3_settings(proxy.endpoint), QUICK), s3.environment)
    in_turn(make_gateway, first, held, proxy, rounds=1)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("held", ["alive", "paused", "partitioned"])
def test_the_store_is_taken_over_twenty_times(
    make_gateway: GatewayFactory, s3: S3Server, proxy: FaultProxy, held: str
) -> None:
    first = make_gateway(merged(s3_settings(proxy.endpoint), QUICK), s3.environment)
    in_turn(make_gateway, first, held, proxy, rounds=20)


def test_a_drain_ends_when_the_store_is_taken_over(make_gateway: GatewayFactory) -> None:
    old = make_gateway(QUICK).start()
    old.create_volume("vol", "64MiB")
    wait_covered(old)
    new = beside(make_gateway, old)
    new.recover("--take-over")
    wait_for(lambda: not accepts(old, noise(1)), 30, "a change is refused")
    drained = old.try_cli("drain", "--wait", limit_s=30)
    assert drained.returncode == 1
    assert f"{new.writer_name} has taken over the store" in drained.stderr
    assert "the local disk has failed" not in drained.stderr


def test_who_is_taken_over_from_stops_without_delay(make_gateway: GatewayFactory) -> None:
    """There is nothing that it could wait for."""
    old = writer_of_a_mebibyte(make_gateway)
    new = beside(make_gateway, old)
    new.recover("--take-over")
    wait_for(lambda: not accepts(old, noise(1)), 30, "a change is refused")
    began = time.monotonic()
    old.stop()
    assert time.monotonic() - began < 10


def test_a_gateway_that_has_stopped_is_not_waited_for(make_gateway: GatewayFactory) -> None:
    old = writer_of_a_mebibyte(make_gateway, {"store": {"lease_ms": 60_000}})
    new = beside(make_gateway, old)
    old.stop()
    began = time.monotonic()
    assert "watching" not in new.recover()
    assert time.monotonic() - began < 10
    assert read(new.start(), MIB) == noise(1)


def test_a_gateway_that_is_gone_is_waited_for(make_gateway: GatewayFactory) -> None:
    old = writer_of_a_mebibyte(make_gateway)
    new = beside(make_gateway, old)
    old.kill9()
    began = time.monotonic()
    done = new.try_recover()
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - began >= LEASE_S
    assert f"watching for 2 s whether {old.writer_name} is alive" in done.stderr
    assert f"the store is taken over from {old.writer_name}" in done.stderr
    assert read(new.start(), MIB) == noise(1)


def test_of_two_recoveries_at_once_one_is_served(make_gateway: GatewayFactory) -> None:
    """Whichever takes the store over last."""
    old = writer_of_a_mebibyte(make_gateway)
    first, second = beside(make_gateway, old), beside(make_gateway, old)
    first.recover("--take-over")
    second.recover("--take-over")
    code, said = first.refused_start()
    assert code == 1
    assert f"the store's writer is {second.writer_name}; one gateway serves one prefix" in said
    assert read(second.start(), MIB) == noise(1)
    # Who had it before may take it back, and is told everything.
    shutil.rmtree(first.state_directory)
    write(second, noise(1, SEED + 1), at=8 * MIB)
    wait_covered(second)
    first.recover("--take-over")
    assert read(first.start(), MIB, 8 * MIB) == noise(1, SEED + 1)


# A root that moves in the moment in which it is replaced


class Moment:
    """Something is done each of the first times that a root is about to be put through the proxy. It must not itself go
    that way."""

    def __init__(self, proxy: FaultProxy, action: Callable[[int], None], times: int) -> None:
        self.count = 0
        self._action = action
        self._times = times
        self._fault: BaseException | None = None
        proxy.faults.refuses = self._sees

    def _sees(self, method: str, path: str, _headers: dict[str, str]) -> bool:
        """Lets every request pass, in its time."""
        if method == "PUT" and path.endswith("/root") and self.count < self._times:
            self.count += 1
            try:
                self._action(self.count)
            except BaseException as fault:  # Raised by was_seen().
                self._fault = fault
        return False

    def was_seen(self) -> None:
        if self._fault is not None:
            raise self._fault
        assert self.count == self._times


def root_of(gateway: Gateway, server: S3Server) -> Root:
    """As the store has it now."""
    master = bytes.fromhex(Path(gateway.settings["store"]["master_key_file"]).read_text().strip())
    root = Bucket(DirectoryStore(server.folder / BUCKET / "gateway"), master).root
    assert root is not None
    return root


def two_at_one_store(
    make_gateway: GatewayFactory, s3: S3Server, proxy: FaultProxy, checkpoint_ms: int
) -> tuple[Gateway, Gateway]:
    """One that runs, and one that is not started, whose way to the store is through the proxy."""
    settings = merged(QUICK, {"journal": {"store_checkpoint_interval_ms": checkpoint_ms}})
    old = make_gateway(merged(s3_settings(s3.endpoint), settings), s3.environment).start()
    old.create_volume("vol", "64MiB")
    write(old, noise(1))
    wait_covered(old)
    return old, beside(make_gateway, old, {"store": {"endpoint": proxy.endpoint}})


@pytest.mark.parametrize(("what", "times"), [("lease", 1), ("journal", 1), ("tree", 3)])
def test_what_is_published_in_the_moment_of_a_take_over_is_kept(
    make_gateway: GatewayFactory, s3: S3Server, proxy: FaultProxy, what: str, times: int
) -> None:
    """The root is read, the journal that it names is folded, and then there is another root."""
    old, new = two_at_one_store(make_gateway, s3, proxy, 100 if what == "tree" else 3_600_000)
    published = {0: noise(1)}

    def publish(number: int) -> None:
        before = root_of(old, s3)
        if what != "lease":
            published[number] = noise(1, SEED + number)
            write(old, published[number], at=number * MIB)
            wait_covered(old)
        wait_for(lambda: moved(before, root_of(old, s3)), 30, "another root")

    def moved(before: Root, now: Root) -> bool:
        if what == "tree":
            return before.tree != now.tree and now.first == 0
        return before.sequence < now.sequence and (what == "lease" or before.last < now.last)

    moment = Moment(proxy, publish, times)
    said = new.recover("--take-over")
    moment.was_seen()
    assert f"as {old.writer_name} had them at 20" in said
    new.start()
    for number, data in published.items():
        assert read(new, MIB, number * MIB) == data, number
    wait_for(lambda: not accepts(old, noise(1)), 30, "a change is refused")
    is_shut_out(old, new)
    write(new, noise(1, SEED + 100), at=40 * MIB)
    new.drain()
    new.check()
    checked_store(new)


def test_of_two_that_take_over_in_one_moment_the_first_has_the_store(
    make_gateway: GatewayFactory, s3: S3Server, proxy: FaultProxy
) -> None:
    old, second = two_at_one_store(make_gateway, s3, proxy, 3_600_000)
    first = beside(make_gateway, old)
    moment = Moment(proxy, lambda _: print(first.recover("--take-over")), 1)
    refused = second.try_recover("--take-over")
    moment.was_seen()
    assert refused.returncode == 1
    assert "another gateway has taken the store over at this moment" in refused.stderr
    code, _ = second.refused_start()
    assert code == 1
    assert read(first.start(), MIB) == noise(1)
    write(first, noise(1, SEED + 1), at=MIB)
    wait_covered(first)
    # It has left nothing that keeps it from trying again.
    second.recover("--take-over")
    assert read(second.start(), 2 * MIB) == noise(1) + noise(1, SEED + 1)


# Second gateways


def test_a_new_state_directory_is_refused(make_gateway: GatewayFactory) -> None:
    first = writer_of_a_mebibyte(make_gateway)
    second = beside(make_gateway, first)
    for runs in (True, False):
        if not runs:
            first.stop()
        before = store_files(first.store_directory)
        code, said = second.refused_start()
        assert code == 1
        assert "the store has data of a gateway already" in said
        after = store_files(first.store_directory)
        assert {name: data for name, data in after.items() if name != "root"} == {
            name: data for name, data in before.items() if name != "root"
        }
        assert runs or after == before
    assert read(first.start(), MIB) == noise(1)


def copied(make_gateway: GatewayFactory, first: Gateway) -> Gateway:
    second = beside(make_gateway, first)
    shutil.rmtree(second.state_directory)
    # The cache file is mostly holes.
    run(["cp", "-a", "--sparse=always", first.state_directory, second.state_directory])
    return second


def test_a_copy_of_the_state_directory_is_refused_while_the_first_one_runs(make_gateway: GatewayFactory) -> None:
    first = writer_of_a_mebibyte(make_gateway, {"store": {"lease_ms": 9000}})
    # Just after a renewal: the copy has the root that the store has.
    root, sought = first.store_directory / "root", (first.store_directory / "root").read_bytes()
    wait_for(lambda: root.read_bytes() != sought, 20, "a renewal")
    time.sleep(0.2)
    first.process.signal(signal.SIGSTOP)
    second = copied(make_gateway, first)
    first.process.signal(signal.SIGCONT)
    began = time.monotonic()
    code, said = second.refused_start()
    assert code == 1
    assert (
        f"the store's writer is {first.writer_name}, which has put a root a moment ago: this state directory is in use "
        "there, under that name" in said
    )
    assert time.monotonic() - began < 9 + SLACK_S
    # By now the copy is an older one.
    write(first, noise(1, SEED + 1))
    wait_covered(first)
    code, said = second.refused_start()
    assert code == 1
    assert f"the store's writer is {first.writer_name}; one gateway serves one prefix" in said
    assert read(first, MIB) == noise(1, SEED + 1)
    assert first.status()["failure"] is None
    checked_store(first)


def test_a_state_directory_that_was_moved_is_served_after_a_lease(make_gateway: GatewayFactory) -> None:
    first = writer_of_a_mebibyte(make_gateway, {"store": {"lease_ms": 3000}})
    first.kill9()
    second = copied(make_gateway, first)
    began = time.monotonic()
    second.start()
    assert time.monotonic() - began >= 3.0
    assert read(second, MIB) == noise(1)
    write(second, noise(1, SEED + 1))
    wait_covered(second)
    # What is left at the old place is an older copy now.
    code, said = first.refused_start()
    assert code == 1
    assert f"the store's writer is {second.writer_name}" in said


@pytest.mark.parametrize("place", ["elsewhere", "at its own place"])
@pytest.mark.parametrize("first_one", ["stopped", "killed"])
def test_an_older_copy_is_refused_for_good_and_changes_nothing(
    make_gateway: GatewayFactory, place: str, first_one: str
) -> None:
    first = writer_of_a_mebibyte(make_gateway)
    first.stop()
    older = copied(make_gateway, first)
    first.start()
    write(first, noise(1, SEED + 1))
    wait_covered(first)
    first.stop() if first_one == "stopped" else first.kill9()
    if place == "at its own place":
        first.state_directory.rename(first.folder / "newer")
        older.state_directory.rename(first.state_directory)
        older = first
    before = store_files(first.store_directory)
    for _ in range(2):
        code, said = older.refused_start()
        assert code == 1
        assert (
            f"the store's writer is {first.writer_name}; one gateway serves one prefix. If that one is gone for good, "
            "`tombolo recover` brings its data to a new state directory; this one is a copy of its, or older, and must "
            "not be used any more" in said
        )
        assert store_files(first.store_directory) == before
    if place == "at its own place":
        shutil.rmtree(first.state_directory)
        (first.folder / "newer").rename(first.state_directory)
    assert read(first.start(), MIB) == noise(1, SEED + 1)


def test_an_older_copy_is_refused_also_where_the_writer_is_trusted(make_gateway: GatewayFactory) -> None:
    first = writer_of_a_mebibyte(make_gateway, {"store": {"single_writer": "trusted"}})
    first.stop()
    older = copied(make_gateway, first)
    first.start()
    write(first, noise(1, SEED + 1))
    wait_covered(first)
    code, said = older.refused_start()
    assert code == 1
    assert f"the store's writer is {first.writer_name}" in said
    first.lose_state()
    first.recover("--take-over")
    assert read(first.start(), MIB) == noise(1, SEED + 1)


def test_a_root_that_is_gone_is_put_again_at_the_next_start(make_gateway: GatewayFactory) -> None:
    gateway = make_gateway(QUICK).start()
    gateway.create_volume("vol", "64MiB")
    generator = random.Random(SEED)
    write(gateway, generator.randbytes(MIB))
    wait_covered(gateway)
    gateway.stop()
    (gateway.store_directory / "root").unlink()
    gateway.start()
    wait_for((gateway.store_directory / "root").exists, 30, "a root")
    write(gateway, noise(1), at=8 * MIB)
    wait_covered(gateway)
    gateway.lose_state()
    gateway.recover("--take-over")
    gateway.start()
    assert read(gateway, MIB) == random.Random(SEED).randbytes(MIB)
    assert read(gateway, MIB, 8 * MIB) == noise(1)
