"""One bucket in two stores: equal after an outage of either, each enough alone, read where it is cheapest, and mended
from the other."""

import json
import shutil
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from conftest import BUCKET, SEED, GatewayFactory, s3_settings
from harness.gateway import Gateway, merged
from harness.object_store import S3Server
from harness.store_reader.stores import DirectoryStore
from harness.tools import wait_for
from harness.two_stores import TwoStores, far_store
from test_recover import MIB, checked_store, noise, read, wait_covered, write

QUICK: dict[str, Any] = {
    "flush": {"recovery_point_ms": 300, "flush_delay_ms": 100, "dirty_bytes_max": "8MiB", "stall_timeout_ms": 5_000},
    "store": {"lease_ms": 1_500},
    "cache": {"size": "16MiB"},
    "prefetch": {"policy": "none", "window_bytes_max": "1MiB"},
    "journal": {"store_checkpoint_interval_ms": 1_000},
}
FAR_URL = f"s3://{BUCKET}/far"


class Stores(TwoStores):
    """The second server has the replica `far`."""

    def settings(self, changes: dict[str, Any] | None = None) -> dict[str, Any]:
        far = {
            "url": FAR_URL,
            "endpoint": self.proxy.endpoint,
            "region": "us-east-1",
            "allow_http": True,
            "away_after_ms": 1_000,
        }
        replica = {"store": {"replica": {"far": merged(far, changes or {})}}}
        return merged(merged(QUICK, s3_settings(self.near.endpoint)), replica)

    def settings_of_folder(self) -> dict[str, Any]:
        """The replica without its server."""
        replica = {"store": {"replica": {"far": {"url": f"dir:{self.far_objects}"}}}}
        return merged(merged(QUICK, s3_settings(self.near.endpoint)), replica)

    def differences(self) -> list[str]:
        """What is not the same in both: nothing but what a start has put to find out about one of them."""
        near, far = (DirectoryStore(folder) for folder in (self.near_objects, self.far_objects))
        names = {*near.names(), *far.names()} - {"conditions"}

        def contents(folder: Path, name: str) -> bytes | None:
            path = folder / name
            return path.read_bytes() if path.exists() else None

        return sorted(name for name in names if contents(self.near_objects, name) != contents(self.far_objects, name))


@pytest.fixture
def stores(s3: S3Server, folder: Path, closing: ExitStack) -> Stores:
    far, proxy = closing.enter_context(far_store(folder, BUCKET, SEED))
    return Stores(s3, far, proxy, BUCKET)


def replica(gateway: Gateway) -> dict[str, Any]:
    found: dict[str, Any] = gateway.status()["replicas"][0]
    return found


def wait_state(gateway: Gateway, state: str) -> None:
    wait_for(lambda: replica(gateway)["state"] == state, 90, f"the replica to be {state}")


def wait_equal(gateway: Gateway, stores: Stores) -> None:
    """Nothing changes any more, so both come to rest."""
    wait_covered(gateway)
    wait_state(gateway, "even")
    wait_for(lambda: not stores.differences(), 90, "both stores to be the same")


def write_all(gateway: Gateway, data: bytes) -> None:
    """More than one request may hold."""
    for at in range(0, len(data), 4 * MIB):
        write(gateway, data[at : at + 4 * MIB], at=at)


def expect(gateway: Gateway, data: bytes, first: int = 0) -> None:
    """What the volume has from there on, read bit by bit."""
    with gateway.disk("vol") as disk:
        for at in range(0, len(data), MIB):
            assert disk.read(first + at, MIB) == data[at : at + MIB], f"{MIB} bytes at {first + at}"


def reads_of(gateway: Gateway, copy: str) -> int:
    lines = gateway.metrics().splitlines()
    found = [line for line in lines if line.startswith(f'tombolo_copy_reads_total{{copy="{copy}"}}')]
    return int(found[0].split()[-1])


