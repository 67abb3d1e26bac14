"""Volumes and shares in two stores of one daemon: nothing crosses, each bucket is enough alone, and what keeps one
store from serving keeps no other."""

import json
import shutil
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from conftest import BUCKET, SEED, GatewayFactory, s3_settings
from harness.ganesha import Ganesha
from harness.gateway import Gateway, merged
from harness.mount import Mount
from harness.nfs import NfsFrontEnd
from harness.object_store import S3Server
from harness.tools import wait_for
from harness.two_stores import TwoStores, far_store
from test_recover import MIB, noise, read, write

QUICK: dict[str, Any] = {
    "flush": {"recovery_point_ms": 300, "flush_delay_ms": 100, "dirty_bytes_max": "8MiB", "stall_timeout_ms": 5_000},
    "store": {"lease_ms": 1_500},
    "cache": {"size": "16MiB"},
    "prefetch": {"policy": "none", "window_bytes_max": "1MiB"},
    "journal": {"store_checkpoint_interval_ms": 1_000},
}


class Stores(TwoStores):
    """The second server has the named store `far`."""

    def settings(self, changes: dict[str, Any] | None = None) -> dict[str, Any]:
        far = {
            "url": f"s3://{BUCKET}/far",
            "endpoint": self.proxy.endpoint,
            "region": "us-east-1",
            "allow_http": True,
            "lease_ms": 1_500,
            "cache_size": "16MiB",
            "dirty_bytes_max": "8MiB",
        }
        named = {"store": {"named": {"far": merged(far, changes or {})}}}
        return merged(merged(QUICK, s3_settings(self.near.endpoint)), named)


@pytest.fixture
def stores(s3: S3Server, folder: Path, closing: ExitStack) -> Stores:
    far, proxy = closing.enter_context(far_store(folder, BUCKET, SEED))
    return Stores(s3, far, proxy, BUCKET)


@pytest.fixture
def gateway(make_gateway: GatewayFactory, stores: Stores) -> Gateway:
    """Serves both, with a volume and a share in each."""
    gateway = make_gateway(stores.settings(), stores.near.environment).start()
    gateway.create_volume("vol", "64MiB")
    gateway.cli("volume", "create", "old", "--size", "64MiB", "--store", "far")
    gateway.create_share("docs")
    gateway.create_share("archive", "--store", "far")
    return gateway


def far_of(gateway: Gateway) -> dict[str, Any]:
    """What the status says of the named store."""
    found: list[dict[str, Any]] = gateway.status()["stores"]
    assert [entry["name"] for entry in found] == ["far"]
    return found[0]


def keys_of(gateway: Gateway, store: str) -> list[Any]:
    found: list[Any] = json.loads(gateway.cli("key", "list", "--json", "--store", store))["data_keys"]
    return found


def mounted(gateway: Gateway, share: str, closing: ExitStack) -> Mount:
    mount = Mount(gateway, share)
    closing.callback(mount.close)
    return mount.start()


def wait_both_covered(gateway: Gateway) -> None:
    def covered() -> bool:
        status = gateway.status()
        both = [status, far_of(gateway)["status"]]
        return all(one["recovery_point"]["age_s"] == 0 and one["dirty_bytes"] == 0 for one in both)

    wait_for(covered, 60, "a recovery point of everything in both stores")


