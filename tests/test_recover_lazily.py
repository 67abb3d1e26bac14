"""A recovered gateway serves before its metadata is here: what is not is read in the store, and brought meanwhile."""

import errno
import random
import shutil
import struct
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext

import pytest

from conftest import SEED, GatewayFactory, MountFactory, s3_settings
from harness.fault_proxy import FaultProxy
from harness.gateway import Gateway, merged
from harness.nbd import NbdError
from harness.object_store import S3Server
from harness.tools import wait_for
from test_recover import MIB, QUICK, checked_store, contents, fill, noise, read, tree_of, wait_complete, write

SETTINGS = merged(QUICK, {"store": {"retry_delay_ms_max": 200}})


@pytest.fixture
def gateway(make_gateway: GatewayFactory, s3: S3Server, proxy: FaultProxy) -> Gateway:
    """A running gateway whose store is behind the proxy."""
    return make_gateway(merged(s3_settings(proxy.endpoint), SETTINGS), s3.environment).start()


@contextmanager
def nothing_is_brought(proxy: FaultProxy, or_put: bool = False) -> Iterator[None]:
    """Nodes are read alone where they are needed; objects of nodes, which would bring all of them here, are refused."""

    def is_refused(method: str, path: str, headers: dict[str, str]) -> bool:
        is_of_nodes = method == "GET" and "/nodes/" in path and "range" not in headers
        return is_of_nodes or (or_put and method == "PUT")

    proxy.faults.refuses = is_refused
    try:
        yield
    finally:
        proxy.faults.refuses = None


def is_complete(gateway: Gateway) -> bool:
    found = gateway.status()["metadata"]["is_complete"]
    assert f"tombolo_metadata_complete {int(found)}" in gateway.metrics()
    return bool(found)


@pytest.mark.usefixtures("share")
def test_all_is_served_and_changed_while_it_is_in_the_store(
    gateway: Gateway, make_mount: MountFactory, proxy: FaultProxy
) -> None:
    mount = make_mount()
    mount.start()
    fill(gateway, mount.folder)
    for number in range(300):
        (mount.folder / f"file {number}").write_bytes(b"%d" % number)
    files = tree_of(mount.folder)
    mount.stop()
    gateway.drain()
    expected = contents(gateway)
    gateway.lose_state()
    gateway.recover("--take-over")
    with nothing_is_brought(proxy):
        gateway.start()
        assert contents(gateway) == expected
        mount.start()
        assert tree_of(mount.folder) == files
        # Over what is in the store, beside it, and through it.
        changes = noise(2, SEED + 5)
        write(gateway, changes, at=MIB + 4096)
        expected["vol"] = expected["vol"][: MIB + 4096] + changes + expected["vol"][3 * MIB + 4096 :]
        with gateway.disk("vol") as disk:
            disk.write_zeroes(40 * MIB, MIB)
            disk.flush()
        expected["vol"] = expected["vol"][: 40 * MIB] + bytes(MIB) + expected["vol"][41 * MIB :]
        gateway.cli("volume", "delete", "resized", "--yes")
        gateway.create_volume("resized", "24MiB")
        expected["resized"] = bytes(24 * MIB)
        for number in range(0, 300, 3):
            (mount.folder / f"file {number}").unlink()
        for number in range(1, 300, 3):
            (mount.folder / f"file {number}").rename(mount.folder / f"moved {number}")
        (mount.folder / "a" / "new").write_bytes(changes)
        files = tree_of(mount.folder)
        mount.stop()
        for end in (gateway.kill9, gateway.stop):
            gateway.cli("checkpoint")
            end()
            gateway.start()
            assert not is_complete(gateway)
            assert contents(gateway) == expected
            mount.start()
            assert tree_of(mount.folder) == files
            mount.stop()
            gateway.check()
        wait_for(lambda: gateway.status()["metadata"]["failure"] is not None, 30, "status to say what is wrong")
        assert "not complete" in gateway.cli("status")
    wait_complete(gateway)
    assert is_complete(gateway)
    assert contents(gateway) == expected
    gateway.drain()
    checked_store(gateway)
    gateway.restart()
    assert is_complete(gateway)
    assert contents(gateway) == expected
    mount.start()
    assert tree_of(mount.folder) == files
    mount.stop()
    gateway.check()


