"""What a paper says, and what was found of it here."""

from collections.abc import Sequence
from dataclasses import dataclass

from bench.report import Section

HOLDS, FAILS, UNTESTABLE = "**holds**", "**does not hold**", "cannot be tested here"


@dataclass(frozen=True)
class Claim:
    text: str
    source: str
    printed: str
    found: str
    holds: bool | None
    """`None`: cannot be tested here."""
    reading: str = ""
    """Why it may not hold."""

    def row(self) -> list[str]:
        verdict = UNTESTABLE if self.holds is None else HOLDS if self.holds else FAILS
        found = f"{self.found}; our reading: {self.reading}" if self.reading and not self.holds else self.found
        return [self.text, self.source, self.printed, verdict, found]


def section(title: str, claims: Sequence[Claim]) -> Section:
    holding = sum(claim.holds is True for claim in claims)
    failing = sum(claim.holds is False for claim in claims)
    untested = len(claims) - holding - failing
    counted = f"{len(claims)} claims: {holding} hold, {failing} do not hold, {untested} cannot be tested here."
    rows = [claim.row() for claim in claims]
    return Section(title, ("where", "printed", "verdict", "found"), remark=counted, words=rows)


def jain(values: Sequence[float]) -> float:
    """Jain's index of fairness: 1 where all are alike."""
    squares = len(values) * sum(value * value for value in values)
    return sum(values) ** 2 / squares if squares else 1.0
