"""Foreign clients against the real daemon: libnbd's tools, qemu, and iSCSI initiators."""

import json
import random
from contextlib import ExitStack
from pathlib import Path

import pytest

from conftest import SEED, GatewayFactory
from harness.gateway import Gateway
from harness.iscsi import LoginFailed, ScsiError
from harness.memory import bounds, in_force
from harness.process import Process
from harness.target import IQN_PREFIX, Tgtd
from harness.tools import run, sha256_of, wait_for

MIB = 1 << 20
CHAP = ("initiator", "a-secret-of-16-ch")


def random_file(path: Path, size: int) -> Path:
    path.write_bytes(random.Random(SEED).randbytes(size))
    return path


# NBD


def test_nbdinfo_reports_the_volume_as_it_is(gateway: Gateway) -> None:
    gateway.create_volume("vol", "10GiB")
    described = json.loads(run(["nbdinfo", "--json", gateway.nbd_uri("vol")]).stdout)
    (export,) = described["exports"]
    assert export["export-size"] == 10 << 30
    for promised in ("can_flush", "can_fua", "can_multi_conn", "can_trim", "can_zero"):
        assert export[promised] is True, promised
    assert export["is_read_only"] is False
    assert "base:allocation" in export["contexts"]


def test_nbdcopy_writes_and_reads_back_identical(gateway: Gateway, folder: Path) -> None:
    gateway.create_volume("vol", "32MiB")
    source = random_file(folder / "source", 32 * MIB)
    run(["nbdcopy", "--flush", source, gateway.nbd_uri("vol")])
    run(["nbdcopy", gateway.nbd_uri("vol"), folder / "copy"])
    assert sha256_of(folder / "copy") == sha256_of(source)


def test_fresh_and_trimmed_ranges_are_holes_that_read_as_zeros(gateway: Gateway) -> None:
    gateway.create_volume("vol", "16MiB")

    def allocated() -> int:
        extents = json.loads(run(["nbdinfo", "--map", "--json", gateway.nbd_uri("vol")]).stdout)
        return sum(extent["length"] for extent in extents if extent["type"] == 0)

    assert allocated() == 0
    with gateway.disk("vol") as disk:
        disk.write(MIB, random.Random(SEED).randbytes(2 * MIB))
        assert allocated() == 2 * MIB
        disk.trim(MIB, MIB)
        assert allocated() == MIB
        assert disk.read(MIB, MIB) == bytes(MIB)


def test_qemu_img_converts_and_compares_over_nbd(gateway: Gateway, folder: Path) -> None:
    gateway.create_volume("vol", "32MiB")
    source = random_file(folder / "source", 32 * MIB)
    run(["qemu-img", "convert", "-n", "-f", "raw", "-O", "raw", source, gateway.nbd_uri("vol")])
    run(["qemu-img", "compare", "-f", "raw", "-F", "raw", source, gateway.nbd_uri("vol")])
    with source.open("r+b") as opened:
        opened.write(b"altered")
    differing = run(
        ["qemu-img", "compare", "-f", "raw", "-F", "raw", source, gateway.nbd_uri("vol")], expected_codes=(1,)
    )
    assert "Content mismatch at offset 0" in differing.stdout


def test_nbdfuse_mounts_a_volume_as_a_file(gateway: Gateway, folder: Path, closing: ExitStack) -> None:
    gateway.create_volume("vol", "16MiB")
    mount = folder / "mount"
    mount.mkdir()
    process = Process("nbdfuse", folder / "nbdfuse.log")
    closing.callback(process.stop)
    file = mount / "disk"
    process.start(["nbdfuse", file, gateway.nbd_uri("vol")])
    process.wait_until(file.exists, 20, "file")
    data = random.Random(SEED).randbytes(MIB)
    with file.open("r+b") as opened:
        opened.seek(MIB)
        opened.write(data)
        opened.flush()
    run(["fusermount3", "-u", mount])
    assert process.wait() == 0
    with gateway.disk("vol") as disk:
        assert disk.read(MIB, MIB) == data


