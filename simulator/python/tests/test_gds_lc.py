"""The report on the GDS-LC paper: a tiny run from end to end, and the rules by which claims are judged."""

import json
from pathlib import Path
from typing import Any

import pytest

from tombolo_sim.gds_lc import report, runs
from tombolo_sim.gds_lc.checks import all_checks, below
from tombolo_sim.gds_lc.conditions import CONDITIONS, PAPER, STEADY
from tombolo_sim.gds_lc.figures import MIDDLE
from tombolo_sim.gds_lc.readings import READINGS
from tombolo_sim.gds_lc.runs import Point, Results, points
from tombolo_sim.gds_lc.scenarios import CACHE_SHARES, SCENARIOS, Workload, scenarios, workloads
from tombolo_sim.report.checks.base import Check, Verdict
from tombolo_sim.report.estimate import Estimate
from tombolo_sim.report.options import ReportOptions
from tombolo_sim.sources import Selection

MEDIA = next(workload for workload in workloads(None, STEADY) if workload.name == "media")


def fake(hit_ratio: float, milliseconds: float, dollars: float) -> dict[str, Any]:
    """A report with equal uploads and fees, so that only these three differ."""
    count = {"objects": 10, "bytes": 10}
    return {
        "object_bytes": 1e9,
        "hit_ratio": hit_ratio,
        "latency_ms": {"mean": milliseconds},
        "dollars": {"total": dollars, "get": dollars, "put": 0.0, "egress": 0.0},
        "uploads": {"on_demand": count, "background": count, "through": count},
        "downloads": count,
        "downloads_by_size": [{"kib_max": 20, "objects": 6}, {"kib_max": None, "objects": 4}],
    }


def judged(*reports: dict[str, dict[str, Any]]) -> dict[str, Check]:
    """All claims about one workload whose reports depend on the policy and the seed alone."""
    wanted = points([scenario.name for scenario in SCENARIOS], [MEDIA], CACHE_SHARES, MIDDLE)
    results = Results({at: [of.get(at.policy, fake(0.5, 20, 2)) for of in reports] for at in wanted})
    return {check.claim: check for check in all_checks(results, [MEDIA])}


def test_orders_are_judged_by_the_numbers() -> None:
    claims = judged({"lru": fake(0.3, 30, 3), "gds-lcf": fake(0.6, 10, 1)})
    assert claims["Local cloud: LRU has the highest latency"].verdict is Verdict.HOLDS
    assert claims["Local cloud: GDS-LCF has the lowest bill or one within 1 % of it"].verdict is Verdict.HOLDS
    claims = judged({"lru": fake(0.3, 19.9, 3), "gds-lcf": fake(0.6, 20.3, 2.01)})
    assert claims["Local cloud: LRU has the highest latency"].verdict is Verdict.FAILS
    assert claims["Local cloud: GDS-LCF has the lowest latency or one within 1 % of it"].verdict is Verdict.FAILS
    assert claims["Local cloud: GDS-LCF has the lowest bill or one within 1 % of it"].verdict is Verdict.HOLDS


def test_differences_within_the_error_decide_nothing() -> None:
    assert below(Estimate(-0.003)) is True
    assert below(Estimate(-0.001)) is None
    assert below(Estimate(0.03, 0.04)) is None
    assert below(Estimate(0.05, 0.04)) is False
    assert below(Estimate(-0.08), -0.1) is False
    claim = "Local cloud: LRU has the highest latency"
    slow, fast = ({"lru": fake(0.3, milliseconds, 3)} for milliseconds in (30, 10))
    assert judged(slow, slow, slow)[claim].verdict is Verdict.HOLDS
    assert judged(slow, slow, fast)[claim].verdict is Verdict.UNTESTABLE


def test_a_network_that_all_policies_share_is_no_error() -> None:
    everything = (*runs.BASIC, runs.BASELINE)
    seeds = [
        {policy: fake(0.5, (30 if policy == "lru" else 29) * slower, 2) for policy in everything}
        for slower in (1, 2, 3)
    ]
    assert judged(*seeds)["Local cloud: LRU has the highest latency"].verdict is Verdict.HOLDS


def test_where_policies_do_not_differ_none_is_the_best() -> None:
    claim = "Local cloud: GDS-LCF has the lowest latency or one within 1 % of it"
    assert judged({})[claim].verdict is Verdict.UNTESTABLE


def test_a_tiny_workload_decides_nothing() -> None:
    check = judged({"lru": fake(0.3, 30, 3) | {"object_bytes": 1e6}})["Local cloud: LRU has the highest latency"]
    assert check.verdict is Verdict.UNTESTABLE
    assert {finding.verdict for finding in check.findings} == {Verdict.UNDECIDED}


def test_latencies_vary_by_the_deviation_of_runs_from_their_mean() -> None:
    claim = "Latencies vary by 5 to 10 % from run to run"
    everything = (*runs.BASIC, runs.BASELINE)
    for slower, verdict in ((1.15, Verdict.HOLDS), (1.02, Verdict.FAILS), (1.3, Verdict.FAILS)):
        seeds = [{policy: fake(0.5, milliseconds, 2) for policy in everything} for milliseconds in (20, 20 * slower)]
        check = judged(*seeds)[claim]
        assert check.verdict is Verdict.UNTESTABLE, "it is an input"
        assert {finding.verdict for finding in check.findings} == {verdict}
    assert {finding.verdict for finding in judged({})[claim].findings} == {Verdict.UNDECIDED}, "one run does not vary"
    claim = "The policy that hits less varies more: LRU's latency, in ms, more than GDS-LCF's"
    for part, verdict in ((0.1, Verdict.HOLDS), (0.001, Verdict.UNTESTABLE)):
        seeds = [
            {policy: fake(0.5, (30 if policy == "lru" else 20) * slower, 2) for policy in everything}
            for slower in (1, 1 + part)
        ]
        assert judged(*seeds)[claim].verdict is verdict


