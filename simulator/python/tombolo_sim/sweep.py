"""Many jobs on all cores, one file a result.

A result lies in a file that is named by a hash of what determines it: the job, size and time of a trace that it names,
and the engine. A job whose file is there is not done again, so an interrupted sweep goes on where it was, and a changed
engine or trace begins anew. Files appear whole or not at all.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from ctypes import c_bool
from dataclasses import dataclass, replace
from multiprocessing import get_context
from multiprocessing.queues import Queue
from pathlib import Path
from queue import Empty
from threading import Event, Thread
from typing import Any

from rich.progress import Progress

from tombolo_sim import engine
from tombolo_sim.ending import POLL_S, Ended, as_done, end_with_parent, ignore_signals, signals_deferred
from tombolo_sim.engine import EngineError, Json
from tombolo_sim.progress import Lines, bars, console, show

KINDS: dict[str, Callable[..., Json]] = {
    "replay": engine.replay,
    "keys": engine.keys,
    "objects": engine.objects,
    "load": engine.load,
    "chunks": engine.chunks,
    "analyse": lambda job, progress=None: engine.analyse(job["trace"], job["interval_us"], progress=progress),
}


@dataclass(frozen=True)
class Task:
    """A job of the engine; `label` is for people and does not count."""

    kind: str
    job: Json
    label: str

    def key(self) -> str:
        text = json.dumps([self.kind, _with_versions(self.job), engine.digest()], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:32]


def _with_versions(part: Any) -> Any:  # noqa: ANN401
    """A part of a job in which each trace's path has given way to what tells it from others."""
    if isinstance(part, list | tuple):
        return [_with_versions(item) for item in part]
    if not isinstance(part, dict):
        return part
    return {name: _version(Path(of)) if name == "path" else _with_versions(of) for name, of in part.items()}


def _version(trace: Path) -> list[str | int]:
    """The folder does not count."""
    try:
        status = trace.stat()
    except OSError as error:
        raise EngineError(f"{trace}: {error.strerror}") from error
    return [trace.name, status.st_size, status.st_mtime_ns]


@dataclass(frozen=True)
class Outcome:
    task: Task
    report: Json | None
    error: str | None

    def require(self) -> Json:
        if self.report is None:
            raise EngineError(f"{self.task.label}: {self.error}")
        return self.report


def path_of(folder: Path, task: Task) -> Path:
    return folder / "jobs" / f"{task.key()}.json"