# iSCSI


def test_resize_is_seen_by_an_initiator_that_is_logged_in(gateway: Gateway, tgtd: Tgtd) -> None:
    gateway.create_volume("vol", "64MiB")
    iqn = tgtd.create_target(1, "resize")
    tgtd.add_lun(1, 1, gateway.nbd_socket, "vol")
    disk = tgtd.disk(iqn)
    assert disk.size == 64 * MIB
    with pytest.raises(ScsiError) as beyond:
        disk.write(64 * MIB, bytes(4096))
    assert beyond.value.sense_key == 5
    gateway.cli("volume", "resize", "vol", "--size", "128MiB")
    wait_for(lambda: disk.capacity() == 128 * MIB, 30, "READ CAPACITY to show 128 MiB")
    disk.write(128 * MIB - 4096, b"\x42" * 4096)
    assert disk.read(128 * MIB - 4096, 4096) == b"\x42" * 4096
    disk.close()


def test_chap_admits_the_right_secret_only(gateway: Gateway, tgtd: Tgtd) -> None:
    gateway.create_volume("vol", "16MiB")
    iqn = tgtd.create_target(1, "chap")
    tgtd.add_lun(1, 1, gateway.nbd_socket, "vol")
    tgtd.require_chap(1, *CHAP)
    disk = tgtd.disk(iqn, credentials=CHAP)
    disk.write(0, b"\x01" * 4096)
    disk.close()
    with pytest.raises(LoginFailed):
        tgtd.disk(iqn, credentials=(CHAP[0], "a-wrong-secret-16"))
    with pytest.raises(LoginFailed):
        tgtd.disk(iqn)


def test_several_luns_are_kept_apart(gateway: Gateway, tgtd: Tgtd) -> None:
    iqn = tgtd.create_target(1, "luns")
    disks = {}
    for lun in range(1, 9):
        gateway.create_volume(f"vol{lun}", f"{16 * lun}MiB")
        tgtd.add_lun(1, lun, gateway.nbd_socket, f"vol{lun}")
    # Afterwards, as a session is told of every LUN that is added while it lasts.
    for lun in range(1, 9):
        disks[lun] = tgtd.disk(iqn, lun)
    for lun, disk in disks.items():
        assert disk.size == 16 * lun * MIB
        disk.write(4096, bytes([lun]) * 8192)
    for lun, disk in disks.items():
        assert disk.read(0, 16384) == bytes(4096) + bytes([lun]) * 8192 + bytes(4096)
        disk.close()


def test_export_command_makes_a_lun_that_initiators_can_use(gateway: Gateway, tgtd: Tgtd) -> None:
    gateway.create_volume("vol", "16MiB")
    gateway.environment |= tgtd.environment
    gateway.cli("export", "iscsi", "vol", "--apply")
    shown = tgtd.admin("--op", "show", "--mode", "target")
    (iqn,) = [line.split(": ", 1)[1].strip() for line in shown.splitlines() if line.startswith("Target ")]
    assert not iqn.startswith(IQN_PREFIX)
    disk = tgtd.disk(iqn)
    assert disk.size == 16 * MIB
    disk.write(0, b"\x33" * 4096)
    disk.flush()
    disk.close()
    with gateway.disk("vol") as direct:
        assert direct.read(0, 4096) == b"\x33" * 4096


# Status and metrics


def test_status_counts_what_was_written_and_deduplicated(make_gateway: GatewayFactory) -> None:
    gateway = make_gateway().start()
    gateway.create_volume("vol", "64MiB")
    data = random.Random(SEED).randbytes(4 * MIB)
    with gateway.disk("vol") as disk:
        disk.write(0, data)
        disk.write(16 * MIB, data)
        disk.flush()
    gateway.drain()
    status = gateway.status()
    assert status["dirty_bytes"] == 0
    assert status["dirty_bytes_max"] == gateway.dirty_bytes_max
    assert status["oldest_dirty_age_s"] == 0
    assert status["store"]["state"] == "ok"
    assert 4 * MIB <= status["stored_bytes"] < 4.5 * MIB
    assert status["dedup"]["blocks_unique"] == 4 * MIB // 4096
    assert status["dedup"]["blocks_duplicate"] == 4 * MIB // 4096
    assert status["dedup"]["ratio"] == 2.0
    with gateway.disk("vol") as disk:
        hits = status["cache"]["hits"]
        disk.read(0, MIB)
    assert gateway.status()["cache"]["hits"] - hits == MIB // 4096


