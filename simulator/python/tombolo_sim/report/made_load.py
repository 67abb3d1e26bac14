"""What reports have in common whose load is made here: claims first, no traces, nothing on Dask."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Generic, TypeAlias, TypeVar

from tombolo_sim.report import markdown
from tombolo_sim.report.checks.base import Check
from tombolo_sim.report.options import ReportOptions

Json: TypeAlias = dict[str, Any]
Results = TypeVar("Results")


@dataclass(frozen=True)
class MadeLoad(Generic[Results]):
    """`name` is the files' too."""

    name: str
    carry_out: Callable[[ReportOptions], Results]
    checks: Callable[[Results], Sequence[Check]]
    head: Callable[[ReportOptions], list[str]]
    sections: Callable[[Results], list[str]]
    data: Callable[[Results], Json]

    def run(self, options: ReportOptions) -> Path:
        """Writes Markdown and JSON into the output folder; returns the Markdown's path."""
        results = self.carry_out(options)
        found = self.checks(results)
        page = options.output / f"{self.name}.md"
        lines = [*self.head(options), "## Claims", "", *markdown.checks(found), *self.sections(results)]
        page.write_text("\n".join(lines).rstrip() + "\n")
        data = {"checks": [asdict(check) for check in found], "seeds": list(options.seeds)} | self.data(results)
        (options.output / f"{self.name}.json").write_text(json.dumps(data) + "\n")
        return page


def command_line(options: ReportOptions, name: str) -> str:
    seeds = "".join(f" --seed {seed}" for seed in options.seeds)
    return f"tombolo-sim report {name} -o DIR{seeds}"


def parameters(values: Json) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())
