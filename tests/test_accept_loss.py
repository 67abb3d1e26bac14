"""A part of the local disk is lost for good: cache file, local metadata, journal, alone and together. A start says
what is gone and is refused; with `--accept-loss` everything else is there, and exactly what was named reads as an
error."""

import errno
import hashlib
import json
import os
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from conftest import SEED, GatewayFactory, MountFactory, s3_settings
from harness.fault_proxy import FaultProxy
from harness.gateway import Gateway, merged
from harness.mount import Mount
from harness.object_store import S3Server
from harness.tools import wait_for
from test_recover import checked_store

MIB = 1 << 20
BLOCK = 4096
SETTINGS = {
    "cache": {"size": "64MiB"},
    "flush": {"dirty_bytes_max": "32MiB", "recovery_point_ms": 300, "flush_delay_ms": 100},
    "prefetch": {"window_bytes_max": "4MiB"},
    # Checkpoints are made when a test asks for one.
    "journal": {"checkpoint_interval_ms": 3_600_000},
}
VOLUME_BYTES = 16 * MIB


def noise(length: int, seed: int) -> bytes:
    return random.Random(SEED + seed).randbytes(length)


def block_by_block(read: Callable[[int, int], bytes], length: int) -> list[bytes | None]:
    """The blocks, and `None` for those that read as errors."""
    blocks: list[bytes | None] = []
    for offset in range(0, length, BLOCK):
        try:
            blocks.append(read(offset, min(BLOCK, length - offset)))
        except OSError as error:
            assert error.errno == errno.EIO
            blocks.append(None)
    return blocks


def leave(mount: Mount) -> None:
    """What was synced is with the gateway."""
    mount.detach()
    mount.kill9()


@dataclass
class Written:
    """What a volume and two files hold, by the names by which a report calls them."""

    volume: bytearray = field(default_factory=lambda: bytearray(VOLUME_BYTES))
    files: dict[str, bytes] = field(default_factory=dict)

    def copy(self) -> "Written":
        return Written(bytearray(self.volume), dict(self.files))

    def blocks(self) -> dict[str, list[bytes | None]]:
        everything = {"volume vol": bytes(self.volume)} | {
            f"the file share:/{name}": data for name, data in self.files.items()
        }
        return {name: [data[at : at + BLOCK] for at in range(0, len(data), BLOCK)] for name, data in everything.items()}