def stored(path: Path) -> Json | None:
    """A finished report; a file that is not a report counts as none, and is written again."""
    try:
        report = json.loads(path.read_text())["report"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return report if isinstance(report, dict) else None


def _store(path: Path, task: Task, report: Json) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(f".{os.getpid()}.part")
    try:
        part.write_text(json.dumps({"kind": task.kind, "label": task.label, "job": task.job, "report": report}))
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def carry_out(task: Task, path: Path, progress: engine.Progress | None = None) -> Outcome:
    """Does one job and stores its report. What the engine refuses is an outcome, so that the others go on."""
    try:
        report = KINDS[task.kind](task.job, progress=progress)
    except EngineError as error:
        return Outcome(task, None, str(error))
    _store(path, task, report)
    return Outcome(task, report, None)


@dataclass(frozen=True)
class _Parent:
    """What a worker shares with the process that began it. `ended` has no lock that a worker could die with."""

    progress: "Queue[tuple[str, int, int]]"
    ended: c_bool


_parent: _Parent | None = None


def _begin_worker(parent: _Parent) -> None:
    global _parent
    _parent = parent
    ignore_signals()
    end_with_parent()
    # What nobody has read yet would keep this process from ending.
    parent.progress.cancel_join_thread()


def _work(task: Task, path: Path) -> Outcome:
    parent = _parent
    assert parent is not None

    def on_progress(done: int, total: int) -> None:
        if parent.ended.value:
            raise Ended
        parent.progress.put((task.label, done, total))

    outcome = carry_out(task, path, on_progress)
    # The engine tells steps, of which the last need not be the end, nor does a job that fails get there.
    parent.progress.put((task.label, 1, 1))
    return outcome


def execute(tasks: Sequence[Task], folder: Path, workers: int | None = None, dask: str | None = None) -> list[Outcome]:
    """All outcomes in the order of the tasks. Equal tasks are done once."""
    paths = [path_of(folder, task) for task in tasks]
    distinct = dict(zip(paths, tasks, strict=True))
    found = {path: report for path in distinct if (report := stored(path)) is not None}
    outcomes = {path: Outcome(distinct[path], report, None) for path, report in found.items()}
    missing = {path: task for path, task in distinct.items() if path not in found}
    with bars() as progress:
        total = progress.add_task("jobs", total=len(distinct), completed=len(found))
        run = _on_dask(missing, dask) if dask else _on_cores(missing, workers or os.cpu_count() or 1, progress)
        lines = Lines(len(distinct), len(found))
        for path, outcome in run:
            outcomes[path] = outcome
            progress.advance(total)
            if not console.is_terminal and (line := lines.line(len(outcomes))) is not None:
                console.print(line)
    return [replace(outcomes[path], task=task) for path, task in zip(paths, tasks, strict=True)]


def _on_cores(missing: dict[Path, Task], workers: int, progress: Progress) -> Iterator[tuple[Path, Outcome]]:
    if not missing:
        return
    context = get_context("spawn")
    parent = _Parent(context.Queue(), context.RawValue(c_bool))
    with signals_deferred() as check:
        pool = ProcessPoolExecutor(min(workers, len(missing)), context, _begin_worker, (parent,))
        over = Event()
        watcher = Thread(target=_show_progress, args=(parent.progress, progress, over), daemon=True)
        watcher.start()
        try:
            paths = {pool.submit(_work, task, path): path for path, task in missing.items()}
            for future in as_done(paths, check):
                yield paths[future], future.result()
        except BrokenProcessPool:
            raise EngineError(
                "a worker was killed, as the system does when memory runs out: fewer --workers need less; what is "
                "finished is not done again"
            ) from None
        finally:
            parent.ended.value = True
            over.set()
            watcher.join()
            pool.shutdown(cancel_futures=True)


def _show_progress(queue: "Queue[tuple[str, int, int]]", progress: Progress, over: Event) -> None:
    """One bar for each job that is under way."""
    tasks: dict[str, Any] = {}
    while not over.is_set():
        try:
            label, done, total = queue.get(timeout=POLL_S)
        except Empty:
            continue
        if label not in tasks:
            tasks[label] = progress.add_task(label, total=None)
        show(progress, tasks[label], done, total)
        if total and done >= total:
            progress.remove_task(tasks.pop(label))


def _on_dask(missing: dict[Path, Task], address: str) -> Iterator[tuple[Path, Outcome]]:
    """On the workers of a Dask scheduler, which must see the trace under the same path. They hand the report back,
    since the folder of results may not be theirs."""
    try:
        from distributed import Client
        from distributed import as_completed as completed
    except ImportError as error:
        raise EngineError("--dask needs the package distributed: pip install 'tombolo-sim[dask]'") from error
    with Client(address) as client:  # type: ignore[no-untyped-call]
        futures = {client.submit(_remote, task, pure=False): path for path, task in missing.items()}
        for future in completed(futures):  # type: ignore[no-untyped-call]
            outcome = future.result()
            path = futures[future]
            if outcome.report is not None:
                _store(path, outcome.task, outcome.report)
            yield path, outcome


def _remote(task: Task) -> Outcome:
    try:
        return Outcome(task, KINDS[task.kind](task.job), None)
    except EngineError as error:
        return Outcome(task, None, str(error))


def load(folder: Path) -> list[Json]:
    """Every stored job with its report."""
    results = []
    for path in sorted((folder / "jobs").glob("*.json")):
        try:
            results.append(json.loads(path.read_text()))
        except ValueError as error:
            raise EngineError(f"{path}: not a result: {error}") from error
    if not results:
        raise EngineError(f"{folder}: there are no results")
    return results


def failures(outcomes: Iterable[Outcome]) -> list[str]:
    return [f"{outcome.task.label}: {outcome.error}" for outcome in outcomes if outcome.error is not None]
