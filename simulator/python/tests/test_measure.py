"""Measuring: what is sent, put and removed, and the command."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from s3_server import S3Server, free_port

from tombolo_sim.cli import EXIT_HARMFUL, EXIT_INTERRUPTED, EXIT_REFUSED
from tombolo_sim.measure.clients import Boto3Client, Client, NativeClient, Outcome, Run
from tombolo_sim.measure.measuring import Measured, measure, removing
from tombolo_sim.measure.own_keys import NAME, OwnKeys
from tombolo_sim.measure.place import MeasureError, Place
from tombolo_sim.measure.plan import KIB, Plan
from tombolo_sim.measure.table import cells_of, read
from tombolo_sim.models import CLOUDS

BUCKET = "bucket"
SMALL = Plan(sizes=(KIB, 64 * KIB), parallelisms=(1, 4), repeats=2, seconds=5.0, run_requests_max=12)


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
        (["-o", "/dev/full/x", "--yes"], "tombolo-sim: /dev/full/x: Not a directory"),
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
