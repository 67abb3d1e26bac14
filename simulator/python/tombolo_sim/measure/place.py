"""Which bucket, below which prefix, on which server; and boto3's client of it."""

from dataclasses import dataclass
from typing import Any, Self

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

CONNECTIONS_MAX = 256
_DEFAULT_REGION = "us-east-1"
# botocore says some of what is wrong with an endpoint or a setting by a plain ValueError.
FAILURES = (BotoCoreError, ClientError, ValueError)


class MeasureError(Exception):
    """A store cannot be measured; the message says why."""


def line(error: BaseException) -> str:
    """In one line."""
    return " ".join(str(error).split())


@dataclass(frozen=True)
class Place:
    bucket: str
    prefix: str
    """Without slashes at its ends; empty: the whole bucket."""
    endpoint: str | None = None
    region: str | None = None

    @classmethod
    def of(cls, url: str, endpoint: str | None = None, region: str | None = None) -> Self:
        scheme, separator, rest = url.partition("://")
        bucket, _, prefix = rest.partition("/")
        if scheme != "s3" or not separator or not bucket:
            raise MeasureError(f"{url!r} is not a valid store: use s3://BUCKET/PREFIX")
        prefix = prefix.strip("/")
        if "" in prefix.split("/")[1:]:
            raise MeasureError(f"{url!r} has an empty component in its prefix")
        return cls(bucket, prefix, endpoint, region)

    def url(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}".rstrip("/")

    def key(self, name: str) -> str:
        return f"{self.prefix}/{name}" if self.prefix else name

    def connect(self) -> Any:  # noqa: ANN401
        """One attempt for each request: what is counted and timed is what was sent."""
        style = {"addressing_style": "path"} if self.endpoint else {}
        config = Config(
            retries={"total_max_attempts": 1, "mode": "standard"}, s3=style, max_pool_connections=CONNECTIONS_MAX,
            connect_timeout=10, read_timeout=60,
        )  # fmt: skip
        try:
            session = boto3.Session()
            region = self.region or session.region_name or (_DEFAULT_REGION if self.endpoint else None)
            return session.client("s3", endpoint_url=self.endpoint, region_name=region, config=config)
        except FAILURES as error:
            raise MeasureError(f"{self.url()}: {line(error)}") from error
