"""The command line on small traces."""

import errno
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from samples import ARC, BLOCKS, REPOSITORY
from tombolo_sim import engine
from tombolo_sim.cli import EXIT_REFUSED, app
from tombolo_sim.engine import EngineError
from tombolo_sim.output import OutputError, writing_to
from tombolo_sim.sources import FORMATS, TIME_ORDERS, name_of
from tombolo_sim.synthetic import Synthetic, traces


def outcome(runner: CliRunner, *words: object) -> str:
    result = runner.invoke(app, [str(word) for word in words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.parametrize(("path", "requests", "name"), [(BLOCKS, 63, "blocks"), (ARC, 60, "arc")])
def test_info(runner: CliRunner, path: Path, requests: int, name: str) -> None:
    found = json.loads(outcome(runner, "info", path, "--json"))
    assert found["info"]["format"] == name
    assert found["info"]["records"] == found["analysis"]["requests"] == requests
    assert found["info"]["distinct_units"] == found["analysis"]["distinct"]
    text = outcome(runner, "info", path)
    assert "footprint" in text
    assert "LRU read miss ratio" in text


def test_run(runner: CliRunner, trace: Path) -> None:
    words = ("run", trace, "--policy", "lru_amp", "--cache", "20%", "--cloud", "s3-2014")
    report = json.loads(outcome(runner, *words, "--json"))
    assert (report["replacement"], report["prefetch"]) == ("lru", "amp")
    reads = report["reads"]
    assert reads["hits"] + reads["partial_misses"] + reads["complete_misses"] == reads["requests"] > 0
    assert f"{reads['miss_ratio']:.2%}" in outcome(runner, *words)
    assert json.loads(outcome(runner, *words, "--json"))["digest"] == report["digest"]


def test_run_over_a_store(runner: CliRunner, trace: Path, tmp_path: Path) -> None:
    database = tmp_path / "cloud.db"
    alone = json.loads(outcome(runner, "run", trace, "--json"))
    stored = json.loads(outcome(runner, "run", trace, "--store", f"berkeley:{database}", "--json"))
    assert stored["digest"] == alone["digest"]
    assert database.stat().st_size > alone["cloud"]["bytes_up"] / 2


def test_sweep_and_plot(runner: CliRunner, trace: Path, tmp_path: Path) -> None:
    words = ("sweep", trace, BLOCKS, "-o", tmp_path, "--policy", "lru_seq", "--policy", "s3-fifo", "--cache", "10%",
             "--cache", "100", "--workers", 2)  # fmt: skip
    found = json.loads(outcome(runner, *words, "--json"))
    assert len(found) == 8
    assert all(result["error"] is None for result in found)
    assert "8 results" in outcome(runner, "plot", tmp_path)
    for name in ("miss-ratio", "efficiency", "p99"):
        assert (tmp_path / f"{name}.png").stat().st_size > 5000
        assert (tmp_path / f"{name}.svg").read_text().startswith("<?xml")


def test_a_setting_with_several_values_is_swept(runner: CliRunner, trace: Path, tmp_path: Path) -> None:
    words = ("sweep", trace, BLOCKS, "-o", tmp_path, "--policy", "lru_graph", "--cache", "10%", "--workers", 2,
             "--set", "track_blocks=4,16", "--set", "threshold_miss_permille=100,600", "--set",
             "threshold_hit_permille=500")  # fmt: skip
    found = json.loads(outcome(runner, *words, "--json"))
    assert {result["label"] for result in found} == {
        f"{name} lru_graph 10% modern seed 1 track_blocks={track} threshold_miss_permille={threshold}"
        for name in ("made-up", "blocks") for track in (4, 16) for threshold in (100, 600)
    }  # fmt: skip
    for result in found:
        report, told = result["report"], result["summary"]
        assert result["settings"]["threshold_hit_permille"] == 500
        assert told["miss_ratio"] == report["reads"]["miss_ratio"]
        assert told["partial_misses"] == report["reads"]["partial_misses"]
        prefetched = report["prefetched"]
        assert told["prefetch_efficiency"] == pytest.approx(prefetched["used"] / max(1, prefetched["blocks"]))
        assert told["mean_ms"] == report["read_latency"]["mean"]
        assert [0.95, told["p95_ms"]] in report["read_latency"]["quantiles"]
        assert told["usd"] == pytest.approx(sum(report["dollars"][name] for name in ("get", "put", "egress")))
    # The values reach the policy.
    digests = {result["report"]["digest"] for result in found if result["trace"] == "made-up"}
    assert len(digests) == 4
    text = outcome(runner, *words)
    for column in ("made-up", "blocks", "miss", "partial", "PE", "mean ms", "p95 ms", "dollars"):
        assert column in text
    assert f"{found[0]['summary']['miss_ratio']:.2%}" in text
    assert "8 results" in outcome(runner, "plot", tmp_path)
    assert "LRU_GRAPH track_blocks=16 threshold_miss_permille=600" in (tmp_path / "miss-ratio.svg").read_text()
    assert "threshold_hit_permille" not in (tmp_path / "miss-ratio.svg").read_text(), "it has one value only"


def test_addressings_and_clouds_are_lines_of_their_own(runner: CliRunner, trace: Path, tmp_path: Path) -> None:
    words = ("sweep", trace, "-o", tmp_path, "--policy", "lru_seq", "--cache", "10%", "--addressing", "logical",
             "--addressing", "pvbn", "--cloud", "modern", "--cloud", "s3-2014", "--workers", 2)  # fmt: skip
    found = json.loads(outcome(runner, *words, "--json"))
    assert [result["label"] for result in found] == [
        f"made-up lru_seq 10% {cloud} seed 1 addressing={addressing}"
        for cloud in ("modern", "s3-2014") for addressing in ("logical", "pvbn")
    ]  # fmt: skip
    outcome(runner, "plot", tmp_path)
    drawn = (tmp_path / "p99.svg").read_text()
    for cloud in ("modern", "s3-2014"):
        for addressing in ("logical", "pvbn"):
            assert f"LRU_SEQ cloud={cloud} addressing={addressing}" in drawn


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("track_blocks=4,many", '100 modern seed 1 track_blocks=many: prefetch_settings: track_blocks = "many": '),
        ("tracks=4,8", "100 modern seed 1 tracks=4: prefetch_settings: tracks = 4: "),
        ("track_blocks=4,,8", "tombolo-sim: --set track_blocks=4,,8: a value is missing"),
        ("track_blocks", "tombolo-sim: --set track_blocks: it must be NAME=VALUE"),
    ],
)  # fmt: skip
def test_a_bad_value_of_a_sweep_is_refused_by_name(trace: Path, tmp_path: Path, setting: str, message: str) -> None:
    words = ["sweep", str(trace), "-o", str(tmp_path), "--policy", "lru_graph", "--cache", "100", "--set", setting]
    done = subprocess.run([sys.executable, "-m", "tombolo_sim", *words], capture_output=True, text=True, check=False)
    assert done.returncode == EXIT_REFUSED
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_run_prefetches_nothing_where_waiting_has_no_price(runner: CliRunner, trace: Path) -> None:
    words = ("run", trace, "--cache", "10%", "--json")
    assert json.loads(outcome(runner, *words))["prefetched"]["blocks"] > 0
    assert json.loads(outcome(runner, *words, "--wait-microdollars-per-second", "0"))["prefetched"]["blocks"] == 0


