"""A claim, what was found of it where, and the verdict that follows."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

LEUNG = "it is about the CIFS traces of Leung et al. (Corp, Eng), which are not public"


class Verdict(StrEnum):
    HOLDS = "holds"
    FAILS = "does not hold"
    UNTESTABLE = "cannot be tested here"
    UNDECIDED = "decides nothing"
    """Of a finding: nothing can be gained there, so no claim is borne out or refuted by it."""


@dataclass(frozen=True)
class Finding:
    """On one trace, or at one cell of it: a trace and a cache of some size."""

    where: str
    verdict: Verdict
    detail: str
    trace: str = ""
    """Of a cell."""


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


def by_majority(claim: str, source: str, printed: str, cells: Iterable[Finding]) -> Check:
    """A claim about workloads of its kind: it holds when it does in most cells in which anything can be gained."""
    found = tuple(cells)
    decided = [cell for cell in found if cell.verdict in (Verdict.HOLDS, Verdict.FAILS)]
    if not decided:
        return Check(claim, source, printed, Verdict.UNTESTABLE, "in no cell at hand can anything be gained", found)
    holding = _holding(decided)
    traces = sorted({cell.trace for cell in decided})
    won = [trace for trace in traces if 2 * _holding(of := [c for c in decided if c.trace == trace]) > len(of)]
    reason = (
        f"in {holding} of {len(decided)} cells, most of them on {len(won)} of {len(traces)} traces; "
        f"{len(found) - len(decided)} decide nothing"
    )
    return Check(claim, source, printed, verdict_of(2 * holding > len(decided)), reason, found)


def _holding(cells: Sequence[Finding]) -> int:
    return sum(cell.verdict is Verdict.HOLDS for cell in cells)


def particular(claim: str, source: str, printed: str, reason: str, findings: Iterable[Finding] = ()) -> Check:
    """A claim about something that is not here; the findings are what stands in for it."""
    return Check(claim, source, printed, Verdict.UNTESTABLE, reason, tuple(findings))


def with_reading(check: Check, readings: Mapping[str, str]) -> Check:
    """The check, with why it may have failed where it has; readings stand by parts of claims."""
    if check.verdict is not Verdict.FAILS:
        return check
    found = next((reading for part, reading in readings.items() if part in check.claim), None)
    return replace(check, reason=f"{check.reason}; our reading: {found}") if found else check
