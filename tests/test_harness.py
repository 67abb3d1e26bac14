"""The harness itself: a verifier that cannot fail, or a proxy that injects nothing, makes every other test void."""

import random
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from conftest import BUCKET, SEED
from harness.fault_proxy import FaultProxy
from harness.iscsi import LoginFailed
from harness.nbd import NbdDisk, NbdError
from harness.object_store import ACCESS_KEY, REGION, SECRET_KEY, S3Server
from harness.process import Process
from harness.target import Tgtd
from harness.tools import wait_for
from harness.verifier import BLOCK_BYTES, LostData, StampedRange, Writers, block_content


class VolatileDisk:
    """Keeps writes in a cache that `crash` drops; `flush` may lie."""

    def __init__(self, blocks: int, flush_works: bool = True) -> None:
        self.size = blocks * BLOCK_BYTES
        self.stable: dict[int, bytes] = {}
        self.cached: dict[int, bytes] = {}
        self._flush_works = flush_works

    def read(self, offset: int, length: int) -> bytes:
        assert length == BLOCK_BYTES
        return self.cached.get(offset, self.stable.get(offset, bytes(BLOCK_BYTES)))

    def write(self, offset: int, data: bytes, fua: bool = False) -> None:
        self.cached[offset] = data
        if fua:
            self.stable[offset] = data

    def flush(self) -> None:
        if self._flush_works:
            self.stable.update(self.cached)
            self.cached.clear()

    def close(self) -> None:
        pass

    def crash(self) -> None:
        self.cached.clear()


def written(disk: VolatileDisk, writes: int) -> StampedRange:
    part = StampedRange(SEED, 0, 16)
    part.write_until(disk, lambda: part.writes >= writes)
    return part


def test_verifier_accepts_a_disk_that_loses_only_what_was_not_flushed() -> None:
    disk = VolatileDisk(16)
    part = written(disk, 1001)
    assert part.flushes > 0
    disk.crash()
    part.verify(disk)


def test_verifier_sees_a_flush_that_did_nothing() -> None:
    disk = VolatileDisk(16, flush_works=False)
    part = written(disk, 1001)
    disk.crash()
    with pytest.raises(LostData, match="flushed"):
        part.verify(disk)


def test_verifier_sees_lost_acknowledged_writes_where_these_were_promised() -> None:
    disk = VolatileDisk(16)
    part = written(disk, 1003)
    disk.crash()
    with pytest.raises(LostData, match="acknowledged"):
        part.verify(disk, keeps_acknowledged=True)


def swapped(disk: VolatileDisk) -> None:
    disk.stable[0], disk.stable[BLOCK_BYTES] = disk.read(BLOCK_BYTES, BLOCK_BYTES), disk.read(0, BLOCK_BYTES)


def torn(disk: VolatileDisk) -> None:
    disk.stable[0] = disk.read(0, BLOCK_BYTES)[:2048] + bytes(2048)


def from_the_future(disk: VolatileDisk) -> None:
    disk.stable[0] = block_content(SEED, 0, 10**6)


@pytest.mark.parametrize("damage", [swapped, torn, from_the_future])
def test_verifier_sees_damage(damage: Callable[[VolatileDisk], None]) -> None:
    disk = VolatileDisk(16)
    part = written(disk, 1000)
    part.flush(disk)
    part.verify(disk)
    damage(disk)
    with pytest.raises(LostData):
        part.verify(disk)


@pytest.fixture
def memory_server(folder: Path, closing: ExitStack) -> Path:
    """nbdkit's memory disk: an NBD server that is not ours."""
    socket_path = folder / "nbdkit.sock"
    server = Process("nbdkit", folder / "nbdkit.log")
    closing.callback(server.kill9)
    server.start(["nbdkit", "-f", "-U", socket_path, "memory", "16M"])
    server.wait_until(socket_path.exists, 10, "socket")
    return socket_path


def test_nbd_client_speaks_with_a_foreign_server(memory_server: Path) -> None:
    with NbdDisk(memory_server, "any") as disk:
        assert disk.size == 16 << 20
        data = random.Random(SEED).randbytes(64 << 10)
        disk.write(4096, data)
        disk.flush()
        assert disk.read(0, 72 << 10) == bytes(4096) + data + bytes(4096)
        disk.trim(4096, 4096)
        disk.write_zeroes(8192, 4096)
        assert disk.read(8192, 8192) == bytes(4096) + data[8192:12288]
        with pytest.raises(NbdError):
            disk.read(16 << 20, 4096)