def load(gateway: Gateway, done: threading.Event, rounds: list[int]) -> None:
    """Overwrites the same mebibytes with ever other data."""
    while not done.is_set():
        at = len(rounds) % 8
        write(gateway, noise(1, 1_000 + len(rounds)), at=at * MIB)
        rounds.append(at)


def under_load(gateway: Gateway, action: Callable[[list[int]], None]) -> list[int]:
    done, rounds = threading.Event(), list[int]()
    thread = threading.Thread(target=load, args=(gateway, done, rounds))
    thread.start()
    try:
        action(rounds)
    finally:
        done.set()
        thread.join(120)
    return rounds


def expect_rounds(gateway: Gateway, rounds: list[int]) -> None:
    for at in range(min(8, len(rounds))):
        last = max(number for number, place in enumerate(rounds) if place == at)
        assert read(gateway, MIB, at=at * MIB) == noise(1, 1_000 + last), f"mebibyte {at}"


def filled(make_gateway: GatewayFactory, stores: Stores, settings: dict[str, Any], data: bytes) -> Gateway:
    """A gateway with a volume of this beginning, which both stores have."""
    gateway = make_gateway(settings, stores.near.environment).start()
    gateway.create_volume("vol", "64MiB")
    write_all(gateway, data)
    wait_equal(gateway, stores)
    return gateway


def test_a_replica_that_was_away_under_load_becomes_equal(make_gateway: GatewayFactory, stores: Stores) -> None:
    gateway = make_gateway(stores.settings(), stores.near.environment).start()
    gateway.create_volume("vol", "64MiB")
    write(gateway, noise(4))
    wait_equal(gateway, stores)

    def outage(rounds: list[int]) -> None:
        stores.proxy.refuse()
        wait_state(gateway, "away")
        before = len(rounds)
        wait_for(lambda: len(rounds) >= before + 24, 120, "writes to go on")

    rounds = under_load(gateway, outage)
    wait_covered(gateway)
    behind = replica(gateway)
    assert behind["behind_objects"] > 0 and behind["behind_bytes"] >= MIB, behind
    # What it lacks is known after a kill too.
    gateway.kill9()
    gateway.start()
    known = replica(gateway)
    assert known["behind_objects"] >= behind["behind_objects"] and not known["is_compared"], known
    stores.proxy.listen()
    wait_equal(gateway, stores)
    # But for what the store has removed meanwhile.
    assert replica(gateway)["brought"] > behind["behind_objects"] // 2
    expect_rounds(gateway, rounds)
    found = checked_store(gateway)["replicas"][0]
    assert (found["missing"], found["altered"], found["unknown"]) == (0, 0, 0) and found["whole"] > 0, found


def test_the_replica_alone_is_enough_when_the_store_is_gone_for_ever(
    make_gateway: GatewayFactory, stores: Stores
) -> None:
    gateway = filled(make_gateway, stores, stores.settings(), data := noise(24))
    stores.near.close()
    # Without the store nothing new is confirmed, but all is read.
    expect(gateway, data)
    write(gateway, noise(1, 7), at=40 * MIB)
    gateway.lose_state()
    shutil.rmtree(stores.near.folder)
    gateway.state_directory.mkdir()
    gateway.recover("--store", FAR_URL, "--take-over")
    far = gateway.settings["store"]["replica"]["far"]
    far = {key: value for key, value in far.items() if key != "away_after_ms"}
    key = {"master_key_file": gateway.settings["store"]["master_key_file"]}
    gateway.settings = {**gateway.settings, "store": {**QUICK["store"], **far, **key}}
    gateway.start()
    expect(gateway, data)
    write(gateway, noise(2, 8), at=50 * MIB)
    wait_covered(gateway)
    checked_store(gateway)


