"""All checks of a place, in an order in which nothing is put that could not be removed."""

import contextlib
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from tombolo_sim.measure.checks.bucket import BucketChecks
from tombolo_sim.measure.checks.finding import Finding, Verdict
from tombolo_sim.measure.checks.permissions import NAMES, PermissionChecks
from tombolo_sim.measure.own_keys import OwnKeys
from tombolo_sim.measure.place import MeasureError, Place, line

# Without these nothing can be measured.
_NEEDED = {"bucket", "list", "put", "get", "delete"}


class HarmfulStore(Exception):
    """A gateway would not work with the store, or would lose data; the message says why."""


@dataclass(frozen=True)
class Checked:
    findings: tuple[Finding, ...]
    is_locked: bool
    """What is put cannot be removed for a while."""

    def require(self, place: Place) -> None:
        if bad := [f"{finding.check}: {finding.told}" for finding in self.findings if finding.is_bad]:
            raise HarmfulStore(f"{place.url()}: {'; '.join(bad)}")

    def hindrance(self) -> Finding | None:
        """Why nothing can be measured."""
        found = (finding for finding in self.findings if finding.is_bad and finding.check in _NEEDED)
        stays = {"object-lock"} if self.is_locked else {"removal"}
        return next(found, None) or next((finding for finding in self.findings if finding.check in stays), None)


def check(client: Any, place: Place) -> Checked:  # noqa: ANN401
    try:
        return _check(client, place)
    except BotoCoreError as error:
        raise MeasureError(f"{place.url()}: {line(error)}") from error


def _check(client: Any, place: Place) -> Checked:  # noqa: ANN401
    bucket = BucketChecks(client, place)
    findings = bucket.existence_and_clock()
    if findings[0].is_bad and not findings[0].may_go_on:
        return Checked(tuple(findings), is_locked=False)
    retention = bucket.retention()
    findings += [bucket.versioning(), retention, *bucket.lifecycle(), bucket.encryption()]
    if retention.verdict is Verdict.ADVICE:
        return Checked(tuple(findings), is_locked=True)
    keys = OwnKeys(client, place)
    try:
        findings += PermissionChecks(client, place, keys).all()
    finally:
        left = _left(keys, findings)
    return Checked((*findings, *left), is_locked=False)


def _left(keys: OwnKeys, findings: list[Finding]) -> list[Finding]:
    # Who may not list may remove what is known by its name.
    with contextlib.suppress(ClientError, MeasureError):
        keys.remove(NAMES)
    try:
        keys.remove_all()
    except MeasureError as error:
        return [Finding("removal", Verdict.ADVICE, line(error), "remove it with credentials that may")]
    if keys.are_versions_hidden and any(f.check == "versioning" and f.verdict is not Verdict.GOOD for f in findings):
        advice = f"allow s3:ListBucketVersions and s3:DeleteObjectVersion on {keys.prefix}"
        return [Finding("removal", Verdict.ADVICE, "old versions of what was put may have stayed", advice)]
    return []
