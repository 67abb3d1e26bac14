"""`tombolo check --store` reads and verifies every object, and names what is missing, altered, or nobody's; it compares
metadata, finds nothing false beside clients, and goes on where it was interrupted."""

import json
import random
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from conftest import SEED, GatewayFactory, s3_settings
from harness.fault_proxy import FaultProxy
from harness.gateway import Gateway
from harness.object_store import S3Server
from harness.process import Process

MIB = 1 << 20
CHECK_LIMIT_S = 120.0


def checked(gateway: Gateway, expected_code: int) -> dict[str, Any]:
    done = gateway.try_cli("check", "--store", "--json", limit_s=CHECK_LIMIT_S)
    assert done.returncode == expected_code, done.stdout + done.stderr
    status: dict[str, Any] = json.loads(done.stdout)
    return status


def objects(gateway: Gateway) -> list[Path]:
    return sorted(path for path in (gateway.store_directory / "objects").rglob("*") if path.is_file())


def key_of(gateway: Gateway, path: Path) -> str:
    return str(path.relative_to(gateway.store_directory))


@pytest.fixture
def filled(gateway: Gateway) -> Gateway:
    gateway.create_volume("vol", "64MiB")
    with gateway.disk("vol") as disk:
        disk.write(0, random.Random(SEED).randbytes(4 * MIB))
        disk.flush()
    gateway.drain()
    return gateway


def test_a_sound_store_is_read_whole(filled: Gateway) -> None:
    filled.cli("key", "rotate")
    with filled.disk("vol") as disk:
        disk.write(8 * MIB, random.Random(SEED + 1).randbytes(MIB))
    filled.drain()
    status = checked(filled, 0)
    sizes = [path.stat().st_size for path in objects(filled)]
    assert (status["state"], status["findings_count"], status["orphans_count"]) == ("finished", 0, 0)
    assert (status["objects_checked"], status["bytes_read"]) == (len(sizes), sum(sizes))
    assert "nothing found" in filled.cli("check", "--store")


def test_what_is_missing_altered_or_nobodys_is_named(filled: Gateway) -> None:
    missing, altered, exchanged, whole = objects(filled)[:4]
    missing.unlink()
    flipped = bytearray(altered.read_bytes())
    flipped[-1] ^= 1
    altered.write_bytes(flipped)
    exchanged.write_bytes(whole.read_bytes())
    orphan = whole.with_name("0" * 62)
    shutil.copy(whole, orphan)
    stray = filled.store_directory / "objects" / "by-hand"
    stray.write_bytes(b"?")
    status = checked(filled, 7)
    findings = {finding["object"]: finding["message"] for finding in status["findings"]}
    assert set(findings) == {key_of(filled, path) for path in (missing, altered, exchanged)}
    assert findings[key_of(filled, missing)] == "it is missing"
    assert "does not authenticate" in findings[key_of(filled, altered)]
    assert sorted(status["orphans"]) == sorted(key_of(filled, path) for path in (orphan, stray))
    assert (status["state"], status["orphans_count"]) == ("finished", 2)


@pytest.mark.parametrize("is_missing", [False, True])
def test_keys_that_are_altered_or_missing_come_back_as_the_check_says(filled: Gateway, is_missing: bool) -> None:
    keys = filled.store_directory / "keys"
    whole = keys.read_bytes()
    if is_missing:
        keys.unlink()
    else:
        keys.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    (finding,) = checked(filled, 7)["findings"]
    assert (finding["object"], finding["kind"]) == ("keys", "store_metadata")
    assert "remove it if it is there, and restart the gateway" in finding["advice"]
    keys.unlink(missing_ok=True)
    filled.restart()
    assert keys.read_bytes() == whole
    assert checked(filled, 0)["findings_count"] == 0


def test_a_block_that_is_not_what_its_fingerprint_says_is_found(make_gateway: GatewayFactory) -> None:
    # Without encryption nothing else vouches for the bytes.
    gateway = make_gateway({"store": {"encryption": "none"}}).start()
    gateway.create_volume("vol", "64MiB")
    with gateway.disk("vol") as disk:
        disk.write(0, random.Random(SEED).randbytes(MIB))
    gateway.drain()
    path = objects(gateway)[0]
    crafted = bytearray(path.read_bytes())
    crafted[-1] ^= 1
    path.write_bytes(crafted)
    (finding,) = checked(gateway, 7)["findings"]
    assert (finding["object"], finding["kind"]) == (key_of(gateway, path), "object_altered")
    assert "SHA-256 is" in finding["message"] and "restore the object" in finding["advice"]
    assert finding["blocks"] > 0 and finding["last_pvbn"] >= finding["first_pvbn"]


