"""Sweeps: resumed, parallel, on Dask; failures are outcomes."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tombolo_sim import sweep
from tombolo_sim.cli import EXIT_REFUSED
from tombolo_sim.engine import EngineError
from tombolo_sim.jobs import Choice
from tombolo_sim.policies import policy
from tombolo_sim.progress import Lines
from tombolo_sim.sources import Trace


def tasks(trace: Path, names: tuple[str, ...] = ("lru", "lru_amp", "sarc_graph")) -> list[sweep.Task]:
    source = Trace("made-up", trace)
    return [sweep.Task("replay", Choice(source, policy(name), 300).job(), name) for name in names]


def test_all_cores_give_what_one_gives(trace: Path, tmp_path: Path) -> None:
    many = sweep.execute(tasks(trace), tmp_path / "many", workers=2)
    one = [sweep.carry_out(task, tmp_path / "one.json") for task in tasks(trace)]
    assert [a.require()["digest"] for a in many] == [b.require()["digest"] for b in one]
    assert [outcome.task.label for outcome in many] == ["lru", "lru_amp", "sarc_graph"]


def test_finished_jobs_are_not_done_again(trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    original = sweep._on_cores

    def counting(missing: dict[Path, sweep.Task], *rest: object) -> Iterator[tuple[Path, sweep.Outcome]]:
        done.extend(task.label for task in missing.values())
        return original(missing, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(sweep, "_on_cores", counting)
    first = sweep.execute(tasks(trace), tmp_path, workers=1)
    assert done == ["lru", "lru_amp", "sarc_graph"]
    done.clear()
    # As an interrupted sweep leaves it: one result is missing, one was cut short.
    sweep.path_of(tmp_path, tasks(trace)[1]).unlink()
    damaged = sweep.path_of(tmp_path, tasks(trace)[2])
    damaged.write_text(damaged.read_text()[:100])
    second = sweep.execute(tasks(trace), tmp_path, workers=1)
    assert done == ["lru_amp", "sarc_graph"]
    assert [a.require()["digest"] for a in second] == [b.require()["digest"] for b in first]


def test_equal_jobs_are_done_once(trace: Path, tmp_path: Path) -> None:
    outcomes = sweep.execute([*tasks(trace, ("lru",)), *tasks(trace, ("lru",))], tmp_path, workers=1)
    assert len(outcomes) == 2
    assert len(list((tmp_path / "jobs").iterdir())) == 1


def test_a_changed_trace_is_another_job(tmp_path: Path) -> None:
    path = tmp_path / "trace.txt"
    path.write_text("0 R 0 4\n")
    before = tasks(path)[0].key()
    path.write_text("0 R 0 4\n1 R 8 4\n")
    assert tasks(path)[0].key() != before


def test_the_folder_of_a_trace_does_not_matter(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    original = tmp_path / "a" / "trace.txt"
    original.write_text("0 R 0 4\n")
    before = tasks(original)[0].key()
    moved = original.rename(tmp_path / "trace.txt")
    assert tasks(moved)[0].key() == before


def test_a_job_without_a_trace_is_told_by_its_fields_and_one_with_another_also_by_that(tmp_path: Path) -> None:
    def key(**workload: object) -> str:
        return sweep.Task("objects", {"workload": workload, "seed": 1}, "").key()

    assert key(zipf={"objects": 5}) == key(zipf={"objects": 5}) != key(zipf={"objects": 6})
    path = tmp_path / "trace.txt"
    path.write_text("1 2\n")
    before = key(**{"sized-trace": {"path": str(path)}})
    path.write_text("1 2\n3 4\n")
    assert key(**{"sized-trace": {"path": str(path)}}) != before


def test_a_failure_does_not_stop_the_others(trace: Path, tmp_path: Path) -> None:
    outcomes = sweep.execute(tasks(trace, ("nonsense", "lru")), tmp_path, workers=2)
    assert sweep.failures(outcomes) == [f"nonsense: {outcomes[0].error}"]
    assert "replacement" in (outcomes[0].error or "")
    assert outcomes[1].report is not None
    with pytest.raises(EngineError, match=r"^nonsense: replacement"):
        outcomes[0].require()
    # It is tried again the next time.
    assert not sweep.path_of(tmp_path, tasks(trace, ("nonsense",))[0]).exists()


def test_a_result_that_cannot_be_written_leaves_nothing(trace: Path, tmp_path: Path) -> None:
    path = tmp_path / "a-folder.json"
    path.mkdir()
    with pytest.raises(IsADirectoryError):
        sweep.carry_out(tasks(trace)[0], path)
    assert list(tmp_path.iterdir()) == [path]


def test_a_missing_trace_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="No such file"):
        sweep.execute(tasks(tmp_path / "nowhere"), tmp_path)


def test_on_dask(trace: Path, tmp_path: Path) -> None:
    from distributed import LocalCluster

    with LocalCluster(  # type: ignore[no-untyped-call]
        n_workers=1, threads_per_worker=1, processes=False, protocol="tcp://", dashboard_address=None, host="127.0.0.1"
    ) as cluster:
        outcomes = sweep.execute(tasks(trace), tmp_path, dask=cluster.scheduler_address)
    alone = sweep.execute(tasks(trace), tmp_path / "alone", workers=1)
    assert [a.require()["digest"] for a in outcomes] == [b.require()["digest"] for b in alone]
    assert len(list((tmp_path / "jobs").glob("*.json"))) == 3


def test_results_are_loaded_with_their_jobs(trace: Path, tmp_path: Path) -> None:
    sweep.execute(tasks(trace), tmp_path, workers=1)
    found = {result["label"]: result for result in sweep.load(tmp_path)}
    assert found["lru_amp"]["job"]["prefetch"] == "amp"
    assert json.dumps(found["lru_amp"]["report"])
    with pytest.raises(EngineError, match="there are no results"):
        sweep.load(tmp_path / "nowhere")


def wait_until(condition: Callable[[], bool], what: str, timeout_s: float = 30.0) -> None:
    until = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < until, what
        time.sleep(0.05)


def processes_of(session: int) -> list[int]:
    """Those that run, by /proc: a zombie has no command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if os.getsid(int(path.name)) == session and (path / "cmdline").read_bytes():
                found.append(int(path.name))
        except OSError:
            continue
    return found


