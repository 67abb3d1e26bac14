"""A master key that a key of AWS KMS wraps: the gateway starts, changes keys and recovers with it, and says exactly
what is wrong when KMS refuses or is away. The service is moto's server, with what harness/kms_server.py adds."""

import base64
import json
import random
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from conftest import SEED, GatewayFactory, s3_settings
from harness.fault_proxy import FaultProxy
from harness.gateway import Gateway, merged
from harness.kms import ANYBODY, KmsServer
from harness.object_store import S3Server
from harness.store_reader import key_id, read_store
from harness.store_reader.__main__ import main as read_store_main
from harness.store_reader.heads import Wrapping, read_wrapping
from harness.store_reader.kms import unwrap
from test_encryption import MIB, blocks_of, contents, new_master_key, reads, stored_bytes, without_cache, write

ALIAS = "alias/tombolo"


@pytest.fixture
def kms(folder: Path, closing: ExitStack, monkeypatch: pytest.MonkeyPatch) -> KmsServer:
    """A server of KMS that answers everybody. The test's own clients have credentials that it takes."""
    for name, value in ANYBODY.items():
        monkeypatch.setenv(name, value)
    server = KmsServer(folder / "kms")
    closing.callback(server.close)
    server.start()
    return server


def at_kms(kms: KmsServer, key: str, endpoint: str | None = None) -> dict[str, Any]:
    return {"store": {"master_key_kms": key, "master_key_kms_endpoint": endpoint or kms.endpoint}}


def use(gateway: Gateway, key: str) -> None:
    """A key of KMS in place of any other master key."""
    store = gateway.settings["store"]
    store.pop("master_key_file", None)
    store["master_key_kms"] = key


def use_file(gateway: Gateway, file: Path) -> None:
    del gateway.settings["store"]["master_key_kms"]
    gateway.settings["store"]["master_key_file"] = str(file)


def filled(gateway: Gateway) -> Gateway:
    gateway.start()
    gateway.create_volume("vol", "64MiB")
    write(gateway, contents())
    return gateway


def wrapping_in(gateway: Gateway) -> Wrapping:
    wrapping = read_wrapping((gateway.store_directory / "keys").read_bytes())
    assert wrapping is not None
    return wrapping


def keys_of(gateway: Gateway) -> dict[str, Any]:
    listed: dict[str, Any] = json.loads(gateway.cli("key", "list", "--json"))
    return listed


def refused(gateway: Gateway) -> str:
    """What a start says that must change nothing, twice over."""
    stored, local = stored_bytes(gateway), (gateway.state_directory / "keys").read_bytes()
    gateway.refused_start()
    code, refusal = gateway.refused_start()
    assert code == 1, refusal
    assert stored_bytes(gateway) == stored and (gateway.state_directory / "keys").read_bytes() == local
    return refusal


def test_a_gateway_lives_on_a_key_of_kms(kms: KmsServer, make_gateway: GatewayFactory) -> None:
    arn = kms.create_key(ALIAS)
    gateway = filled(make_gateway(at_kms(kms, ALIAS), ANYBODY))
    assert "never delete it" in gateway.process.log_path.read_text()
    assert not (gateway.state_directory / "master.key").exists()
    assert (gateway.state_directory / "keys").read_bytes() == (gateway.store_directory / "keys").read_bytes()
    wrapping = wrapping_in(gateway)
    master = unwrap(wrapping, kms.endpoint)
    assert wrapping.key_name == arn
    listed = keys_of(gateway)
    assert listed["wrapped_by"] == arn and listed["master_key"] == f"{key_id(master):016x}"
    assert arn in gateway.cli("key", "list")
    without_cache(gateway)
    assert reads(gateway, contents())
    for name in (wrapping.key_name, arn.rpartition("/")[2], ALIAS):
        gateway.stop()
        use(gateway, name)
        gateway.start()
    assert keys_of(gateway) == listed
    # Nothing is asked of KMS while data keys change.
    kms.change_key(arn, "disable_key")
    before = (gateway.store_directory / "keys").read_bytes()
    assert len(json.loads(gateway.cli("key", "rotate", "--json"))["data_keys"]) == 2
    assert (gateway.store_directory / "keys").read_bytes() != before
    kms.change_key(arn, "enable_key")
    more = random.Random(SEED + 1).randbytes(MIB)
    write(gateway, more, at=8 * MIB)
    without_cache(gateway)
    assert reads(gateway, contents()) and reads(gateway, more, at=8 * MIB)
    assert {block.data for block in read_store(gateway.store_directory, master)} == blocks_of(contents() + more)


