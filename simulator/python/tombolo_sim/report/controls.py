"""The traces with their jumps shuffled: what a policy gains by knowing which read follows which must be gone there."""

import hashlib
import json
from pathlib import Path

from tombolo_sim import engine
from tombolo_sim.progress import watching
from tombolo_sim.report.results import WINDOWS
from tombolo_sim.sources import Trace

_SEED = 1


def write(trace: Trace, folder: Path) -> dict[int, Trace]:
    """One for each window; those that are there already stay."""
    folder.mkdir(parents=True, exist_ok=True)
    status = trace.path.stat()
    identity = json.dumps([trace.source(), status.st_size, status.st_mtime_ns, _SEED])
    name = f"{trace.name}-{hashlib.sha256(identity.encode()).hexdigest()[:12]}"
    controls = {}
    for window in WINDOWS:
        target = folder / f"{name}-{window}.tbtr"
        if not target.exists():
            job = {"trace": trace.source(), "target": str(target), "window": window, "seed": _SEED}
            with watching(f"shuffling {trace.name}") as progress:
                engine.shuffle(job, progress)
        controls[window] = Trace(f"{trace.name}-shuffled-{window}", target)
    return controls