def objects_in(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_volume_in_each_store_has_its_data_there_and_nowhere_else(gateway: Gateway, stores: Stores) -> None:
    data = noise(4)
    for volume in ("vol", "old"):
        write(gateway, data, volume=volume)
    gateway.cli("drain", "--wait", limit_s=60)
    assert gateway.status()["dirty_bytes"] == 0 and far_of(gateway)["status"]["dirty_bytes"] == 0
    # The same was put twice: neither knows what the other has.
    near, far = gateway.status(), far_of(gateway)["status"]
    assert near["stored_bytes"] >= 4 * MIB and far["stored_bytes"] >= 4 * MIB
    assert near["dedup"]["blocks_duplicate"] == far["dedup"]["blocks_duplicate"] == 0
    both = [objects_in(stores.near_objects), objects_in(stores.far_objects)]
    for objects in both:
        assert sum(len(content) for name, content in objects.items()) >= 4 * MIB
    # No object of one is, or names, one of the other but those whose names every store has.
    assert set(both[0]) & set(both[1]) <= {"conditions", "keys", "root"}
    assert all(both[0][name] != both[1][name] for name in ("keys", "root"))
    keys = {gateway.state_directory / "master.key", gateway.state_directory / "stores/far/master.key"}
    assert len({key.read_bytes() for key in keys}) == 2
    for volume in ("vol", "old"):
        assert read(gateway, 4 * MIB, volume=volume) == data
    # The same again in the same store is a duplicate there.
    write(gateway, data, at=16 * MIB, volume="old")
    gateway.cli("drain", "--wait", limit_s=60)
    assert far_of(gateway)["status"]["dedup"]["blocks_duplicate"] >= 4 * MIB // 4096
    assert gateway.status()["dedup"]["blocks_duplicate"] == 0


def test_lists_status_and_metrics_say_what_is_where(gateway: Gateway) -> None:
    assert {entry["name"]: entry.get("store") for entry in gateway.volumes()} == {"vol": None, "old": "far"}
    shares = gateway.shares()
    assert (shares["docs"].get("store"), shares["archive"]["store"]) == (None, "far")
    # The first share of each has the same number.
    assert shares["docs"]["id"] == shares["archive"]["id"]
    assert "STORE" in gateway.cli("volume", "list") and "far" in gateway.cli("share", "list")
    text = gateway.cli("status")
    assert "named store     far: ok: s3://" in text and "old (64MiB, in store far)" in text, text
    lines = gateway.metrics().splitlines()
    for store in ("default", "far"):
        assert any(line.startswith(f'tombolo_dirty_bytes{{store="{store}"}}') for line in lines)
    samples = [line for line in lines if line and not line.startswith("#")]
    assert all('store="' in line for line in samples), samples
    key = json.loads(gateway.cli("key", "list", "--json"))
    far_key = json.loads(gateway.cli("key", "list", "--json", "--store", "far"))
    assert key["master_key"] != far_key["master_key"]
    gateway.cli("checkpoint", "--store", "far")
    gateway.check()
    text = gateway.cli("check")
    assert "store default:" in text and "store far:" in text, text
    of_each = [json.loads(line) for line in gateway.cli("check", "--store", "--json", limit_s=120).splitlines()]
    assert [found["state"] for found in of_each] == ["finished"] * 2, of_each
    assert "store" not in gateway.cli("check", "--of", "far")
    found = json.loads(gateway.cli("check", "--store", "--of", "far", "--json", limit_s=120))
    assert (found["state"], found["findings_count"]) == ("finished", 0), found


def test_commands_are_for_the_store_that_is_named(gateway: Gateway) -> None:
    gateway.cli("policy", "set", "replacement=sarc")
    for words in ((), ("--store", "far")):
        assert json.loads(gateway.cli("policy", "show", "--json", *words))["replacement"] == "sarc"
    before = {store: keys_of(gateway, store) for store in ("default", "far")}
    gateway.cli("key", "rotate", "--store", "far")
    assert keys_of(gateway, "default") == before["default"]
    assert len(keys_of(gateway, "far")) == len(before["far"]) + 1
    trace = gateway.folder / "far.trace"
    gateway.cli("trace", "start", str(trace), "--store", "far")
    write(gateway, noise(1), volume="vol")
    assert json.loads(gateway.cli("trace", "status", "--json", "--store", "far"))["state"] == "recording"
    assert json.loads(gateway.cli("trace", "status", "--json"))["path"] is None
    write(gateway, noise(1), volume="old")
    gateway.cli("trace", "stop", "--store", "far")
    found = json.loads(gateway.cli("trace", "status", "--json", "--store", "far"))
    assert found["state"] == "finished" and 0 < found["records"] < 20, found


def test_policies_change_in_all_stores_or_in_none(make_gateway: GatewayFactory, stores: Stores) -> None:
    settings = merged(stores.settings(), {"cache": {"size": "64MiB"}})
    gateway = make_gateway(settings, stores.near.environment).start()
    assert far_of(gateway)
    before = [gateway.cli("policy", "show", "--json", *words) for words in ((), ("--store", "far"))]
    refused = gateway.try_cli("policy", "set", "replacement=lirs", "window_bytes_max=10MiB")
    assert refused.returncode == 2
    assert "store far: " in refused.stderr, refused.stderr
    after = [gateway.cli("policy", "show", "--json", *words) for words in ((), ("--store", "far"))]
    assert [json.loads(shown)["settings"] for shown in after] == [json.loads(shown)["settings"] for shown in before]
    gateway.cli("policy", "set", "replacement=lirs")
    for words in ((), ("--store", "far")):
        assert json.loads(gateway.cli("policy", "show", "--json", *words))["replacement"] == "lirs"


def test_without_named_stores_nothing_is_told_of_them(make_gateway: GatewayFactory) -> None:
    gateway = make_gateway(QUICK).start()
    gateway.create_volume("vol", "8MiB")
    gateway.create_share("docs")
    assert "stores" not in gateway.status() and "store" not in gateway.volumes()[0]
    assert "store" not in gateway.shares()["docs"]
    assert 'store="' not in gateway.metrics()
    assert "STORE" not in gateway.cli("volume", "list")
    assert not (gateway.state_directory / "stores").exists()


def test_names_are_given_once_and_unknown_stores_are_refused(gateway: Gateway) -> None:
    for words in (
        ("volume", "create", "vol", "--size", "8MiB", "--store", "far"),
        ("volume", "create", "old", "--size", "8MiB"),
        ("share", "create", "docs", "--store", "far"),
        ("share", "create", "archive"),
    ):
        done = gateway.try_cli(*words)
        assert done.returncode == 5 and "exists already" in done.stderr, (words, done.stderr)
    for request in (
        ("volume", "create", "new", "--size", "8MiB"),
        ("share", "create", "new"),
        ("drain",),
        ("checkpoint",),
    ):
        done = gateway.try_cli(*request, "--store", "nowhere")
        assert done.returncode == 2, (request, done.stderr)
        assert "there is no store" in done.stderr and "default, far" in done.stderr, done.stderr
    gateway.cli("volume", "resize", "old", "--size", "72MiB")
    assert {entry["name"]: entry["size_bytes"] for entry in gateway.volumes()}["old"] == 72 * MIB
    gateway.cli("volume", "delete", "old", "--yes")
    gateway.cli("share", "delete", "archive", "--yes")
    assert [entry["name"] for entry in gateway.volumes()] == ["vol"]
    # Free again, in any store.
    gateway.create_volume("old", "8MiB")


@pytest.mark.parametrize("killed", [False, True], ids=["stopped", "killed"])
def test_a_restart_finds_everything_in_both(gateway: Gateway, closing: ExitStack, killed: bool) -> None:
    for seed, volume in enumerate(("vol", "old")):
        write(gateway, noise(3, seed), volume=volume)
    for share in ("docs", "archive"):
        mount = mounted(gateway, share, closing)
        (mount.folder / "file").write_bytes(share.encode() * 1000)
        mount.stop()
    gateway.kill9() if killed else gateway.stop()
    gateway.start()
    for seed, volume in enumerate(("vol", "old")):
        assert read(gateway, 3 * MIB, volume=volume) == noise(3, seed)
    for share in ("docs", "archive"):
        mount = mounted(gateway, share, closing)
        assert (mount.folder / "file").read_bytes() == share.encode() * 1000
        mount.stop()


def test_a_mount_in_a_named_store_outlives_its_daemon(gateway: Gateway, closing: ExitStack) -> None:
    mounts = {share: mounted(gateway, share, closing) for share in ("docs", "archive")}
    opened = {share: (mount.folder / "file").open("wb") for share, mount in mounts.items()}
    for share, file in opened.items():
        file.write(share.encode())
        file.flush()
    gateway.kill9()
    gateway.start()
    for share, file in opened.items():
        with file:
            file.write(b" goes on")
        assert (mounts[share].folder / "file").read_bytes() == share.encode() + b" goes on"
        assert sorted(path.name for path in mounts[share].folder.iterdir()) == ["file"]


def test_one_nfs_server_serves_shares_of_both(gateway: Gateway, folder: Path, closing: ExitStack) -> None:
    """They have the same number, and so do their files."""
    server = Ganesha(folder / "ganesha")
    closing.callback(server.close)
    server.serve_share(gateway, "docs")
    rights = ["--client", "*", "--no-root-squash", "--v3"]
    files = ["--directory", str(server.folder), "--pid-file", str(server.folder / "ganesha.pid")]
    gateway.cli("export", "nfs", "archive", *rights, *files)
    exports = {share: (server.folder / "shares" / f"{share}.conf").read_text() for share in ("docs", "archive")}
    assert "Export_Id = 1;" in exports["docs"] and "File_System" not in exports["docs"]
    assert "Export_Id = 1;" not in exports["archive"] and "File_System = " in exports["archive"]
    # Written anew it has the same numbers: clients' handles have them.
    gateway.cli("export", "nfs", "archive", *rights, *files)
    assert (server.folder / "shares/archive.conf").read_text() == exports["archive"]
    server.start()

    def client(share: str) -> NfsFrontEnd:
        server.pseudo = f"/{share}"
        front_end = server.front_end()
        closing.callback(front_end.close)
        return front_end

    clients = {share: client(share) for share in ("docs", "archive")}
    for share, front_end in clients.items():
        front_end.create("file")
        front_end.write("file", 0, share.encode() * 1000)
    for share, front_end in clients.items():
        assert front_end.read("file", 0, 7000) == (share.encode() * 1000)[:7000]
        assert front_end.names("") == ["file"]
    inodes = [front_end.status("file").inode for front_end in clients.values()]
    assert len(set(inodes)) == 1, "the test is of files with the same number"


def test_a_store_that_is_away_stops_no_other(gateway: Gateway, stores: Stores) -> None:
    gateway.cli("volume", "set", "vol", "--flush", "bucket")
    write(gateway, noise(2, 1))
    write(gateway, noise(2, 2), volume="old")
    wait_both_covered(gateway)
    stores.proxy.refuse()
    write(gateway, noise(2, 3), at=8 * MIB, volume="old")
    wait_for(lambda: far_of(gateway)["status"]["store"]["state"] not in ("ok", "damaged"), 60, "the outage to be told")
    assert gateway.status()["store"]["state"] == "ok"
    # Flushes of the first wait for its bucket, and for no other.
    for place in range(4):
        write(gateway, noise(2, 10 + place), at=8 * MIB + place * 2 * MIB)
    gateway.cli("drain", "--wait", "--store", "default")
    done = gateway.try_cli("drain", "--wait", "--timeout-s", "3", "--store", "far")
    assert done.returncode == 6, done.stderr
    assert gateway.status()["dirty_bytes"] == 0 and far_of(gateway)["status"]["dirty_bytes"] >= 2 * MIB
    # What was acknowledged is read, from its cache.
    assert read(gateway, 2 * MIB, at=8 * MIB, volume="old") == noise(2, 3)
    # Its state is here, so it starts without its store.
    gateway.kill9()
    gateway.start()
    assert read(gateway, 2 * MIB, at=8 * MIB, volume="old") == noise(2, 3)
    for place in range(4):
        assert read(gateway, 2 * MIB, at=8 * MIB + place * 2 * MIB) == noise(2, 10 + place)
    stores.proxy.listen()
    gateway.cli("drain", "--wait", limit_s=90)
    assert far_of(gateway)["status"]["dirty_bytes"] == 0


def test_a_flush_is_of_its_own_store(gateway: Gateway, stores: Stores) -> None:
    """A flush of one does not bring what was written to the other into its bucket."""
    gateway.cli("volume", "set", "old", "--flush", "bucket")
    write(gateway, noise(1, 1), volume="old")
    assert far_of(gateway)["status"]["dirty_bytes"] == 0
    stores.proxy.refuse()
    with gateway.disk("vol") as disk:
        disk.write(0, noise(1, 2))
        disk.flush()


def test_a_store_that_does_not_start_is_told_and_the_others_serve(make_gateway: GatewayFactory, stores: Stores) -> None:
    # A first start needs its store.
    stores.proxy.refuse()
    gateway = make_gateway(stores.settings(), stores.near.environment).start()
    far = far_of(gateway)
    assert far["status"] is None and far["reason"], far
    assert "far: DOES NOT SERVE" in gateway.cli("status")
    assert "\ntombolo_named_stores_absent 1\n" in gateway.metrics()
    checked = gateway.try_cli("check")
    assert checked.returncode == 1 and "store far does not serve" in checked.stderr, checked.stderr
    assert "nothing found" in checked.stdout and "not checked" in checked.stdout, checked.stdout
    lines = [json.loads(line) for line in gateway.try_cli("check", "--json").stdout.splitlines()]
    assert [(line["store"], line["state"]) for line in lines] == [("default", "finished"), ("far", "failed")], lines
    drained = gateway.try_cli("drain", "--wait")
    assert drained.returncode == 6 and "far" in drained.stderr, drained.stderr
    gateway.create_volume("vol", "8MiB")
    write(gateway, noise(1))
    done = gateway.try_cli("volume", "create", "old", "--size", "8MiB", "--store", "far")
    assert done.returncode == 6 and "does not serve" in done.stderr, done.stderr
    gateway.cli("drain", "--wait", "--store", "default")
    # Tried again by itself.
    stores.proxy.listen()
    wait_for(lambda: far_of(gateway)["status"] is not None, 90, "the named store to serve")
    assert far_of(gateway)["reason"] is None
    assert "\ntombolo_named_stores_absent" not in gateway.metrics()
    gateway.cli("volume", "create", "old", "--size", "8MiB", "--store", "far")
    assert read(gateway, MIB) == noise(1)
    gateway.check()


def test_a_mount_waits_for_its_store_that_does_not_start(gateway: Gateway, closing: ExitStack) -> None:
    gateway.stop()
    key = gateway.folder / "far.key"
    shutil.copy(gateway.state_directory / "stores/far/master.key", key)
    gateway.settings = merged(gateway.settings, {"store": {"named": {"far": {"master_key_file": str(key)}}}})
    gateway.start()
    mounts = {share: mounted(gateway, share, closing) for share in ("docs", "archive")}
    for share, mount in mounts.items():
        (mount.folder / "file").write_bytes(share.encode())
    # Without its key it does not start.
    gateway.kill9()
    key.rename(gateway.folder / "away.key")
    gateway.start()
    assert far_of(gateway)["status"] is None and str(key) in far_of(gateway)["reason"]
    assert (mounts["docs"].folder / "file").read_bytes() == b"docs"
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit((mounts["archive"].folder / "file").read_bytes)
        try:
            waiting.result(3)
        except TimeoutError:
            pass
        else:
            raise AssertionError("the share is not served, and was read")
        finally:
            (gateway.folder / "away.key").rename(key)
        assert waiting.result(60) == b"archive"


def test_a_store_that_does_not_answer_holds_no_start_up_for_long(make_gateway: GatewayFactory, stores: Stores) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=64) as silent:
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        begun = time.monotonic()
        gateway = make_gateway(stores.settings({"endpoint": endpoint}), stores.near.environment).start()
        # Less than one of its requests may take.
        assert time.monotonic() - begun < 28
        far = far_of(gateway)
        assert far["status"] is None and "being opened" in far["reason"], far
        gateway.create_volume("vol", "8MiB")
        write(gateway, noise(1))
        refused = gateway.try_cli("volume", "delete", "old", "--yes")
        assert refused.returncode == 4 and 'store "far" does not serve' in refused.stderr, refused.stderr
        # Nor its end.
        gateway.stop()


