"""The bucket is enough: a gateway whose local disk is gone comes back from its store, as it was at a moment that it
names."""

import contextlib
import json
import os
import random
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from conftest import SEED, GatewayFactory, MountFactory, s3_settings
from harness.gateway import Gateway, merged
from harness.mount import Mount
from harness.nbd import NbdDisk
from harness.object_store import S3Server
from harness.tools import wait_for

MIB = 1 << 20
QUICK = {"flush": {"recovery_point_ms": 300, "flush_delay_ms": 100}}
AGE_LIMIT_S = 60.0


def noise(mebibytes: int, seed: int = SEED) -> bytes:
    return random.Random(seed).randbytes(mebibytes * MIB)


def write(gateway: Gateway, data: bytes, at: int = 0, volume: str = "vol") -> None:
    with gateway.disk(volume) as disk:
        disk.write(at, data)
        disk.flush()


def read(gateway: Gateway, length: int, at: int = 0, volume: str = "vol") -> bytes:
    with gateway.disk(volume) as disk:
        return disk.read(at, length)


def wait_covered(gateway: Gateway) -> None:
    """Waits until the store knows everything, without asking for it."""
    wait_for(lambda: gateway.status()["recovery_point"]["age_s"] == 0, AGE_LIMIT_S, "a recovery point of everything")


def wait_complete(gateway: Gateway) -> None:
    """Waits until the store has no metadata that the gateway lacks."""
    wait_for(lambda: gateway.status()["metadata"]["is_complete"], AGE_LIMIT_S, "all metadata to be brought here")


def tree_of(folder: Path) -> dict[str, bytes | str]:
    """Everything below a folder: contents of files, targets of links, and what else there is."""

    def seen(path: Path) -> bytes | str:
        if path.is_symlink():
            return f"-> {path.readlink()}"
        return "folder" if path.is_dir() else path.read_bytes()

    return {str(path.relative_to(folder)): seen(path) for path in folder.rglob("*")}


def checked_store(gateway: Gateway) -> dict[str, Any]:
    """`check --store` finds no damage. It needs all metadata."""
    wait_complete(gateway)
    status: dict[str, Any] = json.loads(gateway.cli("check", "--store", "--json", limit_s=120))
    assert (status["state"], status["findings_count"]) == ("finished", 0), status
    return status


def fill(gateway: Gateway, folder: Path) -> None:
    """Volumes and a share with all that a recovery could get wrong."""
    data = noise(4)
    gateway.create_volume("vol", "64MiB")
    gateway.create_volume("other", "8MiB")
    write(gateway, data)
    write(gateway, data, volume="other")
    # Overwritten, the same again elsewhere, a short hole and a long one.
    write(gateway, data[:MIB], at=2 * MIB)
    write(gateway, data[MIB : 2 * MIB], at=20 * MIB)
    write(gateway, noise(20, SEED + 1), at=30 * MIB)
    with gateway.disk("vol") as disk:
        disk.trim(3 * MIB, MIB)
        disk.write_zeroes(32 * MIB, 18 * MIB)
        disk.flush()
    gateway.cli("volume", "delete", "other", "--yes")
    # Of the same name, and other contents.
    gateway.create_volume("other", "16MiB")
    write(gateway, data[:MIB], at=15 * MIB, volume="other")
    gateway.create_volume("resized", "8MiB")
    gateway.cli("volume", "resize", "resized", "--size", "24MiB")
    (folder / "a" / "b").mkdir(parents=True)
    (folder / "a" / "file").write_bytes(data[: MIB + 5])
    (folder / "name").write_bytes(b"short")
    (folder / "name").rename(folder / "another name")
    os.truncate(folder / "a" / "file", 7000)
    (folder / "grown").write_bytes(b"first")
    os.truncate(folder / "grown", 3 * MIB)
    (folder / "deleted").write_bytes(data[:MIB])
    (folder / "deleted").unlink()
    os.link(folder / "a" / "file", folder / "linked")
    (folder / "symbolic").symlink_to("a/file")
    os.setxattr(folder / "grown", "user.colour", b"blue")
    os.utime(folder / "grown", ns=(1_000_000_001, 2_000_000_002))
    (folder / "grown").chmod(0o604)


