"""A real S3 server (versitygw over a folder) on a loopback port, with its bucket."""

from pathlib import Path

import boto3
from botocore.config import Config

from harness.process import Process
from harness.tools import REPOSITORY, built_tool, can_connect, free_port

ACCESS_KEY = "tombolo-test"
SECRET_KEY = "tombolo-test-secret"
REGION = "us-east-1"
CERTIFICATES = REPOSITORY / "cloud_driver/tests/data"
"""For this machine's loopback, and the authority that has signed it."""
CA_FILE = CERTIFICATES / "loopback-ca.pem"
CERTIFICATE, CERTIFICATE_KEY = CERTIFICATES / "loopback-cert.pem", CERTIFICATES / "loopback-key.pem"


class S3Server:
    """One versitygw. `folder/BUCKET/KEY` holds each object's bytes, so tests may damage them on disk."""

    def __init__(self, folder: Path, tls: bool = False) -> None:
        self.folder = folder / "objects"
        self.tls = tls
        self.folder.mkdir(parents=True)
        self.port = free_port()
        self._process = Process("versitygw", folder / "versitygw.log")

    @property
    def endpoint(self) -> str:
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        """What a client of this server finds in its environment."""
        return {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY, "AWS_REGION": REGION}

    def start(self) -> None:
        listen = f"127.0.0.1:{self.port}"
        tls: list[str | Path] = ["--cert", CERTIFICATE, "--key", CERTIFICATE_KEY] if self.tls else []
        self._process.start(
            [built_tool("versitygw"), "--port", listen, "--quiet", "--keep-alive", *tls, "posix", self.folder],
            {"ROOT_ACCESS_KEY": ACCESS_KEY, "ROOT_SECRET_KEY": SECRET_KEY},
        )
        self._process.wait_until(lambda: can_connect(self.port), 20, "listening socket")

    def kill9(self) -> None:
        self._process.kill9()

    def close(self) -> None:
        """versitygw waits for kept-alive connections on SIGTERM, so it is killed: it keeps nothing in memory."""
        self._process.kill9()

    def create_bucket(self, name: str) -> Path:
        """Creates a bucket; returns the folder that holds its objects."""
        client = boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            aws_access_key_id=ACCESS_KEY,
            aws_secret_access_key=SECRET_KEY,
            region_name=REGION,
            verify=str(CA_FILE) if self.tls else None,
            config=Config(s3={"addressing_style": "path"}, retries={"max_attempts": 2}),
        )
        client.create_bucket(Bucket=name)
        client.close()
        return self.folder / name