def test_a_store_taken_out_of_the_settings_is_told_and_loses_nothing(gateway: Gateway) -> None:
    write(gateway, noise(2, 1), volume="old")
    write(gateway, noise(2, 2))
    gateway.stop()
    before = dict(gateway.settings)
    store = {key: value for key, value in before["store"].items() if key != "named"}
    gateway.settings = {**before, "store": store}
    gateway.start()
    far = far_of(gateway)
    assert far["status"] is None and "[store.named.far]" in far["reason"], far
    assert "a named store does not serve" in gateway.process.log_path.read_text()
    assert [entry["name"] for entry in gateway.volumes()] == ["vol"]
    assert read(gateway, 2 * MIB) == noise(2, 2)
    gateway.stop()
    gateway.settings = before
    gateway.start()
    assert read(gateway, 2 * MIB, volume="old") == noise(2, 1)


def test_each_bucket_is_recovered_alone(gateway: Gateway, stores: Stores) -> None:
    write(gateway, noise(3, 1))
    write(gateway, noise(3, 2), volume="old")
    wait_both_covered(gateway)
    gateway.kill9()
    far_state = gateway.state_directory / "stores/far"
    kept = gateway.folder / "far.key"
    shutil.copy(far_state / "master.key", kept)
    shutil.rmtree(far_state)
    # The named store alone, while the other's state is as it was.
    gateway.settings = merged(gateway.settings, {"store": {"named": {"far": {"master_key_file": str(kept)}}}})
    said = gateway.recover("--store", "far", "--take-over")
    assert said.startswith("recovered 1 volume "), said
    gateway.start()
    assert read(gateway, 3 * MIB) == noise(3, 1) and read(gateway, 3 * MIB, volume="old") == noise(3, 2)
    wait_both_covered(gateway)
    # The first alone, beside the other's state; then with the other bucket gone for ever.
    gateway.kill9()
    shutil.move(gateway.state_directory / "master.key", gateway.folder / "first.key")
    for entry in gateway.state_directory.iterdir():
        if entry.name != "stores":
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    first_key = {"store": {"master_key_file": str(gateway.folder / "first.key")}}
    gateway.settings = merged(gateway.settings, first_key)
    gateway.recover("--take-over")
    gateway.start()
    assert read(gateway, 3 * MIB) == noise(3, 1) and read(gateway, 3 * MIB, volume="old") == noise(3, 2)
    wait_both_covered(gateway)
    gateway.lose_state()
    gateway.state_directory.mkdir()
    stores.far.close()
    said = gateway.recover("--take-over")
    assert said.startswith("recovered 1 volume "), said
    gateway.start()
    assert read(gateway, 3 * MIB) == noise(3, 1)
    assert far_of(gateway)["status"] is None
    refused = gateway.try_recover("--store", "nowhere")
    assert refused.returncode == 2 and "default, far" in refused.stderr, refused.stderr


