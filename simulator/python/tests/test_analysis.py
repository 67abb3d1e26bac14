"""The structure of public traces against figures found by an independent program (4 KiB units)."""

from dataclasses import dataclass

import pytest

from samples import public
from tombolo_sim import engine


@dataclass(frozen=True)
class Expected:
    file: str
    short_runs: float
    one_touch: float
    lru: tuple[float, float, float]
    to_last: float
    to_any_of_4: float


TRACES = [
    Expected("arc_P2.lis.zst", 0.860, 0.187, (0.507, 0.325, 0.230), 0.231, 0.328),
    Expected("arc_P3.lis.zst", 0.911, 0.311, (0.735, 0.428, 0.320), 0.194, 0.273),
    Expected("cloudPhysicsIO.vscsi.zst", 0.139, 0.096, (0.878, 0.755, 0.544), 0.351, 0.403),
    Expected("cello_2003-05-18_11h.t_op_blk4k_n.txt.zst", 0.605, 0.932, (0.350, 0.349, 0.349), 0.527, 0.600),
]


@pytest.mark.parametrize("expected", TRACES, ids=lambda expected: expected.file.split(".")[0])
def test_structure(expected: Expected) -> None:
    found = engine.analyse({"path": str(public(expected.file))}, 1_000_000)
    strict = found["runs"]["strict"]
    short = sum(run["units"] * run["runs"] for run in strict if run["units"] < 10)
    assert short / found["read_units"] == pytest.approx(expected.short_runs, abs=5e-4)
    assert found["one_touch"] / found["distinct"] == pytest.approx(expected.one_touch, abs=5e-4)
    jumps = found["successors"]["jumps"]
    assert found["successors"]["to_last"] / jumps == pytest.approx(expected.to_last, abs=5e-4)
    assert found["successors"]["to_any_of_4"] / jumps == pytest.approx(expected.to_any_of_4, abs=5e-4)
    curve = {point["size"]: point["reads"] for point in found["reuse"]["lru"]}
    for percent, ratio in zip((10, 20, 30), expected.lru, strict=True):
        assert curve[found["distinct"] * percent // 100] == pytest.approx(ratio, abs=1e-3)