VOLUMES = {"vol": 64 * MIB, "other": 16 * MIB, "resized": 24 * MIB}


def contents(gateway: Gateway) -> dict[str, bytes]:
    return {
        name: b"".join(read(gateway, MIB, at, name) for at in range(0, size, MIB)) for name, size in VOLUMES.items()
    }


def counted(shares: dict[str, dict[str, Any]]) -> dict[str, tuple[Any, ...]]:
    return {
        name: tuple(entry[key] for key in ("id", "quota_bytes", "used_bytes", "inodes"))
        for name, entry in shares.items()
    }


def nothing_is_lost(gateway: Gateway, share: str, mount: Mount) -> None:
    gateway.cli("share", "quota", share, "40MiB")
    gateway.create_share("empty", "--quota", "8MiB")
    mount.start()
    fill(gateway, mount.folder)
    files = tree_of(mount.folder)
    details = [os.lstat(mount.folder / name) for name in files]
    mount.stop()
    write(gateway, noise(1, SEED + 2), at=60 * MIB)
    gateway.drain()
    assert gateway.status()["recovery_point"]["age_s"] == 0
    expected, before, shares = contents(gateway), gateway.status(), gateway.shares()
    gateway.lose_state()
    said = gateway.recover("--take-over")
    assert said.startswith(
        f"recovered 3 volumes and {before['objects']} objects, as {gateway.writer_name} had them at 20"
    )
    gateway.start()
    assert {volume["name"]: volume["size_bytes"] for volume in gateway.volumes()} == VOLUMES
    assert contents(gateway) == expected
    recovered = gateway.status()
    for key in ("objects", "stored_bytes", "dedup"):
        assert recovered[key] == before[key]
    assert counted(gateway.shares()) == counted(shares)
    mount.start()
    assert tree_of(mount.folder) == files
    for name, was in zip(files, details, strict=True):
        now = os.lstat(mount.folder / name)
        for field in ("st_mode", "st_uid", "st_gid", "st_nlink", "st_size", "st_blocks", "st_mtime_ns", "st_ino"):
            assert getattr(now, field) == getattr(was, field), (name, field)
    assert os.getxattr(mount.folder / "grown", "user.colour") == b"blue"
    with pytest.raises(OSError, match="quota"):
        (mount.folder / "too large").write_bytes(noise(41))
    (mount.folder / "too large").unlink()
    (mount.folder / "new").write_bytes(b"after")
    mount.stop()
    gateway.check()
    # What is written again is known.
    wait_covered(gateway)
    wait_complete(gateway)
    recovered = gateway.status()
    again = read(gateway, 2 * MIB)
    write(gateway, again, at=52 * MIB)
    gateway.drain()
    after = gateway.status()
    assert after["dedup"]["blocks_duplicate"] - recovered["dedup"]["blocks_duplicate"] == 512
    assert after["objects"] == recovered["objects"]
    gateway.restart()
    expected["vol"] = expected["vol"][: 52 * MIB] + again + expected["vol"][54 * MIB :]
    assert contents(gateway) == expected
    gateway.check()
    assert checked_store(gateway)["orphans_count"] == 0


@pytest.fixture
def gateway(make_gateway: GatewayFactory, request: pytest.FixtureRequest) -> Gateway:
    """A running gateway with short recovery points: over S3 if the test is parametrised so."""
    if getattr(request, "param", "directory") == "s3":
        server: S3Server = request.getfixturevalue("s3")
        return make_gateway(merged(s3_settings(server.endpoint), QUICK), server.environment).start()
    return make_gateway(QUICK).start()


