"""Promise 3, never wrong bytes: what was altered on the local disk or in the store is refetched or refused."""

import errno
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from conftest import SEED, GatewayFactory, s3_settings
from harness.fault_proxy import FaultProxy
from harness.gateway import Gateway
from harness.nbd import NbdError
from harness.object_store import S3Server

MIB = 1 << 20
BLOCK = 4096


def flip_byte(file: Path, offset: int) -> None:
    with file.open("r+b") as opened:
        opened.seek(offset)
        byte = opened.read(1)
        opened.seek(offset)
        opened.write(bytes([byte[0] ^ 0x40]))


def offset_of(file: Path, pattern: bytes) -> int:
    """Where a block lies in the cache file; slots start at multiples of the block size."""
    data = file.read_bytes()
    offset = data.find(pattern)
    assert offset >= 0, "the block is not in the file"
    assert data.find(pattern, offset + 1) < 0, "the block is there twice"
    return offset


def unique_data(blocks: int) -> bytes:
    return random.Random(SEED).randbytes(blocks * BLOCK)


def write(gateway: Gateway, data: bytes, offset: int = 0) -> None:
    with gateway.disk("vol") as disk:
        disk.write(offset, data)
        disk.flush()


def store_witness(gateway: Gateway) -> None:
    """A small object that no test touches: a store that has nothing of the gateway is refused at the start."""
    with gateway.disk("vol") as disk:
        disk.write(60 * MIB, random.Random("witness").randbytes(BLOCK))
        disk.flush()
    gateway.drain()


def assert_eio_or_equal(gateway: Gateway, data: bytes) -> int:
    """Reads block by block: each is right or refused with EIO. Returns how many were refused."""
    refused = 0
    with gateway.disk("vol") as disk:
        for offset in range(0, len(data), BLOCK):
            try:
                assert disk.read(offset, BLOCK) == data[offset : offset + BLOCK]
            except NbdError as error:
                assert error.errno == errno.EIO
                refused += 1
    return refused


