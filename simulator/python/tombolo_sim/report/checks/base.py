"""A claim, what was found of it where, and the verdict that follows."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

LEUNG = "it is about the CIFS traces of Leung et al. (Corp, Eng), which are not public"


class Verdict(StrEnum):
    HOLDS = "holds"
    FAILS = "does not hold"
    UNTESTABLE = "cannot be tested here"


@dataclass(frozen=True)
class Finding:
    """On one trace, or at one reading of the cache's size of it."""

    where: str
    verdict: Verdict
    detail: str


@dataclass(frozen=True)
class Check:
    claim: str
    source: str
    printed: str
    verdict: Verdict
    reason: str
    findings: tuple[Finding, ...] = field(default_factory=tuple)


def verdict_of(holds: bool) -> Verdict:
    return Verdict.HOLDS if holds else Verdict.FAILS


def general(claim: str, source: str, printed: str, findings: Iterable[Finding]) -> Check:
    """A claim about workloads of its kind: it holds when it does on every trace at hand."""
    found = tuple(findings)
    tested = [finding for finding in found if finding.verdict is not Verdict.UNTESTABLE]
    holding = sum(finding.verdict is Verdict.HOLDS for finding in tested)
    if not tested:
        return Check(claim, source, printed, Verdict.UNTESTABLE, "no trace at hand has what it takes", found)
    reason = f"on {holding} of {len(tested)}"
    return Check(claim, source, printed, verdict_of(holding == len(tested)), reason, found)


def particular(claim: str, source: str, printed: str, reason: str, findings: Iterable[Finding] = ()) -> Check:
    """A claim about something that is not here; the findings are what stands in for it."""
    return Check(claim, source, printed, Verdict.UNTESTABLE, reason, tuple(findings))


def with_reading(check: Check, readings: Mapping[str, str]) -> Check:
    """The check, with why it may have failed where it has; readings stand by parts of claims."""
    if check.verdict is not Verdict.FAILS:
        return check
    found = next((reading for part, reading in readings.items() if part in check.claim), None)
    return replace(check, reason=f"{check.reason}; our reading: {found}") if found else check
