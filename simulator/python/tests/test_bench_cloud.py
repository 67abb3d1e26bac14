"""Pictures of a benchmark: from what was measured, and with a reason where there is nothing to draw."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tombolo_sim import bench_cloud
from tombolo_sim.cli import app
from tombolo_sim.jobs import OptionError
from tombolo_sim.output import OutputError


def report(upload_s: float) -> dict[str, Any]:
    once = {"startup_s": 1.0, "upload_s": upload_s, "propagation_s": None, "download_s": None, "overhead": 0.7}
    return {"workloads": [{"number": number, "rounds": [once, once]} for number in (1, 4)]}


def test_what_was_measured_is_drawn_and_nothing_else(tmp_path: Path) -> None:
    names = bench_cloud.plot({"one": report(2.0), "two": report(3.0)}, tmp_path)
    expected = ["medians", "distribution-startup", "distribution-upload", "distribution-overhead"]
    assert names == [f"{name}.png" for name in expected]
    assert all((tmp_path / name).stat().st_size > 1000 for name in names)


def test_a_distribution_ends_with_all_rounds() -> None:
    assert bench_cloud.distribution([3.0, 1.0]) == [(1.0, 0.5), (3.0, 1.0)]


@pytest.mark.parametrize("text", ["no JSON", "[]", '{"workloads": []}'])
def test_what_is_no_report_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(OptionError, match=r"x\.json"):
        bench_cloud.read(path)


def test_a_report_is_read(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(json.dumps(report(1.0)))
    assert bench_cloud.values(bench_cloud.read(path), 4, "upload_s") == [1.0, 1.0]


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path, runner: CliRunner) -> None:
    path = tmp_path / "x.json"
    path.write_text(json.dumps(report(1.0)))
    result = runner.invoke(app, ["plot-bench-cloud", str(path), "-o", str(path)])
    assert isinstance(result.exception, OutputError)
    assert str(result.exception) == f"{path}: File exists"
