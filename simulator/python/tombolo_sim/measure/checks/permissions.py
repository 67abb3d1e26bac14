"""What the credentials may do below the prefix, one request after another with small objects of the check's own, and
whether the store keeps the conditions of puts, by which a gateway knows that it is alone."""

from collections.abc import Callable
from typing import Any

from botocore.exceptions import ClientError

from tombolo_sim.measure.checks.finding import Finding, Verdict, is_denied, status_of, words
from tombolo_sim.measure.own_keys import OwnKeys, code_of
from tombolo_sim.measure.place import Place

# Of what is put.
NAMES = ("check", "absent", "unchanged")
_CONTENTS = b"0123456789abcdef" * 64
_RANGE = (100, 355)
_NOT_THERE = {"NoSuchKey", "404", "NotFound"}
_FAILED = 412
_ALONE = (
    'use another store; or set [store] single_writer = "trusted" and see to it yourself that no two gateways ever use '
    "one prefix"
)


class PermissionChecks:
    def __init__(self, client: Any, place: Place, keys: OwnKeys) -> None:  # noqa: ANN401
        self._client, self._bucket, self._keys = client, place.bucket, keys
        self._objects = f"arn:aws:s3:::{place.bucket}/{place.key('*')}"
        self._whole = f"arn:aws:s3:::{place.bucket}"
        self._is_put = self._is_seen = False

    def all(self) -> list[Finding]:
        """Where nothing may be removed, nothing is put."""
        kept = self._may_not("delete_object", Key=self._keys.key("nothing"))
        upload = {"Key": self._keys.key("nothing"), "UploadId": "nothing"}
        uploads_kept = kept or self._may_not("abort_multipart_upload", **upload)
        steps: list[tuple[str, str, str, bool, Callable[[], str | Finding]]] = [
            ("list", "s3:ListBucket", self._whole, False, self._list),
            ("put", "s3:PutObject", self._objects, kept, self._put),
            ("head", "s3:GetObject", self._objects, False, self._head),
            ("get", "s3:GetObject", self._objects, False, self._get),
            ("ranged get", "s3:GetObject", self._objects, False, self._ranged),
            ("put if absent", "s3:PutObject", self._objects, kept, self._if_absent),
            ("put if unchanged", "s3:PutObject", self._objects, kept, self._if_unchanged),
            ("multipart", "s3:PutObject", self._objects, uploads_kept, self._multipart),
            ("delete", "s3:DeleteObject", self._objects, False, self._delete),
        ]
        return [
            Finding(name, Verdict.UNKNOWN, "not tried: what is put could not be removed") if is_left_out
            else self._judged(name, action, resource, step)
            for name, action, resource, is_left_out, step in steps
        ]  # fmt: skip

    def _may_not(self, operation: str, **request: str) -> bool:
        """Asked for what is not there, so that nothing comes of it."""
        try:
            getattr(self._client, operation)(Bucket=self._bucket, **request)
        except ClientError as error:
            return is_denied(error)
        return False

    def _judged(self, name: str, action: str, resource: str, step: Callable[[], str | Finding]) -> Finding:
        try:
            told = step()
        except ClientError as error:
            return self._refused(name, action, resource, error)
        return Finding(name, Verdict.GOOD, told) if isinstance(told, str) else told

    def _refused(self, name: str, action: str, resource: str, error: ClientError) -> Finding:
        if name == "multipart":
            return Finding(name, Verdict.GOOD, f"not possible ({words(error)}); the gateway does not use it")
        if is_denied(error):
            return Finding(name, Verdict.MISSING, f"not permitted ({words(error)})", f"allow {action} on {resource}")
        if name.startswith("put if"):
            return Finding(name, Verdict.MISSING, f"the store does not offer it ({words(error)})", _ALONE)
        return Finding(name, Verdict.MISSING, f"refused ({words(error)})", "check endpoint, region and credentials")

    def _list(self) -> str:
        self._client.list_objects_v2(Bucket=self._bucket, Prefix=self._keys.prefix, MaxKeys=1)
        return "permitted"

    def _put(self) -> str:
        self._client.put_object(Bucket=self._bucket, Key=self._keys.key("check"), Body=_CONTENTS)
        self._is_put = True
        return "permitted"

    def _there(self, call: Callable[[], Any]) -> Any:  # noqa: ANN401
        """None where nothing could be put, and the store says that nothing is there: then it is permitted."""
        try:
            return call()
        except ClientError as error:
            if not self._is_put and code_of(error) in _NOT_THERE:
                return None
            raise

    def _head(self) -> str | Finding:
        answer = self._there(lambda: self._client.head_object(Bucket=self._bucket, Key=self._keys.key("check")))
        if answer and answer["ContentLength"] != len(_CONTENTS):
            told = f"it says {answer['ContentLength']} bytes of an object of {len(_CONTENTS)}"
            return Finding("head", Verdict.HARM, told, "use another store")
        self._is_seen = answer is not None
        return "permitted"

    def _read(self, name: str, wanted: bytes, **request: str) -> str | Finding:
        answer = self._there(
            lambda: self._client.get_object(Bucket=self._bucket, Key=self._keys.key("check"), **request)
        )
        if answer and (found := answer["Body"].read()) != wanted:
            told = f"{len(found)} bytes came, which are not the {len(wanted)} that were put"
            return Finding(name, Verdict.HARM, told, "use another store")
        return "permitted"

    def _get(self) -> str | Finding:
        return self._read("get", _CONTENTS)

    def _ranged(self) -> str | Finding:
        first, last = _RANGE
        return self._read("ranged get", _CONTENTS[first : last + 1], Range=f"bytes={first}-{last}")

    def _is_kept(self, name: str, **condition: str) -> bool:
        """Whether a put whose condition does not hold is refused."""
        try:
            self._client.put_object(Bucket=self._bucket, Key=self._keys.key(name), Body=b"other", **condition)
        except ClientError as error:
            if status_of(error) == _FAILED:
                return True
            raise
        return False

    def _if_absent(self) -> str | Finding:
        name = "put if absent"
        self._client.put_object(Bucket=self._bucket, Key=self._keys.key("absent"), Body=b"first", IfNoneMatch="*")
        if not self._is_kept("absent", IfNoneMatch="*"):
            return Finding(name, Verdict.HARM, "ignored: gateways would overwrite each other's root", _ALONE)
        return "kept"

    def _if_unchanged(self) -> str | Finding:
        name = "put if unchanged"
        key = self._keys.key("unchanged")
        etag = self._client.put_object(Bucket=self._bucket, Key=key, Body=b"first")["ETag"]
        self._client.put_object(Bucket=self._bucket, Key=key, Body=b"second", IfMatch=etag)
        if not self._is_kept("unchanged", IfMatch=etag):
            return Finding(name, Verdict.HARM, "ignored: gateways would overwrite each other's root", _ALONE)
        return "kept"

    def _multipart(self) -> str:
        key = self._keys.key("multipart")
        upload = self._client.create_multipart_upload(Bucket=self._bucket, Key=key)["UploadId"]
        part = {"Bucket": self._bucket, "Key": key, "UploadId": upload}
        try:
            self._client.upload_part(**part, PartNumber=1, Body=_CONTENTS)
        finally:
            self._client.abort_multipart_upload(**part)
        return "permitted; the gateway does not use it"

    def _delete(self) -> str | Finding:
        key = self._keys.key("check")
        self._client.delete_object(Bucket=self._bucket, Key=key)
        try:
            self._client.head_object(Bucket=self._bucket, Key=key)
        except ClientError as error:
            if self._is_seen and is_denied(error):
                return Finding("delete", Verdict.ADVICE, "permitted; but what is not there is told as forbidden",
                               f"allow s3:ListBucket on {self._whole}")  # fmt: skip
            return "permitted"
        return Finding("delete", Verdict.HARM, "what was removed is still there", "use another store")
