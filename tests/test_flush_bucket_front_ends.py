"""Flushes that wait for the store, through the servers of iSCSI, NFS and SMB: what such a flush covered outlives the
local disk, and while the store is away none is answered."""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

import pytest

from conftest import GatewayFactory, s3_settings
from harness.fault_proxy import FaultProxy
from harness.front_ends import FrontEnd
from harness.ganesha import Ganesha
from harness.gateway import Gateway, merged
from harness.iscsi import MEDIUM_ERROR, UNIT_ATTENTION, IscsiDisk, ScsiError
from harness.mount import Mount
from harness.object_store import S3Server
from harness.smbd import Smbd
from harness.target import Tgtd
from test_flush_bucket import NO_OTHER_POINTS, Flusher, lose_the_disk, noise

STALL_S = 1.0
SLOT_BYTES = 64 << 10
SLOTS = 4
NOTHING = bytes(SLOT_BYTES)
BUSY = 0x08


class Client(Protocol):
    """Has a place of some slots, which are zeroes at first."""

    def write(self, slot: int, data: bytes) -> None: ...

    def flush(self) -> None:
        """Until it is answered."""

    def read(self, slot: int) -> bytes: ...

    def hears_of_the_loss(self) -> None:
        """Of what it had written and not flushed."""


class IscsiClient:
    """Flushes by SYNCHRONIZE CACHE, or by a FUA write elsewhere."""

    def __init__(self, disk: IscsiDisk, fua: bool) -> None:
        self._disk = disk
        self._fua = fua
        self.refusals = 0

    def write(self, slot: int, data: bytes) -> None:
        self._disk.write(slot * SLOT_BYTES, data)

    def flush(self) -> None:
        """What is busy is asked again, as initiators do."""
        while True:
            try:
                if self._fua:
                    return self._disk.write(SLOTS * SLOT_BYTES, bytes(4096), fua=True)
                return self._disk.flush()
            except ScsiError as refused:
                if refused.status != BUSY:
                    raise
                self.refusals += 1

    def read(self, slot: int) -> bytes:
        try:
            return self._disk.read(slot * SLOT_BYTES, SLOT_BYTES)
        except ScsiError as notice:
            # It was connected before tgtd was: there has been a loss, and nothing was read.
            if notice.sense_key != UNIT_ATTENTION:
                raise
            return self.read(slot)

    def hears_of_the_loss(self) -> None:
        with pytest.raises(ScsiError) as told:
            self.flush()
        assert told.value.sense_key == MEDIUM_ERROR


class FileClient:
    """Flushes by what its protocol has for that."""

    NAME = "file"

    def __init__(self, front_end: FrontEnd, write: Callable[[int, bytes], None] | None = None) -> None:
        """`write` is through a handle that stays open."""
        self._front_end = front_end
        self._write = write

    def write(self, slot: int, data: bytes) -> None:
        at = slot * SLOT_BYTES
        if self._write is not None:
            self._write(at, data)
        else:
            self._front_end.write(self.NAME, at, data)

    def flush(self) -> None:
        self._front_end.sync(self.NAME)

    def read(self, slot: int) -> bytes:
        return self._front_end.read(self.NAME, slot * SLOT_BYTES, SLOT_BYTES)

    def hears_of_the_loss(self) -> None:
        """Who had the file open would; it was opened after it."""


class Served:
    """A volume or a share behind its server, which runs on whatever becomes of the gateway."""

    def __init__(self, gateway: Gateway, kind: str, connect: Callable[[], Client]) -> None:
        self._gateway = gateway
        self._kind = kind
        self.connect = connect

    def set_mode(self, mode: str) -> None:
        self._gateway.cli(self._kind, "set", "data", "--flush", mode)
        self._gateway.drain()