class World:
    """A gateway with a volume and a share. What is written while the store is cut off stays dirty."""

    def __init__(self, gateway: Gateway, proxy: FaultProxy, make_mount: MountFactory) -> None:
        self.gateway = gateway
        self.proxy = proxy
        self.make_mount = make_mount
        self.written = Written()
        gateway.create_volume("vol", "16MiB")

    def write(self, seed: int, at: int, length: int = 2 * MIB) -> None:
        """A range of the volume, and a file; flushed."""
        data = noise(length, seed)
        with self.gateway.disk("vol") as disk:
            disk.write(at, data)
            disk.flush()
        self.written.volume[at : at + length] = data
        mount = self.make_mount().start()
        name = f"folder {seed}/file"
        (mount.folder / f"folder {seed}").mkdir()
        with (mount.folder / name).open("wb") as file:
            file.write(noise(5 * BLOCK + 7, seed + 100))
            file.flush()
            os.fsync(file.fileno())
        self.written.files[name] = noise(5 * BLOCK + 7, seed + 100)
        leave(mount)

    def publish(self) -> None:
        """Waits until the store has everything."""
        self.gateway.drain()
        wait_for(lambda: self.gateway.status()["recovery_point"]["age_s"] == 0, 60, "a recovery point")

    def found(self) -> dict[str, list[bytes | None]]:
        with self.gateway.disk("vol") as disk:
            found = {"volume vol": block_by_block(disk.read, VOLUME_BYTES)}
        mount: Mount = self.make_mount().start()
        for path in sorted(path for path in mount.folder.rglob("*") if path.is_file()):
            descriptor = os.open(path, os.O_RDONLY)
            try:
                name = f"the file share:/{path.relative_to(mount.folder)}"
                # Asked for past the end it answers with what is there; ahead of a lost block it must not read.
                length = path.stat().st_size
                found[name] = block_by_block(lambda at, size, of=descriptor: os.pread(of, size, at), length)  # type: ignore[misc]
            finally:
                os.close(descriptor)
        leave(mount)
        return found

    def is_all_there(self, written: Written) -> None:
        self.agrees(written, [])

    def agrees(self, written: Written, lost: list[dict[str, Any]]) -> None:
        """Exactly what is named lost reads as an error, and everything else is what was written."""
        expected = written.blocks()
        for entry in lost:
            blocks = expected[entry["name"]]
            for block in range(entry["offset"] // BLOCK, (entry["offset"] + entry["bytes"]) // BLOCK):
                blocks[block] = None
        found = self.found()
        assert found.keys() == expected.keys()
        for name, blocks in expected.items():
            wrong = [at for at, (one, other) in enumerate(zip(blocks, found[name], strict=True)) if one != other]
            assert not wrong, (name, wrong[:20])

    def goes_on(self, written: Written, lost: list[dict[str, Any]]) -> None:
        """Also after another start, and for new data, up to a recovery from the store alone."""
        gateway = self.gateway
        self.agrees(written, lost)
        gateway.restart()
        self.agrees(written, lost)
        self.written = written
        for entry in lost:
            if entry["name"] == "volume vol":
                start, end = entry["offset"], entry["offset"] + entry["bytes"]
                data = noise(end - start, start + 7)
                with gateway.disk("vol") as disk:
                    disk.write(start, data)
                    disk.flush()
                written.volume[start:end] = data
        left = [entry for entry in lost if entry["name"] != "volume vol"]
        self.write(50, 14 * MIB, MIB)
        self.agrees(written, left)
        gateway.kill9()
        gateway.start()
        self.agrees(written, left)
        gateway.check()
        gateway.try_cli("drain", "--wait", limit_s=120)
        wait_for(lambda: gateway.status()["recovery_point"]["age_s"] == 0, 60, "a recovery point")
        gateway.lose_state()
        gateway.recover("--take-over")
        gateway.start()
        self.agrees(written, left)
        gateway.check()


@pytest.fixture
def gateway(make_gateway: GatewayFactory, s3: S3Server, proxy: FaultProxy) -> Gateway:
    return make_gateway(merged(s3_settings(proxy.endpoint), SETTINGS), s3.environment).start()


@pytest.fixture
def world(gateway: Gateway, share: str, proxy: FaultProxy, make_mount: MountFactory) -> World:
    assert share == "share"
    return World(gateway, proxy, make_mount)


def digests(folder: Path) -> dict[str, str]:
    """Of all files but those of which the locks say who looks."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file() and path.name not in ("lock", "lock.mdb")
    }


def refused(gateway: Gateway, *named: str) -> str:
    """A start without the word says all this and changes nothing, however often."""
    before = digests(gateway.state_directory)
    for _ in range(2):
        code, said = gateway.refused_start()
        assert code == 1, said
        assert "panicked" not in said
        for words in named:
            assert words in said, said
        assert digests(gateway.state_directory) == before
    return said


def accepted(gateway: Gateway) -> list[dict[str, Any]]:
    """Starts on what is left; returns what the list says is lost."""
    gateway.start("--accept-loss")
    path = gateway.state_directory / "lost.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def ranges(lost: list[dict[str, Any]]) -> list[tuple[str, int, int]]:
    return [(entry["name"], entry["offset"], entry["bytes"]) for entry in lost if entry["lost"] == "bytes"]


def lose_cache(gateway: Gateway) -> None:
    gateway.cache_file.unlink()


def cut_cache(gateway: Gateway) -> None:
    os.truncate(gateway.cache_file, BLOCK)


def spoil_cache_header(gateway: Gateway) -> None:
    with gateway.cache_file.open("r+b") as file:
        file.write(bytes(1024))


def lose_metadata(gateway: Gateway) -> None:
    (gateway.state_directory / "metadata" / "data.mdb").unlink()


def spoil_metadata(gateway: Gateway) -> None:
    with (gateway.state_directory / "metadata" / "data.mdb").open("r+b") as file:
        file.write(bytes(512))


def cut_metadata(gateway: Gateway) -> None:
    path = gateway.state_directory / "metadata" / "data.mdb"
    os.truncate(path, path.stat().st_size * 7 // 10 // BLOCK * BLOCK)


def lose_journal(gateway: Gateway) -> None:
    shutil.rmtree(gateway.state_directory / "journal")


def lose_segments(gateway: Gateway) -> None:
    for path in (gateway.state_directory / "journal").glob("*.log"):
        path.unlink()


def cut_segments(gateway: Gateway) -> None:
    for path in (gateway.state_directory / "journal").glob("*.log"):
        os.truncate(path, 200)


def stored_and_dirty(world: World) -> list[tuple[str, int, int]]:
    """Some of it in the store, some only here; returns what of it only the cache file has."""
    world.write(1, 0)
    world.publish()
    world.proxy.refuse()
    world.write(2, MIB)
    world.gateway.kill9()
    return [("volume vol", MIB, 2 * MIB), ("the file share:/folder 2/file", 0, 6 * BLOCK)]


def checkpointed_and_more(world: World) -> Written:
    """The store lacks the latest; returns what there was at the last checkpoint, which is not all."""
    world.write(1, 0)
    world.publish()
    world.proxy.refuse()
    world.write(2, MIB)
    world.gateway.cli("checkpoint")
    before = world.written.copy()
    world.write(3, 4 * MIB)
    world.gateway.kill9()
    return before


@pytest.mark.parametrize("harm", [lose_cache, cut_cache])
def test_of_a_lost_cache_file_only_dirty_blocks_are_lost(world: World, harm: Callable[[Gateway], None]) -> None:
    dirty = stored_and_dirty(world)
    harm(world.gateway)
    refused(
        world.gateway,
        "lost: volume vol, 2097152 bytes at 1048576, written since 20",
        "lost: the file share:/folder 2/file, 24576 bytes at 0, written since 20",
        "--accept-loss",
    )
    lost = accepted(world.gateway)
    assert ranges(lost) == dirty
    world.proxy.listen()
    world.goes_on(world.written, lost)


def test_slots_behind_an_unreadable_header_are_kept(world: World) -> None:
    stored_and_dirty(world)
    spoil_cache_header(world.gateway)
    refused(world.gateway, "header cannot be read", "nothing is lost that was flushed")
    assert accepted(world.gateway) == []
    world.proxy.listen()
    world.goes_on(world.written, [])


def with_older_cache(world: World, is_checkpointed: bool) -> Written:
    """A copy of the cache file was put back that lacks the latest; returns what local metadata may speak of."""
    world.write(1, 0)
    world.publish()
    world.proxy.refuse()
    world.write(2, MIB)
    older = world.gateway.folder / "older cache"
    shutil.copy(world.gateway.cache_file, older)
    world.write(3, 4 * MIB)
    checkpointed = world.written.copy()
    if is_checkpointed:
        world.gateway.cli("checkpoint")
    world.write(4, 5 * MIB, MIB // 2)
    world.gateway.kill9()
    shutil.copy(older, world.gateway.cache_file)
    return checkpointed


SINCE_THE_COPY = [
    ("volume vol", 4 * MIB, 2 * MIB),
    ("the file share:/folder 3/file", 0, 6 * BLOCK),
    ("the file share:/folder 4/file", 0, 6 * BLOCK),
]


@pytest.mark.parametrize("is_checkpointed", [True, False], ids=["checkpoint", "journal alone"])
def test_of_an_older_cache_file_what_it_has_is_kept(world: World, is_checkpointed: bool) -> None:
    with_older_cache(world, is_checkpointed)
    refused(
        world.gateway,
        "the cache file is an older copy of itself",
        "lost: volume vol, 2097152 bytes at 4194304, written since 20",
        "lost: the file share:/folder 3/file, 24576 bytes at 0, written since 20",
    )
    lost = accepted(world.gateway)
    assert ranges(lost) == SINCE_THE_COPY
    world.proxy.listen()
    world.goes_on(world.written, lost)


def test_lost_metadata_and_an_older_cache_file(world: World) -> None:
    with_older_cache(world, is_checkpointed=True)
    lose_metadata(world.gateway)
    world.proxy.listen()
    refused(world.gateway, "data.mdb is missing", "lost: volume number 1, 2097152 bytes at 4194304")
    lost = accepted(world.gateway)
    assert ranges(lost) == SINCE_THE_COPY
    world.goes_on(world.written, lost)


def test_lost_journal_and_an_older_cache_file(world: World) -> None:
    checkpointed = with_older_cache(world, is_checkpointed=True)
    lose_segments(world.gateway)
    world.proxy.listen()
    refused(world.gateway, "lost: changes", "lost: volume vol, 2097152 bytes at 4194304")
    lost = [entry for entry in accepted(world.gateway) if entry["lost"] == "bytes"]
    assert ranges(lost) == SINCE_THE_COPY[:2]
    world.goes_on(checkpointed, lost)


@pytest.mark.parametrize("harm", [lose_cache, cut_cache])
def test_a_lost_end_of_the_journal_is_told_without_the_cache_file(
    world: World, harm: Callable[[Gateway], None]
) -> None:
    """By the note beside it."""
    world.write(1, 0)
    world.publish()
    before = world.written.copy()
    world.proxy.refuse()
    world.gateway.stop()
    kept = world.gateway.folder / "kept"
    shutil.copytree(world.gateway.state_directory / "journal", kept)
    world.gateway.start()
    world.write(2, 4 * MIB)
    world.gateway.kill9()
    shutil.rmtree(world.gateway.state_directory / "journal")
    kept.rename(world.gateway.state_directory / "journal")
    harm(world.gateway)
    world.proxy.listen()
    refused(world.gateway, "lost: changes")
    assert [entry["lost"] for entry in accepted(world.gateway)] == ["changes"]
    world.goes_on(before, [])


@pytest.mark.parametrize("has_root", [True, False], ids=["with root", "without root"])
@pytest.mark.parametrize("harm", [lose_metadata, spoil_metadata])
def test_of_lost_metadata_nothing_is_lost(world: World, harm: Callable[[Gateway], None], has_root: bool) -> None:
    stored_and_dirty(world)
    world.proxy.listen()
    harm(world.gateway)
    if not has_root:
        (world.gateway.state_directory / "root").unlink()
    refused(world.gateway, "local metadata is made again of what the store holds", "nothing is lost that was flushed")
    assert accepted(world.gateway) == []
    world.goes_on(world.written, [])


@pytest.mark.parametrize("harm", [lose_journal, lose_segments, cut_segments])
def test_without_the_journal_a_checkpoint_is_there(world: World, harm: Callable[[Gateway], None]) -> None:
    before = checkpointed_and_more(world)
    harm(world.gateway)
    world.proxy.listen()
    refused(world.gateway, "lost: changes of all volumes and shares that were acknowledged after 20", "journal")
    lost = accepted(world.gateway)
    assert [entry["lost"] for entry in lost] == ["changes"]
    assert lost[0]["from_lsn"] < lost[0]["to_lsn"]
    # The store is told everything anew, and has no tree until that is folded in.
    world.publish()
    checked_store(world.gateway)
    world.goes_on(before, [])


def spoil_root(gateway: Gateway) -> None:
    os.truncate(gateway.state_directory / "root", 100)


def lose_root(gateway: Gateway) -> None:
    (gateway.state_directory / "root").unlink()


@pytest.mark.parametrize("harm", [lose_root, spoil_root])
def test_without_the_local_copy_of_the_root_the_way_back_is_said(world: World, harm: Callable[[Gateway], None]) -> None:
    world.write(1, 0)
    world.publish()
    world.gateway.kill9()
    root = world.gateway.state_directory / "root"
    kept = root.read_bytes()
    harm(world.gateway)
    refused(world.gateway, "put it back from a copy", "tombolo salvage", "nothing is lost that was flushed")
    root.write_bytes(kept)
    world.gateway.start()
    world.is_all_there(world.written)


@pytest.mark.parametrize("harm", [lose_root, spoil_root])
def test_the_local_copy_of_the_root_is_made_again_of_the_store(world: World, harm: Callable[[Gateway], None]) -> None:
    stored_and_dirty(world)
    world.proxy.listen()
    harm(world.gateway)
    refused(
        world.gateway, "the local copy of the root is made again of the store's", "nothing is lost that was flushed"
    )
    assert accepted(world.gateway) == []
    world.publish()
    checked_store(world.gateway)
    world.goes_on(world.written, [])


def test_without_the_journal_the_store_may_be_newer(world: World) -> None:
    world.write(1, 0)
    world.gateway.cli("checkpoint")
    world.write(2, MIB)
    world.publish()
    before = world.written.copy()
    world.proxy.refuse()
    world.write(3, 4 * MIB)
    world.gateway.kill9()
    lose_segments(world.gateway)
    world.proxy.listen()
    refused(world.gateway, "local metadata is made again of what the store holds", "lost: changes")
    assert [entry["lost"] for entry in accepted(world.gateway)] == ["changes"]
    world.goes_on(before, [])


@pytest.mark.parametrize("harm", [lose_cache, cut_cache])
@pytest.mark.parametrize("of_metadata", [lose_metadata, cut_metadata])
def test_lost_metadata_and_cache_file(
    world: World, of_metadata: Callable[[Gateway], None], harm: Callable[[Gateway], None]
) -> None:
    dirty = stored_and_dirty(world)
    world.proxy.listen()
    of_metadata(world.gateway)
    harm(world.gateway)
    refused(world.gateway, "lost: volume number 1, 2097152 bytes at 1048576")
    lost = accepted(world.gateway)
    assert ranges(lost) == dirty
    world.goes_on(world.written, lost)


def test_lost_journal_and_cache_file(world: World) -> None:
    before = checkpointed_and_more(world)
    lose_cache(world.gateway)
    lose_segments(world.gateway)
    world.proxy.listen()
    refused(world.gateway, "lost: changes", "lost: volume vol, 2097152 bytes at 1048576")
    lost = [entry for entry in accepted(world.gateway) if entry["lost"] == "bytes"]
    assert ranges(lost) == [("volume vol", MIB, 2 * MIB), ("the file share:/folder 2/file", 0, 6 * BLOCK)]
    world.goes_on(before, lost)


def test_lost_root_and_cache_file(world: World) -> None:
    """What is found lost when the cache file is made again is accepted by the same start."""
    dirty = stored_and_dirty(world)
    world.proxy.listen()
    lose_cache(world.gateway)
    (world.gateway.state_directory / "root").unlink()
    refused(world.gateway, "lost: volume vol, 2097152 bytes at 1048576")
    lost = accepted(world.gateway)
    assert ranges(lost) == dirty
    world.goes_on(world.written, lost)


def test_lost_metadata_and_journal(world: World) -> None:
    world.write(1, 0)
    world.publish()
    before = world.written.copy()
    world.proxy.refuse()
    world.write(2, MIB)
    world.gateway.kill9()
    world.proxy.listen()
    lose_metadata(world.gateway)
    lose_journal(world.gateway)
    refused(world.gateway, "local metadata is made again of what the store holds", "lost: changes")
    assert [entry["lost"] for entry in accepted(world.gateway)] == ["changes"]
    world.goes_on(before, [])


def test_when_all_is_lost_the_way_back_is_said(world: World) -> None:
    stored_and_dirty(world)
    world.proxy.listen()
    for harm in (lose_metadata, lose_journal, lose_cache):
        harm(world.gateway)
    for words in ([], ["--accept-loss"]):
        code, said = world.gateway.refused_start(words=words)
        assert code == 1
        assert "tombolo recover" in said


@pytest.mark.parametrize("lose", [spoil_root, lose_metadata])
def test_nothing_is_adopted_of_a_store_that_was_taken_over(
    world: World, make_gateway: GatewayFactory, s3: S3Server, lose: Callable[[Gateway], None]
) -> None:
    stored_and_dirty(world)
    world.proxy.listen()
    gateway = world.gateway
    key = gateway.folder / "kept.key"
    shutil.copy(gateway.state_directory / "master.key", key)
    key.chmod(0o600)
    store = gateway.settings["store"] | {"master_key_file": str(key)}
    other = make_gateway(gateway.settings | {"store": store}, s3.environment)
    other.settings |= {"state_directory": str(other.state_directory), "runtime_directory": str(other.runtime_directory)}
    other.recover("--take-over")
    lose(gateway)
    for words in ([], ["--accept-loss"]):
        before = digests(gateway.state_directory)
        code, said = gateway.refused_start(words=words)
        assert code == 1
        assert f"the store's writer is {other.writer_name}, and not this state directory" in said
        assert digests(gateway.state_directory) == before


def test_a_start_without_a_loss_accepts_nothing(world: World) -> None:
    stored_and_dirty(world)
    world.proxy.listen()
    assert accepted(world.gateway) == []
    world.is_all_there(world.written)


def test_clients_hear_of_an_accepted_loss(world: World) -> None:
    """As of any start that has lost what was acknowledged: what a mount had open answers EIO until it is closed."""
    mount = world.make_mount().start()
    descriptor = os.open(mount.folder / "open", os.O_WRONLY | os.O_CREAT)
    world.proxy.refuse()
    os.write(descriptor, noise(BLOCK, 9))
    world.gateway.kill9()
    lose_cache(world.gateway)
    assert [name for name, _, _ in ranges(accepted(world.gateway))] == ["the file share:/open"]
    for act in (os.fsync, os.close):
        with pytest.raises(OSError, match="Input/output error"):
            act(descriptor)
    (mount.folder / "other").write_bytes(b"new")
    leave(mount)
