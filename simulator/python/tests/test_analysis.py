"""The structure of public traces against figures found by an independent program (4 KiB units)."""

from dataclasses import dataclass
from pathlib import Path

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


@pytest.mark.parametrize("window", [2, 64])
def test_shuffling_keeps_all_but_the_order_of_jumps(trace: Path, tmp_path: Path, window: int) -> None:
    target = tmp_path / "shuffled.tbtr"
    job = {"trace": {"path": str(trace)}, "target": str(target), "window": window, "seed": 1}
    assert engine.shuffle(job) == 3000
    before, after = (engine.analyse({"path": str(path)}, 1_000_000) for path in (trace, target))
    same = ("reads", "writes", "read_units", "written_units", "distinct", "distinct_read", "one_touch", "span_us",
            "distinct_contents")  # fmt: skip
    assert {name: after[name] for name in same} == {name: before[name] for name in same}
    # The first read of a stream continues nothing, so it is a jump and may have moved.
    assert after["runs"]["streams_longest"] == pytest.approx(before["runs"]["streams_longest"], abs=8)
    # Most jumps of the trace go where the last one from there went.
    assert before["successors"]["to_last"] > 0.3 * before["successors"]["jumps"]
    if window > 2:
        assert after["successors"]["to_last"] < before["successors"]["to_last"] / 5


def test_a_window_of_one_is_refused(trace: Path, tmp_path: Path) -> None:
    job = {"trace": {"path": str(trace)}, "target": str(tmp_path / "t"), "window": 1, "seed": 1}
    with pytest.raises(engine.EngineError, match=r"^window: it must be 2 to 1048576$"):
        engine.shuffle(job)
    assert not list(tmp_path.iterdir())
