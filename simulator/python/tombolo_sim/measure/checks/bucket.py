"""What the bucket is, and what it does by itself: existence, clock, versions, retention, lifecycle, encryption. Nothing
is changed."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any

from botocore.exceptions import ClientError

from tombolo_sim.measure.checks.finding import Finding, Verdict, is_denied, status_of, words
from tombolo_sim.measure.own_keys import code_of, is_not_offered
from tombolo_sim.measure.place import Place

# S3 refuses requests whose time is further away.
SKEW_REFUSED_S = 15 * 60
SKEW_ADVICE_S = 30
# Objects in these are not there until somebody restores them.
UNREADABLE_CLASSES = {"GLACIER", "DEEP_ARCHIVE"}
READABLE_CLASSES = {"STANDARD_IA", "ONEZONE_IA", "INTELLIGENT_TIERING", "GLACIER_IR", "STANDARD"}
_ARCHIVE_TIERS = {"ARCHIVE_ACCESS", "DEEP_ARCHIVE_ACCESS"}
_NONCURRENT_RULE = (
    '{"Rules":[{"ID":"old-versions","Status":"Enabled","Filter":{"Prefix":"%s"},'
    '"NoncurrentVersionExpiration":{"NoncurrentDays":1}}]}'
)


class BucketChecks:
    def __init__(self, client: Any, place: Place) -> None:  # noqa: ANN401
        self._client, self._place = client, place
        self._bucket = place.bucket
        self._prefix = f"{place.prefix}/" if place.prefix else ""

    def _unreadable(self, check: str, action: str, error: ClientError, none: str) -> Finding:
        """For a configuration that the store does not show."""
        if is_not_offered(error):
            return Finding(check, Verdict.GOOD, f"the store has no {none}")
        if is_denied(error):
            advice = f"allow {action} on arn:aws:s3:::{self._bucket}, or look yourself"
            return Finding(check, Verdict.UNKNOWN, f"{none}: may not be looked at", advice)
        return Finding(check, Verdict.UNKNOWN, f"{none}: {words(error)}", "look yourself")

    def existence_and_clock(self) -> list[Finding]:
        before = datetime.now(UTC)
        try:
            answer = self._client.head_bucket(Bucket=self._bucket)
            found = [self._region(answer)]
        except ClientError as error:
            answer = error.response
            found = [self._no_bucket(error)]
        return [*found, *self._clock(answer, before, datetime.now(UTC))]

    def _region(self, answer: dict[str, Any]) -> Finding:
        """boto3 follows a bucket to its region; the gateway does not."""
        lies_in = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("x-amz-bucket-region")
        asked_for = self._client.meta.region_name
        if not lies_in or lies_in == asked_for:
            return Finding("bucket", Verdict.GOOD, f"{self._bucket} is there")
        verdict = Verdict.ADVICE if self._place.endpoint else Verdict.MISSING
        told = f"{self._bucket} lies in the region {lies_in}, requests are signed for {asked_for}"
        return Finding("bucket", verdict, told, f"--region {lies_in}, and [store] region")

    def _no_bucket(self, error: ClientError) -> Finding:
        status = status_of(error)
        headers = error.response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
        if status == 404:
            told, advice = "it does not exist", f"aws s3api create-bucket --bucket {self._bucket}"
        elif status in (301, 307, 400) and headers.get("x-amz-bucket-region"):
            told = f"it lies in the region {headers['x-amz-bucket-region']}"
            advice = f"--region {headers['x-amz-bucket-region']}, and [store] region"
        elif status == 403:
            told = "it is somebody else's, may not be listed, or the credentials are wrong"
            advice = f"allow s3:ListBucket on arn:aws:s3:::{self._bucket}, and check key, secret and clock"
        else:
            told, advice = words(error), "check endpoint and region"
        return Finding("bucket", Verdict.MISSING, f"{self._bucket}: {told}", advice, may_go_on=status == 403)

    @staticmethod
    def _clock(answer: dict[str, Any], before: datetime, after: datetime) -> Iterator[Finding]:
        date = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date")
        try:
            server = parsedate_to_datetime(date).astimezone(UTC)
        except (TypeError, ValueError):
            yield Finding("clock", Verdict.UNKNOWN, "the server does not tell its time", "check it yourself")
            return
        # The header has whole seconds.
        skew = (server + timedelta(seconds=0.5) - (before + (after - before) / 2)).total_seconds()
        away = f"this machine's clock is {abs(skew):.0f} s {'behind' if skew > 0 else 'ahead of'} the server's"
        if abs(skew) >= SKEW_REFUSED_S:
            yield Finding("clock", Verdict.MISSING, f"{away}: requests are refused", "set it: chronyc makestep")
        elif abs(skew) >= SKEW_ADVICE_S:
            yield Finding("clock", Verdict.ADVICE, away, "set it: chronyc makestep; from 900 s on requests are refused")
        else:
            yield Finding("clock", Verdict.GOOD, "this machine and the server agree")

    def versioning(self) -> Finding:
        try:
            status = self._client.get_bucket_versioning(Bucket=self._bucket).get("Status")
        except ClientError as error:
            return self._unreadable("versioning", "s3:GetBucketVersioning", error, "versions")
        if status != "Enabled":
            return Finding("versioning", Verdict.GOOD, "old versions are not kept" if not status else "suspended")
        rule = _NONCURRENT_RULE % self._prefix
        return Finding(
            "versioning", Verdict.ADVICE, "old versions of what is overwritten or removed are kept, and paid for",
            "add to the bucket's lifecycle rules, unless it is there (put-bucket-lifecycle-configuration replaces all "
            f"of them): '{rule}'",
        )  # fmt: skip

    def retention(self) -> Finding:
        try:
            answer = self._client.get_object_lock_configuration(Bucket=self._bucket)
        except ClientError as error:
            if code_of(error) in {"ObjectLockConfigurationNotFoundError", "NoSuchObjectLockConfiguration"}:
                return Finding("object-lock", Verdict.GOOD, "no object lock")
            return self._unreadable("object-lock", "s3:GetBucketObjectLockConfiguration", error, "object lock")
        rule = answer.get("ObjectLockConfiguration", {}).get("Rule", {}).get("DefaultRetention")
        if not rule:
            return Finding("object-lock", Verdict.GOOD, "no default retention")
        length = f"{rule['Days']} days" if "Days" in rule else f"{rule.get('Years')} years"
        return Finding(
            "object-lock", Verdict.ADVICE,
            f"each object is kept for {length} ({rule.get('Mode')}), also what the gateway removes or overwrites: it "
            "is paid for, and nothing that a check or a measurement puts could be removed",
            f"aws s3api put-object-lock-configuration --bucket {self._bucket} "
            "--object-lock-configuration ObjectLockEnabled=Enabled, or another bucket",
        )  # fmt: skip

    def encryption(self) -> Finding:
        try:
            answer = self._client.get_bucket_encryption(Bucket=self._bucket)
        except ClientError as error:
            if code_of(error) == "ServerSideEncryptionConfigurationNotFoundError":
                return Finding("encryption", Verdict.GOOD, "none by default; the gateway encrypts by itself")
            return self._unreadable("encryption", "s3:GetEncryptionConfiguration", error, "default encryption")
        rules = answer.get("ServerSideEncryptionConfiguration", {}).get("Rules", [])
        for rule in rules:
            default = rule.get("ApplyServerSideEncryptionByDefault", {})
            if not str(default.get("SSEAlgorithm", "")).startswith("aws:kms"):
                continue
            key = default.get("KMSMasterKeyID", "the account's aws/s3 key")
            told = f"by {default['SSEAlgorithm']} with {key}: who may not use the key can neither put nor get"
            advice = f"allow kms:GenerateDataKey and kms:Decrypt on {key}"
            if not rule.get("BucketKeyEnabled"):
                advice += ", and turn the bucket key on: without it each request asks KMS, and is paid for"
            return Finding("encryption", Verdict.ADVICE, told, advice)
        return Finding("encryption", Verdict.GOOD, "by the store's own keys")

    def lifecycle(self) -> list[Finding]:
        try:
            rules = self._client.get_bucket_lifecycle_configuration(Bucket=self._bucket).get("Rules", [])
        except ClientError as error:
            if code_of(error) == "NoSuchLifecycleConfiguration":
                return [Finding("lifecycle", Verdict.GOOD, "no rules")]
            return [self._unreadable("lifecycle", "s3:GetLifecycleConfiguration", error, "lifecycle rules")]
        found = [finding for rule in rules if self._meets(rule) for finding in self._rule(rule)]
        return found or [Finding("lifecycle", Verdict.GOOD, "no rule changes what lies below the prefix")]

    def _meets(self, rule: dict[str, Any]) -> bool:
        """The gateway's objects have no tags, and any size."""
        chosen = rule.get("Filter") or {}
        both = chosen.get("And") or {}
        if rule.get("Status") != "Enabled" or "Tag" in chosen or both.get("Tags"):
            return False
        prefix = both.get("Prefix") or chosen.get("Prefix") or rule.get("Prefix") or ""
        return bool(prefix.startswith(self._prefix) or self._prefix.startswith(prefix))

    def _rule(self, rule: dict[str, Any]) -> Iterator[Finding]:
        name = f"rule {rule.get('ID', 'without a name')!r}"
        advice = (
            f"remove {name} or give it a filter that leaves out {self._prefix or 'the bucket'!r}: "
            f"aws s3api get-bucket-lifecycle-configuration --bucket {self._bucket}"
        )
        expiration = rule.get("Expiration") or {}
        when = _when(expiration)
        if when:
            yield Finding("lifecycle", Verdict.HARM, f"{name} removes objects {when}: all data would be lost", advice)
        for transition in rule.get("Transitions") or []:
            kind, when = transition.get("StorageClass", "?"), _when(transition) or "at once"
            if kind in UNREADABLE_CLASSES:
                told = f"{name} moves objects to {kind} {when}, where they cannot be read without a restore"
                yield Finding("lifecycle", Verdict.HARM, told, advice)
            elif kind == "INTELLIGENT_TIERING":
                yield self._tiering(name, when, advice)
            elif kind in READABLE_CLASSES:
                told = f"{name} moves objects to {kind} {when}: they stay readable"
                cost = "reads cost more there, objects below 128 KiB are charged as such, and early removal is"
                yield Finding("lifecycle", Verdict.ADVICE, told, f"compare prices: {cost} paid for")
            else:
                told = f"{name} moves objects to {kind} {when}"
                yield Finding(
                    "lifecycle", Verdict.UNKNOWN, told, f"make sure that {kind} can be read at once, or {advice}"
                )

    def _tiering(self, name: str, when: str, advice: str) -> Finding:
        """Its archive tiers are asked for apart."""
        moved = f"{name} moves objects to INTELLIGENT_TIERING {when}"
        try:
            answer = self._client.list_bucket_intelligent_tiering_configurations(Bucket=self._bucket)
        except ClientError as error:
            return self._unreadable(
                "lifecycle", "s3:GetIntelligentTieringConfiguration", error, "archive tiers of INTELLIGENT_TIERING"
            )
        for entry in answer.get("IntelligentTieringConfigurationList", []):
            tiers = {tier.get("AccessTier") for tier in entry.get("Tierings", [])} & _ARCHIVE_TIERS
            if tiers and self._meets(entry):
                told = f"{moved}, and {entry.get('Id')!r} on to {sorted(tiers)[0]}, where they cannot be read at once"
                return Finding("lifecycle", Verdict.HARM, told, advice)
        return Finding("lifecycle", Verdict.ADVICE, f"{moved}: they stay readable", "opt in to no archive tier")


def _when(action: dict[str, Any]) -> str:
    if "Days" in action:
        return f"after {action['Days']} days"
    return f"on {action['Date']}" if "Date" in action else ""
