"""Jobs of the engine that need no trace, carried out on all cores."""

import json
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from typing import Any, TypeAlias

from tombolo_sim import _engine
from tombolo_sim.progress import bars

Json: TypeAlias = dict[str, Any]
KINDS: Mapping[str, Callable[[str], str]] = {"load": _engine.load, "chunks": _engine.chunks}


def _carry_out(kind: str, job: Json) -> Json:
    report: Json = json.loads(KINDS[kind](json.dumps(job)))
    return report


def execute(jobs: Mapping[str, tuple[str, Json]], workers: int | None) -> dict[str, Json]:
    """Reports by the jobs' names, in their order."""
    done: dict[str, Json] = {}
    workers = min(workers or os.cpu_count() or 1, len(jobs))
    with bars() as progress, ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        task = progress.add_task("stores under load", total=len(jobs))
        futures = {pool.submit(_carry_out, kind, job): name for name, (kind, job) in jobs.items()}
        try:
            for future in as_completed(futures):
                done[futures[future]] = future.result()
                progress.advance(task)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return {name: done[name] for name in jobs}