def test_altered_object_gives_eio_and_never_wrong_data(make_gateway: GatewayFactory) -> None:
    gateway = make_gateway().start()
    gateway.create_volume("vol", "64MiB")
    data = unique_data(512)
    write(gateway, data)
    gateway.drain()
    gateway.stop()
    gateway.cache_file.unlink()
    objects = [
        path for path in gateway.store_directory.rglob("*") if path.is_file() and path.stat().st_size > 10 * BLOCK
    ]
    assert objects
    for path in objects:
        flip_byte(path, path.stat().st_size // 2)
    gateway.start()
    refused = assert_eio_or_equal(gateway, data)
    assert refused > 0
    assert refused <= 64 * len(objects)


def test_missing_object_gives_eio(make_gateway: GatewayFactory) -> None:
    gateway = make_gateway().start()
    gateway.create_volume("vol", "64MiB")
    store_witness(gateway)
    data = unique_data(256)
    write(gateway, data)
    gateway.drain()
    gateway.stop()
    gateway.cache_file.unlink()
    for path in gateway.store_directory.rglob("*"):
        if path.is_file() and path.stat().st_size > 10 * BLOCK:
            path.unlink()
    gateway.start()
    assert assert_eio_or_equal(gateway, data) > 0


def packs(gateway: Gateway) -> list[Path]:
    return [path for path in gateway.store_directory.rglob("*") if path.is_file() and path.stat().st_size > 10 * BLOCK]


def losses(gateway: Gateway) -> list[str]:
    return [line for line in gateway.process.log_path.read_text().splitlines() if "blocks are lost" in line]


@pytest.mark.parametrize("is_known", [True, False], ids=["read before", "not read"])
@pytest.mark.parametrize("damage", [Path.unlink, lambda path: os.truncate(path, 100)], ids=["missing", "cut short"])
def test_new_data_is_never_deduplicated_against_a_lost_object(
    make_gateway: GatewayFactory, damage: Callable[[Path], None], is_known: bool
) -> None:
    gateway = make_gateway().start()
    gateway.create_volume("vol", "64MiB")
    store_witness(gateway)
    data = unique_data(256)
    write(gateway, data)
    gateway.drain()
    gateway.stop()
    gateway.cache_file.unlink()
    for path in packs(gateway):
        damage(path)
    gateway.start()
    if is_known:
        assert assert_eio_or_equal(gateway, data) == 256
        status = gateway.status()
        assert (status["cache"]["blocks_lost"], status["store"]["state"]) == (256, "damaged")
        assert status["lost"] == {
            "blocks": 256,
            "ranges": [{"volume": "vol", "first_block": 0, "blocks": 256, "in_store": True}],
        }
        said = len(losses(gateway))
        assert 0 < said <= 256
        assert assert_eio_or_equal(gateway, data) == 256
        assert len(losses(gateway)) == said, "each loss is said once"
        assert "the store has everything\n" not in gateway.cli("status")
    write(gateway, data, 16 * MIB)
    gateway.drain()
    gateway.stop()
    gateway.cache_file.unlink()
    gateway.start()
    with gateway.disk("vol") as disk:
        assert disk.read(16 * MIB, len(data)) == data, "what was written anew is in the store"
    assert assert_eio_or_equal(gateway, data) == 0, "and the old references are healed by it"
    assert gateway.status()["lost"] == {"blocks": 0, "ranges": []}


def test_duplicates_of_an_object_altered_since_are_kept_when_that_is_known(make_gateway: GatewayFactory) -> None:
    gateway = make_gateway().start()
    gateway.create_volume("vol", "64MiB")
    data = unique_data(64)
    write(gateway, data)
    gateway.drain()
    gateway.stop()
    gateway.cache_file.unlink()
    for path in packs(gateway):
        flip_byte(path, path.stat().st_size // 2)
    gateway.start()
    assert assert_eio_or_equal(gateway, data) == 1
    assert gateway.status()["lost"]["blocks"] == 1
    write(gateway, data, 16 * MIB)
    gateway.drain()
    gateway.stop()
    gateway.cache_file.unlink()
    gateway.start()
    with gateway.disk("vol") as disk:
        assert disk.read(16 * MIB, len(data)) == data
    assert assert_eio_or_equal(gateway, data) == 0


def test_altered_clean_cache_slot_is_refetched(make_gateway: GatewayFactory) -> None:
    gateway = make_gateway().start()
    gateway.create_volume("vol", "64MiB")
    data = unique_data(64)
    write(gateway, data)
    gateway.drain()
    flip_byte(gateway.cache_file, offset_of(gateway.cache_file, data[:BLOCK]) + 1000)
    assert assert_eio_or_equal(gateway, data) == 0
    assert assert_eio_or_equal(gateway, data) == 0, "the repaired copy must be right as well"
    cache = gateway.status()["cache"]
    assert (cache["slots_corrupt"], cache["blocks_lost"]) == (1, 0)


@pytest.mark.parametrize("later_flush", [False, True], ids=["in the last flush", "before a later flush"])
def test_altered_dirty_cache_slot_gives_eio_for_that_block_only(
    make_gateway: GatewayFactory, s3: S3Server, proxy: FaultProxy, later_flush: bool
) -> None:
    gateway = make_gateway(s3_settings(proxy.endpoint), s3.environment).start()
    gateway.create_volume("vol", "64MiB")
    proxy.refuse()
    data = unique_data(64)
    write(gateway, data)
    if later_flush:
        write(gateway, b"\x55" * BLOCK, 32 * MIB)
    gateway.kill9()
    flip_byte(gateway.cache_file, offset_of(gateway.cache_file, data[:BLOCK]) + 1000)
    gateway.start()
    assert assert_eio_or_equal(gateway, data) == 1
    assert gateway.status()["cache"]["blocks_lost"] == 1
    proxy.listen()
    gateway.wait_clean()
    assert assert_eio_or_equal(gateway, data) == 1, "the loss must stay an error once the rest is in the cloud"
    write(gateway, data[:BLOCK])
    assert assert_eio_or_equal(gateway, data) == 0, "a new write heals the block"


def last_segment(gateway: Gateway) -> Path:
    return max((gateway.state_directory / "journal").glob("*.log"))


def written_end(segment: Path) -> int:
    """The end of the last record: segments are allocated in full, so zeros follow it."""
    return len(segment.read_bytes().rstrip(b"\0"))


def test_torn_tail_of_the_journal_is_accepted(make_gateway: GatewayFactory, s3: S3Server, proxy: FaultProxy) -> None:
    gateway = make_gateway(s3_settings(proxy.endpoint), s3.environment).start()
    gateway.create_volume("vol", "64MiB")
    proxy.refuse()
    data = unique_data(64)
    write(gateway, data)
    with gateway.disk("vol") as disk:
        disk.write(32 * MIB, b"\x77" * BLOCK)
    gateway.kill9()
    segment = last_segment(gateway)
    end = written_end(segment)
    with segment.open("r+b") as opened:
        opened.seek(end - 8)
        opened.write(bytes(8))
    gateway.start()
    assert assert_eio_or_equal(gateway, data) == 0
    with gateway.disk("vol") as disk:
        assert disk.read(32 * MIB, BLOCK) in (b"\x77" * BLOCK, bytes(BLOCK))


def test_altered_record_in_the_flushed_part_of_the_journal_is_refused(
    make_gateway: GatewayFactory, s3: S3Server, proxy: FaultProxy
) -> None:
    gateway = make_gateway(s3_settings(proxy.endpoint), s3.environment).start()
    gateway.create_volume("vol", "64MiB")
    gateway.stop()
    gateway.start()
    proxy.refuse()
    data = unique_data(256)
    for offset in range(0, len(data), 16 * BLOCK):
        write(gateway, data[offset : offset + 16 * BLOCK], offset)
    gateway.kill9()
    segment = last_segment(gateway)
    flip_byte(segment, written_end(segment) // 2)
    code, said = gateway.refused_start()
    assert code not in (0, 101)
    assert "recovery of" in said
    assert "journal" in said
