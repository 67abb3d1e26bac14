"""What is large in a share: files beyond 4 GiB, and folders of very many names, through every door."""

import random
from contextlib import ExitStack

import pytest

from conftest import SEED
from harness.doors import Door
from harness.ganesha import Ganesha
from harness.gateway import Gateway
from harness.mount import Mount
from harness.tools import wait_for

GIB = 1 << 30
DOORS = ("mount", "nfs", "smb")
PLACES = (2 * GIB - 3, 4 * GIB - 3, 5 * GIB, 1024 * GIB + 1)
"""Across the boundaries of signed and unsigned 32 bits, and far beyond them."""
HOLE = 3 * GIB
PIECE_BYTES = 70_000


def piece(place: int) -> bytes:
    return random.Random(place).randbytes(PIECE_BYTES)


@pytest.mark.parametrize("writer", DOORS)
def test_file_beyond_four_gibibytes_is_the_same_through_every_door(doors: dict[str, Door], writer: str) -> None:
    door = doors[writer]
    door.create("large")
    for place in PLACES:
        door.write("large", place, piece(place))
    size = PLACES[-1] + PIECE_BYTES
    for reader in doors.values():
        wait_for(lambda door=reader: door.status("large").size == size, 5, "size")  # type: ignore[misc]
        for place in PLACES:
            assert reader.read("large", place, PIECE_BYTES) == piece(place), f"{reader.name} at {place}"
        assert reader.read("large", HOLE, 100) == bytes(100)
        assert reader.read("large", size, 100) == b""
    door.truncate("large", 4 * GIB + 1)
    for reader in doors.values():
        wait_for(lambda door=reader: door.status("large").size == 4 * GIB + 1, 5, "size")  # type: ignore[misc]
        assert reader.read("large", 4 * GIB - 3, 100) == piece(4 * GIB - 3)[:4]


def name_of(number: int) -> str:
    return f"a name of many, which is {number}"


def many_names(mount: Mount, doors: list[Door], count: int) -> None:
    """Makes them, finds each once, removes every other and finds the rest, removes the folder."""
    folder = mount.folder / "many"
    folder.mkdir()
    for number in range(count):
        (folder / name_of(number)).touch()
    expected = sorted(name_of(number) for number in range(count))
    for door in doors:
        assert sorted(door.names("many")) == expected, door.name
        for number in random.Random(SEED).sample(range(count), 100):
            assert door.status(f"many/{name_of(number)}").size == 0
    for number in range(0, count, 2):
        (folder / name_of(number)).unlink()
    expected = sorted(name_of(number) for number in range(1, count, 2))
    for door in doors:
        wait_for(lambda door=door: sorted(door.names("many")) == expected, 20, f"names through {door.name}")  # type: ignore[misc]
    for number in range(1, count, 2):
        (folder / name_of(number)).unlink()
    folder.rmdir()


def test_folder_of_thirty_thousand_names(doors: dict[str, Door], mount: Mount) -> None:
    many_names(mount, [doors["mount"], doors["nfs"]], 30_000)


def test_folder_of_two_thousand_names_is_the_same_through_every_door(doors: dict[str, Door], mount: Mount) -> None:
    """Fewer, since smbd asks for several attributes of each."""
    many_names(mount, list(doors.values()), 2_000)


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_folder_of_a_million_names(gateway: Gateway, mount: Mount, ganesha: Ganesha, closing: ExitStack) -> None:
    doors: list[Door] = [mount.door(), ganesha.door()]
    for door in doors:
        closing.callback(door.close)
    many_names(mount, doors, 1_000_000)
    gateway.restart()
    assert list(mount.folder.iterdir()) == []
