"""The report on the Tombolo paper, on a tiny trace; and the judgements that it rests on."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from samples import made_up
from tombolo_sim.cli import app
from tombolo_sim.engine import EngineError
from tombolo_sim.report import printed, tombolo
from tombolo_sim.report.checks.base import Finding, Verdict, by_majority, general
from tombolo_sim.report.checks.measures import GAIN_MIN
from tombolo_sim.report.options import ReportOptions
from tombolo_sim.report.results import cache_sizes, interval_us, plan
from tombolo_sim.sources import Selection, Trace, find


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    traces = folder / "traces"
    traces.mkdir()
    made_up(traces / "made-up.blocks.txt", requests=400)
    (traces / "README.md").write_text("Not a trace.\n")
    (traces / "objects.txt").write_text("0 1 100\n1 2 300\n")
    result = CliRunner().invoke(
        app,
        ["report", "tombolo", "--traces", str(traces), "-o", str(folder / "out"), "--workers", "2"],
        catch_exceptions=False,
    )
    assert result.exit_code == 0, result.output
    return folder / "out"


def test_every_figure_and_table_is_there(folder: Path) -> None:
    page = (folder / "tombolo.md").read_text()
    for figure in ("4", "5", "8", "9-10", "11", "12", "13"):
        assert f"### Figure {figure}\n" in page
    for table in ("1", "3", "4", "5", "6", "7"):
        assert f"### Table {table}: " in page
    for line in page.splitlines():
        if line.startswith("!["):
            png = folder / line.partition("(")[2].rstrip(")")
            assert png.stat().st_size > 5000
            assert png.with_suffix(".svg").exists()
    assert "README.md: file: the format cannot be told from contents or name; say which it is" in page
    assert "objects.txt: it names objects, which have no neighbours" in page


def test_printed_numbers_stand_beside(folder: Path) -> None:
    page = (folder / "tombolo.md").read_text()
    assert "| Corp, 90 GB (printed) | 935/1585/2196 | 834/1475/2165 | 745/1335/2115 |" in page
    assert "| Corp (printed) | 0.841 | 0.096 | 0.937 |" in page


def test_every_claim_has_a_verdict_and_a_reason(folder: Path) -> None:
    data = json.loads((folder / "tombolo.json").read_text())
    checks = data["checks"] + data["not_counted"]
    assert len(data["not_counted"]) == 4
    assert {check["verdict"] for check in checks} <= {str(verdict) for verdict in Verdict} - {str(Verdict.UNDECIDED)}
    assert all(check["reason"] for check in checks)
    other_papers = ("Stout", "GDS-LC", "Hou", "Bocchi")
    assert not any(check["source"].startswith(other_papers) for check in checks), "they have reports of their own"


def test_a_cell_in_which_all_miss_alike_decides_nothing(folder: Path) -> None:
    data = json.loads((folder / "tombolo.json").read_text())
    misses: dict[str, list[float]] = {}
    for run in data["runs"]:
        if run["cloud"] == "cloudfront-2014" and not run["variant"]:
            cell = f"{run['trace']}, {run['percent']} % of {run['denominator']}"
            misses.setdefault(cell, []).append(run["report"]["reads"]["miss_ratio"])
    checks = [check for check in data["checks"] if check["source"] == "figure 8" and check["findings"]]
    assert checks
    for check in checks:
        for finding in check["findings"]:
            found = misses[finding["where"]]
            is_undecided = finding["verdict"] == Verdict.UNDECIDED
            assert is_undecided == (max(found) - min(found) < GAIN_MIN), finding


def test_no_run_failed_and_all_are_there(folder: Path) -> None:
    data = json.loads((folder / "tombolo.json").read_text())
    assert data["failures"] == []
    # 2 denominators, 3 sizes, 3 clouds, 6 policies; 6 tracks; one graph of all reads; 2 windows, 2 policies.
    assert len(data["runs"]) == 2 * 3 * 3 * 6 + 6 + 1 + 2 * 2


def test_caches_that_hold_everything_are_not_run(trace: Path) -> None:
    analysis = {"distinct": 100, "read_units": 800, "written_units": 0}
    runs = list(plan(Trace("made-up", trace), analysis, (1, 2), {}))
    assert {(key.denominator, key.percent) for key, _ in runs} == {
        ("footprint", 10), ("footprint", 20), ("footprint", 30), ("traffic", 10),
    }  # fmt: skip
    assert {task.job["cache_blocks"] for _, task in runs} == {10, 20, 30, 80}
    assert len(runs) == 2 * (4 * 3 * 6 + 6 + 1)
    assert len({task.key() for _, task in runs}) == len(runs)


def test_a_folder_without_traces_is_told(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("Not a trace.\n")
    with pytest.raises(EngineError, match="none of its files can be replayed"):
        tombolo.run(ReportOptions(tmp_path / "out", Selection(tmp_path)))
    with pytest.raises(EngineError, match="no such folder"):
        tombolo.run(ReportOptions(tmp_path / "out", Selection(tmp_path / "nowhere")))
    with pytest.raises(EngineError, match="--traces DIR"):
        tombolo.run(ReportOptions(tmp_path / "out"))


def test_a_claim_holds_only_where_it_holds_everywhere() -> None:
    verdicts = (Verdict.HOLDS, Verdict.FAILS, Verdict.UNTESTABLE)
    holds, fails, unknown = (Finding("t", verdict, "") for verdict in verdicts)
    assert general("c", "s", "p", [holds, holds, unknown]).verdict is Verdict.HOLDS
    mixed = general("c", "s", "p", [holds, fails])
    assert (mixed.verdict, mixed.reason) == (Verdict.FAILS, "on 1 of 2")
    assert general("c", "s", "p", [unknown]).verdict is Verdict.UNTESTABLE


def test_most_cells_that_decide_are_enough() -> None:
    holds, fails, alike = (
        [Finding("t", verdict, "", trace) for trace in "ab"]
        for verdict in (Verdict.HOLDS, Verdict.FAILS, Verdict.UNDECIDED)
    )
    most = by_majority("c", "s", "p", [*holds, holds[0], *fails, *alike])
    assert most.verdict is Verdict.HOLDS
    assert most.reason == "in 3 of 5 cells, most of them on 1 of 2 traces; 2 decide nothing"
    assert by_majority("c", "s", "p", [*holds, *fails]).verdict is Verdict.FAILS, "half is not most"
    assert by_majority("c", "s", "p", alike).verdict is Verdict.UNTESTABLE


def test_storage_costs_are_what_the_papers_formulas_give() -> None:
    costs = {
        name: printed.storage_usd_per_gb(unit_price=printed.UNIT_PRICE_OF_TOTAL, **model)
        for name, model in printed.STORAGE_MODEL.items()
    }
    assert costs == {"Corp": pytest.approx(0.8485, abs=1e-4), "Eng": pytest.approx(1.0171, abs=1e-4)}


def test_sizes_are_of_the_footprint_and_of_the_traffic() -> None:
    sizes = cache_sizes({"distinct": 1000, "read_units": 3000, "written_units": 2000})
    assert [sizes["footprint", percent] for percent in (10, 20, 30)] == [100, 200, 300]
    assert [sizes["traffic", percent] for percent in (10, 20, 30)] == [500, 1000, 1500]


def test_intervals_are_days_of_long_traces_and_fortieths_of_short_ones() -> None:
    day = 86_400_000_000
    assert interval_us(40 * day) == day
    assert interval_us(40_000_000 - 1) == 1_000_000
    assert interval_us(0) == 1


def test_of_one_trace_in_several_formats_the_best_is_taken(tmp_path: Path) -> None:
    for name in ("io.oracleGeneral.bin.zst", "io.csv.zst", "io.vscsi.zst", "other.txt", "skipped.txt"):
        (tmp_path / name).touch()
    found = find(Selection(tmp_path, {"other*": "ids"}, skip=("skip*",), limit=5))
    assert [(trace.path.name, trace.format, trace.limit) for trace in found] == [
        ("io.vscsi.zst", "auto", 5),
        ("other.txt", "ids", 5),
    ]
