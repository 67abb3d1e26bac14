"""Jobs of the engine that need no trace, carried out on all cores."""

import json
import os
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import ProcessPoolExecutor
from ctypes import c_bool
from multiprocessing import get_context
from typing import Any, TypeAlias, TypeVar

from tombolo_sim import _engine
from tombolo_sim.ending import Ended, as_done, ignore_signals, signals_deferred
from tombolo_sim.progress import bars

Json: TypeAlias = dict[str, Any]
KINDS: Mapping[str, Callable[[str, Callable[[int, int], object] | None], str]] = {
    "load": _engine.load,
    "chunks": _engine.chunks,
    "objects": _engine.objects,
}
Name = TypeVar("Name", bound=Hashable)

_ended: c_bool | None = None


def _begin_worker(ended: c_bool) -> None:
    global _ended
    _ended = ended
    ignore_signals()


def _carry_out(kind: str, job: Json) -> Json:
    ended = _ended
    assert ended is not None

    def on_progress(_done: int, _total: int) -> None:
        if ended.value:
            raise Ended

    report: Json = json.loads(KINDS[kind](json.dumps(job), on_progress))
    return report


def execute(
    jobs: Mapping[Name, tuple[str, Json]], workers: int | None, title: str = "stores under load"
) -> dict[Name, Json]:
    """Reports by the jobs' names, in their order."""
    done: dict[Name, Json] = {}
    workers = min(workers or os.cpu_count() or 1, len(jobs))
    context = get_context("spawn")
    # It has no lock that a worker could die with.
    ended = context.RawValue(c_bool)
    with bars() as progress, signals_deferred() as check:
        task = progress.add_task(title, total=len(jobs))
        pool = ProcessPoolExecutor(workers, context, _begin_worker, (ended,))
        try:
            futures = {pool.submit(_carry_out, kind, job): name for name, (kind, job) in jobs.items()}
            for future in as_done(futures, check):
                done[futures[future]] = future.result()
                progress.advance(task)
        finally:
            ended.value = True
            pool.shutdown(cancel_futures=True)
    return {name: done[name] for name in jobs}