def test_no_master_key_is_ever_shown(kms: KmsServer, make_gateway: GatewayFactory) -> None:
    other = kms.create_key()
    kms.create_key(ALIAS)
    gateway = filled(make_gateway(merged(at_kms(kms, ALIAS), {"log": {"level": "trace"}}), ANYBODY))
    masters = [unwrap(wrapping_in(gateway), kms.endpoint)]
    said = gateway.cli("key", "rotate", "--master-key-kms", other)
    masters.append(unwrap(wrapping_in(gateway), kms.endpoint))
    assert masters[0] != masters[1]
    gateway.stop()
    use(gateway, other)
    gateway.start()
    said += gateway.cli("key", "list") + gateway.cli("status", "--json") + gateway.metrics()
    said += gateway.process.log_path.read_text()
    said += "".join(Path(f"/proc/{gateway.process.pid}/{name}").read_text() for name in ("cmdline", "environ"))
    assert f"{key_id(masters[1]):016x}" in said
    stored = stored_bytes(gateway) + (gateway.state_directory / "keys").read_bytes()
    for master in masters:
        for shown in (master.hex(), base64.b64encode(master).decode(), str(master)[2:-1]):
            assert shown not in said
        assert master not in stored and base64.b64encode(master) not in stored
    assert ANYBODY["AWS_SECRET_ACCESS_KEY"] not in gateway.process.log_path.read_text()


def test_a_master_key_goes_from_a_file_to_kms_and_back(kms: KmsServer, make_gateway: GatewayFactory) -> None:
    first, second = kms.create_key(ALIAS), kms.create_key()
    gateway = filled(make_gateway({"store": {"master_key_kms_endpoint": kms.endpoint}}, ANYBODY))
    objects = {path: path.read_bytes() for path in (gateway.store_directory / "objects").rglob("*") if path.is_file()}
    old = (gateway.state_directory / "master.key").read_text().strip()
    said = gateway.cli("key", "rotate", "--master-key-kms", ALIAS)
    assert f'master_key_kms = "{ALIAS}"' in said and first in said
    gateway.stop()
    assert f"AWS KMS key {first} wraps; name that in [store] master_key_kms" in refused(gateway)
    (gateway.state_directory / "master.key").unlink()
    assert f"AWS KMS key {first} wraps; name that in [store] master_key_kms" in refused(gateway)
    use(gateway, ALIAS)
    gateway.start()
    without_cache(gateway)
    assert reads(gateway, contents())
    for key in (second, second):
        before = keys_of(gateway)
        gateway.cli("key", "rotate", "--master-key-kms", key)
        after = keys_of(gateway)
        assert after["wrapped_by"] == second and after["master_key"] != before["master_key"]
        assert after["data_keys"] == before["data_keys"]
    gateway.stop()
    assert f"is not the one that wraps the master key, which is {second}" in refused(gateway)
    use(gateway, second)
    gateway.start()
    file = new_master_key(gateway, "new.key")
    gateway.cli("key", "rotate", "--master-key-file", str(file))
    assert keys_of(gateway)["wrapped_by"] is None
    gateway.stop()
    assert "which no key of AWS KMS wraps; name it in [store] master_key_file" in refused(gateway)
    use_file(gateway, file)
    gateway.start()
    without_cache(gateway)
    assert reads(gateway, contents())
    assert {path: path.read_bytes() for path in objects} == objects
    assert old not in gateway.process.log_path.read_text()


def test_what_kms_refuses_is_said_and_changes_nothing(kms: KmsServer, make_gateway: GatewayFactory) -> None:
    arn, other = kms.create_key(ALIAS), kms.create_key()
    gateway = filled(make_gateway(at_kms(kms, ALIAS), ANYBODY))
    gateway.stop()
    kms.change_key(arn, "disable_key")
    assert f'AWS KMS key "{ALIAS}" is disabled or about to be deleted' in refused(gateway)
    kms.change_key(arn, "enable_key")
    kms.change_key(arn, "schedule_key_deletion")
    assert f'AWS KMS key "{ALIAS}" is disabled or about to be deleted' in refused(gateway)
    kms.change_key(arn, "cancel_key_deletion")
    kms.change_key(arn, "enable_key")
    for key, what in (
        ("alias/nobody", 'AWS KMS key "alias/nobody" does not exist'),
        (other, f'AWS KMS key "{other}" is not the one that wraps the master key, which is {arn}'),
    ):
        use(gateway, key)
        refusal = refused(gateway)
        assert what in refusal and "master_key_kms" in refusal, refusal
    use(gateway, ALIAS)
    gateway.start()
    before = keys_of(gateway)
    for key in ("alias/nobody", "two words"):
        done = gateway.try_cli("key", "rotate", "--master-key-kms", key)
        assert done.returncode == 2 and ("is not the id" in done.stderr or key in done.stderr), done.stderr
    assert keys_of(gateway) == before
    without_cache(gateway)
    assert reads(gateway, contents())


