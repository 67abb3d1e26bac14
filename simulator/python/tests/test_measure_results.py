"""What is made of measurements: plans and their prices, cells, recommendations, tables."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tombolo_sim import engine
from tombolo_sim.jobs import Choice
from tombolo_sim.measure.clients import Outcome
from tombolo_sim.measure.figures import draw
from tombolo_sim.measure.measuring import cell_of, outliers, quantiles
from tombolo_sim.measure.plan import KIB, MIB, PARALLELISMS, SIZES, Plan, size_name, sizes_of
from tombolo_sim.measure.recommend import advise
from tombolo_sim.measure.table import Cell, cells_of, checked, read, table_of, write
from tombolo_sim.models import CLOUDS, measured
from tombolo_sim.policies import policy
from tombolo_sim.sources import Trace

ORIGIN = {"at": "2026-11-23T18:00:00Z", "store": "s3://b/p", "endpoint": None, "client": "made up"}


def cell(size_bytes: int, parallelism: int, mean_ms: float, deviation: float = 0.0) -> Cell:
    rate = round(size_bytes * parallelism / mean_ms * 1000, 1)
    points = [(0.1, mean_ms / 2), (0.5, mean_ms), (0.99, 2 * mean_ms)]
    return Cell(size_bytes, parallelism, 100, 0, 5, 0, rate, mean_ms, deviation, points)


def grid(latency_ms: dict[int, dict[int, float]]) -> list[Cell]:
    return [cell(size, count, ms) for size, row in latency_ms.items() for count, ms in row.items()]


def test_the_plan_of_the_paper() -> None:
    assert SIZES == (1024, 4096, 16_384, 65_536, 262_144, MIB, 4 * MIB, 16 * MIB)
    plan = Plan()
    plan.check()
    assert plan.left_out() == [(16 * MIB, 32), (16 * MIB, 64)]
    assert replace(plan, in_flight_bytes_max=1 << 30).left_out() == []
    assert plan.runs() == 2 * 5 * (len(SIZES) * len(PARALLELISMS) - 2)
    assert [size_name(size) for size in (KIB, 5000, 4 * MIB)] == ["1 KiB", "5000 B", "4 MiB"]
    assert sizes_of("1KiB, 4 MiB,77", "x") == (1024, 4 * MIB, 77)


def test_an_estimate_counts_requests_bytes_and_prices() -> None:
    plan = Plan(sizes=(MIB,), parallelisms=(1, 2), repeats=3, seconds=1, run_requests_max=10)
    estimate = plan.estimate(CLOUDS["modern"])
    # Two cells of three repeats of ten; 64 objects to read; one that opens connections.
    assert (estimate.puts, estimate.bytes_up) == (60 + 64 + 1, 125 * MIB)
    assert (estimate.gets, estimate.bytes_down) == (60 + 2 * 3, 66 * MIB)
    assert (estimate.seconds, estimate.stored_bytes) == (12.0, (74 + 64) * MIB)
    wanted = (125 + 100 + 4 * 12) * 5e-6 + 66 * 4e-7 + 66 / 1024 * 0.09 + (74 + 64) / 1024 * 0.023 / 720
    assert estimate.dollars == pytest.approx(wanted)
    assert replace(plan, clients=2).estimate(CLOUDS["modern"]).dollars > 1.9 * wanted
    assert plan.estimate(None).dollars == 0


@pytest.mark.parametrize(
    ("values", "places"),
    [
        ([10, 10.1, 9.9, 10.2, 30], {4}),
        ([10, 10.1, 2.0, 10.2, 30], {2, 4}),
        ([10, 10, 10, 10, 10.5], set()),
        ([10, 20, 30, 40, 50], set()),
        ([10, 30], set()),
        ([10], set()),
    ],
)
def test_obvious_outliers(values: list[float], places: set[int]) -> None:
    assert outliers(values) == places


def test_a_cell_leaves_outliers_out_of_means_but_not_out_of_tails() -> None:
    repeats = [Outcome([10.0] * 40, 0.4, 40) for _ in range(4)]
    slow = Outcome([100.0] * 40, 4.0, 40, {"lost": 2})
    found = cell_of(MIB, 1, [*repeats, slow])
    assert found is not None
    assert (found.requests, found.failed, found.repeats, found.dropped) == (200, 2, 5, 1)
    assert (found.mean_ms, found.mean_ms_deviation) == (10.0, 0.0)
    assert found.bytes_per_s == pytest.approx(100 * MIB)
    assert dict(found.latency_ms)[0.5] == 10.0
    assert dict(found.latency_ms)[0.9] == 100.0
    assert cell_of(MIB, 1, [Outcome(failures={"lost": 3})]) is None


def test_quantiles_are_those_that_the_requests_can_tell() -> None:
    values = [float(value) for value in range(1, 1001)]
    Random(1).shuffle(values)
    assert [quantile for quantile, _ in quantiles(values)][-1] == 0.999
    assert dict(quantiles(values))[0.5] == pytest.approx(500.5)
    assert [quantile for quantile, _ in quantiles(values[:10])] == [0.1, 0.25, 0.5, 0.75, 0.9]
    assert quantiles([3.0]) == [(0.5, 3.0)]


# The figures of Hou et al., section V: 4 MiB is the size, parallelism 4, 8 and 16 for 4 MiB, 1 MiB and 64 KiB.
_PAPER = grid(
    {
        64 * KIB: {1: 20, 2: 20, 4: 20, 8: 20.5, 16: 21.5, 32: 30, 64: 60},
        MIB: {1: 33, 2: 33, 4: 34, 8: 36, 16: 50, 32: 100},
        4 * MIB: {1: 100, 2: 101, 4: 108, 8: 190, 16: 380},
        16 * MIB: {1: 400, 2: 800},
    }
)


def test_the_paper_s_procedure_gives_the_paper_s_answers() -> None:
    found = advise(_PAPER)
    assert found.size_bytes == 4 * MIB
    assert {degree.size_bytes: degree.parallelism for degree in found.degrees} == {
        64 * KIB: 16, MIB: 8, 4 * MIB: 4, 16 * MIB: 1,
    }  # fmt: skip
    assert not any(degree.unsure or degree.bounded for degree in found.degrees)
    assert round(found.peak_bytes_per_s / MIB) == 40


@pytest.mark.parametrize("seed", range(100))
def test_made_up_stores_are_seen_through(seed: int) -> None:
    """A store as in the paper's emulator: a fixed time, a bandwidth for each connection and one for all. What is
    recommended follows from these numbers alone."""
    random = Random(seed)
    fixed_ms, alone, together = random.uniform(1, 200), random.uniform(1e6, 1e8), random.uniform(1e6, 1e9)

    def latency_ms(size: int, count: int) -> float:
        return fixed_ms + size / min(alone, together / count) * 1000

    cells = [cell(size, count, latency_ms(size, count)) for size in SIZES for count in PARALLELISMS]
    random.shuffle(cells)
    found = advise(cells)
    peak = max(size / latency_ms(size, 1) for size in SIZES)
    assert found.size_bytes == next(size for size in SIZES if size / latency_ms(size, 1) >= 0.95 * peak), f"seed {seed}"
    for degree in found.degrees:
        # Without noise no larger size bears more than a smaller one, so where each began makes no difference.
        bound = 1.1 * latency_ms(degree.size_bytes, 1)
        most = max(count for count in PARALLELISMS if latency_ms(degree.size_bytes, count) <= bound)
        assert (degree.parallelism, degree.bounded) == (most, most == 64), f"seed {seed}"


def test_between_sizes_the_lower_parallelism_counts() -> None:
    found = advise(_PAPER)
    assert [found.parallelism(size) for size in (KIB, 64 * KIB, 256 * KIB, 2 * MIB, 4 * MIB, 64 * MIB)] == [
        16, 16, 12, 6, 4, 1,
    ]  # fmt: skip
    assert found.parallelism(300 * KIB) == 11


def test_who_is_unsure_takes_the_lower() -> None:
    noisy = [cell(MIB, 1, 10.0), cell(MIB, 2, 10.5, 0.2), cell(MIB, 4, 10.5, 1.0), cell(MIB, 8, 10.5)]
    (degree,) = advise(noisy).degrees
    assert (degree.parallelism, degree.unsure, degree.bounded) == (2, True, False)
    (degree,) = advise(noisy[:2]).degrees
    assert (degree.parallelism, degree.unsure, degree.bounded) == (2, False, True)


def test_smaller_sizes_begin_where_larger_ones_ended() -> None:
    # Parallelism 2 is slow for the small size alone: it is not tried.
    found = advise(grid({KIB: {1: 1, 2: 1.5, 4: 1.05, 8: 2}, MIB: {1: 10, 2: 10, 4: 20}}))
    assert [(degree.size_bytes, degree.parallelism) for degree in found.degrees] == [(KIB, 4), (MIB, 2)]


def test_bandwidth_is_used_by_the_least_parallelism_that_does() -> None:
    cells = grid({MIB: {1: 10, 2: 10, 4: 11, 8: 22, 16: 43}})
    assert advise(cells).saturating == {MIB: 4}
    assert advise(cells).saturating_parallelism(256 * KIB) == 4


# The table


def made_up_table() -> dict[str, Any]:
    return table_of(ORIGIN, 1.5, {"get": _PAPER, "put": grid({KIB: {1: 30}, MIB: {1: 50, 4: 60}})})


def test_a_table_is_read_as_it_was_written(tmp_path: Path) -> None:
    table = made_up_table()
    path = tmp_path / "new" / "table.json"
    write(table, path)
    assert read(path) == table
    assert [asdict(one) for one in cells_of(table, "get")] == json.loads(
        json.dumps([asdict(one) for one in _ordered(_PAPER)])
    )
    assert not list(path.parent.glob("*.partial"))
    pictures = draw(table, tmp_path)
    assert all((tmp_path / name).stat().st_size > 5000 for name in pictures)


def _ordered(cells: list[Cell]) -> list[Cell]:
    return sorted(cells, key=lambda one: (one.size_bytes, one.parallelism))


def test_a_bad_table_is_refused_with_its_field(tmp_path: Path) -> None:
    table = made_up_table()
    table["get"][3]["latency_ms"] = [[0.5, 2.0], [0.4, 3.0]]
    with pytest.raises(engine.EngineError, match=r"^get\[3\]\.latency_ms: quantiles must ascend within 0 to 1"):
        checked(json.dumps(table))
    path = tmp_path / "table.json"
    path.write_text(json.dumps(table | {"version": 7}))
    with pytest.raises(engine.EngineError, match=r"table\.json: version: 7 is not 1$"):
        read(path)
    with pytest.raises(engine.EngineError, match="No such file"):
        read(tmp_path / "nowhere")


def test_a_replay_takes_what_was_measured(tmp_path: Path) -> None:
    path, trace = tmp_path / "table.json", tmp_path / "two.blocks.txt"
    write(made_up_table(), path)
    trace.write_text("0 R 0 1\n2000000 R 8000000 16\n")
    assert measured(path).get_ms()[1] == (0.5, 20.0)
    choice = Choice(Trace("two", trace), policy("lru"), 1000, str(path), arrivals="trace")
    assert choice.job()["disk"]["read_ms"] == "ssd-read"
    report = engine.replay(choice.job())
    assert report["reads"]["complete_misses"] == 2
    # Both are small and alone, so they are drawn from the first cell, whose quantiles go from 10 to 40 ms.
    assert 10 <= report["read_latency"]["min"] <= report["read_latency"]["max"] <= 42
    assert report["cloud"]["gets"] == 2
