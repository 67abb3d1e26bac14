"""What is large in a share: files beyond 4 GiB, and folders of very many names, through every front end."""

import random
from contextlib import ExitStack
from functools import partial

import pytest

from conftest import SEED
from harness.front_ends import FrontEnd
from harness.ganesha import Ganesha
from harness.gateway import Gateway
from harness.mount import Mount
from harness.tools import wait_for

GIB = 1 << 30
FRONT_ENDS = ("mount", "nfs", "smb")
PLACES = (2 * GIB - 3, 4 * GIB - 3, 5 * GIB, 1024 * GIB + 1)
"""Across the boundaries of signed and unsigned 32 bits, and far beyond them."""
HOLE = 3 * GIB
PIECE_BYTES = 70_000


def piece(place: int) -> bytes:
    return random.Random(place).randbytes(PIECE_BYTES)


@pytest.mark.parametrize("writer", FRONT_ENDS)
def test_file_beyond_four_gibibytes_is_the_same_through_every_front_end(
    front_ends: dict[str, FrontEnd], writer: str
) -> None:
    front_end = front_ends[writer]
    front_end.create("large")
    for place in PLACES:
        front_end.write("large", place, piece(place))
    size = PLACES[-1] + PIECE_BYTES
    for reader in front_ends.values():
        wait_for(lambda front_end=reader: front_end.status("large").size == size, 5, "size")  # type: ignore[misc]
        for place in PLACES:
            assert reader.read("large", place, PIECE_BYTES) == piece(place), f"{reader.name} at {place}"
        assert reader.read("large", HOLE, 100) == bytes(100)
        assert reader.read("large", size, 100) == b""
    front_end.truncate("large", 4 * GIB + 1)
    for reader in front_ends.values():
        wait_for(lambda front_end=reader: front_end.status("large").size == 4 * GIB + 1, 5, "size")  # type: ignore[misc]
        assert reader.read("large", 4 * GIB - 3, 100) == piece(4 * GIB - 3)[:4]


def name_of(number: int) -> str:
    return f"a name of many, which is {number}"


def has_names(front_end: FrontEnd, names: list[str]) -> bool:
    return sorted(front_end.names("many")) == names


def many_names(mount: Mount, front_ends: list[FrontEnd], count: int) -> None:
    """Makes them, finds each once, removes every other and finds the rest, removes the folder."""
    folder = mount.folder / "many"
    folder.mkdir()
    for number in range(count):
        (folder / name_of(number)).touch()
    expected = sorted(name_of(number) for number in range(count))
    for front_end in front_ends:
        assert sorted(front_end.names("many")) == expected, front_end.name
        for number in random.Random(SEED).sample(range(count), 100):
            assert front_end.status(f"many/{name_of(number)}").size == 0
    for number in range(0, count, 2):
        (folder / name_of(number)).unlink()
    expected = sorted(name_of(number) for number in range(1, count, 2))
    for front_end in front_ends:
        wait_for(partial(has_names, front_end, expected), 20, f"names through {front_end.name}")
    for number in range(1, count, 2):
        (folder / name_of(number)).unlink()
    folder.rmdir()


def test_folder_of_thirty_thousand_names(front_ends: dict[str, FrontEnd], mount: Mount) -> None:
    many_names(mount, [front_ends["mount"], front_ends["nfs"]], 30_000)


def test_folder_of_two_thousand_names_is_the_same_through_every_front_end(
    front_ends: dict[str, FrontEnd], mount: Mount
) -> None:
    """Fewer, since smbd asks for several attributes of each."""
    many_names(mount, list(front_ends.values()), 2_000)


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_folder_of_a_million_names(gateway: Gateway, mount: Mount, ganesha: Ganesha, closing: ExitStack) -> None:
    front_ends: list[FrontEnd] = [mount.front_end(), ganesha.front_end()]
    for front_end in front_ends:
        closing.callback(front_end.close)
    many_names(mount, front_ends, 1_000_000)
    gateway.restart()
    assert list(mount.folder.iterdir()) == []