def test_writers_verify_a_foreign_server(memory_server: Path) -> None:
    writers = Writers(SEED, threads=3, blocks_each=64)
    writers.start(lambda: NbdDisk(memory_server, "any"))
    wait_for(lambda: writers.writes > 300, 30, "300 writes")
    writers.stop()
    writers.verify(lambda: NbdDisk(memory_server, "any"), keeps_acknowledged=True)


def test_iscsi_client_speaks_with_a_file_lun(folder: Path, tgtd: Tgtd) -> None:
    file = folder / "lun"
    file.touch()
    file.open("r+b").truncate(8 << 20)
    iqn = tgtd.create_target(1, "file")
    tgtd.add_file_lun(1, 1, file)
    disk = tgtd.disk(iqn)
    assert disk.size == 8 << 20
    data = random.Random(SEED).randbytes(128 << 10)
    disk.write(4096, data)
    disk.flush()
    assert disk.read(4096, len(data)) == data
    disk.close()
    with pytest.raises(LoginFailed):
        tgtd.disk(f"{iqn}-absent")


def s3_client(endpoint: str):  # type: ignore[no-untyped-def] # noqa: ANN201  boto3 makes its types at run time
    return boto3.client(
        "s3",
        endpoint_url=endpoint,
        aws_access_key_id=ACCESS_KEY,
        aws_secret_access_key=SECRET_KEY,
        region_name=REGION,
        config=Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": 1}),
    )


def test_fault_proxy_passes_signed_requests_unchanged(proxy: FaultProxy) -> None:
    client = s3_client(proxy.endpoint)
    body = random.Random(SEED).randbytes(300_000)
    client.put_object(Bucket=BUCKET, Key="key", Body=body)
    assert client.get_object(Bucket=BUCKET, Key="key")["Body"].read() == body
    assert client.get_object(Bucket=BUCKET, Key="key", Range="bytes=10-19")["Body"].read() == body[10:20]
    assert client.head_object(Bucket=BUCKET, Key="key")["ContentLength"] == len(body)
    assert [entry["Key"] for entry in client.list_objects_v2(Bucket=BUCKET)["Contents"]] == ["key"]
    client.delete_object(Bucket=BUCKET, Key="key")
    assert client.list_objects_v2(Bucket=BUCKET)["KeyCount"] == 0


def test_fault_proxy_injects_the_fraction_of_errors_it_is_told(proxy: FaultProxy) -> None:
    client = s3_client(proxy.endpoint)
    proxy.faults.error_fraction = 0.5
    codes: list[str] = []
    for index in range(60):
        try:
            client.put_object(Bucket=BUCKET, Key=f"key{index}", Body=b"x")
        except ClientError as error:
            codes.append(error.response["Error"]["Code"])
    assert set(codes) == {"SlowDown", "InternalError"}
    assert 15 <= len(codes) == proxy.counts.refused_with_error <= 45


def test_fault_proxy_loses_a_reply_after_the_server_did_the_work(proxy: FaultProxy, s3: S3Server) -> None:
    client = s3_client(proxy.endpoint)
    proxy.faults.lost_reply_fraction = 1.0
    with pytest.raises(BotoCoreError):
        client.put_object(Bucket=BUCKET, Key="done", Body=b"done")
    assert (s3.folder / BUCKET / "done").read_bytes() == b"done"


def test_fault_proxy_can_be_gone_and_come_back(proxy: FaultProxy) -> None:
    client = s3_client(proxy.endpoint)
    client.put_object(Bucket=BUCKET, Key="key", Body=b"x")
    proxy.refuse()
    with pytest.raises(BotoCoreError):
        client.put_object(Bucket=BUCKET, Key="key", Body=b"y")
    proxy.listen()
    client.put_object(Bucket=BUCKET, Key="key", Body=b"z")
    assert client.get_object(Bucket=BUCKET, Key="key")["Body"].read() == b"z"


def test_no_thread_of_a_proxy_outlives_its_test() -> None:
    assert not [thread for thread in threading.enumerate() if thread.name == "fault-proxy"]
