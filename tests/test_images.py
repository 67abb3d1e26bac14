"""Real file-system images through iSCSI: what was written is what is read, warm and cold, and a copy costs nothing."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from conftest import BUCKET, GatewayFactory, s3_settings
from harness import images
from harness.gateway import Gateway
from harness.object_store import S3Server
from harness.target import Tgtd
from harness.tools import folder_bytes

MIB = 1 << 20
COPY_SHARE_MAX = 0.02


@dataclass
class Store:
    """Where objects land on this machine's disk, and a gateway that puts them there."""

    gateway: Gateway
    objects: Path


@pytest.fixture(params=["directory", "s3"])
def store(request: pytest.FixtureRequest, make_gateway: GatewayFactory) -> Iterator[Store]:
    changes = {"cache": {"size": "1GiB"}}
    if request.param == "directory":
        gateway = make_gateway(changes).start()
        yield Store(gateway, gateway.store_directory)
    else:
        server: S3Server = request.getfixturevalue("s3")
        gateway = make_gateway(changes | s3_settings(server.endpoint), server.environment).start()
        yield Store(gateway, server.folder / BUCKET)


def luns(store: Store, tgtd: Tgtd, size: int) -> tuple[str, str]:
    """Two volumes as two LUNs of one target."""
    iqn = tgtd.create_target(1, "images")
    for lun, name in enumerate(("first", "second"), start=1):
        store.gateway.create_volume(name, str(size))
        tgtd.add_lun(1, lun, store.gateway.nbd_socket, name)
    return tgtd.url(iqn, 1), tgtd.url(iqn, 2)


def round_trip(store: Store, tgtd: Tgtd, folder: Path, size: int, content_bytes: int, files_min: int) -> None:
    image = folder / "real.img"
    files = images.build_ext4_image(image, size, content_bytes)
    assert files >= files_min
    first, second = luns(store, tgtd, size)
    images.write_image(image, first)
    images.assert_same(image, first, folder)

    store.gateway.drain()
    stored = folder_bytes(store.objects)
    images.write_image(image, second)
    store.gateway.drain()
    assert folder_bytes(store.objects) - stored < COPY_SHARE_MAX * stored
    images.assert_same(image, second, folder)

    store.gateway.stop()
    store.gateway.cache_file.unlink()
    store.gateway.start()
    misses = complete_misses(store.gateway)
    images.assert_same(image, first, folder)
    assert complete_misses(store.gateway) > misses, "the cold read did not go to the store"
    images.assert_same(image, second, folder)


def complete_misses(gateway: Gateway) -> int:
    return int(gateway.status()["cache"]["complete_misses"])


@pytest.mark.timeout(240)
def test_image_is_read_back_identical_warm_and_cold_and_its_copy_is_deduplicated(
    store: Store, tgtd: Tgtd, folder: Path
) -> None:
    round_trip(store, tgtd, folder, size=128 * MIB, content_bytes=80 * MIB, files_min=100)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_large_image_is_read_back_identical_warm_and_cold_and_its_copy_is_deduplicated(
    store: Store, tgtd: Tgtd, folder: Path
) -> None:
    round_trip(store, tgtd, folder, size=1536 * MIB, content_bytes=1024 * MIB, files_min=3000)


def test_clean_volume_survives_a_restart_of_daemon_and_target(gateway: Gateway, tgtd: Tgtd, folder: Path) -> None:
    image = folder / "small.img"
    images.build_ext4_image(image, 32 * MIB, 8 * MIB)
    gateway.create_volume("vol", str(32 * MIB))
    iqn = tgtd.create_target(1, "small")
    tgtd.add_lun(1, 1, gateway.nbd_socket, "vol")
    images.write_image(image, tgtd.url(iqn))
    tgtd.kill9()
    gateway.restart()
    tgtd.start()
    iqn = tgtd.create_target(1, "small")
    tgtd.add_lun(1, 1, gateway.nbd_socket, "vol")
    images.assert_same(image, tgtd.url(iqn), folder)
