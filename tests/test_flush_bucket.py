"""Flushes that wait for the store: what was flushed in that mode on a volume or share outlives the local disk."""

import errno
import os
import random
import threading
from collections.abc import Callable
from contextlib import ExitStack

import pytest

from conftest import SEED, GatewayFactory, MountFactory, s3_settings
from harness.fault_proxy import FaultProxy
from harness.ganesha import Ganesha
from harness.gateway import Gateway, Settings, merged
from harness.mount import Mount
from harness.nbd import NbdError
from harness.object_store import S3Server
from harness.store_reader.bucket import Bucket
from harness.store_reader.files import read_shares
from harness.store_reader.stores import DirectoryStore
from harness.tools import wait_for

MIB = 1 << 20
NO_OTHER_POINTS: Settings = {"flush": {"recovery_point_ms": 3_600_000, "flush_delay_ms": 600_000}}
"""The store is told of nothing, and gets nothing, but for a flush."""


def noise(length: int, seed: int = SEED) -> bytes:
    return random.Random(seed).randbytes(length)


@pytest.fixture
def gateway(make_gateway: GatewayFactory) -> Gateway:
    started = make_gateway(NO_OTHER_POINTS).start()
    wait_for(lambda: points(started) == 1, 60, "the recovery point of a first start")
    return started


@pytest.fixture
def share(gateway: Gateway) -> str:
    return gateway.create_share("data", "--flush", "bucket")


def lose_the_disk(gateway: Gateway) -> None:
    gateway.lose_state()
    gateway.recover("--take-over")
    gateway.start()


def points(gateway: Gateway) -> int:
    count: int = gateway.status()["recovery_point"]["count"]
    return count


def modes(gateway: Gateway) -> dict[str, str]:
    return {volume["name"]: volume["flush"] for volume in gateway.volumes()}


def test_what_was_flushed_outlives_the_local_disk(gateway: Gateway) -> None:
    gateway.cli("volume", "create", "vol", "--size", "64MiB", "--flush", "bucket")
    gateway.create_volume("other", "8MiB")
    with gateway.disk("other") as other:
        other.write(4096, noise(4096, 7))
    expected = bytearray(8 * MIB)
    generator = random.Random(SEED)
    for number in range(6):
        with gateway.disk("vol") as disk:
            for _ in range(generator.randrange(1, 12)):
                at, length = generator.randrange(0, 7 * MIB), generator.randrange(1, 300_000)
                expected[at : at + length] = data = generator.randbytes(length)
                disk.write(at, data)
            if number % 2 == 0:
                disk.flush()
            else:
                at = 4096 * generator.randrange(1000)
                expected[at : at + 4096] = data = generator.randbytes(4096)
                disk.write(at, data, fua=True)
        lose_the_disk(gateway)
        assert modes(gateway) == {"other": "local", "vol": "bucket"}
        with gateway.disk("vol") as disk:
            assert disk.read(0, len(expected)) == expected, f"round {number}"
        with gateway.disk("other") as other:
            assert other.read(4096, 4096) == noise(4096, 7), "all that was acknowledged before is covered"
    gateway.cli("check", "--store", limit_s=120)


def test_the_mode_is_changed_and_survives_a_restart(gateway: Gateway) -> None:
    gateway.create_volume("vol", "64MiB")
    gateway.create_share("data")
    before = points(gateway)
    with gateway.disk("vol") as disk:
        disk.write(0, noise(MIB))
        disk.flush()
        disk.write(0, noise(4096), fua=True)
    assert (modes(gateway), points(gateway)) == ({"vol": "local"}, before), "nothing has changed for who does not ask"
    assert gateway.cli("volume", "set", "vol", "--flush", "bucket").endswith("flushed to the store\n")
    gateway.cli("share", "set", "data", "--flush", "bucket")
    gateway.cli("volume", "resize", "vol", "--size", "128MiB")
    gateway.kill9()
    gateway.start()
    assert modes(gateway) == {"vol": "bucket"}
    assert gateway.shares()["data"]["flush"] == "bucket"
    assert "vol (128MiB, flushed to the store)" in gateway.cli("status")
    with gateway.disk("vol") as disk:
        disk.flush()
        after = points(gateway)
        assert after > 0, "it covers what was changed before the kill"
        disk.write(0, noise(MIB, 1))
        disk.flush()
        assert points(gateway) == after + 1
        disk.flush()
        assert points(gateway) == after + 1, "there is nothing new"
        gateway.cli("volume", "set", "vol", "--flush", "local")
        disk.write(0, noise(MIB, 2))
        disk.flush()
        assert points(gateway) == after + 1


