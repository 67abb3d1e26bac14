"""Results as a JSON file and as a table for people, with all that is needed to repeat them."""

import json
import os
import platform
import sys
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from bench.rounds import Comparison, spread
from harness.tools import REPOSITORY, run

RESULTS = REPOSITORY / "docs/results"


@dataclass(frozen=True)
class Figure:
    """What has nothing beside it."""

    name: str
    unit: str
    values: list[float]

    def row(self) -> str:
        return f"| {self.name} | {spread(self.values)} | {self.unit} |"


@dataclass(frozen=True)
class Section:
    title: str
    columns: tuple[str, ...] = ("", "")
    """Ours first."""
    comparisons: list[Comparison] = field(default_factory=list)
    remark: str = ""
    """What a reader must know to take the ratios for what they are."""
    figures: list[Figure] = field(default_factory=list)
    """In the place of comparisons."""
    words: list[list[str]] = field(default_factory=list)
    """Rows of what is said of each column, behind what it is said about; in the place of comparisons too."""


def circumstances(arguments: list[str]) -> dict[str, object]:
    commit = run(["git", "describe", "--always", "--dirty", "--abbrev=12"], cwd=REPOSITORY).stdout.strip()
    memory_kib = int(Path("/proc/meminfo").read_text().split()[1])
    return {
        "commit": commit,
        "command": " ".join(["make bench", *([f"BENCH_ARGUMENTS='{' '.join(arguments)}'"] if arguments else [])]),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "kernel": platform.release(),
        "processors": os.cpu_count(),
        "memory_gib": round(memory_kib / (1 << 20), 1),
        "load_average_1m": os.getloadavg()[0],
    }


def table(section: Section) -> str:
    remark = f"{section.remark}\n\n" if section.remark else ""
    if section.figures:
        columns = "| what | measured | unit |\n|---|---|---|\n"
        rows = [figure.row() for figure in section.figures]
    elif section.words:
        columns = f"| | {' | '.join(section.columns)} |\n|{'---|' * (1 + len(section.columns))}\n"
        rows = [f"| {' | '.join(row)} |" for row in section.words]
    else:
        ours, other = section.columns
        columns = f"| workload | {ours} | {other} | unit | ratio |\n|---|---|---|---|---|\n"
        rows = [comparison.row() for comparison in section.comparisons]
    return f"## {section.title}\n\n{remark}{columns}" + "\n".join(rows) + "\n"


def stored_rows(section: Section) -> list[dict[str, object]]:
    if section.words:
        return [dict(zip(("", *section.columns), row, strict=True)) for row in section.words]
    return [asdict(figure) for figure in section.figures] or [each.as_json() for each in section.comparisons]


def write(
    name: str,
    arguments: list[str],
    sections: list[Section],
    memory: dict[str, int],
) -> Path:
    facts = circumstances(arguments)
    RESULTS.mkdir(parents=True, exist_ok=True)
    stored = {
        "circumstances": facts,
        "memory_bytes": memory,
        "sections": {each.title: stored_rows(each) for each in sections},
        "remarks": {each.title: each.remark for each in sections if each.remark},
    }
    (RESULTS / f"{name}.json").write_text(json.dumps(stored, indent=2) + "\n")
    lines = [
        "# Measurements",
        "",
        "Medians (lowest-highest) of rounds measured in alternation; the ratio is what counts.",
        "",
    ]
    lines += [f"* {key.replace('_', ' ')}: {value}" for key, value in facts.items()]
    lines += [f"* resident memory, {key.replace('_', ' ')}: {value >> 20} MiB" for key, value in memory.items()]
    text = "\n".join(lines) + "\n\n" + "\n".join(table(section) for section in sections)
    path = RESULTS / f"{name}.md"
    path.write_text(text)
    sys.stdout.write(text)
    return path
