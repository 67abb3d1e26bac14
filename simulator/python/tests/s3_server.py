"""A real S3 server for the tests: versitygw over a folder, on a loopback port. Without it they are skipped: `make test`
builds it, `make sim-python` alone does not."""

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config

REPOSITORY = Path(__file__).parents[3]
ACCESS_KEY, SECRET_KEY, REGION = "tombolo-test", "tombolo-test-secret", "us-east-1"
_START_LIMIT_S = 20.0


def program() -> Path:
    path = Path(os.environ.get("TOMBOLO_TOOLS", REPOSITORY / "build/bin")) / "versitygw"
    if not path.exists():
        pytest.skip(f"{path} is not there: scripts/setup.sh test builds it")
    return path


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


class S3Server:
    """`folder/objects/BUCKET/KEY` holds an object's bytes. Users and versions are kept beside it."""

    def __init__(self, folder: Path) -> None:
        self.objects = folder / "objects"
        self.port = free_port()
        versions, users = folder / "versions", folder / "users"
        for path in (self.objects, versions, users):
            path.mkdir(parents=True)
        words = [str(program()), "--port", f"127.0.0.1:{self.port}", "--quiet", "--keep-alive", "--iam-dir", str(users)]
        # The kernel ends it should the tests die first.
        self._process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", *words, "posix", "--versioning-dir", str(versions), str(self.objects)],
            env={"PATH": os.environ["PATH"], "ROOT_ACCESS_KEY": ACCESS_KEY, "ROOT_SECRET_KEY": SECRET_KEY},
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self._wait()
        self.client = self.connect()

    def _wait(self) -> None:
        deadline = time.monotonic() + _START_LIMIT_S
        while time.monotonic() < deadline and self._process.poll() is None:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.02)
        self.close()
        raise RuntimeError(f"versitygw does not listen; it ended with {self._process.returncode}")

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def environment(self, key: str = ACCESS_KEY, secret: str = SECRET_KEY) -> Mapping[str, str]:
        """Nothing of the machine's own settings."""
        return {
            "AWS_ACCESS_KEY_ID": key,
            "AWS_SECRET_ACCESS_KEY": secret,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def connect(self) -> Any:  # noqa: ANN401
        config = Config(s3={"addressing_style": "path"}, retries={"max_attempts": 2})
        return boto3.client(
            "s3", endpoint_url=self.endpoint, aws_access_key_id=ACCESS_KEY, aws_secret_access_key=SECRET_KEY,
            region_name=REGION, config=config,
        )  # fmt: skip

    def create_user(self, key: str, secret: str) -> None:
        words = [
            str(program()),
            "admin",
            "--access",
            ACCESS_KEY,
            "--secret",
            SECRET_KEY,
            "--endpoint-url",
            self.endpoint,
        ]
        subprocess.run([*words, "create-user", "-a", key, "-s", secret, "-r", "user"], check=True, capture_output=True)

    def allow(self, bucket: str, key: str, actions: list[str]) -> None:
        """These, and nothing else, to a user."""
        resources = [f"arn:aws:s3:::{bucket}", f"arn:aws:s3:::{bucket}/*"]
        statements = []
        for action in actions:
            is_of_bucket = "Bucket" in action or "Configuration" in action
            statements.append({"Effect": "Allow", "Principal": {"AWS": [key]}, "Action": action,
                               "Resource": resources[0 if is_of_bucket else 1]})  # fmt: skip
        policy = {"Version": "2012-10-17", "Statement": statements}
        self.client.put_bucket_policy(Bucket=bucket, Policy=json.dumps(policy))

    def keys(self, bucket: str) -> set[str]:
        """All that is there, versions, markers of deletion and unfinished uploads too."""
        listed = {entry["Key"] for entry in self.client.list_objects_v2(Bucket=bucket).get("Contents", [])}
        versions = self.client.list_object_versions(Bucket=bucket)
        listed |= {entry["Key"] for kind in ("Versions", "DeleteMarkers") for entry in versions.get(kind, [])}
        return listed | {entry["Key"] for entry in self.client.list_multipart_uploads(Bucket=bucket).get("Uploads", [])}

    def close(self) -> None:
        """It waits for kept-alive connections on SIGTERM."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(30)
