"""The rule by which the gateway's default policies are chosen, and its report on a tiny trace."""

import json
from pathlib import Path

import pytest

from samples import made_up
from tombolo_sim.report import defaults
from tombolo_sim.report.defaults import BASELINE, CANDIDATES, Cell, Outcome, best, left_out, scores
from tombolo_sim.report.options import ReportOptions
from tombolo_sim.sources import Selection

TODAY = "lru+graph"
CELLS = [Cell("a", 10), Cell("b", 10), Cell("c", 10)]


def outcomes(**better: tuple[float, float]) -> dict[tuple[str, Cell], Outcome]:
    """Latency and dollars in relation to the baseline, by `replacement_prefetch`; 0.5 and 2 where none are given."""

    def of(latency: float, usd: float) -> Outcome:
        return Outcome(0.5, 10 * latency, 1, 20 * latency, 30, 5 * usd)

    given = {name.replace("_", "+"): values for name, values in better.items()}
    found = {(name, cell): of(*given.get(name, (0.5, 2.0))) for name in CANDIDATES for cell in CELLS}
    return found | {(BASELINE, cell): of(1.0, 1.0) for cell in CELLS}


def choice(found: dict[tuple[str, Cell], Outcome]) -> str | None:
    return best(scores(found, CELLS), TODAY)


def test_the_fastest_of_equal_bills_is_chosen() -> None:
    assert choice(outcomes(arc_graph=(0.4, 2.0), sarc_graph=(0.3, 2.2))) == "arc+graph", "2.2 is above 1.05 times 2"
    assert choice(outcomes(arc_graph=(0.4, 2.09), lirs_amp=(0.404, 1.0))) == "lirs+amp", "as fast, and half the bill"


def test_one_bad_cell_rules_a_pair_out() -> None:
    found = outcomes(arc_graph=(0.2, 1.0), sarc_amp=(0.45, 1.9))
    found["arc+graph", CELLS[1]] = found[BASELINE, CELLS[1]]
    assert choice(found) == "arc+graph"
    slower = found[BASELINE, CELLS[1]].mean_ms * 1.06
    found["arc+graph", CELLS[1]] = Outcome(0.5, slower, 1, 20, 30, 5)
    assert choice(found) == "sarc+amp"
    assert choice({key: Outcome(0.5, 11 * (key[0] != BASELINE) or 10, 1, 1, 1, 1) for key in found}) is None


def test_a_choice_that_hangs_on_one_trace_is_seen() -> None:
    found = outcomes()
    found["arc+graph", CELLS[0]] = Outcome(0.5, 1.0, 1, 1, 1, 10)
    assert choice(found) == "arc+graph"
    without = left_out(found, CELLS, TODAY)
    assert (without["b"], without["c"]) == ("arc+graph", "arc+graph")
    assert without["a"] != "arc+graph"


def test_the_report_says_what_it_chooses_and_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(defaults, "CANDIDATES", (defaults.present(), "arc+amp"))
    (tmp_path / "traces").mkdir()
    for name in ("one", "two"):
        made_up(tmp_path / "traces" / f"{name}.blocks.txt", requests=300)
    page = defaults.run(ReportOptions(tmp_path / "out", Selection(tmp_path / "traces"))).read_text()
    verdicts = (f"\n**{defaults.present()} stays.**\n", f"takes the place of {defaults.present()}")
    assert any(verdict in page for verdict in verdicts)
    assert "| one, 30 % |" in page
    data = json.loads((tmp_path / "out" / "defaults.json").read_text())
    assert len(data["outcomes"]) == 2 * 2 * 3