def test_a_recovery_from_the_store_goes_on_with_its_replica(make_gateway: GatewayFactory, stores: Stores) -> None:
    gateway = filled(make_gateway, stores, stores.settings(), data := noise(8))
    gateway.lose_state()
    gateway.state_directory.mkdir()
    gateway.recover("--take-over")
    gateway.start()
    expect(gateway, data)
    write(gateway, noise(2, 4), at=40 * MIB)
    wait_equal(gateway, stores)


def test_a_store_that_is_away_is_read_in_its_replica_and_goes_on_later(
    make_gateway: GatewayFactory, stores: Stores
) -> None:
    gateway = filled(make_gateway, stores, stores.settings(), data := noise(32))
    stores.near.kill9()
    expect(gateway, data)
    write(gateway, noise(2, 3), at=40 * MIB)
    assert gateway.status()["dirty_bytes"] > 0
    stores.near.start()
    wait_equal(gateway, stores)
    assert read(gateway, 2 * MIB, at=40 * MIB) == noise(2, 3)
    expect(gateway, data)


@pytest.mark.parametrize(("hour_usd", "expected"), [(0, "far"), (1_000, "store")])
def test_the_cheaper_store_is_read_although_it_is_slow_unless_time_is_money(
    make_gateway: GatewayFactory, stores: Stores, hour_usd: int, expected: str
) -> None:
    settings = merged(stores.settings({"prices": "free"}), {"store": {"read_hour_usd": hour_usd}})
    gateway = filled(make_gateway, stores, settings, data := noise(32))
    # What is cached is read there; a first read tells how long the far one takes.
    stores.proxy.faults.delay_s = 0.15
    expect(gateway, data[: 8 * MIB])
    before = {copy: reads_of(gateway, copy) for copy in ("store", "far")}
    expect(gateway, data[12 * MIB : 28 * MIB], 12 * MIB)
    asked = {copy: reads_of(gateway, copy) - before[copy] for copy in before}
    assert asked[expected] > 0.9 * sum(asked.values()) > 0, asked
    bill = gateway.status()["bill"]
    assert bill["replicas"][0]["prices"] == "free" and bill["replicas"][0]["month_usd"] == 0, bill