@contextmanager
def under_way(folder: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    """A command that has a first result, in a session of its own, of which nothing is left after the test."""
    command = [sys.executable, "-m", "tombolo_sim", *words, "-o", str(folder), "--workers", "2"]
    with subprocess.Popen(command, start_new_session=True, stderr=subprocess.PIPE, text=True) as process:
        wait_until(lambda: len(list(folder.glob("jobs/*.json"))) > 0, "a first result")
        yield process
        wait_until(lambda: not processes_of(process.pid), f"the end of {processes_of(process.pid)}")


@pytest.fixture
def long_sweep(trace: Path) -> list[str]:
    return ["sweep", str(trace), *(word for seed in range(500) for word in ("--seed", str(seed)))]


def test_a_sweep_that_is_ended_leaves_no_worker(long_sweep: list[str], tmp_path: Path) -> None:
    with under_way(tmp_path, *long_sweep) as process:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
        assert process.returncode == 143


@pytest.mark.parametrize("report", ["hou", "gds-lc", "stout"])
def test_a_report_that_is_ended_leaves_its_results_and_no_worker(report: str, tmp_path: Path) -> None:
    with under_way(tmp_path, "report", report) as process:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
        assert process.returncode == 143


def test_workers_end_with_a_sweep_that_is_killed(long_sweep: list[str], tmp_path: Path) -> None:
    with under_way(tmp_path, *long_sweep) as process:
        process.kill()


def test_a_worker_that_is_killed_ends_the_sweep_with_a_line(long_sweep: list[str], tmp_path: Path) -> None:
    with under_way(tmp_path, *long_sweep) as process:
        command_lines = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in processes_of(process.pid)}
        os.kill(next(pid for pid, line in command_lines.items() if b"spawn_main" in line), signal.SIGKILL)
        _, told = process.communicate(timeout=30)
        assert told.splitlines()[-1].startswith("tombolo-sim: a worker was killed") and "Traceback" not in told
        assert process.returncode == EXIT_REFUSED


def test_a_worker_ends_though_nobody_reads_its_progress(
    trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "_show_progress", lambda *_: None)
    # More than a pipe holds.
    task = replace(tasks(trace, ("lru",))[0], label="x" * (1 << 20))
    assert sweep.execute([task], tmp_path, workers=1)[0].report is not None


def test_without_a_terminal_a_line_a_minute_says_what_is_left() -> None:
    now = [0.0]
    lines = Lines(total=100, done=20, clock=lambda: now[0])
    now[0] = 59
    assert lines.line(21) is None
    now[0] = 120
    assert lines.line(40) == "40 of 100 jobs; some 6 minutes to go"
    assert lines.line(41) is None