def test_metrics_are_valid_for_prometheus(gateway: Gateway, folder: Path) -> None:
    text = folder / "metrics"
    text.write_text(gateway.metrics())
    run(["sh", "-c", 'promtool check metrics <"$0"', text])


def test_volumes_survive_a_restart(gateway: Gateway) -> None:
    for name, size in (("a", "1GiB"), ("b", "2GiB"), ("c", "3GiB")):
        gateway.create_volume(name, size)
    gateway.cli("volume", "delete", "b", "--yes")
    gateway.cli("volume", "resize", "c", "--size", "4GiB")
    before = gateway.volumes()
    gateway.kill9()
    gateway.start()
    assert gateway.volumes() == before
    assert sorted(volume["name"] for volume in before) == ["a", "c"]


# Limits


def peak_memory_under_scattered_writes(gateway: Gateway, writes: int) -> int:
    """Resident bytes at the most, after that many writes of 64 KiB anywhere in 1 TiB."""
    gateway.create_volume("vol", "1TiB")
    generator = random.Random(SEED)
    with gateway.disk("vol") as disk:
        for _ in range(writes):
            offset = generator.randrange((1 << 40) // 4096 - 16) * 4096
            disk.write(offset, generator.randbytes(65536))
        disk.flush()
    return gateway.process.resident_bytes(peak=True)


MAPPED_BYTES = 64 * MIB
"""The program's own file and what LMDB has mapped are resident too: page cache, which the sum leaves out."""


def most_for_writes(gateway: Gateway) -> int:
    """What docs/OPERATIONS.md adds up, without what reads, files and many clients fill, and filters so small."""
    settings = in_force(gateway)
    settings["memory"] |= {"fingerprint_filter_bytes": "0KiB", "fingerprint_fence_bytes": "0KiB"}
    unfilled = {"payload", "history of reads", "prefetched, not read yet", "caches of maps and descriptors"}
    unfilled.add("entries since the last checkpoint")
    parts = bounds(settings, connections=1)
    return sum(size for part, size in parts.items() if part not in unfilled) + MAPPED_BYTES


SMALL_TRANSFERS = {"memory": {"transfer_bytes_max": "8MiB", "upload_buffer_bytes_max": "4MiB"}}


def test_memory_is_bounded_with_a_tebibyte_volume(make_gateway: GatewayFactory) -> None:
    gateway = make_gateway(
        {**SMALL_TRANSFERS, "cache": {"size": "4GiB"}, "flush": {"dirty_bytes_max": "512MiB"}}
    ).start()
    peak = peak_memory_under_scattered_writes(gateway, writes=3000)
    allowed = most_for_writes(gateway)
    print(f"resident at most {peak >> 20} MiB of {allowed >> 20} MiB")
    assert peak < allowed < 532 * MIB


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_memory_is_bounded_with_a_tebibyte_volume_and_a_large_cache(make_gateway: GatewayFactory) -> None:
    """The cache file is taken in full: this needs 20 GiB of disk."""
    gateway = make_gateway(
        {**SMALL_TRANSFERS, "cache": {"size": "20GiB"}, "flush": {"dirty_bytes_max": "2GiB"}}
    ).start()
    peak = peak_memory_under_scattered_writes(gateway, writes=60_000)
    allowed = most_for_writes(gateway)
    print(f"resident at most {peak >> 20} MiB of {allowed >> 20} MiB")
    assert peak < allowed < 1180 * MIB
