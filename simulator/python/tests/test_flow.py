"""The reports on Stout and on Hou: the rules by which claims are judged, and the engine's part of them."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tombolo_sim import _engine, sweep
from tombolo_sim._engine import EngineError
from tombolo_sim.hou import checks as hou_checks
from tombolo_sim.hou import report as hou_report
from tombolo_sim.hou import runs as hou_runs
from tombolo_sim.hou import scenarios as hou_scenarios
from tombolo_sim.hou.readings import READINGS as HOU_READINGS
from tombolo_sim.report.checks.base import Check, Verdict
from tombolo_sim.report.options import ReportOptions
from tombolo_sim.stout import checks as stout_checks
from tombolo_sim.stout import report as stout_report
from tombolo_sim.stout import runs as stout_runs
from tombolo_sim.stout import scenarios as stout_scenarios
from tombolo_sim.stout.readings import READINGS as STOUT_READINGS

Json = dict[str, Any]
SEEDS = (1, 2)


def window(**changes: object) -> Json:
    """Of a store that keeps up; nothing waits."""
    plain: Json = {
        "offered_per_s": 100.0,
        "done_per_s": 100.0,
        "mib_per_s": 1.0,
        "requests_per_s": 50.0,
        "slow_downs": 0,
        "latency_ms": {"mean": 5.0},
        "request_ms": {"4096": {"mean": 5.0}},
        "backlog": [1, 1],
        "interval_ms": 1.0,
        "intervals_ms": [1.0],
        "limit": 8.0,
        "latency_fairness": 1.0,
    }
    return plain | changes


def judged_stout(change: Callable[[str, int], Json]) -> dict[str, Check]:
    """All claims, where `change` says in what a run's window differs."""
    reports = {}
    for task in stout_runs.tasks(SEEDS):
        windows = [window(**change(task.label, number)) for number in range(len(task.job["windows_s"]))]
        series = [{"at_s": float(at), "interval_ms": 2.0} for at in range(240)]
        reports[task.label] = {"windows": windows, "series": series}
    return {check.claim: check for check in stout_checks.all_checks(stout_runs.Results(reports, SEEDS))}


def verdict(claims: dict[str, Check], part: str) -> Verdict:
    (found,) = [check.verdict for claim, check in claims.items() if part in claim]
    return found


def test_light_load_asks_for_the_printed_factor_of_every_seed() -> None:
    def slow(milliseconds: float) -> Callable[[str, int], Json]:
        return lambda name, _: {"latency_ms": {"mean": milliseconds if name.startswith("fixed 160") else 5.0}}

    assert verdict(judged_stout(slow(171)), "Light load") is Verdict.HOLDS
    assert verdict(judged_stout(slow(169)), "Light load") is Verdict.FAILS

    def one_seed(name: str, _: int) -> Json:
        return slow(160 if name.endswith("seed 2") else 180)(name, 0)

    assert verdict(judged_stout(one_seed), "Light load") is Verdict.FAILS


def test_a_load_counts_only_with_all_below_it() -> None:
    def lost(*queueing: str) -> Callable[[str, int], Json]:
        return lambda name, _: {"done_per_s": 90.0} if any(word in name for word in queueing) else {}

    assert verdict(judged_stout(lost("fixed 20 ms at 15000", "fixed 20 ms at 18000")), "Heavy load") is Verdict.HOLDS
    assert verdict(judged_stout(lost("fixed 20 ms at 15000", "Stout at 18000")), "Heavy load") is Verdict.FAILS
    assert verdict(judged_stout(lost()), "Heavy load") is Verdict.FAILS, "both carry all"


def test_fairness_and_queues_are_judged_by_the_worst_seed() -> None:
    def unfair(index: float) -> Callable[[str, int], Json]:
        return lambda name, _: {"latency_fairness": index} if name == "apart at 24000, seed 2" else {}

    assert verdict(judged_stout(unfair(0.951)), "32 gateways set") is Verdict.HOLDS
    assert verdict(judged_stout(unfair(0.949)), "32 gateways set") is Verdict.FAILS

    def growing(operations: int) -> Callable[[str, int], Json]:
        return lambda name, _: {"backlog": [0, operations]} if name.startswith("bytes of a request") else {}

    assert verdict(judged_stout(growing(8_000)), "lets the interval settle") is Verdict.HOLDS
    assert verdict(judged_stout(growing(9_001)), "lets the interval settle") is Verdict.FAILS, "a second at 18,000"


def test_recovery_is_measured_from_the_pause_to_twice_the_interval_before() -> None:
    series = [{"at_s": 60.0 + at, "interval_ms": 300.0 if 3 <= at < 33 else 2.0} for at in range(1, 100)]
    series.insert(0, {"at_s": 0.0, "interval_ms": 400.0})
    reports = {f"paused, seed {seed}": {"windows": [window(), window()], "series": series} for seed in SEEDS}
    found = stout_runs.Results(reports, SEEDS)
    assert found.recoveries_s() == [33.0, 33.0]
    assert found.highest_intervals_ms() == [300.0, 300.0]
    for report in reports.values():
        report["series"] = series[:20]
    assert found.recoveries_s() == [float("inf")] * 2


