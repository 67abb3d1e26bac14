"""What `tombolo recover` refuses, in which words, and that it goes on where it was interrupted."""

import random
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from conftest import SEED, GatewayFactory, s3_settings
from harness.fault_proxy import FaultProxy
from harness.gateway import Gateway, merged
from harness.object_store import S3Server
from test_recover import MIB, QUICK, checked_store, noise, read, wait_covered, write

POINTS = 4


@dataclass
class Bucket:
    """A directory store, its master key, and the roots that it has had."""

    folder: Path
    key: Path
    writer: str
    roots: list[bytes] = field(default_factory=list)

    @property
    def journal(self) -> list[str]:
        return sorted(path.name for path in (self.folder / "journal").iterdir())

    def files(self) -> dict[str, bytes]:
        paths = (path for path in self.folder.rglob("*") if path.is_file() and ".tombolo-store" not in path.parts)
        return {str(path.relative_to(self.folder)): path.read_bytes() for path in paths}


def made_bucket(folder: Path, seed: int, encryption: str = "aes-256-gcm") -> Bucket:
    """With a volume that each recovery point has written a MiB of; its gateway was killed."""
    gateway = Gateway(folder, merged(QUICK, {"store": {"encryption": encryption}})).start()
    try:
        gateway.create_volume("vol", "64MiB")
        bucket = Bucket(gateway.store_directory, folder / "kept.key", gateway.writer_name)
        for point in range(POINTS):
            write(gateway, noise(1, seed + point), at=point * MIB)
            wait_covered(gateway)
            bucket.roots.append((bucket.folder / "root").read_bytes())
    finally:
        gateway.kill9()
    if encryption != "none":
        shutil.copy(gateway.state_directory / "master.key", bucket.key)
        bucket.key.chmod(0o600)
    return bucket


@pytest.fixture(scope="module")
def buckets() -> Iterator[dict[str, Bucket]]:
    """One for all tests, which copy it; and others that must not be taken for it."""
    folder = Path(tempfile.mkdtemp(prefix="tombolo-"))
    yield {
        "sound": made_bucket(folder / "sound", SEED),
        "other": made_bucket(folder / "other", SEED + 100),
        "clear": made_bucket(folder / "clear", SEED + 200, "none"),
    }
    shutil.rmtree(folder)


def copy_of(gateway: Gateway, bucket: Bucket) -> Bucket:
    """In the store of a gateway that is not started, whose master key is the bucket's."""
    shutil.rmtree(gateway.store_directory)
    shutil.copytree(bucket.folder, gateway.store_directory)
    shutil.rmtree(gateway.state_directory)
    gateway.settings = merged(gateway.settings, {"store": {"master_key_file": str(bucket.key)}})
    return Bucket(gateway.store_directory, bucket.key, bucket.writer, bucket.roots)


@pytest.fixture
def gateway(make_gateway: GatewayFactory) -> Gateway:
    """Not started."""
    return make_gateway(QUICK)


@pytest.fixture
def bucket(gateway: Gateway, buckets: dict[str, Bucket]) -> Bucket:
    """A copy of the sound one, as the gateway's store."""
    return copy_of(gateway, buckets["sound"])


def refused(gateway: Gateway, *words: str) -> str:
    done = gateway.try_recover(*words)
    assert done.returncode == 1, done
    assert done.stdout == ""
    return done.stderr.splitlines()[-1]


def holds(gateway: Gateway, points: int = POINTS) -> None:
    """The volume is as it was after so many recovery points."""
    for point in range(POINTS):
        expected = noise(1, SEED + point) if point < points else bytes(MIB)
        assert read(gateway, MIB, at=point * MIB) == expected, point


# Before the store is taken over


def test_a_state_directory_that_is_not_empty(gateway: Gateway, bucket: Bucket) -> None:
    gateway.recover("--take-over")
    before = bucket.files()
    state = {path: path.read_bytes() for path in gateway.state_directory.rglob("*") if path.is_file()}
    assert refused(gateway, "--take-over") == (
        f"tombolo: {gateway.state_directory} is a state directory already; a recovery makes a new one: name an empty "
        "directory, or move this away"
    )
    assert bucket.files() == before
    assert {path for path in gateway.state_directory.rglob("*") if path.is_file()} == set(state)
    holds(gateway.start())


@pytest.mark.usefixtures("bucket")
def test_a_state_directory_that_is_in_use(gateway: Gateway) -> None:
    gateway.recover("--take-over")
    gateway.start()
    said = refused(gateway, "--take-over")
    assert str(gateway.state_directory) in said
    assert str(gateway.process.pid) in said
    holds(gateway)
    assert gateway.status()["failure"] is None


def test_a_store_without_a_root(gateway: Gateway, bucket: Bucket) -> None:
    (bucket.folder / "root").unlink()
    before = bucket.files()
    assert refused(gateway).startswith(
        "tombolo: the store has no object `root`: no gateway has told it yet what it holds, or the object was removed"
    )
    assert bucket.files() == before


