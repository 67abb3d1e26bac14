"""Samples of what releases have left on disk and in the store, kept from the day on which a format changed: those of
the present formats must stay readable, older ones are refused with the way to take the data over. A sample holds a
volume with two blocks in the store and one that is dirty, and a share; its daemon was killed."""

import random
import tarfile
from pathlib import Path

import pytest

from conftest import GatewayFactory
from harness.gateway import Gateway

SAMPLES = Path(__file__).parent / "data"
SETTINGS = {
    "cache": {"size": "16MiB"},
    "prefetch": {"policy": "none", "window_bytes_max": "1MiB"},
    "flush": {"dirty_bytes_max": "4MiB"},
    "journal": {"segment_bytes": "1MiB", "checkpoint_journal_bytes": "4MiB"},
}
STORED = b"stored: " + b"tombolo " * 511 + random.Random(1).randbytes(4096)
DIRTY_AT, DIRTY = 64 << 10, b"not stored yet: " * 256


def unpacked(make_gateway: GatewayFactory, state_format: int) -> Gateway:
    gateway = make_gateway(SETTINGS)
    with tarfile.open(SAMPLES / f"state-format-{state_format}.tar.xz") as sample:
        sample.extractall(gateway.folder, filter="data")
    return gateway


def files_of(gateway: Gateway) -> dict[Path, bytes]:
    """All but the lock, which holds a process number."""
    folders = (gateway.state_directory, gateway.store_directory)
    paths = (path for folder in folders for path in folder.rglob("*") if path.is_file())
    return {path: path.read_bytes() for path in paths if path.name not in ("lock", "lock.mdb")}


def holds_everything(gateway: Gateway) -> bool:
    with gateway.disk("vol") as disk:
        return disk.read(0, len(STORED)) == STORED and disk.read(DIRTY_AT, len(DIRTY)) == DIRTY


def test_the_present_formats_are_read(make_gateway: GatewayFactory) -> None:
    gateway = unpacked(make_gateway, 5).start()
    assert holds_everything(gateway)
    assert list(gateway.shares()) == ["share"]
    gateway.drain()
    gateway.stop()
    gateway.cache_file.unlink()
    assert holds_everything(gateway.start())
    gateway.check()


@pytest.mark.parametrize("state_format", [4])
def test_older_formats_are_refused_and_nothing_is_changed(make_gateway: GatewayFactory, state_format: int) -> None:
    gateway = unpacked(make_gateway, state_format)
    before = files_of(gateway)
    for _ in range(2):
        code, said = gateway.refused_start()
        assert code == 1, said
        assert f"has format {state_format}, and this release reads format 5 alone" in said
        assert "start the release that made it" in said
        assert files_of(gateway) == before
