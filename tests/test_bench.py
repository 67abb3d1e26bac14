"""The measuring tool: it alternates fairly, and its jobs run and are read correctly."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from bench.fio import WORKLOADS, Workload, measure
from bench.key_traces import as_oracle_general, key_trace, zipf
from bench.report import Figure, Section, table
from bench.rounds import Comparison, alternate
from harness.target import Tgtd
from harness.tools import run

MIB = 1 << 20


def test_rounds_alternate_which_contender_goes_first() -> None:
    order: list[str] = []
    result = alternate(
        Comparison("x", "IOPS"),
        3,
        lambda: order.append("A") or 6.0,  # type: ignore[func-returns-value]
        lambda: order.append("B") or 3.0,  # type: ignore[func-returns-value]
    )
    assert "".join(order) == "ABBAAB"
    assert result.ratio == 2.0


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.name)
def test_every_workload_runs_over_iscsi(workload: Workload, tgtd: Tgtd, folder: Path) -> None:
    file = folder / "lun"
    with file.open("wb") as opened:
        opened.truncate(32 * MIB)
    iqn = tgtd.create_target(1, "bench")
    tgtd.add_file_lun(1, 1, file)
    figures = measure(workload, tgtd.url(iqn), 32 * MIB, 0.5)
    assert figures.value > 0
    assert 0 < figures.p50_us <= figures.p99_us
    assert (file.stat().st_blocks > 0) == workload.writes


def test_figures_without_a_ratio_are_printed() -> None:
    section = Section("Sweep", remark="Alone.", figures=[Figure("whole", "s", [3.0, 1.0, 2.0])])
    assert table(section).endswith("Alone.\n\n| what | measured | unit |\n|---|---|---|\n| whole | 2 (1-3) | s |\n")


def test_the_generated_trace_is_skewed_and_always_the_same() -> None:
    ids = zipf(20_000, 1000)
    assert (ids == zipf(20_000, 1000)).all()
    counts = np.sort(np.bincount(ids, minlength=1000))[::-1]
    # The most popular key has a share of 1 / (1 + 1/2 + ... + 1/1000).
    assert counts[0] / 20_000 == pytest.approx(1 / 7.485, rel=0.1)


def test_keys_are_replayed_from_the_file_that_is_written(folder: Path) -> None:
    pytest.importorskip("tombolo_sim", reason="the simulator's package is not built (make sim-python)")
    file = folder / "trace.oracleGeneral"
    as_oracle_general(np.array([5, 7, 5, 9, 7], np.uint32), file)
    trace = key_trace("by hand", file)
    assert (trace.requests, trace.distinct) == (5, 3)
    words: list[str | Path] = [sys.executable, "-m", "bench.key_replay", "ours", file, "lru", "2"]
    measured = json.loads(run(words, cwd=Path(__file__).parent).stdout)
    assert measured["miss_ratio"] == pytest.approx(4 / 5)
    assert measured["processor_s"] > 0
