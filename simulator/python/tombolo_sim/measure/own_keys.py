"""The keys of one measurement: below a random prefix, and no others. Whatever is put is removed from there, old
versions and unfinished uploads too."""

import secrets
from collections.abc import Iterable, Iterator
from typing import Any

from botocore.exceptions import ClientError

from tombolo_sim.measure.place import FAILURES, MeasureError, Place, line

NAME = "tombolo-measure-"
_DELETE_KEYS_MAX = 1000
# A PUT whose answer was lost may take effect late.
_ROUNDS_MAX = 4
_NOT_OFFERED = {"NotImplemented", "MethodNotAllowed", "XNotImplemented", "501", "405"}


def code_of(error: BaseException) -> str:
    """The server's own word for what is wrong; of an answer without a body, its status."""
    if not isinstance(error, ClientError):
        return type(error).__name__
    return str(error.response.get("Error", {}).get("Code", ""))


def is_not_offered(error: BaseException) -> bool:
    return code_of(error) in _NOT_OFFERED


class OwnKeys:
    def __init__(self, client: Any, place: Place) -> None:  # noqa: ANN401
        self.are_versions_hidden = False
        self._client = client
        self._bucket = place.bucket
        self.prefix = place.key(f"{NAME}{secrets.token_hex(8)}/")
        self.place = Place(place.bucket, self.prefix.rstrip("/"), place.endpoint, place.region)

    def key(self, name: str) -> str:
        return self.own(self.prefix + name)

    def own(self, key: str) -> str:
        """A key that is about to be touched; one of somebody else is refused."""
        if not key.startswith(self.prefix) or key == self.prefix:
            raise MeasureError(f"{key!r} does not lie below {self.prefix!r}: it is not touched")
        return key

    def remove(self, names: Iterable[str]) -> None:
        """By name, for who may not list."""
        self._delete([{"Key": self.key(name)} for name in names])

    def remove_below(self, name: str) -> None:
        """What begins so, with all versions."""
        try:
            self._delete(list(self._versions(name)))
        except FAILURES as error:
            raise MeasureError(self._left(line(error))) from error

    def remove_all(self) -> int:
        """Until nothing is left; the number of what was removed."""
        removed = 0
        try:
            for _ in range(_ROUNDS_MAX):
                uploads, objects = self._abort_uploads(), list(self._versions(""))
                self._delete(objects)
                removed += uploads + len(objects)
                if not uploads and not objects:
                    return removed
        except FAILURES as error:
            raise MeasureError(self._left(line(error))) from error
        raise MeasureError(self._left("something is left after each removal"))

    def _left(self, reason: str) -> str:
        where = f"s3://{self._bucket}/{self.prefix}"
        return f"{where} may not be empty: {reason}; empty it with: aws s3 rm --recursive {where}"

    def _abort_uploads(self) -> int:
        try:
            answer = self._client.list_multipart_uploads(Bucket=self._bucket, Prefix=self.prefix)
        except ClientError:
            # Not offered, or not permitted: then none was begun.
            return 0
        uploads = answer.get("Uploads", [])
        for upload in uploads:
            key = self.own(upload["Key"])
            self._client.abort_multipart_upload(Bucket=self._bucket, Key=key, UploadId=upload["UploadId"])
        return len(uploads)

    def _versions(self, name: str) -> Iterator[dict[str, str]]:
        """All there is of this measurement: versions where the store has them, else objects."""
        try:
            pages = list(self._pages("list_object_versions", name))
        except ClientError as error:
            self.are_versions_hidden = not is_not_offered(error)
            pages = []
        for page in pages:
            for entry in [*page.get("Versions", []), *page.get("DeleteMarkers", [])]:
                named = {"VersionId": entry["VersionId"]} if entry.get("VersionId") else {}
                yield {"Key": self.own(entry["Key"]), **named}
        if not any(page.get("Versions") or page.get("DeleteMarkers") for page in pages):
            for page in self._pages("list_objects_v2", name):
                yield from ({"Key": self.own(entry["Key"])} for entry in page.get("Contents", []))

    def _pages(self, operation: str, name: str) -> Iterator[dict[str, Any]]:
        paginator = self._client.get_paginator(operation)
        yield from paginator.paginate(Bucket=self._bucket, Prefix=self.prefix + name)

    def _delete(self, keys: list[dict[str, str]]) -> None:
        for begin in range(0, len(keys), _DELETE_KEYS_MAX):
            some = keys[begin : begin + _DELETE_KEYS_MAX]
            try:
                answer = self._client.delete_objects(Bucket=self._bucket, Delete={"Objects": some, "Quiet": True})
            except ClientError as error:
                if not is_not_offered(error):
                    raise
                for key in some:
                    self._client.delete_object(Bucket=self._bucket, **key)
                continue
            for kept in answer.get("Errors", []):
                raise MeasureError(self._left(f"{kept.get('Key')}: {kept.get('Code')}"))