def test_signatures_and_permissions(kms: KmsServer, make_gateway: GatewayFactory) -> None:
    kms.create_key(ALIAS)
    may = kms.create_user("gateway", "kms:Encrypt", "kms:Decrypt")
    may_not = kms.create_user("visitor", "kms:DescribeKey")
    kms.require_signatures()
    gateway = filled(make_gateway(at_kms(kms, ALIAS), may))
    gateway.stop()
    gateway.environment = may_not
    refusal = refused(gateway)
    assert "access denied" in refusal and "these credentials need kms:Decrypt" in refusal, refusal
    for wrong in ({"AWS_SECRET_ACCESS_KEY": "wrong"}, {"AWS_ACCESS_KEY_ID": "AKIANOBODY"}):
        gateway.environment = may | wrong
        refusal = refused(gateway)
        assert f"no credentials that {kms.endpoint} accepts" in refusal, refusal
        assert may["AWS_SECRET_ACCESS_KEY"] not in refusal
    gateway.environment = may
    gateway.start()
    assert reads(gateway, contents())


@pytest.fixture
def kms_proxy(kms: KmsServer, closing: ExitStack) -> FaultProxy:
    """Between a gateway and its key service."""
    proxy = FaultProxy(kms.port, SEED)
    proxy.start()
    closing.callback(proxy.close)
    return proxy


def test_a_start_without_kms_ends_and_the_next_one_goes_on(
    kms: KmsServer, kms_proxy: FaultProxy, make_gateway: GatewayFactory
) -> None:
    kms.create_key(ALIAS)
    gateway = make_gateway(at_kms(kms, ALIAS, kms_proxy.endpoint), ANYBODY)
    kms_proxy.refuse()
    for _ in range(2):
        code, refusal = gateway.refused_start()
        assert code == 1 and f"no answer from {kms_proxy.endpoint}" in refusal, refusal
    assert not (gateway.store_directory / "keys").exists()
    kms_proxy.listen()
    filled(gateway)
    kms_proxy.refuse()
    begun = time.monotonic()
    done = gateway.try_cli("key", "rotate", "--master-key-kms", ALIAS)
    assert done.returncode == 6 and "no answer from" in done.stderr, done.stderr
    assert time.monotonic() - begun < 30
    gateway.cli("key", "rotate")
    listed = keys_of(gateway)
    gateway.stop()
    assert f"no answer from {kms_proxy.endpoint}" in refused(gateway)
    kms_proxy.listen()
    # Errors in the server are gone past by asking again.
    kms_proxy.faults.error_fraction = 0.2
    gateway.start()
    assert keys_of(gateway) == listed
    without_cache(gateway)
    assert reads(gateway, contents())


def test_a_silent_kms_is_not_waited_for_without_end(
    kms: KmsServer, kms_proxy: FaultProxy, make_gateway: GatewayFactory
) -> None:
    kms.create_key(ALIAS)
    gateway = filled(make_gateway(at_kms(kms, ALIAS, kms_proxy.endpoint), ANYBODY))
    gateway.stop()
    kms_proxy.faults.delay_s = 600
    begun = time.monotonic()
    code, refusal = gateway.refused_start()
    assert code == 1 and "nothing came within 30 s" in refusal, refusal
    assert time.monotonic() - begun < 50
    kms_proxy.faults.delay_s = 0
    gateway.start()
    assert reads(gateway, contents())


def test_bucket_and_kms_are_enough_after_the_loss_of_the_machine(
    kms: KmsServer, s3: S3Server, make_gateway: GatewayFactory, tmp_path: Path
) -> None:
    arn = kms.create_key(ALIAS, region="eu-central-1")
    # The region is in the name of the key; the bucket is in another one.
    gateway = filled(make_gateway(merged(s3_settings(s3.endpoint), at_kms(kms, arn)), s3.environment))
    gateway.cli("key", "rotate")
    more = random.Random(SEED + 1).randbytes(MIB)
    write(gateway, more, at=8 * MIB)
    words = [gateway.settings["store"]["url"], "--endpoint", s3.endpoint, "--kms-endpoint", kms.endpoint]
    gateway.lose_state()
    kms.change_key(arn, "disable_key")
    done = gateway.try_recover("--take-over")
    assert done.returncode == 1 and "is disabled" in done.stderr, done.stderr
    assert read_store_main([*words, "verify"]) == 1
    kms.change_key(arn, "enable_key")
    assert read_store_main([*words, "verify"]) == 0
    assert read_store_main([*words, "export", "vol", str(tmp_path / "vol")]) == 0
    exported = (tmp_path / "vol").read_bytes()
    assert exported[: len(contents())] == contents() and exported[8 * MIB : 9 * MIB] == more
    gateway.recover("--take-over")
    gateway.start()
    assert keys_of(gateway)["wrapped_by"] == arn
    assert reads(gateway, contents()) and reads(gateway, more, at=8 * MIB)