def test_convert(runner: CliRunner, trace: Path, tmp_path: Path) -> None:
    target = tmp_path / "made-up.tbtr"
    assert "3,000 records" in outcome(runner, "convert", trace, target)
    before = json.loads(outcome(runner, "info", trace, "--json"))
    after = json.loads(outcome(runner, "info", target, "--json"))
    assert after["analysis"] == before["analysis"]
    assert after["info"]["format"] == "tbtr"


def test_history(runner: CliRunner, trace: Path, tmp_path: Path) -> None:
    found = json.loads(outcome(runner, "history", trace, "-o", tmp_path, "--json"))
    assert found["nodes"] > 20
    # Most jumps go round one circle of forty places.
    assert found["longest_chains"][0]["nodes"] > 20
    assert (tmp_path / "history.graphml").read_text().count("<node ") == found["nodes"]
    assert len((tmp_path / "history.edgelist").read_text().splitlines()) == found["edges"]
    assert (tmp_path / "history.png").stat().st_size > 5000
    every = json.loads(outcome(runner, "history", trace, "-o", tmp_path, "--json", "--every-read"))
    assert every["nodes"] > found["nodes"], "streams are in it too"


def test_advise(runner: CliRunner, trace: Path, tmp_path: Path) -> None:
    words = ("advise", trace, "-o", tmp_path, "--cache", "10%", "--size", "40%", "--try", "lru_amp", "--workers", 1)
    found = json.loads(outcome(runner, *words, "--json"))
    assert {(option["size"], option["policy"]) for option in found["options"]} == {
        ("10%", "2q+graph"), ("10%", "lru_amp"), ("40%", "2q+graph"), ("40%", "lru_amp"),
    }  # fmt: skip
    assert found["dollars_are_monthly"]
    assert found["recommended"] in found["options"]
    assert (tmp_path / "advice.png").exists()
    text = outcome(runner, *words)
    assert text.startswith("Now: 2q+graph with ")
    assert "Recommended: " in text
    assert "$ a month" in text


