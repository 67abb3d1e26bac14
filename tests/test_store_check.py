"""`tombolo check --store` reads and verifies every object, and names what is missing, altered, or nobody's."""

import json
import random
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from conftest import SEED, GatewayFactory, s3_settings
from harness.fault_proxy import FaultProxy
from harness.gateway import Gateway
from harness.object_store import S3Server

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


def test_objects_that_are_put_meanwhile_are_no_orphans(filled: Gateway) -> None:
    ended = threading.Event()

    def write() -> None:
        generator = random.Random(SEED + 2)
        with filled.disk("vol") as disk:
            while not ended.is_set():
                disk.write(generator.randrange(60) * MIB, generator.randbytes(MIB))

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(5):
            status = checked(filled, 0)
            assert status["orphans_count"] == 0
    finally:
        ended.set()
        writer.join()


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
