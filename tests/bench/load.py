"""The load generator of the file workloads: compiled when it is needed, run as one process or several at once.

The processes of one measurement connect first and begin together.
"""

import json
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from harness.tools import REPOSITORY, run

SOURCES = Path(__file__).resolve().parent / "load"
RUN_LIMIT_S = 120.0
WARNINGS = ("-Wall", "-Wextra", "-Wshadow", "-Wconversion", "-Werror")


@cache
def generator() -> Path:
    built = REPOSITORY / "build/bench/load"
    built.parent.mkdir(parents=True, exist_ok=True)
    sources = sorted(SOURCES.glob("*.c"))
    # By its file name: Debian's libnfs13 brings no link without a version, and the declarations are our own.
    run(["gcc", "-std=c17", "-D_GNU_SOURCE", "-O2", *WARNINGS, *sources, "-l:libnfs.so.13", "-o", built])
    return built


def load_at_once(wheres: Sequence[tuple[str, str]], *workload: str | int) -> list[dict[str, Any]]:
    """The figures of one process per (kind of front end, place), all under the same workload."""
    processes: list[subprocess.Popen[str]] = []
    try:
        for where in wheres:
            processes.append(_start([str(generator()), *where, *map(str, workload)]))
        for process in processes:
            _expect_ready(process)
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        return [_result(process) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()


def load(where: tuple[str, str], *workload: str | int) -> dict[str, float]:
    return load_at_once([where], *workload)[0]


def files_per_s(wheres: Sequence[tuple[str, str]], count: int, size: int, stable: bool) -> float:
    """Of all processes together, from the begin of the first to the end of the last."""
    figures = load_at_once(wheres, "files", count, size, "stable" if stable else "cached")
    begun, ended = min(each["begun"] for each in figures), max(each["ended"] for each in figures)
    return count * len(wheres) / float(ended - begun)


def _start(command: list[str]) -> "subprocess.Popen[str]":
    """From this thread, which the pipes belong to; it has no file of a share open."""
    words = ["setpriv", "--pdeathsig", "KILL", *command]
    pipe = subprocess.PIPE
    return subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def _expect_ready(process: "subprocess.Popen[str]") -> None:
    assert process.stdout is not None
    if process.stdout.readline() != "ready\n":
        raise RuntimeError(f"the load generator did not connect: {process.communicate()[1]}")


def _result(process: "subprocess.Popen[str]") -> dict[str, Any]:
    said, complaint = process.communicate(timeout=RUN_LIMIT_S)
    if process.returncode != 0:
        raise RuntimeError(f"{process.args!r} ended with {process.returncode}: {complaint}")
    figures: dict[str, Any] = json.loads(said)
    return figures
