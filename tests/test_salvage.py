"""What a state directory has and its store lacks is listed and copied out, and nothing is changed by it."""

import json
import os
import shutil
from pathlib import Path

import pytest

from conftest import SEED, GatewayFactory
from harness.gateway import Gateway, merged
from harness.mount import Mount
from test_recover import MIB, noise, read, wait_covered, write
from test_take_over import QUICK, beside, store_files

BLOCK = 4096
HELD = {"flush": {"recovery_point_ms": 3_600_000, "flush_delay_ms": 3_600_000}}
"""What is written stays here."""


@pytest.fixture
def gateway(make_gateway: GatewayFactory) -> Gateway:
    """Its store has a mebibyte of a volume and two files."""
    gateway = make_gateway(QUICK).start()
    gateway.create_volume("vol", "64MiB")
    gateway.create_volume("still", "8MiB")
    gateway.create_share("docs")
    write(gateway, noise(1))
    mount = Mount(gateway, "docs").start()
    (mount.folder / "old").write_bytes(noise(1, 2))
    (mount.folder / "gone").write_bytes(noise(1, 3))
    (mount.folder / "same").write_bytes(noise(1, 4))
    os.sync()
    mount.close()
    wait_covered(gateway)
    gateway.stop()
    gateway.settings = merged(gateway.settings, HELD)
    return gateway.start()


def change(gateway: Gateway) -> bytes:
    """What the store is not told of; the old file as it is then."""
    write(gateway, noise(1, SEED + 1), at=20 * MIB)
    with gateway.disk("vol") as disk:
        disk.trim(0, 8 * BLOCK)
        disk.flush()
    gateway.create_volume("more", "8MiB")
    mount = Mount(gateway, "docs").start()
    with (mount.folder / "old").open("r+b") as file:
        file.seek(5000)
        file.write(b"changed")
    (mount.folder / "gone").unlink()
    folder = mount.folder / "folder with \u00fcmlaut"
    folder.mkdir()
    (folder / "new").write_bytes(noise(1, 5)[:70_000])
    (folder / "link").symlink_to("new")
    old = (mount.folder / "old").read_bytes()
    os.sync()
    mount.close()
    return old


def test_what_a_gateway_that_was_taken_over_from_had_not_uploaded_is_copied_out(
    make_gateway: GatewayFactory, gateway: Gateway, tmp_path: Path
) -> None:
    old = change(gateway)
    new = beside(make_gateway, gateway)
    new.settings = merged(new.settings, QUICK)
    new.recover("--take-over")
    new.start()
    gateway.kill9()
    before = store_files(gateway.store_directory)
    found = gateway.offline_json("salvage")
    volumes = {volume["name"]: volume for volume in found["volumes"]}
    assert set(volumes) == {"vol", "more"} and not found["is_all"]
    assert volumes["vol"]["changed"] == [
        {"offset": 0, "bytes": 8 * BLOCK, "is_hole": True},
        {"offset": 20 * MIB, "bytes": MIB, "is_hole": False},
    ]
    assert volumes["more"]["changed"] == []
    files = {file["path"]: file for file in found["files"]}
    folder = "folder with \u00fcmlaut"
    assert set(files) == {"old", folder, f"{folder}/new", f"{folder}/link"}
    assert files["old"]["changed"] == [{"offset": BLOCK, "bytes": BLOCK, "is_hole": False}]
    assert files[f"{folder}/new"]["size_bytes"] == 70_000
    assert found["removed"] == [{"share": "docs", "path": "gone"}]
    assert 0 <= found["oldest_age_s"] < 600
    target = tmp_path / "copies"
    assert gateway.offline_json("salvage", "--copy-to", str(target)) | {"oldest_age_s": 0} == found | {
        "oldest_age_s": 0
    }
    image = (target / "volumes" / "vol").read_bytes()
    assert len(image) == 64 * MIB and image[20 * MIB : 21 * MIB] == noise(1, SEED + 1)
    assert not any(image[: 20 * MIB]), "what the store has is not copied"
    shares = target / "shares" / "docs"
    assert (shares / "old").read_bytes() == old
    assert (shares / folder / "new").read_bytes() == noise(1, 5)[:70_000]
    assert (shares / folder / "link").readlink() == Path("new")
    assert sorted(path.name for path in shares.iterdir()) == [folder, "old"]
    assert json.loads((target / "salvage.json").read_text())["removed"] == found["removed"]
    again = gateway.try_offline("salvage", "--copy-to", str(target))
    assert again.returncode == 1 and "is there already" in again.stderr
    text = gateway.try_offline("salvage").stdout
    assert "volume vol: 1.00 MiB and 32.00 KiB of holes in 2 ranges" in text and "removed docs:gone" in text
    after = store_files(gateway.store_directory)
    changed = {name for name in before | after if before.get(name) != after.get(name)}
    assert all(name == "root" or name.startswith(("journal/", "nodes/", "roots/")) for name in changed), (
        "of the new one"
    )
    assert read(new, MIB) == noise(1)


