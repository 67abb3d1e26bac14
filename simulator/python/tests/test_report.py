"""The report on the Tombolo paper, on a tiny trace; and the judgements that it rests on."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from samples import made_up
from tombolo_sim.cli import EXIT_REFUSED, app
from tombolo_sim.cli.report import windows_of
from tombolo_sim.engine import EngineError
from tombolo_sim.jobs import OptionError
from tombolo_sim.report import printed, standins, tombolo
from tombolo_sim.report.checks.base import Finding, Verdict, by_majority, general
from tombolo_sim.report.checks.measures import GAIN_MIN
from tombolo_sim.report.conditions import CONDITIONS, GATEWAY, PAPER, Condition
from tombolo_sim.report.estimate import estimate, falling, staying
from tombolo_sim.report.options import ReportOptions
from tombolo_sim.report.parameters import DEGREES, GRAPHS, SHIPPED, chosen, cross_validated, grid, loss
from tombolo_sim.report.results import Plan, cache_sizes, interval_us, sizes_of
from tombolo_sim.sources import Selection, Trace, Window, find


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
        [
            "report",
            "tombolo",
            "--traces",
            str(traces),
            "-o",
            str(folder / "out"),
            "--workers",
            "2",
            "--seed",
            "1",
            "--seed",
            "2",
            "--window",
            "made*=100+300",
        ],
        catch_exceptions=False,
    )
    assert result.exit_code == 0, result.output
    return folder / "out"


def test_every_figure_and_table_is_there(folder: Path) -> None:
    page = (folder / "tombolo.md").read_text()
    for figure in ("4", "5", "8", "9-10", "11", "12", "13"):
        assert all(f"### Figure {figure}, {condition.title}\n" in page for condition in CONDITIONS)
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
    checks = [*data["checks"]["paper"], *data["checks"]["gateway"], *data["not_counted"]]
    assert len(data["not_counted"]) == 5
    assert {check["verdict"] for check in checks} <= {str(verdict) for verdict in Verdict} - {str(Verdict.UNDECIDED)}
    assert all(check["reason"] for check in checks)
    other_papers = ("Stout", "GDS-LC", "Hou", "Bocchi")
    assert not any(check["source"].startswith(other_papers) for check in checks), "they have reports of their own"


@pytest.mark.parametrize("condition", CONDITIONS, ids=lambda condition: condition.name)
def test_a_cell_in_which_all_miss_alike_decides_nothing(condition: Condition, folder: Path) -> None:
    data = json.loads((folder / "tombolo.json").read_text())
    misses: dict[str, dict[str, list[float]]] = {}
    for run in data["runs"]:
        if (run["cloud"], run["variant"], run["condition"]) == ("cloudfront-2014", "", condition.name):
            cell = misses.setdefault(f"{run['trace']}, {run['percent']} % of {run['denominator']}", {})
            cell.setdefault(run["algorithm"], []).append(run["report"]["reads"]["miss_ratio"])
    checks = [check for check in data["checks"][condition.name] if check["source"] == "figure 8" and check["findings"]]
    assert checks
    for check in checks:
        for finding in check["findings"]:
            means = [sum(of) / len(of) for of in misses[finding["where"]].values()]
            if max(means) - min(means) < GAIN_MIN:
                assert finding["verdict"] == Verdict.UNDECIDED, finding


def test_no_run_failed_and_all_are_there(folder: Path) -> None:
    data = json.loads((folder / "tombolo.json").read_text())
    assert data["failures"] == []
    # Two seeds and two conditions; 2 denominators, 3 sizes on one cloud and one on the other, 6 policies. Under the
    # paper's: 6 tracks; 7 degrees; one graph of all reads; 2 windows, 2 policies.
    assert len(data["runs"]) == 2 * 2 * 2 * (3 + 1) * 6 + 2 * (6 + 7 + 1 + 2 * 2)


def test_parts_of_traces_and_parameters_are_told(folder: Path) -> None:
    page = (folder / "tombolo.md").read_text()
    assert "| made-up | 100 | 300 |" in page
    assert "| made-up | as shipped | as shipped |" in page, "there is no other trace to choose on"
    assert re.search(r"\| made-up \|.* \(whole: [0-9.]+%\) \|", page)


def test_a_replay_over_berkeley_db_counts_alike(folder: Path) -> None:
    rows = [
        line for line in (folder / "tombolo.md").read_text().splitlines() if line.startswith(("| by the t", "| over B"))
    ]
    alone, over = (row.split("|")[2:7] for row in rows)
    assert alone == over
    assert int(over[1].replace(",", "")) > 0


def test_caches_that_hold_everything_are_not_run(trace: Path) -> None:
    sizes = sizes_of({"distinct": 100, "read_units": 800, "written_units": 0})
    assert sizes == {("footprint", 10): 10, ("footprint", 20): 20, ("footprint", 30): 30, ("traffic", 10): 80}
    plan = Plan(Trace("made-up", trace), sizes, GATEWAY, SHIPPED)
    main, varied = list(plan.main((1, 2))), list(plan.varied((1, 2), {}))
    assert {task.job["cache_blocks"] for _, task in main} == {10, 20, 30, 80}
    assert len(main) == 2 * (4 + 1) * 6
    assert len(varied) == 2 * (6 + 7 + 1)
    assert len({task.key() for _, task in main + varied}) == len(main) + len(varied)


def test_conditions_and_thresholds_reach_the_jobs(trace: Path) -> None:
    sizes = {("footprint", 10): 10}
    warmed = Trace("made-up", trace).within(Window(100, 300))
    for condition, unit in ((PAPER, "object"), (GATEWAY, "range")):
        jobs = {key.algorithm: task.job for key, task in Plan(warmed, sizes, condition, SHIPPED).main((1,))}
        assert {job["fetch_unit"] for job in jobs.values()} == {unit}
        assert {(job["warmup_requests"], job["trace"]["limit"]) for job in jobs.values()} == {(100, 400)}
        assert jobs["lru_amp"]["prefetch_settings"] == jobs["sarc_amp"]["prefetch_settings"] == {"threshold": 2}
        assert jobs["lru_graph"]["prefetch_settings"] == {"amp.threshold": 2}


def test_each_fold_is_judged_with_what_is_best_on_the_other(trace: Path) -> None:
    traces = [Trace(name, trace) for name in "abcd"]
    losses = {(name, prefetch, place): 1.0 for name in "abcd" for prefetch, place, _ in grid()}
    for name in "ac":
        losses[name, "seq", 2] = 0.5
    for name in "bd":
        losses[name, "graph", 3] = 0.5
    found = cross_validated(traces, losses)
    assert [found[name].of("seq") == DEGREES[2] for name in "abcd"] == [False, True, False, True]
    assert [found[name].of("graph") == GRAPHS[3] for name in "abcd"] == [True, False, True, False]
    assert cross_validated(traces[:1], losses)["a"] is SHIPPED


def test_overlapping_intervals_decide_nothing() -> None:
    low, high, wide = estimate([1.0, 1.1, 0.9]), estimate([2.0, 2.1, 1.9]), estimate([0.5, 2.5, 1.5])
    assert low.half_width == pytest.approx(4.303 * 0.1 / 3**0.5)
    assert (falling([high, low]), falling([low, high]), falling([high, wide, low])) == (True, False, None)
    assert (falling([high, wide]), staying([high, wide, low]), staying([low, high])) == (None, True, False)
    assert falling([estimate([2.0]), estimate([1.0])]) is True, "one value says nothing of its error"


def test_stand_ins_are_judged_beside_their_controls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standins, "SCALE", 0.0005)
    traces = tmp_path / "traces"
    traces.mkdir()
    made_up(traces / "made-up.blocks.txt", requests=200)
    page = tombolo.run(ReportOptions(tmp_path / "out", Selection(traces), standins=1)).read_text()
    assert "| claim | where | printed | Corp | Corp, control | Eng | Eng, control |" in page
    assert re.search(r"\| Operational cost with history, Corp.* \| \*\*(holds|does not hold)\*\*: [0-9.]+ to ", page)
    assert "no evidence for an order among policies" in page


@pytest.mark.parametrize("window", ["nas", "nas=5", "nas=5+0", "=1+2", "nas=a+b"])
def test_windows_that_are_none_are_refused(window: str, runner: CliRunner, tmp_path: Path) -> None:
    words = ["report", "tombolo", "--traces", str(tmp_path), "-o", str(tmp_path / "out"), "--window", window]
    result = runner.invoke(app, words)
    assert isinstance(result.exception, OptionError)
    assert str(result.exception).startswith(f"--window {window}: ")


@pytest.mark.parametrize(
    ("window", "refused"),
    [
        ("made*=1000+5", "made-up.blocks.txt: --window 1000+5: the trace has only 400 records"),
        ("made*=398+5", "made-up.blocks.txt: --window 398+5: the trace has only 400 records"),
        ("made*=200+200", "made-up.blocks.txt: --window 200+200: 0 reads would count; at least 100 must"),
        ("made*=0+99", "made-up.blocks.txt: --window 0+99: 99 reads would count; at least 100 must"),
        ("nas*=1+1", "--window nas*=1+1: none of the files matches"),
    ],
)
def test_windows_of_which_too_little_counts_are_refused(window: str, refused: str, tmp_path: Path) -> None:
    lines = [f"{at} {'R' if at < 200 else 'W'} {at * 8} 8\n" for at in range(400)]
    (tmp_path / "made-up.blocks.txt").write_text("".join(lines))
    with pytest.raises(EngineError) as caught:
        tombolo.analyse_all(ReportOptions(tmp_path / "out", Selection(tmp_path, windows=windows_of([window]))))
    assert str(caught.value).removeprefix(f"{tmp_path}/") == refused


def test_a_part_that_asks_nothing_of_the_cloud_decides_nothing() -> None:
    free = {"reads": {"miss_ratio": 0.0}, "dollars": dict.fromkeys(("get", "put", "egress"), 0.0)}
    losses = {("a", prefetch, place): loss(free) for prefetch, place, _ in grid()}
    assert chosen(["a"], losses).of("seq") == DEGREES[0]


@pytest.mark.parametrize("report", ["tombolo", "defaults", "gds-lc", "stout", "hou"])
def test_seeds_that_are_none_or_come_again_are_refused(report: str, runner: CliRunner, tmp_path: Path) -> None:
    words = ["report", report, "-o", str(tmp_path / "out")]
    result = runner.invoke(app, [*words, "--seed", "-1"])
    assert result.exit_code == EXIT_REFUSED
    assert "greater than or equal to 0" in result.output
    result = runner.invoke(app, [*words, "--seed", "1", "--seed", "2", "--seed", "1"])
    assert isinstance(result.exception, OptionError)
    assert str(result.exception).startswith("--seed 1: it is given twice")
    assert not (tmp_path / "out").exists()


def test_where_all_replays_failed_nothing_is_judged(tmp_path: Path) -> None:
    made_up(tmp_path / "made-up.blocks.txt", requests=100)
    options = ReportOptions(tmp_path / "out", Selection(tmp_path), seeds=(-1,), workers=1)
    with pytest.raises(EngineError, match=r"^all [0-9]+ replays failed; the first: made-up .* seed -1: "):
        tombolo.run(options)
    assert not (tmp_path / "out" / "tombolo.md").exists()


@pytest.mark.parametrize(
    ("report", "given", "refused"),
    [
        ("hou", ["--traces", "."], "--traces"),
        ("stout", ["--traces", ".", "--window", "*=1+1"], "--traces, --window"),
        ("stout", ["--window", "*=1+1"], "--window"),
        ("hou", ["--stand-ins", "1"], "--stand-ins"),
        ("gds-lc", ["--dask", "tcp://nowhere:1"], "--dask"),
        ("gds-lc", ["--traces", ".", "--window", "*=1+1"], "--window"),
        ("gds-lc", ["--traces", ".", "--format", "*=ids", "--time-order", "sort"], "--format, --time-order"),
        ("gds-lc", ["--limit", "5", "--only", "*", "--skip", "*"], "--only, --skip, --limit"),
        ("gds-lc", ["--stand-ins", "1"], "--stand-ins"),
        ("defaults", ["--traces", ".", "--stand-ins", "1"], "--stand-ins"),
    ],
)
def test_options_that_a_report_would_ignore_are_refused(
    report: str, given: list[str], refused: str, runner: CliRunner, tmp_path: Path
) -> None:
    result = runner.invoke(app, ["report", report, "-o", str(tmp_path / "out"), *given])
    assert isinstance(result.exception, OptionError)
    assert str(result.exception).startswith(f"{refused}: ")
    assert not (tmp_path / "out").exists()


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
