"""Objects in a real bucket: a replay in which each request takes as long as it really took."""

import time
from typing import Any, Protocol, Self

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from tombolo_sim.stores.base import Store, StoreError

_ATTEMPTS = 5
_DELETE_KEYS_MAX = 1000
# botocore says some of what is wrong with an endpoint or a setting by a plain ValueError.
_FAILURES = (BotoCoreError, ClientError, ValueError)


def _failed(place: str, error: Exception) -> StoreError:
    """In one line."""
    return StoreError(f"s3://{place}: {' '.join(str(error).split())}")


class _Client(Protocol):
    """What is used of boto3's client, which has no types."""

    def put_object(self, *, Bucket: str, Key: str, Body: bytes) -> object: ...  # noqa: N803
    def get_object(self, *, Bucket: str, Key: str, Range: str) -> dict[str, Any]: ...  # noqa: N803
    def delete_objects(self, *, Bucket: str, Delete: dict[str, Any]) -> object: ...  # noqa: N803
    def close(self) -> None: ...


class S3Store(Store):
    """The requests are sent one after another, each measured by itself: what many at a time do to each other is the
    engine's model."""

    def __init__(self, client: _Client, bucket: str, prefix: str) -> None:
        super().__init__()
        self._client = client
        self._bucket = bucket
        self._prefix = prefix.rstrip("/") + "/" if prefix else ""

    @classmethod
    def connect(cls, bucket: str, prefix: str, endpoint: str | None = None) -> Self:
        """Credentials, region and endpoint come from the environment or the usual files."""
        retries = Config(retries={"max_attempts": _ATTEMPTS, "mode": "standard"})
        try:
            client = boto3.client("s3", endpoint_url=endpoint, config=retries)
            client.head_bucket(Bucket=bucket)
        except _FAILURES as error:
            raise _failed(bucket, error) from error
        return cls(client, bucket, prefix)

    def _key(self, object_number: int) -> str:
        return f"{self._prefix}{object_number:016x}"

    def _put(self, object_number: int, contents: bytes) -> float:
        begin = time.perf_counter()
        try:
            self._client.put_object(Bucket=self._bucket, Key=self._key(object_number), Body=contents)
        except _FAILURES as error:
            raise _failed(f"{self._bucket}/{self._key(object_number)}", error) from error
        return (time.perf_counter() - begin) * 1000

    def _get(self, object_number: int, offset_bytes: int, count_bytes: int) -> tuple[bytes, float]:
        span = f"bytes={offset_bytes}-{offset_bytes + count_bytes - 1}"
        begin = time.perf_counter()
        try:
            answer = self._client.get_object(Bucket=self._bucket, Key=self._key(object_number), Range=span)
            found = answer["Body"].read()
        except _FAILURES as error:
            raise _failed(f"{self._bucket}/{self._key(object_number)}", error) from error
        return found, (time.perf_counter() - begin) * 1000

    def delete_all(self) -> None:
        keys = [{"Key": self._key(number)} for number in self._lengths]
        for begin in range(0, len(keys), _DELETE_KEYS_MAX):
            some = {"Objects": keys[begin : begin + _DELETE_KEYS_MAX]}
            try:
                self._client.delete_objects(Bucket=self._bucket, Delete=some)
            except _FAILURES as error:
                raise _failed(f"{self._bucket}/{self._prefix}", error) from error
        self._lengths.clear()

    def close(self) -> None:
        self._client.close()
