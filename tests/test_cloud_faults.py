"""Promise 4, the backlog is bounded: the cloud stops, stutters or loses replies while clients go on writing."""

import errno
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from conftest import SEED, GatewayFactory, s3_settings
from harness.fault_proxy import EXPIRED, TIME_SKEWED, FaultProxy
from harness.gateway import Gateway, merged
from harness.nbd import NbdDisk, NbdError
from harness.object_store import S3Server
from harness.tools import wait_for

MIB = 1 << 20
CHUNK = 256 << 10


# Far below `request_timeout_ms`, and far above what uploads take here.
HUNG_LIMIT_S = 25


class DirtyWatch:
    """Samples `dirty_bytes` while a test runs."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self.samples: list[int] = []
        self.fault: BaseException | None = None
        self._thread.start()

    def _sample(self) -> None:
        try:
            while not self._stop.wait(0.05):
                self.samples.append(int(self._gateway.status()["dirty_bytes"]))
        except BaseException as fault:  # Raised where the samples are used.
            self.fault = fault

    def end(self) -> int:
        """The highest value seen."""
        self._stop.set()
        self._thread.join(30)
        if self.fault is not None:
            raise self.fault
        return max(self.samples)


@contextmanager
def watched(gateway: Gateway) -> Iterator[None]:
    watch = DirtyWatch(gateway)
    try:
        yield
    finally:
        highest = watch.end()
    assert 0 < highest <= gateway.dirty_bytes_max


class Backlog:
    """Unique data, written in order by one thread, which notes how far it came."""

    def __init__(self, gateway: Gateway, volume: str, size: int) -> None:
        self._gateway = gateway
        self._volume = volume
        self.size = size
        self.acknowledged = 0
        self.fault: BaseException | None = None
        self._thread = threading.Thread(target=self._write, daemon=True)

    @staticmethod
    def chunk(offset: int) -> bytes:
        return random.Random(f"{SEED}/{offset}").randbytes(CHUNK)

    def start(self) -> None:
        self._thread.start()

    def _write(self) -> None:
        try:
            with self._gateway.disk(self._volume, limit_s=240) as disk:
                while self.acknowledged < self.size:
                    disk.write(self.acknowledged, self.chunk(self.acknowledged))
                    self.acknowledged += CHUNK
                disk.flush()
        except BaseException as fault:  # Raised by finish().
            self.fault = fault

    def stalled_for(self, seconds: float) -> bool:
        """True when nothing was acknowledged for that long."""
        before = self.acknowledged
        time.sleep(seconds)
        return self.acknowledged == before

    def finish(self, limit_s: float) -> None:
        self._thread.join(limit_s)
        if self.fault is not None:
            raise self.fault
        assert self.acknowledged == self.size

    def assert_readable(self, disk: NbdDisk) -> None:
        for offset in range(0, self.size, CHUNK):
            assert disk.read(offset, CHUNK) == self.chunk(offset), f"{CHUNK} bytes at {offset} differ"


def s3_gateway(make_gateway: GatewayFactory, server: S3Server, proxy: FaultProxy, cap: str) -> Gateway:
    changes = merged(
        s3_settings(proxy.endpoint),
        {
            "store": {"retry_delay_ms_max": 1000},
            "flush": {"dirty_bytes_max": cap, "stall_timeout_ms": 180_000},
        },
    )
    gateway = make_gateway(changes, server.environment).start()
    gateway.create_volume("vol", "256MiB")
    return gateway


def assert_cold_readable(gateway: Gateway, backlog: Backlog) -> None:
    gateway.drain()
    gateway.stop()
    gateway.cache_file.unlink()
    gateway.start()
    with gateway.disk("vol") as disk:
        backlog.assert_readable(disk)


def test_outage_fills_the_cap_slows_writers_and_all_drains_afterwards(
    make_gateway: GatewayFactory, s3: S3Server, proxy: FaultProxy
) -> None:
    gateway = s3_gateway(make_gateway, s3, proxy, cap="32MiB")
    backlog = Backlog(gateway, "vol", 96 * MIB)
    proxy.refuse()
    with watched(gateway):
        backlog.start()
        wait_for(lambda: backlog.acknowledged >= 24 * MIB, 60, "24 MiB taken into the cache without a cloud")
        wait_for(lambda: backlog.stalled_for(1.0), 60, "writers to be held at the cap")
        assert backlog.acknowledged <= gateway.dirty_bytes_max + CHUNK
        wait_for(lambda: gateway.status()["store"]["state"] == "unreachable", 90, "status to say so")
        with gateway.disk("vol") as reader:
            assert reader.read(0, CHUNK) == Backlog.chunk(0), "reads must go on during an outage"
        proxy.listen()
        backlog.finish(180)
        gateway.wait_clean()
    assert_cold_readable(gateway, backlog)


@pytest.mark.soak
def test_outage_of_a_minute_in_mid_load_loses_nothing(
    make_gateway: GatewayFactory, s3: S3Server, proxy: FaultProxy
) -> None:
    gateway = s3_gateway(make_gateway, s3, proxy, cap="32MiB")
    backlog = Backlog(gateway, "vol", 192 * MIB)
    with watched(gateway):
        backlog.start()
        wait_for(lambda: gateway.status()["stored_bytes"] > 0, 60, "the first upload")
        proxy.refuse()
        time.sleep(60)
        assert backlog.acknowledged < backlog.size, "the outage must come in mid-load"
        proxy.listen()
        backlog.finish(180)
        gateway.wait_clean()
    assert_cold_readable(gateway, backlog)


def test_write_held_at_the_cap_too_long_is_refused_with_try_again_and_works_later(
    make_gateway: GatewayFactory, s3: S3Server, proxy: FaultProxy
) -> None:
    changes = {"flush": {"dirty_bytes_max": "8MiB", "stall_timeout_ms": 1000}, "store": {"retry_delay_ms_max": 1000}}
    gateway = make_gateway(merged(s3_settings(proxy.endpoint), changes), s3.environment).start()
    gateway.create_volume("vol", "256MiB")
    proxy.refuse()
    offset = 0
    with gateway.disk("vol") as disk:
        with pytest.raises(NbdError) as refusal:
            while offset < 64 * MIB:
                disk.write(offset, Backlog.chunk(offset))
                offset += CHUNK
        assert refusal.value.errno == errno.ENOMEM
        assert 0 < offset <= gateway.dirty_bytes_max
        assert gateway.status()["writes"]["refused"] > 0
        proxy.listen()
        gateway.wait_clean()
        disk.write(offset, Backlog.chunk(offset))
        for written in range(0, offset + CHUNK, CHUNK):
            assert disk.read(written, CHUNK) == Backlog.chunk(written)


def test_killed_s3_server_comes_back_and_all_drains(make_gateway: GatewayFactory, s3: S3Server) -> None:
    gateway = make_gateway(s3_settings(s3.endpoint), s3.environment).start()
    gateway.create_volume("vol", "256MiB")
    backlog = Backlog(gateway, "vol", 64 * MIB)
    backlog.start()
    wait_for(lambda: backlog.acknowledged >= 8 * MIB, 60, "8 MiB written")
    s3.kill9()
    backlog.finish(120)
    s3.start()
    assert_cold_readable(gateway, backlog)


def test_errors_to_half_of_the_requests_only_slow_the_gateway(
    make_gateway: GatewayFactory, s3: S3Server, proxy: FaultProxy
) -> None:
    gateway = s3_gateway(make_gateway, s3, proxy, cap="32MiB")
    backlog = Backlog(gateway, "vol", 48 * MIB)
    proxy.faults.error_fraction = 0.5
    with watched(gateway):
        backlog.start()
        backlog.finish(240)
        gateway.drain()
    assert proxy.counts.refused_with_error > 0
    assert_cold_readable(gateway, backlog)


@pytest.mark.parametrize(("refusal", "said"), [(EXPIRED, "ExpiredToken"), (TIME_SKEWED, "RequestTimeTooSkewed")])
def test_credentials_that_expire_and_clocks_that_are_off_are_named_and_lose_nothing(
    make_gateway: GatewayFactory, s3: S3Server, proxy: FaultProxy, refusal: tuple[str, bytes], said: str
) -> None:
    gateway = s3_gateway(make_gateway, s3, proxy, cap="64MiB")
    backlog = Backlog(gateway, "vol", 32 * MIB)
    backlog.start()
    wait_for(lambda: backlog.acknowledged >= 4 * MIB, 60, "4 MiB written")
    proxy.faults.refusal = refusal
    wait_for(lambda: said in (gateway.status()["store"]["last_error"] or ""), 60, "the store's own word in the status")
    backlog.finish(60)
    with gateway.disk("vol") as disk:
        backlog.assert_readable(disk)
    # The same credentials are good again, as after their source has renewed them; nobody restarts anything.
    proxy.faults.refusal = None
    assert_cold_readable(gateway, backlog)
    assert gateway.status()["store"]["last_error"] is None


def test_a_store_at_a_tenth_of_its_speed_bounds_the_backlog_and_recovers(
    make_gateway: GatewayFactory, s3: S3Server, proxy: FaultProxy
) -> None:
    gateway = s3_gateway(make_gateway, s3, proxy, cap="32MiB")
    backlog = Backlog(gateway, "vol", 96 * MIB)
    proxy.faults.delay_s = 2.0
    with watched(gateway):
        backlog.start()
        wait_for(lambda: backlog.acknowledged >= 48 * MIB, 240, "48 MiB written at the store's pace")
        proxy.faults.delay_s = 0.0
        backlog.finish(120)
        gateway.drain()
    assert_cold_readable(gateway, backlog)


def test_lost_replies_neither_lose_nor_duplicate_data(
    make_gateway: GatewayFactory, s3: S3Server, proxy: FaultProxy
) -> None:
    gateway = s3_gateway(make_gateway, s3, proxy, cap="64MiB")
    backlog = Backlog(gateway, "vol", 32 * MIB)
    proxy.faults.lost_reply_fraction = 0.3
    backlog.start()
    backlog.finish(240)
    assert_cold_readable(gateway, backlog)
    assert proxy.counts.lost_replies > 0


def test_gateway_starts_without_a_reachable_cloud_and_serves_what_it_has(
    make_gateway: GatewayFactory, s3: S3Server, proxy: FaultProxy
) -> None:
    gateway = s3_gateway(make_gateway, s3, proxy, cap="64MiB")
    backlog = Backlog(gateway, "vol", 16 * MIB)
    proxy.refuse()
    backlog.start()
    backlog.finish(60)
    gateway.kill9()
    gateway.start()
    with gateway.disk("vol") as disk:
        backlog.assert_readable(disk)
    proxy.listen()
    assert_cold_readable(gateway, backlog)


def test_drain_ends_beside_a_writer(gateway: Gateway) -> None:
    """It waits for what was dirty when it was called, not for what is written since."""
    gateway.create_volume("vol", "1GiB")
    is_over = threading.Event()

    def work() -> None:
        with gateway.disk("vol") as disk:
            number = 0
            while not is_over.wait(0.02):
                disk.write(number % 65536 * 4096, random.Random(number).randbytes(4096))
                number += 1

    writer = threading.Thread(target=work)
    writer.start()
    try:
        time.sleep(1)
        gateway.cli("drain", "--wait", "--timeout-s", "60")
    finally:
        is_over.set()
        writer.join()


def test_an_upload_that_hangs_is_made_again_long_before_the_request_timeout(
    make_gateway: GatewayFactory, s3: S3Server, proxy: FaultProxy
) -> None:
    gateway = make_gateway(s3_settings(proxy.endpoint), s3.environment).start()
    gateway.create_volume("disk", "256MiB")

    def write(first: int) -> None:
        with gateway.disk("disk") as disk:
            for offset in range(first, first + 32 * MIB, MIB):
                disk.write(offset, random.Random(f"{SEED}/{offset}").randbytes(MIB))

    write(0)
    gateway.drain()

    def is_first_object(method: str, path: str) -> bool:
        return method == "PUT" and "/objects/" in path and not proxy.counts.hung

    proxy.faults.hangs = is_first_object
    write(64 * MIB)
    begun = time.monotonic()
    gateway.drain()
    took_s = time.monotonic() - begun
    assert len(proxy.counts.hung) == 1
    assert took_s < HUNG_LIMIT_S, f"{took_s:.1f} s"
    puts = [one.target for one in proxy.counts.exchanges if one.method == "PUT" and "/objects/" in one.target]
    assert len(puts) == len(set(puts)), "what was answered was put once"
    assert proxy.counts.hung[0] in puts
    assert "tombolo_store_uploads_given_up_total 1\n" in gateway.metrics()
    gateway.check()
