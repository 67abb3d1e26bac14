"""A warm restart: what was in the cache before is read from it afterwards, without a fetch."""

import random
import re
import time
from collections.abc import Callable

import pytest

from conftest import SEED, GatewayFactory
from harness.gateway import Gateway
from harness.tools import wait_for

MIB = 1 << 20
BLOCK_BYTES = 4096
WRITTEN_BYTES = 48 * MIB
READ_BYTES = 8 * MIB
SMALL = {
    "cache": {"size": "16MiB"},
    "prefetch": {"policy": "none", "window_bytes_max": "4MiB"},
    "flush": {"dirty_bytes_max": "8MiB"},
}


def block_reads(gateway: Gateway) -> dict[str, int]:
    """Since the start, by what the cache could do."""
    found = re.findall(r'^tombolo_cache_block_reads_total\{result="(\w+)"\} (\d+)$', gateway.metrics(), re.MULTILINE)
    return {result: int(count) for result, count in found}


def outcomes(gateway: Gateway, data: bytes, offset: int) -> dict[str, int]:
    """Reads and compares; the reads by what the cache could do."""
    before = block_reads(gateway)
    with gateway.disk("vol") as disk:
        for start in range(0, len(data), MIB):
            assert disk.read(offset + start, MIB) == data[start : start + MIB]
    return {result: count - before[result] for result, count in block_reads(gateway).items()}


def all_of(data: bytes, result: str) -> dict[str, int]:
    return {"hit": 0, "partial_miss": 0, "complete_miss": 0} | {result: len(data) // BLOCK_BYTES}


RESTARTS: dict[str, Callable[[Gateway], object]] = {"stopped": Gateway.stop, "killed": Gateway.kill9}


@pytest.mark.parametrize("ended", RESTARTS)
def test_what_was_written_is_a_hit_after_a_restart(gateway: Gateway, ended: str) -> None:
    data = random.Random(SEED).randbytes(READ_BYTES)
    gateway.create_volume("vol", "64MiB")
    with gateway.disk("vol") as disk:
        disk.write(0, data)
    gateway.drain()
    RESTARTS[ended](gateway)
    gateway.start()
    assert outcomes(gateway, data, 0) == all_of(data, "hit")


def test_after_a_checkpoint_there_is_nothing_to_replay(gateway: Gateway) -> None:
    data = random.Random(SEED).randbytes(READ_BYTES)
    gateway.create_volume("vol", "64MiB")
    with gateway.disk("vol") as disk:
        disk.write(0, data)
        disk.flush()
    assert gateway.status()["journal"]["replay_records"] > 0
    said = gateway.cli("checkpoint")
    assert re.fullmatch(r"a checkpoint is under way; \d+ records are in it, .*\n", said), said
    wait_for(lambda: gateway.status()["journal"]["replay_records"] == 0, 20.0, "a checkpoint")
    gateway.kill9()
    gateway.start()
    with gateway.disk("vol") as disk:
        assert disk.read(0, len(data)) == data


@pytest.mark.parametrize("ended", RESTARTS)
def test_what_is_dirty_keeps_its_age_over_restarts(make_gateway: GatewayFactory, ended: str) -> None:
    """By the last checkpoint of a stop; by the journal after a kill; and by what recovery has made of either."""
    gateway = make_gateway({"flush": {"flush_delay_ms": 3_600_000}}).start()
    gateway.create_volume("vol", "64MiB")
    with gateway.disk("vol") as disk:
        disk.write(0, random.Random(SEED).randbytes(BLOCK_BYTES))
        written_at = time.time()
        disk.flush()
    for _ in range(2):
        time.sleep(4)
        RESTARTS[ended](gateway)
        gateway.start()
        age_s = time.time() - written_at
        assert age_s - 1 < gateway.status()["oldest_dirty_age_s"] < age_s + 4


def test_what_was_fetched_is_a_hit_after_a_restart(make_gateway: GatewayFactory) -> None:
    gateway = make_gateway(SMALL).start()
    data = random.Random(SEED).randbytes(WRITTEN_BYTES)
    gateway.create_volume("vol", "64MiB")
    with gateway.disk("vol") as disk:
        for start in range(0, len(data), MIB):
            disk.write(start, data[start : start + MIB])
    gateway.drain()
    first = data[:READ_BYTES]
    assert outcomes(gateway, first, 0) == all_of(first, "complete_miss"), "the cache is too small for both"
    assert outcomes(gateway, first, 0) == all_of(first, "hit")
    gateway.restart()
    assert outcomes(gateway, first, 0) == all_of(first, "hit")


def test_nothing_is_a_hit_after_a_restart_with_a_new_cache(gateway: Gateway) -> None:
    """The test above can fail."""
    data = random.Random(SEED).randbytes(READ_BYTES)
    gateway.create_volume("vol", "64MiB")
    with gateway.disk("vol") as disk:
        disk.write(0, data)
    gateway.drain()
    gateway.stop()
    gateway.cache_file.unlink()
    gateway.start()
    assert outcomes(gateway, data, 0)["complete_miss"] > 0