@pytest.mark.parametrize("gateway", ["directory", "s3"], indirect=True)
def test_after_a_drain_nothing_is_lost_with_the_local_disk(
    gateway: Gateway, share: str, make_mount: MountFactory
) -> None:
    nothing_is_lost(gateway, share, make_mount())


@pytest.mark.parametrize("size_mib", [32, 256])
def test_the_cache_has_another_size_after_a_recovery(make_gateway: GatewayFactory, size_mib: int) -> None:
    settings = {
        "cache": {"size": "64MiB"},
        "flush": {"dirty_bytes_max": "8MiB"},
        "prefetch": {"window_bytes_max": "4MiB"},
    }
    gateway = make_gateway(merged(settings, QUICK)).start()
    gateway.create_volume("vol", "64MiB")
    data = noise(4)
    write(gateway, data)
    gateway.drain()
    gateway.stop()
    gateway.lose_state()
    gateway.settings["cache"] = {"size": f"{size_mib}MiB"}
    gateway.recover()
    gateway.start()
    assert gateway.status()["cache"]["size_bytes"] == size_mib * MIB
    assert read(gateway, len(data)) == data


# Without a drain


@dataclass
class Change:
    """One of the client's numbered changes."""

    number: int
    place: str
    sent_at: float
    acknowledged_at: float | None = None


class Client:
    """Changes two volumes and a share in turn, one change after another, each with its number in it. So what a
    recovery brings back tells with which change it ends."""

    SLOTS = 12
    PAIR = 2 * 4096

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.changes: list[Change] = []
        self.state: dict[str, int] = {}
        """Number of the last change of each place, as of the last recovery."""
        self.next = 1
        self.stopping = threading.Event()

    @staticmethod
    def contents(number: int) -> bytes:
        """A block of its own, and one that many others have too."""
        own = number.to_bytes(8, "big") + random.Random(number).randbytes(4088)
        return own + random.Random(-1 - number % 5).randbytes(4096)

    def prepare(self, gateway: Gateway, folder: Path) -> None:
        for volume in ("one", "two"):
            gateway.create_volume(volume, "16MiB")
        (folder / "slots").write_bytes(bytes(self.SLOTS * self.PAIR))
        (folder / "at-0").write_bytes(b"")

    def run(self, gateway: Gateway, folder: Path) -> None:
        """Until told to stop, or until something fails: the gateway is gone."""
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            disks = {volume: stack.enter_context(gateway.disk(volume)) for volume in ("one", "two")}
            slots = os.open(folder / "slots", os.O_RDWR)
            stack.callback(os.close, slots)
            while not self.stopping.is_set():
                self._change(disks, slots, folder)

    def _change(self, disks: dict[str, NbdDisk], slots: int, folder: Path) -> None:
        number, slot = self.next, self.random.randrange(self.SLOTS)
        kind = ("one", "two", "slots", "name")[number % 4]
        change = Change(number, "name" if kind == "name" else f"{kind}/{slot}", time.time())
        self.changes.append(change)
        self.next += 1
        if kind == "name":
            (folder / f"at-{self._name()}").rename(folder / f"at-{number}")
        elif kind == "slots":
            os.pwrite(slots, self.contents(number), slot * self.PAIR)
            os.fsync(slots)
        else:
            disks[kind].write(slot * self.PAIR, self.contents(number))
        change.acknowledged_at = time.time()

    def _name(self) -> int:
        """What the name is called now."""
        made = [change.number for change in self.changes if change.place == "name" and change.acknowledged_at]
        return made[-1] if made else self.state.get("name", 0)

    def verify(self, gateway: Gateway, folder: Path) -> int:
        """What was recovered is what the client saw after one of its changes; returns the number of that change."""
        names = [path.name for path in folder.iterdir() if path.name.startswith("at-")]
        assert len(names) == 1, names
        found, copies = {"name": int(names[0].removeprefix("at-"))}, {}
        blocks = {volume: read(gateway, self.SLOTS * self.PAIR, volume=volume) for volume in ("one", "two")}
        blocks["slots"] = (folder / "slots").read_bytes()
        for kind, data in blocks.items():
            for slot in range(self.SLOTS):
                pair = data[slot * self.PAIR : (slot + 1) * self.PAIR]
                place, number = f"{kind}/{slot}", int.from_bytes(pair[:8], "big")
                assert pair[:4096] == (self.contents(number)[:4096] if number else bytes(4096)), (place, number)
                found[place], copies[place] = number, pair[4096:]
        last = max(found.values())
        allowed = dict.fromkeys(found, 0) | self.state
        before = dict(allowed)
        for change in self.changes:
            if change.number <= last:
                before[change.place] = allowed[change.place]
                allowed[change.place] = change.number
        assert found == allowed, f"not what was there after change {last}"
        # Of a change that was under way one half may be there.
        under_way = {change.place: change.number for change in self.changes if change.number in (last, last + 1)}
        for place, copy in copies.items():
            numbers = {allowed[place], *({before[place], under_way[place]} if place in under_way else ())}
            assert copy in [self.contents(number)[4096:] if number else bytes(4096) for number in numbers], place
        self.state, self.next = allowed, max(self.next, last + 1)
        return last

    def acknowledged_before(self, moment: float) -> int:
        """Number of the last change that was acknowledged by then."""
        numbers = [
            change.number for change in self.changes if change.acknowledged_at and change.acknowledged_at < moment
        ]
        return max(numbers, default=0)


