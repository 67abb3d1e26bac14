"""Stand-ins for the Tombolo paper's traces, which are not public. The model, what of it is printed and what assumed, is
in the engine (`simulator/engine/src/synthetic.rs`)."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tombolo_sim import engine
from tombolo_sim.progress import watching
from tombolo_sim.sources import Trace


@dataclass(frozen=True)
class Synthetic:
    """Which one. The same is the same trace for ever."""

    dataset: str
    scale: float
    """Of the printed clients, requests and bytes; the days stay."""
    seed: int
    templates: int | None = None
    """Tasks of a project that are done again and again; zero makes the control, whose jumps do not repeat; else the
    model's own number."""

    @property
    def name(self) -> str:
        """Says that it is made up, wherever it is shown."""
        words = ["synthetic", self.dataset, f"{self.scale:g}", f"seed{self.seed}"]
        if self.templates is not None:
            words.append("control" if self.templates == 0 else f"templates{self.templates}")
        # A trace's name ends at the first dot of its file's.
        return "-".join(words).replace(".", "_")

    def specification(self) -> dict[str, Any]:
        """As it stands in jobs of the engine."""
        chosen: dict[str, Any] = {"dataset": self.dataset, "scale": self.scale, "seed": self.seed}
        if self.templates is not None:
            chosen["templates"] = self.templates
        return chosen


def write(synthetic: Synthetic, target: Path) -> int:
    """Returns the number of records."""
    with watching("generating") as progress:
        return engine.generate({"trace": synthetic.specification(), "target": str(target)}, progress)


def traces(wanted: list[Synthetic], folder: Path) -> list[Trace]:
    """For a report: one file each in the folder; those that are there already stay."""
    folder.mkdir(parents=True, exist_ok=True)
    found = []
    for synthetic in wanted:
        # Another engine may have another model.
        target = folder / f"{synthetic.name}.{engine.digest()}.tbtr"
        if not target.exists():
            write(synthetic, target)
        found.append(Trace(synthetic.name, target))
    return found
