"""Where the objects of a bucket are read from: the folder of a directory store, or S3."""

import os
from pathlib import Path
from typing import Any, Protocol

from harness.store_reader.fields import Damaged

OWN_FILES = ".tombolo-store"


class Store(Protocol):
    def names(self) -> list[str]:
        """Of all objects, ascending."""

    def get(self, name: str, first: int = 0, length: int | None = None) -> bytes:
        """An object or a part of it; `Damaged` if it is missing."""


class DirectoryStore:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def names(self) -> list[str]:
        files = (path.relative_to(self.folder) for path in self.folder.rglob("*") if path.is_file())
        return sorted(str(path) for path in files if path.parts[0] != OWN_FILES)

    def get(self, name: str, first: int = 0, length: int | None = None) -> bytes:
        try:
            with (self.folder / name).open("rb") as file:
                file.seek(first)
                return file.read(-1 if length is None else length)
        except FileNotFoundError:
            raise Damaged(name, "is missing") from None


class S3Store:
    """With the credentials of the environment."""

    def __init__(self, bucket: str, prefix: str, endpoint: str | None) -> None:
        # Imported here, since it takes longer than to read a small bucket.
        import boto3
        from botocore.config import Config
        from botocore.exceptions import ClientError

        self._error = ClientError
        self.bucket, self.prefix = bucket, f"{prefix}/" if prefix else ""
        self._client: Any = boto3.client(
            "s3",
            endpoint_url=endpoint,
            region_name=os.environ.get("AWS_REGION", "us-east-1"),
            config=Config(s3={"addressing_style": "path" if endpoint else "auto"}),
        )

    def names(self) -> list[str]:
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=self.prefix)
        keys = (entry["Key"] for page in pages for entry in page.get("Contents", ()))
        return sorted(key.removeprefix(self.prefix) for key in keys)

    def get(self, name: str, first: int = 0, length: int | None = None) -> bytes:
        asked = f"bytes={first}-" + ("" if length is None else str(first + length - 1))
        part = {} if first == 0 and length is None else {"Range": asked}
        try:
            reply = self._client.get_object(Bucket=self.bucket, Key=self.prefix + name, **part)
        except self._error as error:
            code = error.response["Error"]["Code"]
            if code in ("NoSuchKey", "404"):
                raise Damaged(name, "is missing") from None
            if code in ("InvalidRange", "416"):
                return b""
            raise
        found: bytes = reply["Body"].read()
        return found


def open_store(url: str, endpoint: str | None = None) -> Store:
    """The store of a URL as the settings have it."""
    if url.startswith("dir:") and Path(url.removeprefix("dir:")).is_dir():
        return DirectoryStore(Path(url.removeprefix("dir:")))
    if url.startswith("s3://"):
        bucket, _, prefix = url.removeprefix("s3://").partition("/")
        return S3Store(bucket, prefix.strip("/"), endpoint)
    raise ValueError(f"{url}: neither dir: and an existing folder, nor s3:// and a bucket")