@pytest.fixture
def gateway(make_gateway: GatewayFactory, s3: S3Server, proxy: FaultProxy) -> Gateway:
    """A running gateway behind the proxy, which refuses a flush soon."""
    settings = merged(s3_settings(proxy.endpoint), NO_OTHER_POINTS)
    settings = merged(
        settings, {"store": {"retry_delay_ms_max": 200}, "flush": {"stall_timeout_ms": int(STALL_S * 1000)}}
    )
    return make_gateway(settings, s3.environment).start()


@pytest.fixture
def served(request: pytest.FixtureRequest, gateway: Gateway, folder: Path, closing: ExitStack) -> Served:
    """Over the protocol that the test is parametrised with."""
    protocol: str = request.param
    if protocol.startswith("iscsi"):
        tgtd: Tgtd = request.getfixturevalue("tgtd")
        gateway.create_volume("data", "8MiB")
        iqn = tgtd.create_target(1, "flush")
        tgtd.add_lun(1, 1, gateway.nbd_socket, "data")

        def log_in() -> Client:
            disk = tgtd.disk(iqn)
            closing.callback(disk.close)
            return IscsiClient(disk, protocol == "iscsi-fua")

        return Served(gateway, "volume", log_in)
    mount = Mount(gateway, gateway.create_share("data"))
    closing.callback(mount.close)
    mount.start()
    with (mount.folder / FileClient.NAME).open("wb") as file:
        file.truncate(SLOTS * SLOT_BYTES)
    if protocol == "nfs":
        mount.stop()
        ganesha = Ganesha(folder / "ganesha")
        closing.callback(ganesha.close)
        ganesha.serve_share(gateway, "data")
        ganesha.start()

        def mount_export() -> Client:
            front_end = ganesha.front_end()
            closing.callback(front_end.close)
            # When a handle is closed libnfs commits what was written through it.
            return FileClient(front_end, front_end.open_to_write(FileClient.NAME))

        return Served(gateway, "share", mount_export)
    smbd = Smbd(folder / "smbd")
    closing.callback(smbd.close)
    smbd.serve_share(gateway, "data", mount.folder)
    smbd.start()

    def open_session() -> Client:
        front_end = smbd.front_end()
        closing.callback(front_end.close)
        return FileClient(front_end)

    return Served(gateway, "share", open_session)


@pytest.mark.parametrize("served", ["iscsi", "iscsi-fua", "nfs", "smb"], indirect=True)
def test_what_was_flushed_outlives_the_local_disk(served: Served, gateway: Gateway, proxy: FaultProxy) -> None:
    served.set_mode("bucket")
    client = served.connect()
    first, unflushed, second = (noise(SLOT_BYTES, seed) for seed in range(3))
    client.write(0, first)
    client.flush()
    client.write(1, unflushed)
    lose_the_disk(gateway)
    client = served.connect()
    assert client.read(0) == first
    assert client.read(1) in (NOTHING, unflushed)
    client.hears_of_the_loss()
    proxy.refuse()
    client.write(2, second)
    assert client.read(2) == second, "reads and plain writes do not wait"
    flusher = Flusher(client.flush)
    assert flusher.still_waits(3 * STALL_S), "the store is away"
    if isinstance(client, IscsiClient):
        assert client.refusals > 0
    proxy.listen()
    flusher.end(60)
    lose_the_disk(gateway)
    client = served.connect()
    assert client.read(0) == first
    assert client.read(2) == second


@pytest.mark.parametrize("served", ["iscsi", "nfs", "smb"], indirect=True)
def test_what_was_flushed_to_the_local_disk_is_lost_with_it(
    served: Served, gateway: Gateway, proxy: FaultProxy
) -> None:
    """Or the test before would find nothing out. Who had flushed it hears that it is gone."""
    served.set_mode("local")
    client = served.connect()
    proxy.refuse()
    client.write(0, noise(SLOT_BYTES))
    client.flush()
    gateway.kill9()
    proxy.listen()
    lose_the_disk(gateway)
    assert served.connect().read(0) == NOTHING
    if isinstance(client, IscsiClient):
        assert client.read(0) == NOTHING
        client.hears_of_the_loss()
        client.flush()
