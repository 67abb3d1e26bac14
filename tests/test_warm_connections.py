"""Connections to the store stay open while hosts are at work (`[store] warm_connections`): reads after a rest open
none."""

import random
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from conftest import SEED, GatewayFactory, s3_settings
from harness.fault_proxy import FaultProxy
from harness.gateway import Gateway, merged
from harness.object_store import S3Server
from harness.tools import wait_for
from test_bill import by_cause

MIB = 1 << 20
READERS = 4
REST_S = 20
"""The driver closes a connection after 15 s of rest, as S3 does after some 20."""
CALM = {
    # A read is one GET, and nothing else asks the store for anything.
    "prefetch": {"policy": "none", "window_bytes_max": "1MiB"},
    "flush": {"stall_timeout_ms": 1_000},
    "store": {"lease_ms": 3_600_000, "object_bytes_max": "256KiB"},
}


def warm_requests(gateway: Gateway) -> int:
    requests: dict[str, int] = by_cause(gateway)["warm"]["requests"]
    assert sum(requests.values()) == requests["head"], requests
    return requests["head"]


def data_of(place: int) -> bytes:
    return random.Random(SEED + place).randbytes(MIB)


def read(gateway: Gateway, place: int) -> None:
    with gateway.disk("vol") as disk:
        assert disk.read(place * MIB, 4096) == data_of(place)[:4096]


def is_readable(gateway: Gateway, place: int) -> bool:
    try:
        read(gateway, place)
    except OSError:
        return False
    return True


@pytest.fixture
def cold(make_gateway: GatewayFactory, s3: S3Server, proxy: FaultProxy, connections: int) -> Gateway:
    """Everything is in the store alone, and it keeps so many connections."""
    settings = merged(CALM, s3_settings(proxy.endpoint))
    gateway = make_gateway(merged(settings, {"store": {"warm_connections": connections}}), s3.environment).start()
    gateway.create_volume("vol", "64MiB")
    with gateway.disk("vol") as disk:
        for place in range(2 * READERS):
            disk.write(place * MIB, data_of(place))
        disk.flush()
    gateway.drain()
    gateway.stop()
    gateway.cache_file.unlink()
    return gateway.start()


@pytest.mark.parametrize("connections", [READERS, 0])
def test_reads_after_a_rest_find_connections_open(cold: Gateway, proxy: FaultProxy, connections: int) -> None:
    time.sleep(6)
    assert warm_requests(cold) == 0, "no host has asked for anything yet"
    read(cold, 0)
    time.sleep(REST_S)
    before, heads = proxy.counts.connections, warm_requests(cold)
    with ThreadPoolExecutor(READERS) as pool:
        list(pool.map(lambda place: read(cold, place), range(1, 1 + READERS)))
    opened = proxy.counts.connections - before
    # The canary: without them each reader, or at least the first, opens one.
    assert opened == 0 if connections else opened > 0, opened
    # At 5 and 15 s after the read, give or take one.
    assert heads in ((READERS, 2 * READERS, 3 * READERS) if connections else (0,))
    assert proxy.counts.methods.get("HEAD", 0) >= heads


@pytest.mark.parametrize("connections", [READERS])
def test_a_store_that_does_not_answer_is_left_alone(cold: Gateway, proxy: FaultProxy) -> None:
    read(cold, 0)
    wait_for(lambda: warm_requests(cold) > 0, 20, "the first requests that keep connections open")
    proxy.refuse()
    with pytest.raises(OSError):
        read(cold, 1)
    assert cold.status()["store"]["last_error"], "it is known by now"
    before = warm_requests(cold)
    time.sleep(11)
    assert warm_requests(cold) == before
    proxy.listen()
    wait_for(lambda: is_readable(cold, 2), 30, "the store to be back")
    wait_for(lambda: warm_requests(cold) > before, 20, "requests that keep connections open again")