def test_a_name_that_a_recovery_brings_back_twice_is_the_first_store_s(gateway: Gateway) -> None:
    write(gateway, noise(1, 1), volume="old")
    wait_both_covered(gateway)
    gateway.stop()
    # As if it had been given while the named store did not serve.
    named = gateway.settings["store"]["named"]
    away = {**gateway.settings["store"], "named": {"other": {**named["far"], "url": f"s3://{BUCKET}/other"}}}
    gateway.settings = {**gateway.settings, "store": away}
    gateway.start()
    gateway.create_volume("old", "8MiB")
    write(gateway, noise(1, 2), volume="old")
    gateway.stop()
    gateway.settings = {**gateway.settings, "store": {**away, "named": named}}
    gateway.start()
    assert [entry["name"] for entry in gateway.volumes()] == ["old", "old@far", "vol"]
    assert read(gateway, MIB, volume="old") == noise(1, 2)
    gateway.cli("volume", "delete", "old", "--yes")
    assert read(gateway, MIB, volume="old") == noise(1, 1)


def test_the_bill_is_by_store_and_the_budget_is_for_all(make_gateway: GatewayFactory, stores: Stores) -> None:
    budget = {"prices": {"table": "free", "budget_usd_per_month": 100}}
    settings = merged(stores.settings({"prices": "aws-s3-standard"}), budget)
    gateway = make_gateway(settings, stores.near.environment).start()
    gateway.cli("volume", "create", "old", "--size", "64MiB", "--store", "far")
    write(gateway, noise(2), volume="old")
    gateway.cli("drain", "--wait", limit_s=60)
    status = gateway.status()
    near, far = status["bill"], status["stores"][0]["status"]["bill"]
    assert (near["prices"], far["prices"]) == ("free", "aws-s3-standard")
    assert near["month_usd"] == 0 and far["month_usd"] > 0
    assert far["budget_usd"] is None and near["budget_usd"] == 100
    assert near["all_stores_forecast_usd"] >= far["month_usd"] > 0
    assert (gateway.state_directory / "stores/far/cache").stat().st_size >= 16 * MIB


def test_the_cache_of_a_named_store_is_resized_and_its_state_salvaged(gateway: Gateway, stores: Stores) -> None:
    write(gateway, noise(2, 1), volume="old")
    stores.proxy.refuse()
    write(gateway, noise(2, 2), at=8 * MIB, volume="old")
    gateway.kill9()
    gateway.settings = merged(gateway.settings, {"store": {"named": {"far": {"cache_size": "24MiB"}}}})
    done = gateway.offline_json("cache", "resize", "--store", "far")
    assert (done["bytes_before"], done["bytes"]) == (16 * MIB, 24 * MIB)
    found = gateway.offline_json("salvage", "--store", "far")
    assert [volume["name"] for volume in found["volumes"]] == ["old"], found
    gateway.start()
    assert read(gateway, 2 * MIB, at=8 * MIB, volume="old") == noise(2, 2)
