"""A bucket can be read without the gateway: a reader that is written from docs/FORMAT.md alone (harness/store_reader)
finds in it what the gateway shows, and names exactly what is missing or altered."""

import json
import os
import random
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from conftest import SEED, GatewayFactory, s3_settings
from harness.gateway import Gateway, merged
from harness.mount import Mount
from harness.object_store import S3Server
from harness.store_reader import tree
from harness.store_reader.__main__ import main
from harness.store_reader.bucket import Bucket
from harness.store_reader.fields import Cursor
from harness.store_reader.journal import Root
from harness.store_reader.nodes import Node, Pointer, read_node
from harness.store_reader.stores import DirectoryStore
from harness.store_reader.verify import verify
from harness.tools import run, wait_for

BLOCK = 4096
MIB = 1 << 20
TREE, JOURNAL = 200, 3_600_000
"""Milliseconds between checkpoints in the bucket: nearly all lies in the tree, or all in the journal."""


def settings(checkpoint_ms: int, encryption: str = "aes-256-gcm") -> dict[str, Any]:
    return {
        "cache": {"size": "64MiB"},
        "flush": {"recovery_point_ms": 200, "flush_delay_ms": 50, "dirty_bytes_max": "32MiB"},
        "journal": {"checkpoint_interval_ms": 1000, "store_checkpoint_interval_ms": checkpoint_ms},
        "store": {"encryption": encryption, "lease_ms": 1500},
    }