@pytest.mark.usefixtures("share")
def test_the_disk_is_lost_again_and_again_before_all_is_here(
    gateway: Gateway, make_mount: MountFactory, proxy: FaultProxy
) -> None:
    gateway.settings = merged(gateway.settings, {"journal": {"store_checkpoint_interval_ms": 300}})
    gateway.restart()
    mount = make_mount().start()
    gateway.create_volume("vol", "24MiB")
    expected = bytearray(24 * MIB)
    for number in range(60):
        (mount.folder / f"file {number}").write_bytes(b"%d" % number)

    def change(number: int) -> None:
        """Something that was there at first, something of the last time, and something new."""
        changes = noise(2, SEED + number)
        for at in (0, number * 3 * MIB + 4096):
            expected[at : at + len(changes)] = changes
            write(gateway, changes, at=at)
        with gateway.disk("vol") as disk:
            disk.trim(number * 3 * MIB - MIB, MIB)
        expected[number * 3 * MIB - MIB : number * 3 * MIB] = bytes(MIB)
        (mount.folder / f"file {number}").unlink()
        (mount.folder / f"file {20 + number}").rename(mount.folder / f"new {number}")
        (mount.folder / f"file {40 + number}").write_bytes(changes)

    with nothing_is_brought(proxy):
        for number in range(1, 4):
            change(number)
            files = tree_of(mount.folder)
            mount.stop()
            gateway.drain()
            gateway.lose_state()
            gateway.recover("--take-over")
            gateway.start()
            assert read(gateway, len(expected)) == expected, number
            mount.start()
            assert tree_of(mount.folder) == files, number
            gateway.check()
        assert not is_complete(gateway)
    wait_complete(gateway)
    change(4)
    files = tree_of(mount.folder)
    mount.stop()
    gateway.drain()
    assert read(gateway, len(expected)) == expected
    mount.start()
    assert tree_of(mount.folder) == files
    mount.stop()
    gateway.check()
    checked_store(gateway)


def check_blocks(gateway: Gateway, blocks: list[int]) -> None:
    with gateway.disk("vol") as disk:
        for block in blocks:
            assert disk.read(block * 4096, 4096) == struct.pack("<Q", block + 1) * 512, block