def lose_everything_under_load(gateway: Gateway, make_mount: MountFactory, rounds: int, seed: int) -> None:
    """Kills at random moments; each recovery brings back what the last `status` promised."""
    generator, client, kept = random.Random(seed), Client(seed), 0
    mount = make_mount().start()
    client.prepare(gateway, mount.folder)
    wait_covered(gateway)
    for number in range(rounds):
        client.changes.clear()
        writer = threading.Thread(target=client.run, args=(gateway, mount.folder))
        writer.start()
        killed_at, seen = time.monotonic() + generator.uniform(0.3, 2.5), None
        while time.monotonic() < killed_at:
            asked_at = time.time()
            seen = (asked_at, gateway.status()["recovery_point"])
            time.sleep(generator.uniform(0, 0.2))
        gateway.kill9()
        mount.kill9()
        mount.detach()
        writer.join(60)
        assert not writer.is_alive()
        gateway.lose_state()
        gateway.recover("--take-over")
        gateway.start()
        mount = make_mount(mount.folder).start()
        assert seen is not None
        asked_at, point = seen
        promised = max(
            client.acknowledged_before(asked_at - point["age_s"]), client.acknowledged_before(point["time_s"])
        )
        made = len(client.changes)
        last = client.verify(gateway, mount.folder)
        assert last >= promised, f"round {number}: {made} changes, {promised} promised, {last} found; {point}"
        assert made > 5
        kept += promised > 0
        gateway.check()
    mount.stop()
    checked_store(gateway)
    # Short rounds may end before the first recovery point.
    assert kept >= rounds // 4


@pytest.mark.usefixtures("share")
@pytest.mark.parametrize("seed", range(5))
def test_without_a_drain_a_prefix_comes_back(gateway: Gateway, make_mount: MountFactory, seed: int) -> None:
    lose_everything_under_load(gateway, make_mount, rounds=2, seed=SEED + seed)


@pytest.mark.usefixtures("share")
@pytest.mark.parametrize("gateway", ["s3"], indirect=True)
def test_without_a_drain_a_prefix_comes_back_over_s3(gateway: Gateway, make_mount: MountFactory) -> None:
    lose_everything_under_load(gateway, make_mount, rounds=2, seed=SEED)


@pytest.mark.usefixtures("share")
@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("gateway", ["s3"], indirect=True)
def test_without_a_drain_a_prefix_comes_back_a_hundred_times(gateway: Gateway, make_mount: MountFactory) -> None:
    lose_everything_under_load(gateway, make_mount, rounds=100, seed=SEED)
