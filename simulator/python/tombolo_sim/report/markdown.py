"""Markdown, as far as reports need it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tombolo_sim.report.checks import Check, Verdict


@dataclass(frozen=True)
class Table:
    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]


def table(content: Table) -> list[str]:
    lines = [_row(content.head), "|" + " --- |" * len(content.head)]
    return lines + [_row(row) for row in content.rows]


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def counted(found: Sequence[Check]) -> str:
    counts = {verdict: sum(check.verdict is verdict for check in found) for verdict in Verdict}
    shown = {verdict: count for verdict, count in counts.items() if verdict is not Verdict.UNDECIDED}
    return f"{len(found)} claims: " + ", ".join(f"{count} {verdict}" for verdict, count in shown.items()) + "."


def beside(columns: Sequence[tuple[str, Sequence[Check]]]) -> list[str]:
    """The same claims by heading, each with its verdict there."""
    rows = [
        [
            check.claim,
            check.source,
            check.printed,
            *(f"**{of[place].verdict}**: {of[place].reason}" for _, of in columns),
        ]
        for place, check in enumerate(columns[0][1])
    ]
    return table(Table("", ["claim", "where", "printed", *(heading for heading, _ in columns)], rows))


def checks(found: Sequence[Check]) -> list[str]:
    """The verdicts, then what was found of each where."""
    overview = Table(
        "", ["claim", "where", "printed", "verdict", "because"],
        [[check.claim, check.source, check.printed, f"**{check.verdict}**", check.reason] for check in found],
    )  # fmt: skip
    return [counted(found), "", *table(overview), "", *findings(found)]


def judged(by_condition: Mapping[str, Sequence[Check]]) -> list[str]:
    """The verdicts on the same claims under several conditions, by the conditions' titles."""
    counts = [f"* under {title}: {counted(of)}" for title, of in by_condition.items()]
    return ["## The paper's claims", "", *counts, "", *beside(list(by_condition.items())), ""]


def cells(by_condition: Mapping[str, Sequence[Check]]) -> list[str]:
    """What was found of each claim where, under each condition."""
    lines = []
    for title, checks_there in by_condition.items():
        lines += [f"## Cell by cell, under {title}", "", *findings(checks_there)]
    return lines


def findings(found: Sequence[Check]) -> list[str]:
    lines = []
    for check in found:
        if check.findings:
            rows = [[finding.where, finding.verdict, finding.detail] for finding in check.findings]
            lines += [f"### {check.claim}", "", *table(Table("", ["on", "there it", "found"], rows)), ""]
    return lines
