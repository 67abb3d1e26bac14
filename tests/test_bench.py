"""The measuring tool: it alternates fairly, and its jobs run and are read correctly."""

from pathlib import Path

import pytest

from bench.fio import WORKLOADS, Workload, measure
from bench.rounds import Comparison, alternate
from harness.target import Tgtd

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
