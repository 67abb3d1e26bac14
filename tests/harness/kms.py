"""A server of AWS KMS on a loopback port, and its keys."""

import json
import sys
import urllib.request
from pathlib import Path
from typing import Any

import boto3

from harness.object_store import ACCESS_KEY, REGION, SECRET_KEY
from harness.process import Process
from harness.tools import REPOSITORY, can_connect, free_port

ANYBODY = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY, "AWS_REGION": REGION}


class KmsServer:
    """Answers everybody until `require_signatures`."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self.port = free_port()
        self._process = Process("kms", folder / "kms.log")

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        return self._process.log_path.read_text()

    def start(self) -> None:
        module = [sys.executable, "-m", "harness.kms_server", str(self.port)]
        self._process.start(module, {"PYTHONPATH": str(REPOSITORY / "tests")})
        self._process.wait_until(lambda: can_connect(self.port), 60, "listening socket")

    def close(self) -> None:
        """All keys are gone with it."""
        self._process.kill9()

    def client(self, service: str = "kms", region: str = REGION) -> Any:  # noqa: ANN401
        return boto3.client(
            service,
            endpoint_url=self.endpoint,
            aws_access_key_id=ACCESS_KEY,
            aws_secret_access_key=SECRET_KEY,
            region_name=region,
        )

    def create_key(self, alias: str | None = None, region: str = REGION) -> str:
        """The ARN of a new symmetric key."""
        client = self.client(region=region)
        arn: str = client.create_key()["KeyMetadata"]["Arn"]
        if alias is not None:
            client.create_alias(AliasName=alias, TargetKeyId=arn)
        return arn

    def change_key(self, arn: str, change: str) -> None:
        """`change` is what the client calls it, such as `disable_key`."""
        client = self.client(region=arn.split(":")[3])
        getattr(client, change)(KeyId=arn.rpartition("/")[2])

    def create_user(self, name: str, *actions: str) -> dict[str, str]:
        """The environment of somebody who may do this and no more, as far as permissions are looked at."""
        client = self.client("iam")
        client.create_user(UserName=name)
        statement = {"Effect": "Allow", "Action": list(actions), "Resource": "*"}
        policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
        client.put_user_policy(UserName=name, PolicyName="all", PolicyDocument=policy)
        made = client.create_access_key(UserName=name)["AccessKey"]
        keys = {"AWS_ACCESS_KEY_ID": made["AccessKeyId"], "AWS_SECRET_ACCESS_KEY": made["SecretAccessKey"]}
        return {**keys, "AWS_REGION": REGION}

    def require_signatures(self) -> None:
        """From now on only users that were created are answered."""
        plain = {"Content-Type": "text/plain"}
        request = urllib.request.Request(f"{self.endpoint}/moto-api/reset-auth", b"0", plain, method="POST")
        with urllib.request.urlopen(request, timeout=10) as reply:
            reply.read()
