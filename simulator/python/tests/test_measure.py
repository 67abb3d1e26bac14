"""Measuring: what is put and removed, what is counted, and what is made of it."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from s3_server import S3Server, free_port

from tombolo_sim import engine
from tombolo_sim.cli import EXIT_HARMFUL, EXIT_INTERRUPTED, EXIT_REFUSED
from tombolo_sim.jobs import Choice
from tombolo_sim.measure.clients import Boto3Client, Client, NativeClient, Outcome, Run
from tombolo_sim.measure.figures import draw
from tombolo_sim.measure.measuring import Measured, cell_of, measure, outliers, quantiles, removing
from tombolo_sim.measure.own_keys import NAME, OwnKeys
from tombolo_sim.measure.place import MeasureError, Place
from tombolo_sim.measure.plan import KIB, MIB, PARALLELISMS, SIZES, Plan, size_name, sizes_of
from tombolo_sim.measure.recommend import advise, degrees, smallest_size
from tombolo_sim.measure.table import Cell, cells_of, checked, read, table_of, write
from tombolo_sim.models import CLOUDS, measured
from tombolo_sim.policies import policy
from tombolo_sim.sources import Trace

BUCKET = "bucket"
SMALL = Plan(sizes=(KIB, 64 * KIB), parallelisms=(1, 4), repeats=2, seconds=5.0, run_requests_max=12)
ORIGIN = {"at": "2026-11-23T18:00:00Z", "store": "s3://b/p", "endpoint": None, "client": "made up"}


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    server = S3Server(tmp_path / "s3")
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    server.client.create_bucket(Bucket=BUCKET)
    yield server
    server.close()


def place(server: S3Server) -> Place:
    return Place.of(f"s3://{BUCKET}/some/prefix", server.endpoint)


def client_of(kind: str, keys: OwnKeys, connection: Any) -> Client:  # noqa: ANN401
    if kind == "boto3":
        return Boto3Client(keys, connection)
    return NativeClient(keys, keys.place.endpoint, "us-east-1")


def cell(size_bytes: int, parallelism: int, mean_ms: float, deviation: float = 0.0) -> Cell:
    rate = round(size_bytes * parallelism / mean_ms * 1000, 1)
    points = [(0.1, mean_ms / 2), (0.5, mean_ms), (0.99, 2 * mean_ms)]
    return Cell(size_bytes, parallelism, 100, 0, 5, 0, rate, mean_ms, deviation, points)


def grid(latency_ms: dict[int, dict[int, float]]) -> list[Cell]:
    return [cell(size, count, ms) for size, row in latency_ms.items() for count, ms in row.items()]


# What is sent


@pytest.mark.parametrize("kind", ["native", "boto3"])
def test_a_run_puts_and_gets_what_it_says(kind: str, server: S3Server) -> None:
    connection = place(server).connect()
    keys = OwnKeys(connection, place(server))
    client = client_of(kind, keys, connection)
    put = client.run(Run("put", 5000, 3, 7, 10, 10, 60.0))
    assert (len(put.latencies_ms), put.begun, put.failures) == (10, 10, {})
    assert server.keys(BUCKET) == {f"{keys.prefix}5000/{number:08}" for number in range(7, 17)}
    contents = [server.client.get_object(Bucket=BUCKET, Key=key)["Body"].read() for key in server.keys(BUCKET)]
    assert {len(one) for one in contents} == {5000}
    assert len(set(contents)) == 10, "objects differ, so that none is stored in place of another"
    got = client.run(Run("get", 5000, 4, 7, 10, 25, 60.0))
    assert (len(got.latencies_ms), got.failures) == (25, {})
    assert 0 < max(got.latencies_ms) / 1000 <= got.elapsed_s
    # Another object's contents, and none.
    server.client.put_object(Bucket=BUCKET, Key=f"{keys.prefix}5000/00000007", Body=contents[0][:8] + bytes(4992))
    server.client.delete_object(Bucket=BUCKET, Key=f"{keys.prefix}5000/00000008")
    server.client.put_object(Bucket=BUCKET, Key=f"{keys.prefix}5000/00000009", Body=b"short")
    again = client.run(Run("get", 5000, 1, 7, 10, 10, 60.0))
    assert sum(again.failures.values()) in (2, 3)
    assert "an object has other contents than were put" in again.failures
    assert keys.remove_all() == 9
    assert server.keys(BUCKET) == set()


@pytest.mark.parametrize("kind", ["native", "boto3"])
def test_a_run_ends_at_its_time_and_after_failures(kind: str, server: S3Server) -> None:
    connection = place(server).connect()
    client = client_of(kind, OwnKeys(connection, place(server)), connection)
    assert 1 <= len(client.run(Run("put", 1024, 2, 0, 1, 10**6, 0.2)).latencies_ms) < 10**5
    failed = client.run(Run("get", 1024, 2, 10**7, 1, 10**6, 60.0))
    assert 16 <= sum(failed.failures.values()) <= 18
    assert failed.latencies_ms == []


class _Counting:
    """A client that counts what is begun, and what lies in the store after each run."""

    def __init__(self, inner: Client, server: S3Server) -> None:
        self.name, self._inner, self._server = inner.name, inner, server
        self.stored_max = 0
        self.bytes = {"put": 0, "get": 0}
        self.requests = {"put": 0, "get": 0}

    def run(self, run: Run) -> Outcome:
        outcome = self._inner.run(run)
        self.requests[run.operation] += outcome.begun
        self.bytes[run.operation] += outcome.begun * run.size_bytes
        stored = self._server.client.list_objects_v2(Bucket=BUCKET, Prefix=place(self._server).prefix)["Contents"]
        self.stored_max = max(self.stored_max, sum(entry["Size"] for entry in stored))
        return outcome


@pytest.mark.parametrize("kind", ["native", "boto3"])
def test_a_measurement_has_its_cells_keeps_to_its_estimate_and_leaves_nothing(
    kind: str, server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.client.put_object(Bucket=BUCKET, Key="some/prefix/somebody's", Body=b"precious")
    server.client.put_object(Bucket=BUCKET, Key=f"some/prefix/{NAME}other/1024/00000001", Body=b"another's")
    counting: list[_Counting] = []
    for name, kind_of in (("NativeClient", NativeClient), ("Boto3Client", Boto3Client)):

        def counted(*words: Any, kind_of: Any = kind_of) -> _Counting:  # noqa: ANN401
            counting.append(_Counting(kind_of(*words), server))
            return counting[-1]

        monkeypatch.setattr(f"tombolo_sim.measure.measuring.{name}", counted)
    told: list[tuple[int, int, str]] = []
    found = measure(place(server), place(server).connect(), SMALL, [kind], lambda *words: told.append(words))
    assert server.keys(BUCKET) == {"some/prefix/somebody's", f"some/prefix/{NAME}other/1024/00000001"}
    assert (told[0][:2], told[-1][:2]) == ((0, 16), (16, 16))
    (table,) = found.tables.values()
    for operation in ("get", "put"):
        cells = cells_of(table, operation)
        assert [(one.size_bytes, one.parallelism) for one in cells] == [
            (KIB, 1), (KIB, 4), (64 * KIB, 1), (64 * KIB, 4),
        ]  # fmt: skip
        assert all(one.requests == 24 and one.failed == 0 and one.bytes_per_s > 0 for one in cells)
    assert table["round_trip_ms"] > 0
    estimate = SMALL.estimate(CLOUDS["modern"])
    (counts,) = counting
    # Every run here comes to its last request, so the bound is met, not only kept.
    assert (counts.requests["put"], counts.requests["get"]) == (estimate.puts, estimate.gets)
    assert (counts.bytes["put"], counts.bytes["get"]) == (estimate.bytes_up, estimate.bytes_down)
    assert 64 * 64 * KIB < counts.stored_max <= estimate.stored_bytes + len(b"precious" + b"another's")


def test_old_versions_are_removed_too(server: S3Server) -> None:
    server.client.put_bucket_versioning(Bucket=BUCKET, VersioningConfiguration={"Status": "Enabled"})
    keys = OwnKeys(server.client, place(server))
    for body in (b"one", b"two"):
        server.client.put_object(Bucket=BUCKET, Key=keys.key("x"), Body=body)
    server.client.delete_object(Bucket=BUCKET, Key=keys.key("x"))
    server.client.create_multipart_upload(Bucket=BUCKET, Key=keys.key("y"))
    keys.remove_all()
    assert server.keys(BUCKET) == set()
    measure(place(server), place(server).connect(), replace(SMALL, sizes=(KIB,)), ["native"], lambda *_: None)
    assert server.keys(BUCKET) == set()


class _Liar:
    """A server that does not mind the prefix of a listing."""

    def list_multipart_uploads(self, **_: object) -> dict[str, Any]:
        return {}

    def get_paginator(self, _: str) -> Any:  # noqa: ANN401
        return self

    def paginate(self, **_: object) -> list[dict[str, Any]]:
        return [{"Contents": [{"Key": "somebody's"}], "Versions": []}]

    def delete_objects(self, **_: object) -> None:
        raise AssertionError("it was removed")


def test_other_keys_are_never_touched() -> None:
    keys = OwnKeys(_Liar(), Place.of("s3://b/p"))
    assert keys.prefix.startswith(f"p/{NAME}")
    assert len(keys.prefix) == len(f"p/{NAME}") + 17
    for key in ("somebody's", keys.prefix, f"p/{NAME}", keys.prefix[:-1] + "x/1"):
        with pytest.raises(MeasureError, match="it is not touched"):
            keys.own(key)
    with pytest.raises(MeasureError, match='"somebody\'s" does not lie below'):
        keys.remove_all()
    assert OwnKeys(_Liar(), Place.of("s3://b")).prefix.startswith(NAME)


def test_what_is_left_is_told_with_what_ended_the_measurement() -> None:
    keys = OwnKeys(_Liar(), Place.of("s3://b/p"))
    with pytest.raises(MeasureError, match=r"^the server is gone; and .* is not touched$"), removing(keys, Measured()):
        raise MeasureError("the server is gone")


# The command


def command(server: S3Server, *words: object) -> list[str]:
    return [sys.executable, "-m", "tombolo_sim", "measure", place(server).url(), "--endpoint", server.endpoint,
            *map(str, words)]  # fmt: skip


SHORT = ("--sizes", "1KiB,64KiB", "--parallelism", "1,2", "--repeats", 2, "--seconds", 0.05)


def test_the_command_writes_table_and_pictures(server: S3Server, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    words = command(server, "-o", folder, *SHORT, "--client", "both", "--dollars-max", 5, "--json")
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "At the most " in done.stderr
    found = json.loads(done.stdout)
    assert set(found["tables"]) == {"cloud_driver", "boto3"}
    assert {finding["verdict"] for finding in found["findings"]} == {"good"}
    assert read(folder / "latency-table.json") == found["tables"]["cloud_driver"]
    assert read(folder / "boto3-latency-table.json") == found["tables"]["boto3"]
    for name in ("bandwidth", "latency", "distributions"):
        assert (folder / f"{name}.png").stat().st_size > 5000
    for least, most in found["settings"].values():
        assert 1 <= least <= most <= 2
    assert server.keys(BUCKET) == set()
    text = subprocess.run(command(server, "-o", folder, *SHORT, "--yes"), capture_output=True, text=True, check=True)
    assert "[store] downloads_in_flight_max" in text.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--yes"], "tombolo-sim: --output: say where the table is to be written, or --check to measure nothing"),
        (["-o", "x"], "tombolo-sim: nobody can be asked: say --yes or --dollars-max"),
        (["-o", "x", "--dollars-max", "0.01"], "tombolo-sim: --dollars-max 0.01: it can cost $"),
        (["--sizes", "1KiB,x"], "tombolo-sim: --sizes 1KiB,x: 'x' is no size"),
        (["--sizes", "4KiB,1KiB"], "tombolo-sim: --sizes: they must ascend from 8 to 67108864 at the most"),
        (["--parallelism", "2,4"], "tombolo-sim: --parallelism: 1 must be among them"),
        (["--client", "curl"], "tombolo-sim: there is no client 'curl'; choose one of native, boto3, both"),
        (["--in-flight-max", "1MiB"], "tombolo-sim: --in-flight-max: 1048576 bytes hold no object of 16777216"),
    ],
)
def test_refusals(words: list[str], message: str, server: S3Server) -> None:
    done = subprocess.run(
        command(server, *words), capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    assert done.returncode == EXIT_REFUSED
    assert done.stderr.splitlines()[-1].startswith(message)
    assert "Traceback" not in done.stderr
    assert server.keys(BUCKET) == set(), "nothing was measured"


def test_a_bucket_that_is_not_there_is_told_with_its_code(server: S3Server) -> None:
    words = command(server, "--check")
    words[4] = "s3://not-there/x"
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == EXIT_HARMFUL
    assert done.stderr == "tombolo-sim: s3://not-there/x: bucket: not-there: it does not exist\n"
    words[-1:] = ["--endpoint", f"http://127.0.0.1:{free_port()}", "--check"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == EXIT_REFUSED
    assert "Could not connect to the endpoint URL" in done.stderr


@pytest.mark.parametrize("kind", ["native", "boto3"])
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, EXIT_INTERRUPTED), (signal.SIGTERM, 143)])
def test_an_interruption_leaves_nothing(
    kind: str, number: signal.Signals, code: int, server: S3Server, tmp_path: Path
) -> None:
    words = command(server, "-o", tmp_path, "--seconds", 60, "--client", kind, "--yes")
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + 60
        # In the middle of a run that is measured.
        while not any("/1024/1" in key for key in server.keys(BUCKET)):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == code, errors
    assert server.keys(BUCKET) == set()
    assert not list(tmp_path.glob("*.json"))


# What is made of it


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
    size, peak = smallest_size(_PAPER)
    assert (size, round(peak / MIB)) == (4 * MIB, 40)


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
    (degree,) = degrees(noisy)
    assert (degree.parallelism, degree.unsure, degree.bounded) == (2, True, False)
    (degree,) = degrees(noisy[:2])
    assert (degree.parallelism, degree.unsure, degree.bounded) == (2, False, True)


def test_smaller_sizes_begin_where_larger_ones_ended() -> None:
    # Parallelism 2 is slow for the small size alone: it is not tried.
    found = degrees(grid({KIB: {1: 1, 2: 1.5, 4: 1.05, 8: 2}, MIB: {1: 10, 2: 10, 4: 20}}))
    assert [(degree.size_bytes, degree.parallelism) for degree in found] == [(KIB, 4), (MIB, 2)]


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