class Content:
    """Changes volumes and files at random, through the gateway, and nothing else."""

    def __init__(self, gateway: Gateway, share: Path, seed: int = SEED) -> None:
        self.gateway, self.share, self.random, self.seed = gateway, share, random.Random(seed), seed
        self.known: list[bytes] = []
        """Contents that were written, to be written again."""
        self.made = 0

    def data(self, blocks: int) -> bytes:
        """New, compressible, or what was written before."""
        choice = self.random.random()
        if choice < 0.3 and self.known:
            return self.random.choice(self.known)
        text = self.random.randbytes(64) * (blocks * BLOCK // 64)
        self.known.append(text if choice < 0.5 else self.random.randbytes(blocks * BLOCK))
        return self.known[-1]

    def change_volume(self, name: str, blocks: int, times: int) -> None:
        with self.gateway.disk(name) as disk:
            for _ in range(times):
                data = self.data(self.random.randrange(1, 32))
                at = self.random.randrange(blocks * BLOCK - len(data)) // 512 * 512
                choice = self.random.random()
                if choice < 0.15:
                    disk.trim(at, len(data))
                elif choice < 0.2:
                    disk.write_zeroes(at, len(data))
                else:
                    disk.write(at, data)
            disk.flush()

    def change_files(self, times: int) -> None:
        for _ in range(times):
            files = sorted(path for path in self.share.rglob("*") if path.is_file() and not path.is_symlink())
            folders = [self.share, *sorted(path for path in self.share.rglob("*") if path.is_dir())]
            self.made += 1
            new = self.random.choice(folders) / f"name {self.made} of {self.seed} é"
            choice = self.random.randrange(12) if files else 0
            old = self.random.choice(files) if files else new
            if choice <= 1:
                new.write_bytes(self.data(self.random.randrange(1, 16))[: self.random.randrange(60000)])
            elif choice == 2:
                new.mkdir(mode=self.random.choice((0o700, 0o755, 0o1777)))
            elif choice == 3:
                new.hardlink_to(old)
            elif choice == 4:
                new.symlink_to(os.path.relpath(old, new.parent))
            elif choice == 5:
                os.truncate(old, self.random.randrange(100_000))
            elif choice == 6:
                old.rename(new)
            elif choice == 7:
                old.unlink()
            elif choice == 8:
                os.setxattr(old, f"user.{self.made % 3}", self.random.randbytes(self.random.randrange(200)))
            elif choice == 9:
                old.chmod(self.random.choice((0o600, 0o4755, 0o444)))
                os.chown(old, self.random.randrange(1, 1000), 7)
            else:
                with old.open("r+b") as file:
                    file.seek(self.random.randrange(1 << self.random.randrange(10, 36)))
                    file.write(self.data(1)[: self.random.randrange(1, 5000)])
        descriptor = os.open(self.share, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)

    def change(self, times: int = 30) -> None:
        """A round of everything."""
        cli = self.gateway.cli
        for name, size in (("grown", "2MiB"), ("cut", "8MiB"), ("gone", "4MiB"), ("back", "4MiB")):
            cli("volume", "create", name, "--size", size)
            self.change_volume(name, 512, times)
        self.change_files(times)
        os.mkfifo(self.share / "fifo", 0o620)
        os.mknod(self.share / "device", stat.S_IFCHR | 0o600, os.makedev(240, 70000))
        cli("volume", "resize", "grown", "--size", "16MiB")
        cli("volume", "resize", "cut", "--size", "1MiB", "--allow-shrink")
        time.sleep(0.5)
        cli("volume", "resize", "cut", "--size", "4MiB")
        cli("volume", "delete", "gone", "--yes")
        cli("volume", "delete", "back", "--yes")
        cli("volume", "create", "back", "--size", "1MiB")
        self.change_volume("back", 256, 3)
        self.change_volume("grown", 4096, times)
        self.change_files(times)

    def change_again(self, times: int = 10) -> None:
        self.change_volume("grown", 4096, times)
        self.change_volume("cut", 1024, times)
        self.change_files(times)


def snapshot(folder: Path) -> dict[str, Any]:
    """All that can be seen of a tree of files."""
    found = {}
    first_names: dict[int, str] = {}
    for path in [folder, *sorted(folder.rglob("*"))]:
        name = str(path.relative_to(folder))
        seen = path.lstat()
        contents: Any = None
        if stat.S_ISLNK(seen.st_mode):
            contents = str(path.readlink())
        elif stat.S_ISREG(seen.st_mode):
            contents = (seen.st_size, data_of(path))
        xattrs = {
            key: os.getxattr(path, key, follow_symlinks=False) for key in os.listxattr(path, follow_symlinks=False)
        }
        same = first_names.setdefault(seen.st_ino, name)
        found[name] = (
            seen.st_mode,
            seen.st_uid,
            seen.st_gid,
            seen.st_nlink,
            seen.st_mtime_ns,
            seen.st_rdev,
            same,
            contents,
            xattrs,
        )
    return found


def data_of(path: Path) -> dict[int, bytes]:
    """The blocks of a file that are not zeroes; holes are left out unread."""
    found = {}
    with path.open("rb") as file:
        place, size = 0, path.stat().st_size
        while place < size:
            try:
                place = os.lseek(file.fileno(), place, os.SEEK_DATA) // BLOCK * BLOCK
            except OSError:
                break
            block = os.pread(file.fileno(), BLOCK, place)
            if any(block):
                found[place] = block
            place += BLOCK
    return found


def shown_volumes(gateway: Gateway) -> dict[str, bytes]:
    found = {}
    for volume in gateway.volumes():
        with gateway.disk(volume["name"]) as disk:
            found[volume["name"]] = b"".join(disk.read(at, MIB) for at in range(0, volume["size_bytes"], MIB))
    return found


def shown(gateway: Gateway, share: str) -> tuple[dict[str, bytes], dict[str, Any]]:
    mount = Mount(gateway, share).start()
    try:
        return shown_volumes(gateway), snapshot(mount.folder)
    finally:
        mount.close()


def words_of(gateway: Gateway) -> list[str]:
    """What leads the command line to the gateway's store."""
    store = gateway.settings["store"]
    endpoint = ["--endpoint", store["endpoint"]] if "endpoint" in store else []
    kept = Path(store.get("master_key_file", gateway.state_directory / "master.key"))
    return [store["url"], *endpoint, *(["--key", str(kept)] if kept.exists() else [])]


def exported(gateway: Gateway, share: str, folder: Path) -> tuple[dict[str, bytes], dict[str, Any]]:
    folder.mkdir()
    bucket = Bucket(DirectoryStore(gateway.store_directory), master_of(gateway))
    volumes = {}
    for volume in bucket.volumes():
        assert main([*words_of(gateway), "export", volume.name, str(folder / volume.name)]) == 0
        volumes[volume.name] = (folder / volume.name).read_bytes()
    assert main([*words_of(gateway), "export", f"share:{share}", str(folder / "files of the share")]) == 0
    return volumes, snapshot(folder / "files of the share")


def master_of(gateway: Gateway) -> bytes | None:
    words = words_of(gateway)
    return bytes.fromhex(Path(words[-1]).read_text()) if "--key" in words else None


def assert_same(
    found: tuple[dict[str, bytes], dict[str, Any]], expected: tuple[dict[str, bytes], dict[str, Any]]
) -> None:
    assert found[0].keys() == expected[0].keys()
    for name, data in expected[0].items():
        assert found[0][name] == data, name
    assert found[1].keys() == expected[1].keys()
    for name, seen in expected[1].items():
        assert found[1][name] == seen, name


@pytest.mark.parametrize("encryption", ["aes-256-gcm", "none"])
@pytest.mark.parametrize("checkpoint_ms", [TREE, JOURNAL], ids=["tree", "journal"])
def test_what_is_read_from_the_bucket_is_what_the_gateway_has(
    make_gateway: GatewayFactory, folder: Path, checkpoint_ms: int, encryption: str
) -> None:
    gateway = make_gateway(settings(checkpoint_ms, encryption)).start()
    share = gateway.create_share("share")
    with ExitStack() as closing:
        mount = Mount(gateway, share).start()
        closing.callback(mount.close)
        content = Content(gateway, mount.folder)
        content.change()
        gateway.drain()
        content.change_again()
        mount.stop()
    gateway.drain()
    expected = shown(gateway, share)
    report = verify(DirectoryStore(gateway.store_directory), master_of(gateway))
    assert [str(problem) for problem in report.problems] == []
    in_tree = report.counts["nodes"] > 0
    assert in_tree == (checkpoint_ms == TREE), report.counts
    assert_same(exported(gateway, share, folder / "drained"), expected)

    # Killed at work, what is in the bucket is what a recovery brings back. Tree and journal both hold something.
    gateway.stop()
    gateway.settings = merged(gateway.settings, settings(JOURNAL, encryption))
    gateway.start()
    with ExitStack() as closing:
        mount = Mount(gateway, share).start()
        closing.callback(mount.close)
        change_until_told(gateway, Content(gateway, mount.folder, SEED + 1))
        Content(gateway, mount.folder, SEED + 2).change_again()
        gateway.kill9()
    gateway.lose_state()
    in_bucket = exported(gateway, share, folder / "killed")
    gateway.recover("--take-over")
    gateway.start()
    assert_same(in_bucket, shown(gateway, share))


def root_of(gateway: Gateway) -> Root:
    root = Bucket(DirectoryStore(gateway.store_directory), master_of(gateway)).root
    assert root is not None
    return root


def change_until_told(gateway: Gateway, content: Content) -> None:
    """Until the root names another journal object."""
    before = root_of(gateway).last
    content.change_again()
    wait_for(lambda: root_of(gateway).last > before, 20, "another recovery point")


def test_a_bucket_whose_root_names_no_journal_is_recovered(make_gateway: GatewayFactory, folder: Path) -> None:
    gateway = make_gateway(settings(TREE)).start()
    gateway.create_volume("vol", "1MiB")
    share = gateway.create_share("share")
    gateway.drain()
    wait_for(lambda: root_of(gateway).first == 0 and bool(root_of(gateway).tree), 20, "a root with a tree alone")
    gateway.lose_state()
    in_bucket = exported(gateway, share, folder / "exported")
    gateway.recover("--take-over")
    gateway.start()
    assert_same(in_bucket, shown(gateway, share))


def test_a_map_of_many_runs_is_read(
    make_gateway: GatewayFactory, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has nodes of all kinds."""
    gateway = make_gateway(settings(TREE)).start()
    gateway.create_volume("vol", "256MiB")
    seen: set[tuple[bool, int]] = set()

    def noting(fields: Cursor, family: int, is_segment: bool) -> Node:
        node = read_node(fields, family, is_segment)
        if node.runs or node.map_children:
            seen.add((is_segment, node.height))
        return node

    monkeypatch.setattr(tree, "read_node", noting)
    chosen = random.Random(SEED)
    # How a map is folded is the gateway's affair: until there are a leaf, a node above it and a segment at once.
    for writes in (12_000, *[400] * 12):
        with gateway.disk("vol") as disk:
            for _ in range(writes):
                disk.write(chosen.randrange(64 << 10) * BLOCK, chosen.randbytes(64) * 64)
            disk.trim(chosen.randrange(60 << 10) * BLOCK, MIB)
            disk.flush()
        gateway.drain()
        seen.clear()
        bucket = Bucket(DirectoryStore(gateway.store_directory), master_of(gateway))
        bucket.map_of(bucket.volumes()[0].number)
        if seen == {(False, 0), (False, 1), (True, 0)}:
            break
    else:
        raise AssertionError(f"the map has nodes {seen}")
    assert main([*words_of(gateway), "export", "vol", str(folder / "vol")]) == 0
    with gateway.disk("vol") as disk, (folder / "vol").open("rb") as exported_file:
        for at in range(0, 256 * MIB, MIB):
            assert exported_file.read(MIB) == disk.read(at, MIB), at


def test_a_bucket_is_read_over_s3(
    make_gateway: GatewayFactory,
    s3: S3Server,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    gateway = make_gateway(merged(settings(TREE), s3_settings(s3.endpoint)), s3.environment).start()
    gateway.create_volume("vol", "4MiB")
    share = gateway.create_share("share")
    content = Content(gateway, folder)
    content.change_volume("vol", 1024, 20)
    mount = Mount(gateway, share).start()
    (mount.folder / "file").write_bytes(b"contents")
    mount.stop()
    mount.close()
    gateway.drain()
    words = words_of(gateway)
    assert main([*words, "verify", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["problems"] == []
    assert main([*words, "export", "vol", str(folder / "vol")]) == 0
    assert (folder / "vol").read_bytes() == shown_volumes(gateway)["vol"]
    assert main([*words, "export", "share", str(folder / "share")]) == 0
    assert (folder / "share" / "file").read_bytes() == b"contents"


# What is missing or altered


@dataclass
class Sample:
    """A bucket with two objects, at the least, of all kinds of which there can be two; nobody writes to it."""

    folder: Path
    master: bytes | None

    def bucket(self) -> Bucket:
        return Bucket(DirectoryStore(self.folder), self.master)

    def pointers(self) -> list[Pointer]:
        bucket = self.bucket()
        bucket.read_tree()
        return sorted(bucket.nodes.asked, key=lambda pointer: (pointer.object, pointer.message))

    def names(self, kind: str) -> list[str]:
        """Of all objects of a kind that the root leads to, or of all roots that are kept."""
        bucket = self.bucket()
        if kind == "roots":
            return [name for name in bucket.store.names() if name.startswith("roots/")]
        if kind == "pack":
            return [descriptor.name for descriptor in bucket.descriptors()]
        if kind == "journal":
            return [part.name for part in bucket.parts]
        return sorted({pointer.name for pointer in self.pointers()}) if kind == "nodes" else [kind]

    def place_in(self, name: str, random: random.Random) -> int:
        """Of a byte of an object; of nodes one that a pointer leads to."""
        if name.startswith("nodes/"):
            pointer = random.choice([pointer for pointer in self.pointers() if pointer.name == name])
            return pointer.offset + random.randrange(pointer.length)
        return random.randrange((self.folder / name).stat().st_size)

    def problems(self) -> set[str]:
        return {problem.name for problem in verify(DirectoryStore(self.folder), self.master).problems}


@pytest.fixture(scope="module", params=["aes-256-gcm", "none"])
def kept(request: pytest.FixtureRequest) -> Iterator[Sample]:
    with tempfile.TemporaryDirectory(prefix="tombolo-") as name, ExitStack() as closing:
        gateway = Gateway(Path(name) / "gateway", settings(TREE, request.param))
        closing.callback(gateway.close)
        gateway.start()
        mount = Mount(gateway, gateway.create_share("share")).start()
        closing.callback(mount.close)
        content = Content(gateway, mount.folder)
        content.change(8)
        gateway.drain()
        content.change_again(4)
        gateway.drain()
        mount.stop()
        gateway.stop()
        gateway.settings = settings(JOURNAL, request.param) | {
            key: gateway.settings[key] for key in ("state_directory", "runtime_directory")
        }
        gateway.settings["store"]["url"] = f"dir:{gateway.store_directory}"
        gateway.start()
        mount.start()
        change_until_told(gateway, content)
        change_until_told(gateway, content)
        gateway.kill9()
        sample = Sample(gateway.store_directory, master_of(gateway))
        assert sample.problems() == set()
        yield sample


@pytest.fixture
def sample(kept: Sample, folder: Path) -> Sample:
    """A copy."""
    shutil.copytree(kept.folder, folder / "store")
    return Sample(folder / "store", kept.master)


KINDS = ["pack", "journal", "nodes", "root", "keys"]


def skip_without_keys(sample: Sample, kind: str) -> None:
    if kind == "keys" and sample.master is None:
        pytest.skip("a bucket that is in clear has no keys")


@pytest.mark.parametrize("kind", [*KINDS, "roots"])
def test_a_flipped_bit_is_found(sample: Sample, kind: str) -> None:
    skip_without_keys(sample, kind)
    chosen = random.Random(SEED)
    for _ in range(5):
        name = chosen.choice(sample.names(kind))
        path, place = sample.folder / name, sample.place_in(name, chosen)
        whole = path.read_bytes()
        path.write_bytes(whole[:place] + bytes([whole[place] ^ (1 << chosen.randrange(8))]) + whole[place + 1 :])
        assert sample.problems() == {name}, place
        path.write_bytes(whole)
    assert sample.problems() == set()


@pytest.mark.parametrize("kind", KINDS)
def test_a_missing_object_is_found(sample: Sample, kind: str) -> None:
    skip_without_keys(sample, kind)
    names = sample.names(kind)
    for name in random.Random(SEED).sample(names, min(3, len(names))):
        path = sample.folder / name
        whole = path.read_bytes()
        path.unlink()
        assert sample.problems() == {name}
        path.write_bytes(whole[:100])
        assert sample.problems() == {name}
        path.write_bytes(whole)


@pytest.mark.parametrize("kind", KINDS)
def test_exchanged_objects_are_found(sample: Sample, kind: str) -> None:
    skip_without_keys(sample, kind)
    first, second, *_ = [*sample.names(kind), *(sample.names("journal") if kind in ("root", "keys") else [])]
    one, other = sample.folder / first, sample.folder / second
    kept = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(kept)
    # Without data keys nothing else can be read.
    assert sample.problems() == ({first} if kind == "keys" else {first, second})


def test_the_command_line_says_what_is_wrong(sample: Sample, folder: Path) -> None:
    """As somebody would call it."""
    key = folder / "key"
    key.write_text((sample.master or b"").hex())
    words = [f"dir:{sample.folder}", *(["--key", str(key)] if sample.master else [])]
    listed = json.loads(called(0, *words, "list", "--json"))
    assert {volume["name"] for volume in listed["volumes"]} == {"back", "cut", "grown"}
    assert [share["name"] for share in listed["shares"]] == ["share"]
    assert {"file", "directory"} <= {file["type"] for file in listed["shares"][0]["files"]}
    assert "volume grown: 16777216 bytes" in called(0, *words, "list")
    assert "all of it verifies" in called(0, *words, "verify")
    for word in ("list", "verify", "export", "--key", "--endpoint"):
        assert word in called(0, "--help")
    name = sample.names("pack")[0]
    (sample.folder / name).unlink()
    assert f"{name}: is missing" in called(1, *words, "verify")
    reported = json.loads(called(1, *words, "verify", "--json"))
    assert reported["problems"] == [{"object": name, "problem": "is missing"}]


def called(code: int, *words: str) -> str:
    command = [sys.executable, "-m", "harness.store_reader", *words]
    return run(command, 60, expected_codes=[code]).stdout


def test_little_is_read_for_a_part(kept: Sample) -> None:
    bucket = kept.bucket()
    number = next(volume.number for volume in bucket.volumes() if volume.name == "back")
    bucket.map_of(number)
    assert 0 < len(bucket.nodes.asked) < len(kept.pointers())