@pytest.mark.usefixtures("share")
def test_kills_while_it_is_brought_here_lose_nothing(gateway: Gateway, make_mount: MountFactory) -> None:
    mount = make_mount()
    mount.start()
    for folder in range(20):
        (mount.folder / f"folder {folder}").mkdir()
        for number in range(200):
            (mount.folder / f"folder {folder}" / f"file {number}").write_bytes(b"%d" % number)
    files = tree_of(mount.folder)
    mount.stop()
    gateway.create_volume("vol", "256MiB")
    rng = random.Random(SEED)
    blocks = rng.sample(range(256 * MIB // 4096), 6000)
    with gateway.disk("vol") as disk:
        for block in blocks:
            disk.write(block * 4096, struct.pack("<Q", block + 1) * 512)
        disk.flush()
    gateway.drain()
    gateway.lose_state()
    gateway.recover("--take-over")
    for _ in range(20):
        gateway.start()
        time.sleep(rng.random() * 0.05)
        check_blocks(gateway, rng.sample(blocks, 5))
        if is_complete(gateway):
            break
        gateway.kill9()
    else:
        gateway.start()
    wait_complete(gateway)
    check_blocks(gateway, blocks)
    mount.start()
    assert tree_of(mount.folder) == files
    mount.stop()
    gateway.check()
    gateway.drain()
    checked_store(gateway)


@pytest.mark.parametrize("kills", [0, 3])
def test_what_is_written_again_is_known_when_all_is_here(gateway: Gateway, kills: int) -> None:
    """With an index that keeps little in memory, and when the gateway is killed as soon as all is here."""
    gateway.settings = merged(gateway.settings, {"memory": {"fingerprint_memtable_entries": 1024}})
    gateway.restart()
    gateway.create_volume("vol", "64MiB")
    data = noise(16)
    write(gateway, data)
    gateway.drain()
    objects = gateway.status()["objects"]
    gateway.lose_state()
    gateway.recover("--take-over")
    gateway.start()
    for _ in range(kills):
        # All of it may be here before anybody looks.
        wait_for(
            lambda: is_complete(gateway) or gateway.status()["metadata"]["loaded_records"] > 0,
            30,
            "something to be brought here",
        )
        gateway.kill9()
        gateway.start()
    wait_complete(gateway)
    if kills:
        gateway.kill9()
        gateway.start()
    assert checked_store(gateway)["blocks_not_indexed"] == 0
    write(gateway, data, at=32 * MIB)
    gateway.drain()
    assert gateway.status()["objects"] == objects
    assert read(gateway, 16 * MIB, at=32 * MIB) == data


def test_a_cache_is_not_resized_while_it_is_in_the_store(gateway: Gateway, proxy: FaultProxy) -> None:
    gateway.create_volume("vol", "64MiB")
    write(gateway, noise(2))
    gateway.drain()
    gateway.lose_state()
    gateway.recover("--take-over")
    with nothing_is_brought(proxy):
        gateway.start()
        write(gateway, noise(1), at=4096)
        gateway.kill9()
    gateway.settings = merged(gateway.settings, {"cache": {"size": "768MiB"}})
    gateway.write_config()
    refused = gateway.try_offline("cache", "resize")
    assert refused.returncode == 1 and "not complete" in refused.stderr


@pytest.mark.parametrize("part", ["journal", "cache", "metadata"])
def test_a_part_of_the_disk_is_lost_while_it_is_in_the_store(gateway: Gateway, proxy: FaultProxy, part: str) -> None:
    gateway.create_volume("vol", "64MiB")
    expected = noise(8)
    write(gateway, expected)
    gateway.drain()
    gateway.lose_state()
    gateway.recover("--take-over")
    changes = noise(1, SEED + 3)
    with nothing_is_brought(proxy):
        gateway.start()
        write(gateway, changes, at=MIB + 4096)
        expected = expected[: MIB + 4096] + changes + expected[2 * MIB + 4096 :]
        gateway.drain()
    with nothing_is_brought(proxy, or_put=True):
        # What the cache file alone has, which makes its loss one.
        write(gateway, changes, at=50 * MIB)
        gateway.kill9()
    lost = gateway.state_directory / part
    if lost.is_dir():
        shutil.rmtree(lost)
    else:
        lost.unlink()
    # Without the others local metadata is made again of all that the store has.
    with nothing_is_brought(proxy) if part == "cache" else nullcontext():
        gateway.refused_start()
        gateway.start("--accept-loss")
        assert is_complete(gateway) == (part != "cache")
        assert read(gateway, 8 * MIB) == expected
        write(gateway, changes, at=40 * MIB)
        gateway.cli("checkpoint")
        gateway.restart()
        assert read(gateway, MIB, at=40 * MIB) == changes
        assert read(gateway, 8 * MIB) == expected
    wait_complete(gateway)
    assert read(gateway, 8 * MIB) == expected
    write(gateway, changes, at=50 * MIB)
    gateway.drain()
    checked_store(gateway)


def test_an_object_of_nodes_that_is_missing_is_named_and_may_come_back(make_gateway: GatewayFactory) -> None:
    gateway = make_gateway(SETTINGS).start()
    gateway.create_volume("vol", "8MiB")
    data = noise(4)
    write(gateway, data)
    gateway.drain()
    gateway.lose_state()
    gateway.recover("--take-over")
    nodes = {path: path.read_bytes() for path in (gateway.store_directory / "nodes").iterdir()}
    for path in nodes:
        path.unlink()
    code, said = gateway.refused_start()
    assert code == 1
    assert any(f'"nodes/{path.name}" does not exist' in said for path in nodes), said
    for path, contents_before in nodes.items():
        path.write_bytes(contents_before)
    gateway.start()
    assert read(gateway, 4 * MIB) == data
    wait_complete(gateway)
    checked_store(gateway)


def requests_until_first_read(gateway: Gateway, proxy: FaultProxy, blocks: int) -> int:
    gateway.create_volume("vol", "512MiB")
    rng = random.Random(SEED)
    with gateway.disk("vol") as disk:
        for block in rng.sample(range(512 * MIB // 4096), blocks):
            disk.write(block * 4096, struct.pack("<QQ", block + 1, blocks) * 256)
        last = block
        disk.flush()
    gateway.drain()
    gateway.lose_state()
    with nothing_is_brought(proxy):
        before = proxy.counts.methods.copy()
        gateway.recover("--take-over")
        gateway.start()
        assert read(gateway, 4096, at=last * 4096) == struct.pack("<QQ", last + 1, blocks) * 256
        refused = proxy.counts.refused_with_error
        after = proxy.counts.methods
    return sum(after.values()) - sum(before.values()) - refused


def test_the_first_read_takes_as_many_requests_whatever_there_is(
    make_gateway: GatewayFactory, s3: S3Server, proxy: FaultProxy
) -> None:
    taken = {}
    for blocks in (100, 12_000):
        changes = merged(s3_settings(proxy.endpoint, f"of {blocks}"), SETTINGS)
        # All that is written is in the tree.
        changes = merged(changes, {"journal": {"store_checkpoint_interval_ms": 1000}})
        gateway = make_gateway(changes, s3.environment).start()
        taken[blocks] = requests_until_first_read(gateway, proxy, blocks)
        proxy.counts.refused_with_error = 0
        gateway.stop()
    # More of the journal, a level of the tree, and segments.
    assert taken[12_000] <= taken[100] + 60, taken


def recovered(gateway: Gateway, patience_ms: int) -> bytes:
    """What `vol` holds of a gateway that has just been recovered and is not started yet."""
    gateway.settings = merged(gateway.settings, {"flush": {"stall_timeout_ms": patience_ms}})
    gateway.create_volume("vol", "64MiB")
    data = noise(8)
    write(gateway, data)
    gateway.drain()
    gateway.lose_state()
    gateway.recover("--take-over")
    return data


def zero(gateway: Gateway, at: int) -> None:
    """MiB `at` of `vol`: a checkpoint has to know what was there before."""
    with gateway.disk("vol") as disk:
        disk.write_zeroes(at * MIB, MIB)
        disk.flush()


def wait_for_store(gateway: Gateway, *states: str) -> None:
    wait_for(lambda: gateway.status()["store"]["state"] in states, 60, f"status to call the store {states}")


def test_clients_are_told_of_a_store_that_is_away_what_they_are_told_when_it_has_data(
    gateway: Gateway, proxy: FaultProxy
) -> None:
    expected = recovered(gateway, patience_ms=2000)
    with nothing_is_brought(proxy):
        gateway.start()
        proxy.refuse()
        with gateway.disk("vol") as disk:
            requests: list[Callable[[], object]] = [
                lambda: disk.read(0, 4096),
                lambda: disk.write(100, b"x" * 100),
                # Another page of the map.
                lambda: disk.read(32 * MIB, 4096),
            ]
            for request in requests:
                with pytest.raises(NbdError) as refused:
                    request()
                assert refused.value.errno == errno.ENOMEM
        wait_for_store(gateway, "degraded", "unreachable")
        proxy.listen()
        assert read(gateway, 8 * MIB) == expected
        wait_for_store(gateway, "ok")


def test_a_checkpoint_that_needs_a_store_that_is_away_says_so_and_is_made_when_it_is_back(
    gateway: Gateway, proxy: FaultProxy
) -> None:
    expected = recovered(gateway, patience_ms=2000)
    with nothing_is_brought(proxy):
        gateway.start()
        proxy.refuse()
        zero(gateway, 1)
        gateway.try_cli("checkpoint")
        wait_for(lambda: gateway.status()["pause"] is not None, 60, "status to say that there is no checkpoint")
        why = gateway.status()["pause"]
        assert "in the store, which does not answer" in why and gateway.settings["store"]["url"] in why, why
        wait_for_store(gateway, "degraded", "unreachable")
        proxy.listen()
        # Without anybody's doing.
        wait_for(lambda: gateway.status()["pause"] is None, 60, "the checkpoint")
        wait_for_store(gateway, "ok")
    wait_complete(gateway)
    assert read(gateway, 8 * MIB) == expected[:MIB] + bytes(MIB) + expected[2 * MIB :]
    gateway.check()


def test_neither_a_stop_nor_a_start_passes_a_store_that_is_away_for_a_failed_disk(
    gateway: Gateway, proxy: FaultProxy
) -> None:
    expected = recovered(gateway, patience_ms=60_000)
    with nothing_is_brought(proxy):
        gateway.start()
        proxy.refuse()
        zero(gateway, 1)
        gateway.try_cli("checkpoint")
        began = time.monotonic()
        gateway.stop()
        # A store that answers late is waited for up to 20 s.
        assert time.monotonic() - began < 15
        code, said = gateway.refused_start(120)
        assert code == 1
        assert "does not answer" in said and "nothing is wrong with the local disk" in said, said
        assert gateway.settings["store"]["url"] in said and "--accept-loss" not in said, said
        proxy.listen()
        gateway.start()
        expected = expected[:MIB] + bytes(MIB) + expected[2 * MIB :]
        assert read(gateway, 8 * MIB) == expected
    wait_complete(gateway)
    assert read(gateway, 8 * MIB) == expected


@pytest.mark.usefixtures("share")
def test_a_mount_waits_for_a_store_that_is_away(gateway: Gateway, make_mount: MountFactory, proxy: FaultProxy) -> None:
    gateway.settings = merged(gateway.settings, {"flush": {"stall_timeout_ms": 1000}})
    mount = make_mount()
    mount.start()
    (mount.folder / "folder").mkdir()
    for number in range(2000):
        (mount.folder / "folder" / f"file {number}").write_bytes(b"%d" % number)
    (mount.folder / "aside").write_bytes(b"aside")
    files = tree_of(mount.folder)
    mount.stop()
    gateway.drain()
    gateway.lose_state()
    gateway.recover("--take-over")
    with nothing_is_brought(proxy):
        gateway.start()
        mount.start()
        proxy.refuse()
        with ThreadPoolExecutor() as pool:
            looked = pool.submit(tree_of, mount.folder / "folder")
            moved = pool.submit((mount.folder / "aside").rename, mount.folder / "moved")
            wait_for_store(gateway, "degraded", "unreachable")
            # Longer than what is refused is waited for.
            time.sleep(3)
            assert not moved.done()
            proxy.listen()
            moved.result(60)
            looked.result(60)
        files["moved"] = files.pop("aside")
        assert tree_of(mount.folder) == files
        mount.stop()
