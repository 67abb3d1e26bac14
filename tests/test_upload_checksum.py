"""What uploads are verified against (`[store] upload_checksum`): over TLS a body need not be signed as well; without
TLS it always is."""

import random
import ssl
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from conftest import BUCKET, SEED, GatewayFactory, s3_settings
from harness.fault_proxy import FaultProxy
from harness.gateway import Gateway, merged
from harness.object_store import CA_FILE, CERTIFICATE, CERTIFICATE_KEY, S3Server

MIB = 1 << 20
UNSIGNED = "UNSIGNED-PAYLOAD"
CHECKSUM_HEADERS: dict[str, set[str]] = {
    "sha256": {"x-amz-checksum-sha256"},
    "crc64nvme": {"x-amz-checksum-crc64nvme"},
    "off": set(),
}


def settings_for(endpoint: str, checksum: str) -> dict[str, Any]:
    tls = {"allow_http": False, "ca_file": str(CA_FILE)} if endpoint.startswith("https:") else {}
    return merged(s3_settings(endpoint), {"store": {"upload_checksum": checksum, **tls}})


def write_and_read_back(gateway: Gateway) -> None:
    """What is read comes from the store."""
    data = random.Random(SEED).randbytes(6 * MIB)
    gateway.create_volume("vol", "64MiB")
    with gateway.disk("vol") as disk:
        disk.write(0, data)
        disk.flush()
    gateway.drain()
    gateway.stop()
    gateway.cache_file.unlink()
    gateway.start()
    with gateway.disk("vol") as disk:
        assert disk.read(0, len(data)) == data


class Uploads:
    """The headers of every PUT that a proxy has seen."""

    def __init__(self, proxy: FaultProxy) -> None:
        self.headers: list[dict[str, str]] = []
        proxy.faults.refuses = self._note

    def _note(self, method: str, _path: str, headers: dict[str, str]) -> bool:
        if method == "PUT":
            self.headers.append(headers)
        return False

    def expect(self, checksum: str, is_signed: bool) -> None:
        assert self.headers
        for headers in self.headers:
            assert (headers["x-amz-content-sha256"] == UNSIGNED) != is_signed, headers
            named = {name for name in headers if name.startswith("x-amz-checksum-")}
            assert named == CHECKSUM_HEADERS[checksum], headers


def with_tls(s3: S3Server, closing: ExitStack) -> FaultProxy:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE, CERTIFICATE_KEY)
    proxy = FaultProxy(s3.port, SEED, context)
    proxy.start()
    closing.callback(proxy.close)
    return proxy


@pytest.mark.parametrize("checksum", ["sha256", "crc64nvme", "off"])
def test_over_tls_a_body_is_signed_with_sha256_alone(
    make_gateway: GatewayFactory, s3: S3Server, closing: ExitStack, checksum: str
) -> None:
    proxy = with_tls(s3, closing)
    uploads = Uploads(proxy)
    write_and_read_back(make_gateway(settings_for(proxy.endpoint, checksum), s3.environment).start())
    uploads.expect(checksum, is_signed=checksum == "sha256")


@pytest.mark.parametrize("checksum", ["crc64nvme", "off"])
def test_without_tls_a_body_is_always_signed(
    make_gateway: GatewayFactory, s3: S3Server, proxy: FaultProxy, checksum: str
) -> None:
    uploads = Uploads(proxy)
    write_and_read_back(make_gateway(settings_for(proxy.endpoint, checksum), s3.environment).start())
    uploads.expect(checksum, is_signed=True)


def test_a_server_with_tls_takes_unsigned_bodies(
    make_gateway: GatewayFactory, folder: Path, closing: ExitStack
) -> None:
    server = S3Server(folder / "tls", tls=True)
    closing.callback(server.close)
    server.start()
    server.create_bucket(BUCKET)
    write_and_read_back(make_gateway(settings_for(server.endpoint, "crc64nvme"), server.environment).start())