def test_a_store_with_nothing_in_it(gateway: Gateway) -> None:
    shutil.rmtree(gateway.state_directory)
    assert "the store has no object `root`" in refused(gateway)
    assert not [
        path for path in gateway.store_directory.rglob("*") if path.is_file() and ".tombolo-store" not in path.parts
    ]


def test_after_a_refusal_nothing_new_is_begun_on_the_store(gateway: Gateway, bucket: Bucket) -> None:
    """A new gateway on a store with data is refused; so it is in a state directory where a recovery was refused."""
    (bucket.folder / "root").unlink()
    before = bucket.files()
    refused(gateway)
    code, said = gateway.refused_start(8)
    assert code == 1
    assert "the store has data of a gateway already" in said
    assert bucket.files() == before


def test_after_a_refusal_and_a_refused_start_the_recovery_is_made_all_the_same(
    make_gateway: GatewayFactory, gateway: Gateway
) -> None:
    gateway.settings = merged(gateway.settings, {"store": {"lease_ms": 1500}})
    gateway.start()
    gateway.create_volume("vol", "64MiB")
    write(gateway, noise(1))
    wait_covered(gateway)
    key = gateway.folder / "kept.key"
    shutil.copy(gateway.state_directory / "master.key", key)
    key.chmod(0o600)
    shared = {"store": gateway.settings["store"] | {"master_key_file": str(key)}, "flush": gateway.settings["flush"]}
    second = make_gateway(shared)
    assert "it is alive" in refused(second)
    code, _ = second.refused_start(20)
    assert code == 1
    second.recover("--take-over")
    assert read(second.start(), MIB) == noise(1)


def test_the_wrong_master_key(gateway: Gateway, bucket: Bucket, buckets: dict[str, Bucket]) -> None:
    before = bucket.files()
    said = refused(gateway, "--key", str(buckets["other"].key), "--take-over")
    assert said.startswith("tombolo: the object `keys` in the store: ")
    assert said.endswith(
        "; name the right one in [store] master_key_file, master_key_environment or master_key_command"
    )
    assert bucket.files() == before
    gateway.settings["store"]["master_key_file"] = str(gateway.folder / "not there")
    assert "not there" in refused(gateway, "--take-over")
    del gateway.settings["store"]["master_key_file"]
    said = refused(gateway, "--take-over")
    assert f"{gateway.state_directory / 'master.key'} is missing" in said
    assert bucket.files() == before
    # On the command line it takes the place of what the settings say.
    gateway.recover("--key", str(bucket.key), "--take-over")


@pytest.mark.usefixtures("bucket")
def test_store_and_state_directory_are_named_on_the_command_line(gateway: Gateway) -> None:
    url, state = gateway.settings["store"]["url"], gateway.folder / "another"
    gateway.settings = merged(gateway.settings, {"store": {"url": f"dir:{gateway.folder}/nowhere"}})
    gateway.recover("--store", url, "--state", str(state), "--take-over")
    assert not gateway.state_directory.exists()
    gateway.settings = merged(gateway.settings, {"store": {"url": url}, "state_directory": str(state)})
    holds(gateway.start())


@pytest.mark.parametrize("length", [0, 1, 40, 100, -1])
def test_a_root_that_is_cut(gateway: Gateway, bucket: Bucket, length: int) -> None:
    root = bucket.folder / "root"
    root.write_bytes(root.read_bytes()[:length])
    before = bucket.files()
    assert refused(gateway, "--take-over").startswith("tombolo: the object `root` in the store: ")
    assert bucket.files() == before
    root.write_bytes(bucket.roots[-1])
    gateway.recover("--take-over")
    holds(gateway.start())


def test_a_root_with_a_bit_flipped(gateway: Gateway, bucket: Bucket) -> None:
    root = bucket.folder / "root"
    sound = root.read_bytes()
    for place in (0, 4, 6, 8, 16, 24, 30, 60, 70, len(sound) - 1, *random.Random(SEED).choices(range(len(sound)), k=6)):
        altered = bytearray(sound)
        altered[place] ^= 1
        root.write_bytes(altered)
        before = bucket.files()
        assert refused(gateway, "--take-over").startswith("tombolo: the object `root` in the store: "), place
        assert bucket.files() == before
    root.write_bytes(sound)
    gateway.recover("--take-over")
    holds(gateway.start())


@pytest.mark.parametrize("other", ["other", "clear"])
def test_a_root_of_another_bucket(gateway: Gateway, bucket: Bucket, buckets: dict[str, Bucket], other: str) -> None:
    (bucket.folder / "root").write_bytes((buckets[other].folder / "root").read_bytes())
    before = bucket.files()
    said = refused(gateway, "--take-over")
    if other == "other":
        assert said.startswith("tombolo: the object `root` in the store: it is encrypted with data key ")
        assert said.endswith(", which is none of this store's")
    assert bucket.files() == before


