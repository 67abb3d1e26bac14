"""One replay with its cloud as in the paper: a Berkeley DB that holds the objects, with contents that are verified."""

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from tombolo_sim import engine
from tombolo_sim.engine import Json
from tombolo_sim.progress import watching
from tombolo_sim.report.conditions import PAPER
from tombolo_sim.report.markdown import Table
from tombolo_sim.report.parameters import Parameters
from tombolo_sim.report.results import MISSES_ON, PERCENTS, Key, Plan, Results, quantile, sizes_of
from tombolo_sim.stores import BerkeleyStore

_ALGORITHM = "sarc_graph"
_MIB = 1 << 20


def beside_tables(results: Results, parameters: Mapping[str, Parameters], folder: Path) -> Table | None:
    """The shortest trace over such a store, beside the run without one; None: there is none of the size."""
    trace = min(results.traces, key=lambda trace: int(results.analyses[trace.name]["requests"]))
    key = Key(trace.name, "footprint", PERCENTS[0], _ALGORITHM, MISSES_ON, results.seeds[0])
    alone = results.reports.get(key)
    if alone is None:
        return None
    plan = Plan(trace, sizes_of(results.analyses[trace.name]), PAPER, parameters[trace.name])
    _, task = plan.run(key)
    with TemporaryDirectory(dir=folder) as scratch, BerkeleyStore.open(Path(scratch) / "objects.db") as store:
        with watching(f"{trace.name} over Berkeley DB") as progress:
            over = engine.replay(task.job, store, progress)
        held = [f"{store.object_count:,}", f"{store.path.stat().st_size / _MIB:,.0f}"]
    rows = [["by the tables alone", *_counts(alone), "-", "-"], ["over Berkeley DB", *_counts(over), *held]]
    head = [
        f"{trace.name}, {_ALGORITHM.upper()}",
        "misses",
        "GETs",
        "PUTs",
        "MiB down",
        "p99, ms",
        "objects",
        "file, MiB",
    ]
    return Table("The cloud as in the paper", head, rows)


def _counts(report: Json) -> list[str]:
    cloud, reads = report["cloud"], report["reads"]
    missed = reads["complete_misses"] + reads["partial_misses"]
    counts = [f"{count:,}" for count in (missed, cloud["gets"], cloud["puts"])]
    return [*counts, f"{cloud['bytes_down'] / _MIB:,.0f}", f"{quantile(report, 0.99):.0f}"]