def test_flushes_that_meet_share_recovery_points(gateway: Gateway) -> None:
    gateway.cli("volume", "create", "vol", "--size", "64MiB", "--flush", "bucket")
    before, flushes = points(gateway), 25

    def work(client: int) -> None:
        with gateway.disk("vol") as disk:
            for number in range(flushes):
                disk.write((client * flushes + number) * 8192, noise(8192, number))
                disk.flush()

    threads = [threading.Thread(target=work, args=(client,)) for client in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    made = points(gateway) - before
    assert flushes <= made <= 4 * flushes, f"{made} points for {8 * flushes} flushes"


def test_what_was_synced_on_a_mount_outlives_the_local_disk(
    gateway: Gateway, share: str, make_mount: MountFactory
) -> None:
    mount = make_mount().start()
    for number in range(3):
        (mount.folder / f"before-{number}").write_bytes(b"not synced")
        with (mount.folder / f"file-{number}").open("wb") as file:
            file.write(noise(MIB + number, number))
            file.flush()
            os.fsync(file.fileno())
        mount.kill9()
        gateway.kill9()
        mount.detach()
        lose_the_disk(gateway)
        assert gateway.shares()[share]["flush"] == "bucket"
        mount = make_mount(mount.folder).start()
        for earlier in range(number + 1):
            assert (mount.folder / f"file-{earlier}").read_bytes() == noise(MIB + earlier, earlier)
            assert (mount.folder / f"before-{earlier}").exists()
    folder = os.open(mount.folder, os.O_RDONLY)
    (mount.folder / "file-0").rename(mount.folder / "renamed")
    os.fsync(folder)
    os.close(folder)
    mount.kill9()
    gateway.kill9()
    mount.detach()
    lose_the_disk(gateway)
    mount = make_mount(mount.folder).start()
    assert (mount.folder / "renamed").exists() and not (mount.folder / "file-0").exists()
    mount.stop()
    gateway.check()


def test_what_nfs_answered_as_stable_outlives_the_local_disk(
    gateway: Gateway, ganesha: Ganesha, closing: ExitStack
) -> None:
    nfs = ganesha.front_end()
    closing.callback(nfs.close)
    nfs.create("file")
    nfs.write("file", 0, noise(300_000))
    nfs.sync("file")
    nfs.mkdir("folder")
    nfs.rename("file", "folder/moved")
    before = points(gateway)
    nfs.create("folder/new")
    assert points(gateway) == before + 1, "as soon as it is answered"
    gateway.kill9()
    lose_the_disk(gateway)
    assert nfs.read("folder/moved", 0, 300_000) == noise(300_000)
    assert sorted(nfs.names("folder")) == ["moved", "new"]
    gateway.check()


@pytest.mark.parametrize("checkpoint_ms", [200, 3_600_000], ids=["tree", "journal"])
def test_the_mode_is_in_the_bucket(make_gateway: GatewayFactory, checkpoint_ms: int) -> None:
    settings = merged(NO_OTHER_POINTS, {"journal": {"store_checkpoint_interval_ms": checkpoint_ms}})
    settings = merged(settings, {"store": {"lease_ms": 1500}})
    gateway = make_gateway(settings).start()
    gateway.cli("volume", "create", "vol", "--size", "64MiB", "--flush", "bucket")
    gateway.create_volume("other", "8MiB")
    gateway.create_share("data", "--flush", "bucket")
    gateway.create_share("plain")

    def bucket() -> Bucket:
        key = bytes.fromhex((gateway.state_directory / "master.key").read_text().strip())
        return Bucket(DirectoryStore(gateway.store_directory), key)

    gateway.drain()
    wait_for(lambda: bool(bucket().parts) == (checkpoint_ms > 200), 60, "a root with a tree alone, or a journal")
    found = {volume.name: (volume.blocks * 4096, volume.flush) for volume in bucket().volumes()}
    assert found == {"vol": (64 * MIB, "bucket"), "other": (8 * MIB, "local")}
    assert {share.name: share.flush for share in read_shares(bucket())} == {"data": "bucket", "plain": "local"}
    lose_the_disk(gateway)
    assert modes(gateway) == {"vol": "bucket", "other": "local"}
    assert {name: share["flush"] for name, share in gateway.shares().items()} == {"data": "bucket", "plain": "local"}


class Flusher:
    """One flush, on a thread of its own."""

    def __init__(self, flush: Callable[[], None]) -> None:
        self.fault: BaseException | None = None
        self._flush = flush
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._flush()
        except BaseException as fault:  # Raised by end().
            self.fault = fault

    def still_waits(self, seconds: float) -> bool:
        self._thread.join(seconds)
        return self._thread.is_alive()

    def end(self, limit_s: float) -> None:
        assert not self.still_waits(limit_s)
        if self.fault is not None:
            raise self.fault


@pytest.fixture
def away(make_gateway: GatewayFactory, s3: S3Server, proxy: FaultProxy) -> Gateway:
    """A gateway behind the proxy, which refuses a flush after five seconds."""
    settings = merged(s3_settings(proxy.endpoint), NO_OTHER_POINTS)
    settings = merged(settings, {"store": {"retry_delay_ms_max": 500}, "flush": {"stall_timeout_ms": 5_000}})
    return make_gateway(settings, s3.environment).start()


def test_a_flush_waits_for_a_store_that_is_away(away: Gateway, proxy: FaultProxy) -> None:
    away.cli("volume", "create", "vol", "--size", "64MiB", "--flush", "bucket")
    data = noise(MIB)
    with away.disk("vol") as disk, away.disk("vol") as other:
        disk.write(0, data)
        disk.flush()
        proxy.refuse()
        disk.write(MIB, data)
        assert other.read(MIB, MIB) == data, "reads and plain writes do not wait"
        with pytest.raises(NbdError) as refused:
            disk.flush()
        assert refused.value.args[0] == errno.ENOMEM, "try again"
        with pytest.raises(NbdError) as refused:
            disk.write(2 * MIB, data[:4096], fua=True)
        assert refused.value.args[0] == errno.ENOMEM
        disk.write(3 * MIB, noise(MIB, 3))
        flusher = Flusher(disk.flush)
        assert flusher.still_waits(1.0)
        proxy.listen()
        flusher.end(60)
    lose_the_disk(away)
    with away.disk("vol") as disk:
        assert disk.read(0, 2 * MIB) == data + data
        assert disk.read(3 * MIB, MIB) == noise(MIB, 3)


def test_an_fsync_on_a_mount_waits_for_as_long_as_the_store_is_away(
    away: Gateway, proxy: FaultProxy, closing: ExitStack
) -> None:
    mount = Mount(away, away.create_share("data", "--flush", "bucket"))
    closing.callback(mount.close)
    mount.start()
    with (mount.folder / "file").open("wb") as file:
        proxy.refuse()
        file.write(noise(MIB))
        file.flush()
        flusher = Flusher(lambda: os.fsync(file.fileno()))
        assert flusher.still_waits(8.0), "longer than stall_timeout_ms"
        proxy.listen()
        flusher.end(60)
    mount.stop()