def test_an_older_root_put_back_is_taken_for_the_newest_and_its_point_is_recovered(
    gateway: Gateway, bucket: Bucket
) -> None:
    """Nobody can tell from the bucket that there was a newer one: who can write to it can take it back in time."""
    (bucket.folder / "root").write_bytes(bucket.roots[1])
    gateway.recover("--take-over")
    holds(gateway.start(), points=2)
    # And it goes on from there, beside what the store has of later points.
    write(gateway, noise(1, SEED + 50), at=2 * MIB)
    wait_covered(gateway)
    gateway.lose_state()
    gateway.recover("--take-over")
    gateway.start()
    assert read(gateway, MIB) == noise(1, SEED)
    assert read(gateway, MIB, at=2 * MIB) == noise(1, SEED + 50)
    assert read(gateway, MIB, at=3 * MIB) == bytes(MIB)
    checked_store(gateway)


# Of the journal


def damage(bucket: Bucket, what: str) -> str:
    """Harms the journal; returns the name of the object that a recovery must name."""
    names = bucket.journal
    victim, other = bucket.folder / "journal" / names[-2], bucket.folder / "journal" / names[-3]
    sound = victim.read_bytes()
    if what == "missing":
        victim.unlink()
    elif what == "cut":
        victim.write_bytes(sound[:-1])
    elif what == "empty":
        victim.write_bytes(b"")
    elif what == "flipped":
        victim.write_bytes(sound[:90] + bytes([sound[90] ^ 1]) + sound[91:])
    elif what == "swapped":
        victim.write_bytes(other.read_bytes())
        other.write_bytes(sound)
    elif what == "older":
        victim.write_bytes(other.read_bytes())
    return victim.name


DAMAGES = ["missing", "cut", "empty", "flipped", "swapped", "older"]


@pytest.mark.parametrize("what", DAMAGES)
def test_a_damaged_journal_is_named_and_recovered_from_once_it_is_mended(
    gateway: Gateway, bucket: Bucket, buckets: dict[str, Bucket], what: str
) -> None:
    name = damage(bucket, what)
    before = bucket.files()
    for words in (["--take-over"], []):
        said = refused(gateway, *words)
        if what == "missing":
            assert said == (
                f"tombolo: journal object {int(name[:16], 16)} is missing in the store, and all that was written after "
                "it cannot be recovered"
            )
        else:
            assert said.startswith(f"tombolo: the object `journal/{name}` in the store: ")
        if what in ("swapped", "older"):
            assert said.endswith(": it is another object than the one that is called so")
        # The store is taken over, and otherwise as it was.
        after = bucket.files()
        assert {file: data for file, data in after.items() if file != "root"} == {
            file: data for file, data in before.items() if file != "root"
        }
    code, said = gateway.refused_start()
    assert code == 1
    assert "the recovery of this state directory was interrupted; run `tombolo recover` again, which goes on" in said
    for path in (buckets["sound"].folder / "journal").iterdir():
        shutil.copy(path, bucket.folder / "journal")
    # Without a word of taking over, and without waiting: the store is its own since the first time.
    began = time.monotonic()
    done = gateway.try_recover()
    assert done.returncode == 0, done.stderr
    assert "watching" not in done.stderr
    assert time.monotonic() - began < 10
    holds(gateway.start())


def test_an_interrupted_recovery_is_gone_on_with(make_gateway: GatewayFactory, s3: S3Server, proxy: FaultProxy) -> None:
    """Killed at random moments, and served only when it is whole."""
    gateway = make_gateway(merged(s3_settings(proxy.endpoint), QUICK), s3.environment).start()
    gateway.create_volume("vol", "64MiB")
    for point in range(POINTS):
        write(gateway, noise(1, SEED + point), at=point * MIB)
        wait_covered(gateway)
    gateway.lose_state()
    generator, interrupted = random.Random(SEED), 0
    for number in range(12):
        if number % 4 == 0:
            shutil.rmtree(gateway.state_directory, ignore_errors=True)
        proxy.faults.delay_s = 0.03
        words = [gateway.binary, "recover", "--config", gateway.config_path]
        child = subprocess.Popen(
            [*map(str, words), "--take-over"],
            env=gateway.environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        time.sleep(generator.uniform(0.02, 0.7))
        child.send_signal(signal.SIGKILL)
        child.communicate(timeout=30)
        proxy.faults.delay_s = 0
        if is_whole(gateway):
            shutil.rmtree(gateway.state_directory)
            continue
        code, said = gateway.refused_start(20)
        assert code == 1
        assert not is_whole(gateway), "a start has begun something new"
        interrupted += "the recovery of this state directory was interrupted" in said
    gateway.recover("--take-over")
    holds(gateway.start())
    gateway.check()
    checked_store(gateway)
    assert interrupted > 0


def is_whole(gateway: Gateway) -> bool:
    """Local metadata has its name."""
    return (gateway.state_directory / "metadata" / "data.mdb").exists()