@pytest.mark.parametrize("is_deleted", [False, True])
def test_data_keys_that_are_damaged_or_missing_in_the_store_are_found(filled: Gateway, is_deleted: bool) -> None:
    keys = filled.store_directory / "keys"
    whole = keys.read_bytes()
    if is_deleted:
        keys.unlink()
    else:
        keys.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    status = checked(filled, 7)
    (finding,) = status["findings"]
    assert (finding["object"], finding["kind"]) == ("keys", "store_metadata")
    assert "data keys" in finding["message"], finding
    # As both messages promise.
    filled.stop()
    keys.unlink(missing_ok=True)
    filled.start()
    assert keys.read_bytes() == whole
    assert checked(filled, 0)["findings_count"] == 0


@contextmanager
def writing(gateway: Gateway) -> Iterator[None]:
    """Blocks are written, written again and removed, so that maps, counts and objects change all the time."""
    ended = threading.Event()
    failures: list[Exception] = []

    def write() -> None:
        generator = random.Random(SEED + 2)
        known = generator.randbytes(MIB)
        try:
            with gateway.disk("vol") as disk:
                while not ended.is_set():
                    start = generator.randrange(60 * MIB // 4096) * 4096
                    match generator.randrange(4):
                        case 0:
                            disk.write(start, known)
                        case 1:
                            disk.trim(start, 256 * 1024)
                        case _:
                            disk.write(start, generator.randbytes(generator.randrange(1, 64) * 4096))
        except Exception as error:
            failures.append(error)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield
    finally:
        ended.set()
        writer.join()
    assert not failures, failures


def test_a_check_beside_writers_finds_nothing_false(make_gateway: GatewayFactory) -> None:
    # Points, checkpoints and folds follow each other, so that a check meets all of them.
    gateway = make_gateway(
        {
            "flush": {"recovery_point_ms": 200, "flush_delay_ms": 100},
            "journal": {"checkpoint_interval_ms": 1000, "store_checkpoint_interval_ms": 500},
        }
    ).start()
    gateway.create_volume("vol", "64MiB")
    compared = []
    with writing(gateway):
        for round_number in range(12):
            # Entries, counters and volumes.
            gateway.create_share(f"share{round_number}")
            gateway.create_volume(f"vol{round_number}", "1MiB")
            status = checked(gateway, 0)
            assert status["orphans_count"] == 0
            assert status["references_checked"] > 0 or round_number == 0
            compared.append((status["records_compared"], status["remarks"]))
    assert sum(records > 0 for records, _ in compared) >= 10, compared
    gateway.drain()
    status = checked(gateway, 0)
    assert (status["index_entries_nowhere"], status["blocks_not_indexed"], status["remarks"]) == (0, 0, [])
    assert status["records_compared"] >= status["references_checked"] > 0
    assert status["index_entries_checked"] > 0


def test_what_the_fingerprint_index_has_lost_is_counted_and_what_is_damaged_found(filled: Gateway) -> None:
    filled.stop()
    runs = sorted((filled.state_directory / "index").glob("*.run"))
    whole = {path: path.read_bytes() for path in runs}
    for path, contents in whole.items():
        damaged = bytearray(contents)
        damaged[100] ^= 1
        path.write_bytes(damaged)
    filled.start()
    status = checked(filled, 7)
    assert {finding["kind"] for finding in status["findings"]} == {"index_damaged"}
    assert status["blocks_not_indexed"] > 0
    said = filled.try_cli("check", "--store", limit_s=CHECK_LIMIT_S).stdout
    assert "no data is lost by it" in said and "that the fingerprint index does not know" in said


@pytest.fixture
def slow(make_gateway: GatewayFactory, s3: S3Server, proxy: FaultProxy) -> Gateway:
    """Its store takes so long that a check is under way for a while."""
    settings = s3_settings(proxy.endpoint)
    settings["store"]["object_bytes_max"] = "256KiB"
    gateway = make_gateway(settings, s3.environment).start()
    gateway.create_volume("vol", "256MiB")
    with gateway.disk("vol") as disk:
        for number in range(48):
            disk.write(number * MIB, random.Random(SEED + number).randbytes(MIB))
    gateway.drain()
    proxy.faults.delay_s = 0.4
    return gateway


def latest(gateway: Gateway) -> dict[str, Any]:
    kept = gateway.state_directory / "store-check.json"
    status: dict[str, Any] = json.loads(kept.read_text())["status"] if kept.exists() else {}
    return status


def until_objects_are_noted(gateway: Gateway, count: int, limit_s: float = 60.0) -> dict[str, Any]:
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        status = latest(gateway)
        if status.get("objects_checked", 0) >= count:
            return status
        time.sleep(0.1)
    raise AssertionError(f"not so many objects are checked: {latest(gateway)}")


def begin(gateway: Gateway, log: Path, *words: str) -> Process:
    client = Process("check", log)
    client.start([gateway.binary, "--socket", gateway.admin_socket, "check", "--store", *words], gateway.environment)
    return client


def test_a_check_outlives_its_client_and_its_gateway(slow: Gateway, proxy: FaultProxy, tmp_path: Path) -> None:
    total = slow.status()["objects"]
    assert total >= 80, "enough to be interrupted"
    client = begin(slow, tmp_path / "first.log", "--json")
    until_objects_are_noted(slow, 1)
    client.kill9()
    # It goes on without anybody who waits; the next client joins it.
    joined = begin(slow, tmp_path / "second.log", "--json")
    noted = until_objects_are_noted(slow, 17)
    slow.kill9()
    assert joined.wait(30) not in (0, 7), "a gateway that is gone has found nothing"
    kept = latest(slow)
    assert noted["objects_checked"] <= kept["objects_checked"] < total
    slow.start()
    before = proxy.counts.methods.get("GET", 0)
    proxy.faults.delay_s = 0.0
    done = slow.try_cli("check", "--store", "--resume", "--json", limit_s=CHECK_LIMIT_S)
    status = json.loads(done.stdout)
    assert (done.returncode, status["resumed"], status["state"]) == (0, True, "finished"), done.stdout
    assert status["objects_checked"] == total
    # Objects that had been verified were not fetched again.
    assert proxy.counts.methods["GET"] - before <= total - kept["objects_checked"] + 8
    assert not (slow.state_directory / "store-check.json").exists()
    again = slow.cli("check", "--store", "--resume", "--json", limit_s=CHECK_LIMIT_S)
    assert not json.loads(again)["resumed"], "nothing was interrupted"


def test_what_was_found_before_an_interruption_is_told_after_it(
    slow: Gateway, proxy: FaultProxy, tmp_path: Path
) -> None:
    slow.stop()
    for path in (slow.state_directory / "index").glob("*.run"):
        damaged = bytearray(path.read_bytes())
        damaged[100] ^= 1
        path.write_bytes(damaged)
    slow.start()
    begin(slow, tmp_path / "first.log")
    until_objects_are_noted(slow, 1)
    slow.kill9()
    slow.start()
    proxy.faults.delay_s = 0.0
    done = slow.try_cli("check", "--store", "--resume", "--json", limit_s=CHECK_LIMIT_S)
    status = json.loads(done.stdout)
    assert (done.returncode, status["resumed"]) == (7, True)
    kinds = [finding["kind"] for finding in status["findings"]]
    assert set(kinds) == {"index_damaged"} and len(kinds) == status["findings_count"]


def test_the_progress_is_told_as_text_and_as_json(slow: Gateway, tmp_path: Path) -> None:
    text = begin(slow, tmp_path / "text.log")
    as_json = begin(slow, tmp_path / "json.log", "--json")
    assert (text.wait(CHECK_LIMIT_S), as_json.wait(CHECK_LIMIT_S)) == (0, 0)
    told = [line for line in (tmp_path / "text.log").read_text().splitlines() if " objects, " in line]
    assert told and "/s, 0 findings" in told[-1] and "MiB of" in told[-1], told
    lines = [line for line in (tmp_path / "json.log").read_text().splitlines() if line.startswith('{"')]
    under_way = [json.loads(line) for line in lines]
    stages = {status["stage"] for status in under_way if status["state"] == "running"}
    assert "objects" in stages, stages
    last = under_way[-1]
    assert 0 < last["objects_checked"] <= last["objects"] and last["bytes_per_s"] > 0 and last["bytes"] > 0


def test_a_store_that_does_not_answer_is_not_called_damaged(
    make_gateway: GatewayFactory, s3: S3Server, proxy: FaultProxy
) -> None:
    gateway = make_gateway(s3_settings(proxy.endpoint) | {"flush": {"stall_timeout_ms": 1000}}, s3.environment).start()
    gateway.create_volume("vol", "64MiB")
    with gateway.disk("vol") as disk:
        disk.write(0, random.Random(SEED).randbytes(MIB))
    gateway.drain()
    proxy.refuse()
    status = checked(gateway, 1)
    assert (status["state"], status["findings_count"]) == ("failed", 0)
    assert "cannot connect" in status["error"]


def test_a_check_whose_progress_cannot_be_kept_is_made_all_the_same(filled: Gateway) -> None:
    (filled.state_directory / "store-check.json").mkdir()
    status = json.loads(filled.cli("check", "--store", "--json", limit_s=120))
    assert (status["state"], status["findings_count"], status["error"]) == ("finished", 0, None), status
    assert "store-check.json" in filled.process.log_tail()