def test_advise_goes_by_what_the_gateway_prints(runner: CliRunner, trace: Path, tmp_path: Path) -> None:
    model = json.loads((REPOSITORY / "docs/openapi.json").read_text())["components"]["schemas"]
    status = model["Status"]["properties"]["policy"]["default"] | {"replacement": "arc", "prefetch": "amp"}
    hits = [{"replacement": "arc", "hits": 30}, {"replacement": "lirs", "hits": 90}]
    assert status["comparison"].keys() == {"better", "blocks_read", "policies"}
    status["comparison"] = {"better": "lirs", "blocks_read": 100, "policies": hits}
    path = tmp_path / "status.json"
    path.write_text(json.dumps(status))
    words = ("advise", trace, "-o", tmp_path, "--cache", "10%", "--size", "10%", "--try", "lru_amp", "--workers", 1)
    found = json.loads(outcome(runner, *words, "--policy-status", path, "--json"))
    assert found["now"]["policy"] == "arc+amp"
    assert [option["policy"] for option in found["options"]] == ["arc+amp", "lru_amp", "lirs+amp"]
    assert "names lirs: it would hold 90.0% of them, arc 30.0%." in found["text"]


def test_advise_on_a_trace_without_times(runner: CliRunner, tmp_path: Path) -> None:
    words = ("advise", ARC, "-o", tmp_path, "--size", "50%", "--try", "sarc_amp", "--workers", 1)
    found = json.loads(outcome(runner, *words, "--json"))
    assert not found["dollars_are_monthly"]
    text = outcome(runner, *words)
    assert "for the whole trace, which has no times and so no month" in text
    assert "$ for the trace" in text


def test_advise_on_a_tiny_trace_leaves_out_caches_that_nobody_has(runner: CliRunner, tmp_path: Path) -> None:
    path = tmp_path / "tiny.txt"
    path.write_text("".join(f"{at} R {at * 8} 4\n" for at in range(60)))
    found = json.loads(outcome(runner, "advise", path, "-o", tmp_path, "--cache", "50%", "--workers", 1, "--json"))
    assert {option["blocks"] for option in found["options"]} == {120, 72}
    assert found["stay"]
    assert "Recommended: stay with 2q+graph." in found["text"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "/nowhere", "--cache", "9"], "tombolo-sim: /nowhere: file: No such file or directory (os error 2)"),
        (["run", str(ARC), "--cache", "0"], "tombolo-sim: a cache of 0 is 0 blocks, which is not 1 to 4294967295"),
        (["run", str(ARC), "--cache", "9", "--cloud", "moon"], "tombolo-sim: there is no cloud 'moon'; choose one of "),
        (["run", str(ARC), "--cache", "9", "--set", "x"], "tombolo-sim: --set x: it must be NAME=VALUE"),
        (
            ["history", str(ARC), "-o", "/tmp", "--scope", "all"],
            "tombolo-sim: --scope all: it must be client or global",
        ),
        (["info", str(ARC), "--format", "zzz"], "tombolo-sim: --format zzz: it must be one of auto, tbtr, arc, "),
        (
            ["report", "tombolo", "-o", "/tmp", "--traces", "/tmp", "--format", "*=zzz"],
            "tombolo-sim: --format *=zzz: it must be one of auto, tbtr, arc, ",
        ),
        (
            ["report", "tombolo", "-o", "/tmp", "--traces", "/tmp", "--time-order", "zzz"],
            "tombolo-sim: --time-order zzz: it must be one of error, clamp, sort",
        ),
        (["capture", "/tmp/x"], "tombolo-sim: name either --device or --nbd"),
    ],
)
def test_refusals_end_with_a_line_and_a_code(words: list[str], message: str) -> None:
    done = subprocess.run([sys.executable, "-m", "tombolo_sim", *words], capture_output=True, text=True, check=False)
    assert done.returncode == EXIT_REFUSED
    assert done.stderr.startswith(message)
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["report", "hou"],
        ["report", "stout"],
        ["report", "gds-lc"],
        ["report", "tombolo", "--traces", str(ARC.parent)],
        ["report", "defaults", "--traces", str(ARC.parent)],
        ["sweep", str(ARC)],
        ["advise", str(ARC)],
        ["history", str(ARC)],
    ],
)
@pytest.mark.parametrize("folder", ["file", "file/below", "/proc/nowhere", "/dev/full"])
def test_a_folder_that_cannot_be_written_to_is_told_at_once(
    words: list[str], folder: str, tmp_path: Path, runner: CliRunner
) -> None:
    (tmp_path / "file").touch()
    target = tmp_path / folder
    result = runner.invoke(app, [*words, "-o", str(target)])
    assert isinstance(result.exception, OutputError)
    assert str(result.exception).startswith(f"{target}: ")