def test_conditions_reach_the_jobs() -> None:
    for condition in CONDITIONS:
        netfs = next(workload for workload in workloads(None, condition) if workload.name == "netfs")
        assert ("metadata_puts" in netfs.specification["netfs"]) == (condition is PAPER)
        for scenario in scenarios(condition):
            job = runs.job_of(runs.point(scenario.name, "netfs", "lru", 0.1), scenario, netfs, 1)
            assert all(("drift" in location) == (condition is PAPER) for location in job["locations"])


def test_close_is_five_per_cent() -> None:
    for milliseconds, verdict in ((20.9, Verdict.HOLDS), (21.1, Verdict.FAILS)):
        claims = judged({"gds-lc": fake(0.5, milliseconds, 2)})
        assert claims["Local cloud, reads: GDS-LC's latency is close to GDS(latency)'s"].verdict is verdict


def test_what_no_workload_stands_for_cannot_be_tested() -> None:
    claims = judged({})
    netfs = [check for claim, check in claims.items() if claim.startswith("Netfs")]
    assert netfs and all(check.verdict is Verdict.UNTESTABLE for check in netfs)


def test_policies_that_normalise_do_so_by_ten_round_trips() -> None:
    local = SCENARIOS[0]
    for policy, expected in (("lru", None), ("gds-latency", None), ("gds-lc", {"round-trips": 10})):
        job = runs.job_of(runs.point("local", "media", policy, 0.1), local, MEDIA, 1)
        assert job.get("normalisation") == expected
    unnormalised = Point("local", "media", "gds-lc", 0.1, None)
    assert runs.job_of(unnormalised, local, MEDIA, 1)["normalisation"] == "none"


def test_traces_that_are_not_there_or_not_wanted_are_left_out(tmp_path: Path) -> None:
    def names(*skip: str) -> list[str]:
        return [workload.name for workload in workloads(Selection(tmp_path, skip=skip), STEADY)]

    assert names() == ["netfs", "media"]
    (tmp_path / "caffeine_adaptsize_request.trace.xz").touch()
    assert names() == ["web-adaptsize", "netfs", "media"]
    assert names("caffeine*") == ["netfs", "media"]


def tiny(folder: Path) -> ReportOptions:
    return ReportOptions(folder, Selection(folder, limit=400), seeds=(1, 2), workers=1)


def test_a_tiny_run_gives_a_whole_report(tmp_path: Path) -> None:
    page = report.run(tiny(tmp_path))
    results = {path: path.stat().st_mtime_ns for path in (tmp_path / "jobs").iterdir()}
    text = page.read_text()
    again = report.run(tiny(tmp_path)).read_text()
    assert again == text
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "jobs").iterdir()} == results, "none was done again"
    data = json.loads((tmp_path / "gds_lc.json").read_text())
    for number in (6, 8, 9, 10, 11, 15, 16, 17, 18, 19, 20, 21):
        for ending in ("png", "svg"):
            for condition in CONDITIONS:
                assert (tmp_path / "figures" / condition.name / f"figure-{number:02}.{ending}").stat().st_size > 1000
    for condition in CONDITIONS:
        checks = data["checks"][condition.name]
        assert {check["verdict"] for check in checks} <= set(Verdict)
        assert all(check["claim"] in text for check in checks)
        assert f"figures/{condition.name}/figure-06.png" in text and condition.title in text
    assert "33 to 26 ms" in text
    for run in (run for of in data["runs"].values() for run in of):
        assert len(run["reports"]) == 2
        for found in run["reports"]:
            for counts in (found["gets"], found["puts"]):
                assert counts["hits"] + counts["misses"] == counts["requests"]
            items = sum(found["dollars"][item] for item in ("get", "put", "egress", "storage"))
            assert found["dollars"]["total"] == pytest.approx(items)


def test_a_limit_shortens_every_workload(tmp_path: Path) -> None:
    (tmp_path / "caffeine_cache2k_web07.trace.xz").touch()
    keyed, netfs, media = (report.limited(workload, 7) for workload in workloads(Selection(tmp_path), PAPER))

    def settings(workload: Workload) -> dict[str, Any]:
        return next(iter(workload.specification.values()))

    assert settings(keyed)["requests_max"] == 7
    assert settings(netfs)["requests"] == settings(media)["requests"] == 7


def test_a_reading_is_given_only_where_a_claim_fails() -> None:
    claim = "Internet cloud: LRU has the highest bill"
    assert "reading" in judged({"gds-latency": fake(0.5, 20, 9)})[claim].reason
    assert "reading" not in judged({"lru": fake(0.5, 20, 9)})[claim].reason


def test_every_reading_belongs_to_a_claim() -> None:
    claims = judged({})
    assert all(any(part in claim for claim in claims) for part in READINGS)
