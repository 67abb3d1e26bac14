"""Reads of data that only the store has: many blocks by few requests, in whatever order they are read."""

import random

import pytest

from conftest import SEED, GatewayFactory
from harness.gateway import Gateway
from harness.mount import Mount
from test_policies import metric

KIB, MIB = 1 << 10, 1 << 20
SIZE = 8 * MIB
FILES = 300


def fetched(gateway: Gateway) -> float:
    causes = ("demand", "prefetch")
    return sum(metric(gateway, "tombolo_store_requests_total", operation="get", cause=cause) for cause in causes)


def cold(gateway: Gateway) -> Gateway:
    gateway.drain()
    gateway.stop()
    gateway.cache_file.unlink()
    return gateway.start()


def test_a_volume_is_read_backwards_by_few_requests(make_gateway: GatewayFactory) -> None:
    gateway = make_gateway({}).start()
    gateway.create_volume("vol", "64MiB")
    data = random.Random(SEED).randbytes(SIZE)
    with gateway.disk("vol") as disk:
        disk.write(0, data)
        disk.flush()
    cold(gateway)
    with gateway.disk("vol") as disk:
        for offset in range(SIZE - 64 * KIB, -1, -64 * KIB):
            assert disk.read(offset, 64 * KIB) == data[offset : offset + 64 * KIB]
    assert fetched(gateway) < SIZE // (64 * KIB) / 3


@pytest.mark.parametrize("backwards", [False, True])
def test_what_lies_equally_far_apart_is_fetched_ahead_without_the_gaps(
    make_gateway: GatewayFactory, backwards: bool
) -> None:
    gateway = make_gateway({}).start()
    gateway.create_volume("vol", "64MiB")
    data = random.Random(SEED).randbytes(4 * SIZE)
    with gateway.disk("vol") as disk:
        disk.write(0, data)
        disk.flush()
    cold(gateway)
    places = list(range(0, len(data), 256 * KIB))
    with gateway.disk("vol") as disk:
        for offset in reversed(places) if backwards else places:
            assert disk.read(offset, 64 * KIB) == data[offset : offset + 64 * KIB]
    assert metric(gateway, "tombolo_policy_reads_total", result="complete_miss") < len(places) / 4
    assert metric(gateway, "tombolo_cache_blocks_prefetched_total") <= len(places) * 16


def test_parts_that_are_close_together_are_read_by_few_requests(make_gateway: GatewayFactory) -> None:
    gateway = make_gateway({}).start()
    gateway.create_volume("vol", "64MiB")
    data = random.Random(SEED).randbytes(2 * SIZE)
    with gateway.disk("vol") as disk:
        disk.write(0, data)
        disk.flush()
    cold(gateway)
    places = range(0, len(data), 64 * KIB)
    with gateway.disk("vol") as disk:
        for offset in places:
            assert disk.read(offset, 4 * KIB) == data[offset : offset + 4 * KIB]
    assert fetched(gateway) < len(places) / 2
    assert metric(gateway, "tombolo_cache_blocks_prefetched_total") <= len(places)


def test_small_files_that_were_written_together_are_read_by_few_requests(make_gateway: GatewayFactory) -> None:
    gateway = make_gateway({}).start()
    gateway.create_share("docs")
    contents = {f"{index:04}": random.Random(SEED + index).randbytes(16 * KIB) for index in range(FILES)}
    mount = Mount(gateway, "docs").start()
    for name, content in contents.items():
        (mount.folder / name).write_bytes(content)
    mount.close()
    mount = Mount(cold(gateway), "docs").start()
    for name, content in contents.items():
        assert (mount.folder / name).read_bytes() == content
    mount.close()
    assert fetched(gateway) < FILES / 5
