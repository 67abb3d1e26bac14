"""What leaves the machine is encrypted and can be read by whoever has the master key, and by nobody else; keys that are
wrong, missing or replaced are named exactly and harm nothing. Objects are read by harness/store_reader, which is
written from docs/FORMAT.md alone."""

import hashlib
import json
import os
import random
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from conftest import SEED, GatewayFactory, s3_settings
from harness.fault_proxy import FaultProxy
from harness.gateway import Gateway, merged
from harness.nbd import NbdError
from harness.object_store import S3Server
from harness.store_reader import BLOCK, key_id, read_store

MIB = 1 << 20
CLEAR = {"store": {"encryption": "none"}}
PHRASE = b"the quick brown fox jumps over the lazy dog; "


def contents() -> bytes:
    """Half of it shrinks, half does not."""
    text = b"".join(f"{line:08} ".encode() + PHRASE for line in range(MIB // 40))[:MIB]
    return text + random.Random(SEED).randbytes(MIB)


def write(gateway: Gateway, data: bytes, at: int = 0) -> None:
    with gateway.disk("vol") as disk:
        disk.write(at, data)
        disk.flush()
    gateway.drain()


def reads(gateway: Gateway, data: bytes, at: int = 0) -> bool:
    with gateway.disk("vol") as disk:
        return disk.read(at, len(data)) == data


def without_cache(gateway: Gateway) -> None:
    """Everything is in the store; what the cache held of it is dropped."""
    gateway.stop()
    gateway.cache_file.unlink()
    gateway.start()


def master_of(gateway: Gateway, name: str = "master.key") -> bytes:
    return bytes.fromhex((gateway.state_directory / name).read_text())


def blocks_of(data: bytes) -> set[bytes]:
    return {data[place : place + BLOCK] for place in range(0, len(data), BLOCK)}


def stored_bytes(gateway: Gateway) -> bytes:
    return b"".join(path.read_bytes() for path in gateway.store_directory.rglob("*") if path.is_file())


@pytest.fixture
def filled(gateway: Gateway) -> Gateway:
    """In several objects."""
    gateway.stop()
    gateway.settings = merged(gateway.settings, {"store": {"object_bytes_max": "256KiB"}})
    gateway.start()
    gateway.create_volume("vol", "64MiB")
    write(gateway, contents())
    return gateway


def test_nothing_in_the_store_can_be_read_without_the_master_key(filled: Gateway) -> None:
    stored = stored_bytes(filled)
    assert PHRASE not in stored
    for block in blocks_of(contents()):
        assert block[:64] not in stored
        assert hashlib.sha256(block).digest() not in stored
    names = " ".join(str(path) for path in filled.store_directory.rglob("*")).replace("/", "")
    assert not any(hashlib.sha256(block).hexdigest()[8:] in names for block in blocks_of(contents()))
    secrets = [master_of(filled)]
    assert all(secret not in stored and secret.hex().encode() not in stored for secret in secrets)


def test_whoever_has_the_master_key_can_read_everything_from_the_store(filled: Gateway) -> None:
    read = read_store(filled.store_directory, master_of(filled))
    assert {block.data for block in read} == blocks_of(contents())


def test_no_key_is_ever_shown(filled: Gateway) -> None:
    secret = (filled.state_directory / "master.key").read_text().strip()
    said = filled.cli("key", "list") + filled.cli("status") + filled.cli("status", "--json") + filled.metrics()
    said += filled.process.log_path.read_text()
    assert secret not in said
    assert f"{key_id(bytes.fromhex(secret)):016x}" in said
    assert oct((filled.state_directory / "master.key").stat().st_mode & 0o777) == "0o600"
    assert oct((filled.state_directory / "keys").stat().st_mode & 0o777) == "0o600"


def test_a_first_start_says_that_the_master_key_must_be_kept(filled: Gateway) -> None:
    log = filled.process.log_path.read_text()
    assert str(filled.state_directory / "master.key") in log
    assert "COPY THIS FILE TO A SAFE PLACE" in log
    filled.restart()
    assert filled.process.log_path.read_text().count("COPY THIS FILE") == 1


def test_a_replaced_data_key_leaves_what_is_there_readable(filled: Gateway) -> None:
    before = json.loads(filled.cli("key", "list", "--json"))["data_keys"]
    objects = {path for path in filled.store_directory.rglob("*") if path.is_file()}
    after = json.loads(filled.cli("key", "rotate", "--json"))["data_keys"]
    assert after[:-1] == before
    more = random.Random(SEED + 1).randbytes(MIB)
    write(filled, more, at=8 * MIB)
    assert objects < {path for path in filled.store_directory.rglob("*") if path.is_file()}
    without_cache(filled)
    assert json.loads(filled.cli("key", "list", "--json"))["data_keys"] == after
    assert reads(filled, contents()) and reads(filled, more, at=8 * MIB)
    read = read_store(filled.store_directory, master_of(filled))
    assert {block.data for block in read} == blocks_of(contents() + more)


def new_master_key(gateway: Gateway, name: str) -> Path:
    path = gateway.state_directory / name
    path.write_text(os.urandom(32).hex() + "\n")
    path.chmod(0o600)
    return path


def test_a_replaced_master_key_opens_alone(filled: Gateway) -> None:
    new = new_master_key(filled, "new.key")
    said = filled.cli("key", "rotate", "--master-key-file", str(new))
    assert f'master_key_file = "{new}"' in said
    filled.stop()
    code, refusal = filled.refused_start()
    assert code == 1, refusal
    assert f"{key_id(master_of(filled)):016x}" in refusal and f"{key_id(master_of(filled, 'new.key')):016x}" in refusal
    filled.settings = merged(filled.settings, {"store": {"master_key_file": str(new)}})
    filled.start()
    without_cache(filled)
    assert reads(filled, contents())
    read = read_store(filled.store_directory, master_of(filled, "new.key"))
    assert {block.data for block in read} == blocks_of(contents())


def test_a_lost_master_key_is_asked_for_and_nothing_is_made_in_its_place(filled: Gateway) -> None:
    filled.stop()
    key = filled.state_directory / "master.key"
    kept = filled.folder / "kept.key"
    shutil.move(key, kept)
    stored = stored_bytes(filled)
    for _ in range(2):
        code, refusal = filled.refused_start()
        assert code == 1 and str(key) in refusal and "put back the copy" in refusal, refusal
        assert not key.exists() and stored_bytes(filled) == stored
    shutil.move(kept, key)
    filled.start()
    without_cache(filled)
    assert reads(filled, contents())


def test_lost_data_keys_of_the_state_directory_come_back_from_the_store(filled: Gateway) -> None:
    filled.stop()
    (filled.state_directory / "keys").unlink()
    filled.start()
    without_cache(filled)
    assert reads(filled, contents())


def test_encryption_can_be_turned_on_and_off(make_gateway: GatewayFactory) -> None:
    gateway = make_gateway(CLEAR).start()
    gateway.create_volume("vol", "64MiB")
    clear, encrypted, clear_again = (random.Random(seed).randbytes(MIB) for seed in range(3))
    write(gateway, clear)
    assert clear[:BLOCK] in stored_bytes(gateway)
    assert "whoever can read the store" in gateway.cli("status")
    assert not (gateway.state_directory / "master.key").exists()
    for place, data, algorithm in ((1, encrypted, "aes-256-gcm"), (2, clear_again, "none")):
        gateway.stop()
        gateway.settings = merged(gateway.settings, {"store": {"encryption": algorithm}})
        gateway.start()
        write(gateway, data, at=place * MIB)
    stored = stored_bytes(gateway)
    assert encrypted[:BLOCK] not in stored and clear_again[:BLOCK] in stored
    without_cache(gateway)
    assert reads(gateway, clear + encrypted + clear_again)
    read = read_store(gateway.store_directory, master_of(gateway))
    assert {block.data for block in read} == blocks_of(clear + encrypted + clear_again)


def test_an_object_in_the_place_of_another_is_not_served(filled: Gateway) -> None:
    filled.stop()
    first, second, *_ = sorted(path for path in (filled.store_directory / "objects").rglob("*") if path.is_file())
    kept = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(kept)
    filled.cache_file.unlink()
    filled.start()
    data = contents()
    wrong = failed = 0
    with filled.disk("vol") as disk:
        for place in range(0, len(data), BLOCK):
            try:
                wrong += disk.read(place, BLOCK) != data[place : place + BLOCK]
            except NbdError:
                failed += 1
    assert wrong == 0
    assert 0 < failed <= 2 * 64
    assert "does not authenticate" in filled.process.log_path.read_text()


def test_a_second_gateway_does_not_begin_in_the_store_of_another(filled: Gateway, make_gateway: GatewayFactory) -> None:
    stored = stored_bytes(filled)
    for settings in ({}, CLEAR):
        second = make_gateway(merged({"store": {"url": f"dir:{filled.store_directory}"}}, settings))
        for _ in range(2):
            code, refusal = second.refused_start()
            assert code == 1 and "one gateway serves one prefix" in refusal, refusal
        assert not (second.state_directory / "master.key").exists()
        assert stored_bytes(filled) == stored


def test_a_mistyped_store_gets_no_keys(filled: Gateway) -> None:
    filled.stop()
    mistyped = filled.folder / "mistyped"
    mistyped.mkdir()
    filled.settings = merged(filled.settings, {"store": {"url": f"dir:{mistyped}"}})
    for _ in range(2):
        code, refusal = filled.refused_start()
        assert code == 1 and "has none of the objects" in refusal, refusal
    assert not (mistyped / "keys").exists()


def test_a_rotation_that_waits_for_the_store_keeps_nobody_waiting(
    make_gateway: GatewayFactory, s3: S3Server, proxy: FaultProxy
) -> None:
    gateway = make_gateway(s3_settings(proxy.endpoint), s3.environment).start()
    before = json.loads(gateway.cli("key", "list", "--json"))
    proxy.refuse()
    command: list[str | Path] = [gateway.binary, "--socket", gateway.admin_socket, "key", "rotate"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ | gateway.environment) as waiting:
        for _ in range(20):
            begun = time.monotonic()
            assert gateway.status()["encryption"] == before
            assert time.monotonic() - begun < 5
            time.sleep(0.1)
        _, said = waiting.communicate(timeout=60)
        assert waiting.returncode == 6 and "cannot connect" in said, said
    proxy.listen()
    gateway.restart()
    assert json.loads(gateway.cli("key", "list", "--json")) == before


def test_keys_that_are_gone_are_not_replaced(filled: Gateway) -> None:
    filled.stop()
    local, stored = filled.state_directory / "keys", filled.store_directory / "keys"
    kept = filled.folder / "kept"
    shutil.move(stored, kept)
    local.unlink()
    for settings in ({}, CLEAR):
        changed = merged(filled.settings, settings)
        filled.settings, before = changed, filled.settings
        for _ in range(2):
            code, refusal = filled.refused_start()
            assert code == 1 and "put back one of the two" in refusal, refusal
            assert not local.exists() and not stored.exists()
        filled.settings = before
    shutil.move(kept, stored)
    filled.start()
    without_cache(filled)
    assert reads(filled, contents())


def test_a_wrong_url_without_local_keys_spoils_nothing(filled: Gateway, make_gateway: GatewayFactory) -> None:
    other = make_gateway().start()
    other.create_volume("vol", "64MiB")
    write(other, random.Random(SEED + 5).randbytes(MIB))
    other.stop()
    filled.stop()
    (filled.state_directory / "keys").unlink()
    right = filled.settings
    empty = filled.folder / "empty"
    empty.mkdir()
    for wrong in (empty, other.store_directory):
        filled.settings = merged(right, {"store": {"url": f"dir:{wrong}"}})
        code, refusal = filled.refused_start()
        assert code == 1 and "has none of the objects" in refusal, refusal
    assert not (empty / "keys").exists()
    filled.settings = right
    filled.start()
    without_cache(filled)
    assert reads(filled, contents())


def test_keys_are_replaced_in_a_bucket_too(make_gateway: GatewayFactory, s3: S3Server) -> None:
    gateway = make_gateway(s3_settings(s3.endpoint), s3.environment).start()
    gateway.create_volume("vol", "64MiB")
    write(gateway, contents())
    gateway.cli("key", "rotate")
    new = new_master_key(gateway, "new.key")
    gateway.cli("key", "rotate", "--master-key-file", str(new))
    gateway.settings = merged(gateway.settings, {"store": {"master_key_file": str(new)}})
    without_cache(gateway)
    assert reads(gateway, contents())
    gateway.cli("check", "--store")