def judged_hou(limited: Callable[[str], Json], latencies: dict[str, float] | None = None) -> dict[str, Check]:
    reports: dict[str, Json] = {}
    for task in hou_runs.tasks(SEEDS):
        if task.kind == "load":
            reports[task.label] = {"windows": [window(**limited(task.label)) for _ in task.job["windows_s"]]}
            continue
        mean = next((ms for part, ms in (latencies or {}).items() if part in task.label), 50.0)
        accesses = {"hits": 90, "latency_ms": {"mean": mean, "count": 100}}
        reports[task.label] = {"reads": accesses, "writes": accesses}
    return {check.claim: check for check in hou_checks.all_checks(hou_runs.Results(reports, SEEDS))}


def test_limits_are_held_against_the_best_fixed_one() -> None:
    def rate(adaptive: float) -> Callable[[str], Json]:
        def limited(name: str) -> Json:
            if name.startswith("adaptive"):
                return {"requests_per_s": adaptive}
            return {"requests_per_s": 100.0 if name.startswith("fixed 12,") else 40.0}

        return limited

    part = "product's controller: at least 85%"
    assert verdict(judged_hou(rate(86)), part) is Verdict.HOLDS
    assert verdict(judged_hou(rate(84)), part) is Verdict.FAILS

    def slow(milliseconds: float) -> Callable[[str], Json]:
        return lambda name: {
            "request_ms": {
                "4096": {"mean": 1.0},
                "65536": {"mean": milliseconds if name.startswith("adaptive") else 100.0},
            }
        }

    part = "product's controller: latency"
    assert verdict(judged_hou(slow(149)), part) is Verdict.HOLDS
    assert verdict(judged_hou(slow(151)), part) is Verdict.FAILS


def test_gains_of_prefetch_are_parts_of_the_latency_without() -> None:
    claims = judged_hou(lambda _: {}, {"prefetched 64 KB": 15.0, "prefetched 1 MB": 25.0, "prefetched 4 MB": 50.0})
    assert verdict(claims, "less off read latency the larger") is Verdict.HOLDS
    assert verdict(claims, "half of the printed part or more off reads") is Verdict.HOLDS
    assert verdict(claims, "At 4 MB prefetch makes writes no faster") is Verdict.HOLDS
    claims = judged_hou(lambda _: {}, {"prefetched 64 KB": 25.0, "prefetched 1 MB": 15.0, "prefetched 4 MB": 40.0})
    assert verdict(claims, "less off read latency the larger") is Verdict.FAILS
    assert verdict(claims, "At 4 MB prefetch makes writes no faster") is Verdict.FAILS


@pytest.mark.parametrize("report", [stout_report, hou_report])
def test_a_page_is_written_with_command_and_counts(report: Any, monkeypatch: Any, tmp_path: Any) -> None:  # noqa: ANN401
    def execute(tasks: list[sweep.Task], *_: object) -> list[sweep.Outcome]:
        accesses = {"hits": 90, "latency_ms": {"mean": 5.0, "count": 100}}
        outcomes = []
        for task in tasks:
            series = [{"at_s": float(at), "interval_ms": 2.0} for at in range(240)]
            found = {"windows": [window() for _ in task.job.get("windows_s", [])], "series": series}
            of_chunks = {"reads": accesses, "writes": accesses}
            outcomes.append(sweep.Outcome(task, found if task.kind == "load" else of_chunks, None))
        return outcomes

    for module in (stout_runs, hou_runs):
        monkeypatch.setattr(module, "execute", execute)
    page = report.run(ReportOptions(tmp_path, seeds=SEEDS)).read_text()
    assert f"tombolo-sim report {report.NAME} -o DIR --seed 1 --seed 2" in page
    assert " claims: " in page and " does not hold, " in page
    assert len(json.loads((tmp_path / f"{report.NAME}.json").read_text())["checks"]) > 10


def test_the_engine_takes_every_job() -> None:
    """Each for a moment only: whether fields and values are the engine's."""
    kinds = {}
    for task in [*stout_runs.tasks((1,)), *hou_runs.tasks((1,))]:
        if task.kind == "load":
            short = task.job | {"windows_s": [(0.0, 0.05)]}
        else:
            short = task.job | {"files": task.job["files"] | {"requests": 3}}
        kinds[task.kind] = sweep.KINDS[task.kind](short)
    assert kinds["load"]["windows"] and kinds["chunks"]["reads"]["latency_ms"]["count"] >= 0


def test_stout_and_a_limit_are_driven() -> None:
    job = stout_scenarios.job(12_000, stout_scenarios.SENDERS["Stout"], [(5.0, 10.0)], 1)
    assert json.loads(_engine.load(json.dumps(job)))["windows"][0]["interval_ms"] < 79
    limited = hou_scenarios.limit_job(hou_scenarios.STORES["8 servers"], "4 KiB", {"adaptive": 64}, 1)
    found = json.loads(_engine.load(json.dumps(limited | {"windows_s": [(20.0, 40.0)]})))["windows"][0]
    assert 6 < found["limit"] < 12 and found["requests_per_s"] > 270


def test_what_the_engine_refuses_is_named() -> None:
    job = stout_scenarios.job(100, "none", [(5.0, 5.0)], 1)
    with pytest.raises(EngineError, match="windows_s is 5"):
        _engine.load(json.dumps(job))
    chunks = hou_scenarios.chunk_job("64 KB", 0, 1) | {"chunk_bytes": 5}
    with pytest.raises(EngineError, match="chunk_bytes is 5"):
        _engine.chunks(json.dumps(chunks))


def test_every_reading_is_of_a_claim() -> None:
    for claims, readings in ((judged_stout(lambda *_: {}), STOUT_READINGS), (judged_hou(lambda _: {}), HOU_READINGS)):
        assert [part for part in readings if not any(part in claim for claim in claims)] == []