def test_a_rotation_whose_answer_was_lost_is_taken_up(kms: KmsServer, make_gateway: GatewayFactory) -> None:
    kms.create_key(ALIAS)
    second = kms.create_key()
    gateway = filled(make_gateway(at_kms(kms, ALIAS), ANYBODY))
    stored, local = gateway.store_directory / "keys", gateway.state_directory / "keys"
    before = stored.read_bytes()
    gateway.cli("key", "rotate", "--master-key-kms", second)
    after, rotated = stored.read_bytes(), keys_of(gateway)
    gateway.stop()
    for path in (stored, local):
        path.write_bytes(before)
    gateway.start()
    # The store has what the gateway does not know of yet.
    stored.write_bytes(after)
    done = gateway.try_cli("key", "rotate")
    assert done.returncode != 0 and "is not this gateway's any more" in done.stderr, done.stderr
    gateway.cli("key", "rotate", "--master-key-kms", second)
    assert keys_of(gateway) == rotated and stored.read_bytes() == local.read_bytes() == after
    gateway.stop()
    # The same, and the gateway has ended meanwhile.
    local.write_bytes(before)
    assert f"is not the one that wraps the master key, which is {second}" in refused(gateway)
    use(gateway, second)
    gateway.start()
    assert keys_of(gateway) == rotated and local.read_bytes() == after
    assert reads(gateway, contents())


def test_an_interrupted_first_start_goes_on_with_the_master_key_that_it_made(
    kms: KmsServer, s3: S3Server, proxy: FaultProxy, make_gateway: GatewayFactory
) -> None:
    kms.create_key(ALIAS)
    gateway = make_gateway(merged(s3_settings(proxy.endpoint), at_kms(kms, ALIAS)), s3.environment)
    proxy.faults.refuses = lambda method, path, _: method == "PUT" and path.endswith("/keys")
    left = []
    for _ in range(2):
        code, refusal = gateway.refused_start()
        assert code == 1 and "start again when it answers" in refusal, refusal
        left.append(read_wrapping((gateway.state_directory / "keys.new").read_bytes()))
    proxy.faults.refuses = None
    gateway.start()
    assert left[0] is not None and left[0] == left[1]
    assert keys_of(gateway)["master_key"] == f"{left[0].master_key:016x}"


def test_a_wrapped_master_key_that_was_altered_is_found(kms: KmsServer, make_gateway: GatewayFactory) -> None:
    kms.create_key(ALIAS)
    gateway = filled(make_gateway(at_kms(kms, ALIAS), ANYBODY))
    gateway.stop()
    stored, local = gateway.store_directory / "keys", gateway.state_directory / "keys"
    whole = stored.read_bytes()
    wrapping = wrapping_in(gateway)
    place = whole.index(wrapping.wrapped) + len(wrapping.wrapped) - 1
    altered = whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :]
    stored.write_bytes(altered)
    code, refusal = gateway.refused_start()
    assert code == 1 and f"{local} is whole" in refusal, refusal
    assert local.read_bytes() == whole
    local.unlink()
    code, refusal = gateway.refused_start()
    assert code == 1 and "it was altered, or is not this store's" in refusal, refusal
    stored.write_bytes(whole)
    local.write_bytes(altered)
    gateway.start()
    assert local.read_bytes() == whole
    assert reads(gateway, contents())


def test_settings_that_contradict_themselves(make_gateway: GatewayFactory) -> None:
    for changes, what in (
        ({"master_key_kms": ALIAS, "master_key_environment": "KEY"}, "one of the four"),
        ({"master_key_kms": ""}, "it has to name a key"),
        ({"master_key_kms": ALIAS, "master_key_kms_endpoint": "http://kms.example"}, "holds the master key"),
    ):
        gateway = make_gateway({"store": changes}, ANYBODY)
        code, refusal = gateway.refused_start()
        assert code != 0 and what in refusal, refusal
    without_region = ANYBODY | {"AWS_REGION": ""}
    gateway = make_gateway({"store": {"master_key_kms": ALIAS}}, without_region)
    code, refusal = gateway.refused_start()
    assert code == 1 and "region" in refusal and not (gateway.store_directory / "keys").exists(), refusal