def test_what_was_altered_or_lost_in_one_store_is_mended_from_the_other(
    make_gateway: GatewayFactory, stores: Stores
) -> None:
    # The far one is read as long as it can be.
    gateway = filled(make_gateway, stores, stores.settings({"prices": "free"}), data := noise(32))
    packs = sorted(path for path in (stores.far_objects / "objects").rglob("*") if path.is_file())
    for number, pack in enumerate(packs):
        if number % 3 == 0:
            pack.unlink()
        elif number % 3 == 1:
            whole = pack.read_bytes()
            pack.write_bytes(whole[: len(whole) // 2] + bytes(len(whole) - len(whole) // 2))
    expect(gateway, data)
    gateway.cli("check", "--store", limit_s=120)
    wait_equal(gateway, stores)
    near = sorted(path for path in (stores.near_objects / "objects").rglob("*") if path.is_file())
    near[0].write_bytes(near[0].read_bytes()[:-1] + b"x")
    near[1].unlink()
    nodes = sorted(path for path in (stores.far_objects / "nodes").iterdir())
    nodes[0].write_bytes(nodes[0].read_bytes()[:-1] + b"x")
    status = checked_store(gateway)
    assert status["objects_healed"] == 2, status
    assert status["replicas"][0]["altered"] == status["replicas"][0]["healed"] == 1, status
    assert not stores.differences()


@pytest.mark.parametrize("is_deleted", [False, True])
def test_data_keys_that_a_replica_has_lost_are_put_there_again(
    make_gateway: GatewayFactory, stores: Stores, is_deleted: bool
) -> None:
    gateway = filled(make_gateway, stores, stores.settings(), noise(1))
    keys = stores.far_objects / "keys"
    if is_deleted:
        keys.unlink()
    else:
        keys.write_bytes(keys.read_bytes()[:-1] + b"x")
    assert stores.differences() == ["keys"]
    found = checked_store(gateway)["replicas"][0]
    assert (found["missing"], found["altered"], found["healed"]) == (int(is_deleted), int(not is_deleted), 1), found
    assert not stores.differences()
    found = checked_store(gateway)["replicas"][0]
    assert (found["missing"], found["altered"], found["healed"]) == (0, 0, 0), found


def test_data_keys_of_the_store_that_are_not_known_to_be_good_spoil_no_replica(
    make_gateway: GatewayFactory, stores: Stores
) -> None:
    gateway = filled(make_gateway, stores, stores.settings(), noise(1))
    near, far = stores.near_objects / "keys", stores.far_objects / "keys"
    whole = far.read_bytes()
    near.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    done = gateway.try_cli("check", "--store", "--json", limit_s=120)
    status = json.loads(done.stdout)
    assert done.returncode == 7, done.stdout + done.stderr
    assert [finding["object"] for finding in status["findings"]] == ["keys"], status
    assert status["replicas"][0]["healed"] == 0 and far.read_bytes() == whole, status


def test_a_replica_that_another_gateway_has_taken_over_is_left_alone(
    make_gateway: GatewayFactory, stores: Stores
) -> None:
    gateway = make_gateway(stores.settings(), stores.near.environment).start()
    gateway.create_volume("vol", "64MiB")
    data = noise(4)
    write(gateway, data)
    wait_equal(gateway, stores)
    kept = gateway.folder / "kept.key"
    shutil.copy(gateway.state_directory / "master.key", kept)
    kept.chmod(0o600)
    there = {"url": FAR_URL, "endpoint": stores.far.endpoint, "region": "us-east-1", "allow_http": True}
    other = make_gateway(merged(QUICK, {"store": {**there, "master_key_file": str(kept)}}), stores.near.environment)
    other.recover("--take-over")
    other.start()
    assert read(other, len(data)) == data
    write(gateway, noise(2, 5), at=20 * MIB)
    write(other, noise(2, 6), at=20 * MIB)
    wait_state(gateway, "foreign")
    assert "accept_root" in replica(gateway)["reason"]
    wait_covered(gateway)
    wait_covered(other)
    for each, seed in ((gateway, 5), (other, 6)):
        each.restart()
        assert read(each, 2 * MIB, at=20 * MIB) == noise(2, seed)
    checked_store(other)
    # Its own store is whole, but nobody could look at the replica.
    checked = gateway.try_cli("check", "--store", "--json")
    assert checked.returncode == 1 and "replica far did not answer" in checked.stderr, checked.stderr
    assert json.loads(checked.stdout)["findings_count"] == 0, checked.stdout
    wait_state(gateway, "foreign")


@pytest.mark.parametrize("is_folder", [False, True])
@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_replica_in_whose_place_another_was_gets_what_went_there(
    make_gateway: GatewayFactory, stores: Stores, is_folder: bool, is_restarted: bool
) -> None:
    place = stores.far_objects
    if is_folder:
        place.mkdir(parents=True)
    settings = stores.settings_of_folder() if is_folder else stores.settings()
    gateway = filled(make_gateway, stores, settings, data := noise(4))
    # As a folder that is not mounted any more.
    aside = place.with_name("aside")
    place.rename(aside)
    place.mkdir()
    write(gateway, noise(2, 5), at=20 * MIB)
    # A folder shows at once that it is another; of a bucket only the root tells.
    wait_state(gateway, "away" if is_folder else "foreign")
    astray = [path for path in (place / "objects").rglob("*") if path.is_file()]
    assert bool(astray) != is_folder, astray
    if is_restarted:
        gateway.stop()
    shutil.rmtree(place)
    aside.rename(place)
    if is_restarted:
        gateway.start()
    wait_equal(gateway, stores)
    expect(gateway, data)
    found = checked_store(gateway)["replicas"][0]
    assert (found["missing"], found["altered"], found["healed"]) == (0, 0, 0), found