def test_without_its_store_it_copies_what_the_cache_has(gateway: Gateway, tmp_path: Path) -> None:
    change(gateway)
    gateway.stop()
    gateway.start()
    gateway.kill9()
    moved = gateway.folder / "elsewhere"
    gateway.store_directory.rename(moved)
    found = gateway.offline_json("salvage")
    assert found["is_all"] and {volume["name"] for volume in found["volumes"]} == {"vol", "more", "still"}
    (gateway.state_directory / "cache").rename(gateway.state_directory / "cache.gone")
    refused = gateway.try_offline("salvage")
    assert refused.returncode == 1 and "cache file is missing" in refused.stderr
    (gateway.state_directory / "cache.gone").rename(gateway.state_directory / "cache")
    target = tmp_path / "copies"
    copied = gateway.offline_json("salvage", "--copy-to", str(target))
    assert copied["unreadable"] == []
    image = (target / "volumes" / "vol").read_bytes()
    assert image[8 * BLOCK : MIB] == noise(1)[8 * BLOCK :] and image[20 * MIB : 21 * MIB] == noise(1, SEED + 1)
    assert (target / "shares" / "docs" / "same").read_bytes() == noise(1, 4)
    # It can be served from as before.
    assert store_files(gateway.store_directory) == {}, "nothing is put"
    shutil.rmtree(gateway.store_directory)
    moved.rename(gateway.store_directory)
    gateway.start()
    gateway.drain()
    gateway.stop()
    nothing = gateway.try_offline("salvage")
    assert (nothing.returncode, nothing.stdout) == (0, "the store lacks nothing that this state directory has\n")


def test_blocks_that_cannot_be_read_are_named(gateway: Gateway, tmp_path: Path) -> None:
    write(gateway, noise(1, SEED + 1), at=20 * MIB)
    gateway.kill9()
    cache = gateway.state_directory / "cache"
    data = cache.read_bytes()
    at = data.index(noise(1, SEED + 1)[3 * BLOCK : 4 * BLOCK])
    with cache.open("r+b") as file:
        file.seek(at)
        file.write(b"damage")
    target = tmp_path / "copies"
    done = gateway.try_offline("salvage", "--json", "--copy-to", str(target))
    assert done.returncode == 7, done
    unreadable = json.loads(done.stdout)["unreadable"]
    assert [(range["offset"], range["bytes"]) for range in unreadable] == [(20 * MIB + 3 * BLOCK, BLOCK)]
    image = (target / "volumes" / "vol").read_bytes()[20 * MIB : 21 * MIB]
    assert image[3 * BLOCK : 4 * BLOCK] == bytes(BLOCK)
    assert image[4 * BLOCK :] == noise(1, SEED + 1)[4 * BLOCK :]


def test_nothing_is_made_where_no_state_is(gateway: Gateway) -> None:
    running = gateway.try_offline("salvage")
    assert running.returncode == 1 and "is in use by another gateway" in running.stderr
    gateway.lose_state()
    nothing = gateway.try_offline("salvage")
    assert nothing.returncode == 1 and "holds no state of a gateway" in nothing.stderr
    assert not [path for path in gateway.state_directory.glob("*") if path.name != "lock"]


def test_paths_that_are_too_long_and_names_that_are_forged_keep_nothing_else_back(
    gateway: Gateway, tmp_path: Path
) -> None:
    mount = Mount(gateway, "docs").start()
    here = os.open(mount.folder, os.O_RDONLY)
    for _ in range(30):
        os.mkdir("d" * 200, dir_fd=here)
        here, above = os.open("d" * 200, os.O_RDONLY, dir_fd=here), here
        os.close(above)
    os.close(here)
    (mount.folder / "two\nlines").write_text("a")
    # Mostly holes: it would take hours to read.
    with (mount.folder / "vast").open("wb") as file:
        file.truncate(8 << 40)
        file.seek(4 << 40)
        file.write(b"in the middle")
    os.sync()
    mount.close()
    gateway.kill9()
    assert "two\\nlines" in gateway.try_offline("salvage").stdout
    for inside in (gateway.state_directory / "copies", gateway.store_directory / "copies"):
        refused = gateway.try_offline("salvage", "--copy-to", str(inside))
        assert refused.returncode == 1 and "which is the gateway's" in refused.stderr and not inside.exists()
    target = tmp_path / "copies"
    done = gateway.try_offline("salvage", "--json", "--copy-to", str(target))
    assert done.returncode == 7, done
    found = json.loads((target / "salvage.json").read_text())
    assert found["unreadable"] and all("File name too long" in entry["reason"] for entry in found["unreadable"])
    assert (target / "shares" / "docs" / "two\nlines").read_text() == "a"
    with (target / "shares" / "docs" / "vast").open("rb") as file:
        assert file.seek(4 << 40) and file.read(13) == b"in the middle"