def test_a_disk_that_is_full_is_told_also_when_it_becomes_so(tmp_path: Path) -> None:
    def fill() -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(OutputError) as caught, writing_to(tmp_path):
        fill()
    assert str(caught.value) == f"{tmp_path}: No space left on device"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("field", "known"), [("format", FORMATS), ("time_order", TIME_ORDERS)])
def test_words_of_options_are_the_engines(field: str, known: tuple[str, ...]) -> None:
    with pytest.raises(EngineError) as caught:
        engine.info({"path": str(ARC), field: "zzz"})
    assert re.findall(r"`([a-z0-9-]+)`", str(caught.value)) == ["zzz", *known]


def test_generate(runner: CliRunner, tmp_path: Path) -> None:
    def generated(name: str, *words: object) -> bytes:
        target = tmp_path / f"{name}.tbtr"
        told = outcome(runner, "generate", "corp", "--scale", "0.001", "-o", target, *words)
        assert "23,844 records" in told
        return target.read_bytes()

    first = generated("first", "--seed", 5)
    assert generated("again", "--seed", 5) == first
    assert generated("other", "--seed", 6) != first
    control = generated("control", "--seed", 5, "--templates", 0)
    assert control != first
    repeating = {}
    for name in ("first", "control"):
        found = json.loads(outcome(runner, "info", tmp_path / f"{name}.tbtr", "--json"))["analysis"]
        assert (found["reads"], found["writes"], found["clients"]) == (19_876, 3_968, 5)
        repeating[name] = found["successors"]["to_last"] / found["successors"]["jumps"]
    assert repeating["control"] < 0.03 < 0.15 < repeating["first"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("sales",), "unknown variant `sales`, expected `corp` or `eng`"),
        (("eng", "--scale", "2"), "scale: 2; it must be 0.0005 to 1"),
        (("eng", "--templates", "1001"), "templates: 1001; it must be 0 to 1000"),
    ],
)
def test_generate_refuses(tmp_path: Path, words: tuple[str, ...], message: str) -> None:
    command = [sys.executable, "-m", "tombolo_sim", "generate", *words, "-o", str(tmp_path / "x.tbtr")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == EXIT_REFUSED
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_a_reports_synthetic_traces_are_made_once_and_say_what_they_are(tmp_path: Path) -> None:
    wanted = [Synthetic("eng", 0.001, 2), Synthetic("eng", 0.001, 2, templates=0)]
    found = traces(wanted, tmp_path)
    assert [trace.name for trace in found] == ["synthetic-eng-0_001-seed2", "synthetic-eng-0_001-seed2-control"]
    assert [name_of(trace.path) for trace in found] == [trace.name for trace in found]
    made = [trace.path.stat().st_mtime_ns for trace in found]
    assert traces(wanted, tmp_path) == found
    assert [trace.path.stat().st_mtime_ns for trace in found] == made
