"""What the metadata in the store need no more is removed, and nothing else is."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from conftest import SEED, GatewayFactory
from harness.gateway import Gateway, merged
from harness.store_reader.bucket import Bucket
from harness.store_reader.export import export_volume
from harness.store_reader.stores import DirectoryStore
from harness.store_reader.verify import verify
from harness.tools import wait_for
from test_recover import MIB, checked_store, read

BLOCK = 4096
ROOTS_KEPT = 2
SETTINGS: dict[str, Any] = {
    "flush": {"recovery_point_ms": 100, "flush_delay_ms": 20},
    "journal": {"store_checkpoint_interval_ms": 100},
    "store": {"kept_root_interval_ms": 2000, "roots_kept": ROOTS_KEPT, "removal_delay_ms": 1000, "lease_ms": 1500},
}


@pytest.fixture
def gateway(make_gateway: GatewayFactory) -> Gateway:
    gateway = make_gateway(SETTINGS).start()
    gateway.create_volume("vol", "16MiB")
    return gateway


class Metadata:
    """Of a folder that is a store."""

    def __init__(self, gateway: Gateway) -> None:
        self.folder = gateway.store_directory
        self.master = bytes.fromhex((gateway.state_directory / "master.key").read_text())

    def there(self, folder: str) -> set[str]:
        return {f"{folder}/{path.name}" for path in (self.folder / folder).glob("*") if path.is_file()}

    def bucket(self, kept: int | None = None) -> Bucket:
        """As the newest root has it, or one that is kept."""
        return Bucket(DirectoryStore(self.folder), self.master, kept=kept)

    def kept(self) -> list[int]:
        root = self.bucket().root
        assert root is not None
        return root.kept

    def needed(self) -> set[str]:
        """Objects of nodes that the newest root has, or one that it keeps."""
        names = set()
        for kept in [None, *self.kept()]:
            bucket = self.bucket(kept)
            bucket.read_tree()
            assert bucket.root is not None and bucket.root.usage is not None
            names |= {node.name for node in bucket.nodes.asked} | {bucket.root.usage.name}
        return names

    def is_tidy(self) -> bool:
        if self.bucket().parts:
            return False
        return self.there("nodes") == self.needed() and len(self.there("roots")) == len(self.kept())


def churn(gateway: Gateway, rounds: int, seed: int) -> bytes:
    """Changes blocks all over the volume, with recovery points in between; what it holds then."""
    chosen = random.Random(seed)
    for _ in range(rounds):
        with gateway.disk("vol") as disk:
            for _ in range(200):
                disk.write(chosen.randrange(16 * MIB // BLOCK) * BLOCK, chosen.randbytes(BLOCK))
            disk.flush()
        gateway.drain()
    return read(gateway, 16 * MIB)


def test_nodes_of_which_no_root_has_any_are_removed(gateway: Gateway) -> None:
    metadata = Metadata(gateway)
    seen: set[str] = set()
    for round_number in range(4):
        churn(gateway, 6, SEED + round_number)
        seen |= metadata.there("nodes")
        if round_number == 1:
            gateway.kill9()
            gateway.start()
    # The last journal is folded in when there is something to tell of.
    wait_for(lambda: bool(churn(gateway, 1, SEED)) and metadata.is_tidy(), 60, "a store that has what is needed")
    assert len(seen - metadata.there("nodes")) >= 4, "hardly any was removed"
    assert len(metadata.kept()) == ROOTS_KEPT
    checked_store(gateway)
    held = read(gateway, 16 * MIB)
    gateway.stop()
    for kept in [None, *metadata.kept()]:
        assert not verify(DirectoryStore(metadata.folder), metadata.master, kept).problems
    gateway.lose_state()
    gateway.recover("--take-over")
    gateway.start()
    assert read(gateway, 16 * MIB) == held


def test_an_earlier_root_comes_back_with_its_nodes_and_those_after_it_go(gateway: Gateway) -> None:
    metadata = Metadata(gateway)
    churn(gateway, 5, SEED)
    wait_for(lambda: bool(churn(gateway, 1, SEED)) and len(metadata.kept()) == ROOTS_KEPT, 60, "roots that are kept")
    churn(gateway, 5, SEED + 1)
    gateway.stop()
    earlier = metadata.kept()[0]
    exported = gateway.folder / "exported"
    bucket = metadata.bucket(earlier)
    export_volume(bucket, bucket.volumes()[0], exported)
    gateway.lose_state()
    gateway.recover("--take-over", "--at", str(earlier))
    metadata.master = bytes.fromhex(Path(gateway.settings["store"]["master_key_file"]).read_text())
    gateway.start()
    assert read(gateway, 16 * MIB) == exported.read_bytes()
    checked_store(gateway)
    wait_for(lambda: bool(churn(gateway, 1, SEED)) and metadata.is_tidy(), 60, "a store that has what is needed")
    checked_store(gateway)


def test_an_object_of_nodes_whose_root_never_came_is_removed(gateway: Gateway) -> None:
    churn(gateway, 3, SEED)
    metadata = Metadata(gateway)
    wait_for(lambda: bool(churn(gateway, 1, SEED)) and bool(metadata.there("nodes")), 60, "nodes")
    some = metadata.folder / sorted(metadata.there("nodes"))[0]
    stray, foreign = some.with_name("00000000000000ff"), some.with_name("notes")
    stray.write_bytes(some.read_bytes())
    foreign.write_text("somebody's")
    wait_for(lambda: not stray.exists(), 30, "the object to be removed")
    assert foreign.exists(), "it is none of the gateway's"
    foreign.unlink()
    checked_store(gateway)


def test_a_usage_table_that_is_damaged_is_told_and_removes_nothing(gateway: Gateway) -> None:
    churn(gateway, 3, SEED)
    metadata = Metadata(gateway)

    def has_usage() -> bool:
        churn(gateway, 1, SEED)
        root = metadata.bucket().root
        return root is not None and root.usage is not None

    wait_for(has_usage, 30, "a usage table")
    gateway.stop()
    root = metadata.bucket().root
    assert root is not None and root.usage is not None
    path = metadata.folder / root.usage.name
    damaged = bytearray(path.read_bytes())
    damaged[root.usage.offset] ^= 1
    path.write_bytes(damaged)
    # The next fold begins a table that is incomplete, which is another finding.
    often = gateway.settings
    gateway.settings = merged(often, {"journal": {"store_checkpoint_interval_ms": 60_000}})
    gateway.start()
    checked = gateway.try_cli("check", "--store", "--json", limit_s=120)
    findings = json.loads(checked.stdout)["findings"]
    assert checked.returncode == 7 and [found["object"] for found in findings] == [root.usage.name], findings
    assert "usage table" in findings[0]["message"]
    gateway.stop()
    gateway.settings = often
    gateway.start()
    held = churn(gateway, 12, SEED + 2)
    gateway.stop()
    gateway.lose_state()
    gateway.recover("--take-over")
    gateway.start()
    assert read(gateway, 16 * MIB) == held


def test_a_store_that_fails_is_not_called_damaged(gateway: Gateway) -> None:
    churn(gateway, 3, SEED)
    metadata = Metadata(gateway)
    wait_for(lambda: bool(churn(gateway, 1, SEED)) and metadata.is_tidy(), 60, "a tree")
    some = metadata.folder / sorted(metadata.needed())[0]
    hidden = gateway.folder / "hidden"
    some.rename(hidden)
    missing = gateway.try_cli("check", "--store", "--json", limit_s=120)
    findings = json.loads(missing.stdout)["findings"]
    assert missing.returncode == 7 and findings[0]["object"] == "nodes/" and "does not exist" in findings[0]["message"]
    # Too many symbolic links: the disk under the store fails.
    some.symlink_to(some)
    failed = gateway.try_cli("check", "--store", "--json", limit_s=120)
    assert failed.returncode == 1 and json.loads(failed.stdout)["findings"] == [], failed
    some.unlink()
    hidden.rename(some)
    checked_store(gateway)
