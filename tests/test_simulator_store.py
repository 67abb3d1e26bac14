"""The simulator's replays over a real S3 server: what is counted, what lies in the bucket, and what is told when the
bucket, the credentials or the server are not there.

Endpoint and credentials reach the simulator as they reach any program of boto3: by its environment.
"""

import importlib.util
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conftest import BUCKET, SEED
from harness.object_store import ACCESS_KEY, REGION, SECRET_KEY, S3Server
from harness.tools import free_port, run, wait_for

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("tombolo_sim") is None, reason="the simulator is not installed: make sim-python"
)

CACHE_BLOCKS = "300"
REQUESTS = 400
REFUSED = 2
RUN_LIMIT_S = 120


@pytest.fixture
def server(tmp_path: Path) -> Iterator[S3Server]:
    server = S3Server(tmp_path / "s3")
    server.start()
    server.create_bucket(BUCKET)
    yield server
    server.close()


def environment(endpoint: str, secret: str = SECRET_KEY) -> dict[str, str]:
    """Nothing of the machine's own settings."""
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": secret,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
    }


def trace(path: Path, requests: int, writes: bool) -> Path:
    chance = random.Random(SEED)
    lines = []
    for number in range(requests):
        first = chance.randrange(200) * 16
        is_write = writes and chance.random() < 0.3
        lines.append(f"{number * 1000} {'W' if is_write else 'R'} {first} {chance.randrange(1, 9)}\n")
    path.write_text("".join(lines))
    return path


def command(path: Path, policy: str, store: str | None) -> list[str]:
    words = [
        sys.executable,
        "-m",
        "tombolo_sim",
        "run",
        str(path),
        "--policy",
        policy,
        "--cache",
        CACHE_BLOCKS,
        "--json",
    ]
    return [*words, "--flush-delay-ms", "20", *([] if store is None else ["--store", store])]


def replay(path: Path, policy: str, store: str | None, endpoint: str) -> dict[str, Any]:
    done = run(command(path, policy, store), RUN_LIMIT_S, environment=environment(endpoint))
    report = json.loads(done.stdout)
    assert isinstance(report, dict)
    return report


def refusal(path: Path, store: str, surroundings: dict[str, str]) -> str:
    done = run(command(path, "lru", store), RUN_LIMIT_S, (REFUSED,), surroundings)
    return only_line(done.stderr)


def only_line(text: str) -> str:
    assert len(text.splitlines()) == 1, text
    assert text.startswith("tombolo-sim: ")
    return text.strip()


def objects(server: S3Server, prefix: str) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in (server.folder / BUCKET / prefix).iterdir()}


def test_reads_alone_count_what_they_count_without_a_store(server: S3Server, tmp_path: Path) -> None:
    path = trace(tmp_path / "reads.blocks.txt", REQUESTS, writes=False)
    alone = replay(path, "lru", None, server.endpoint)
    stored = replay(path, "lru", f"s3://{BUCKET}/reads", server.endpoint)
    assert alone["cloud"]["gets"] > 100
    for what in ("reads", "writes", "prefetched", "cloud"):
        assert stored[what] == alone[what], what
    for what in ("get", "put", "egress"):
        assert stored["dollars"][what] == alone["dollars"][what], what
    assert stored["read_latency"]["mean"] != alone["read_latency"]["mean"], "times are the server's own"


def test_objects_lie_under_the_prefix_and_a_second_run_finds_them(server: S3Server, tmp_path: Path) -> None:
    path = trace(tmp_path / "mixed.blocks.txt", REQUESTS, writes=True)
    alone = replay(path, "sarc_graph", None, server.endpoint)
    first = replay(path, "sarc_graph", f"s3://{BUCKET}/a/mixed/", server.endpoint)
    # Times differ, so hits may; what clients ask for does not. Every GET's bytes were verified by the store.
    for report in (alone, first):
        assert report["cloud"]["gets"] > 50
        assert report["cloud"]["puts"] > 3
    for what in ("requests", "blocks"):
        assert first["reads"][what] == alone["reads"][what]
        assert first["writes"][what] == alone["writes"][what]
    found = objects(server, "a/mixed")
    assert all(len(name) == 16 and int(name, 16) >= 0 for name in found)
    assert len(found) > first["cloud"]["puts"], "those of before the trace are there too"
    assert sum(found.values()) >= first["cloud"]["bytes_up"]
    assert [entry.name for entry in (server.folder / BUCKET).iterdir() if not entry.name.startswith(".")] == ["a"]
    second = replay(path, "sarc_graph", f"s3://{BUCKET}/a/mixed", server.endpoint)
    assert second["reads"]["requests"] == first["reads"]["requests"]
    assert objects(server, "a/mixed").keys() >= found.keys()


def test_what_is_not_there_is_told_in_a_line(server: S3Server, tmp_path: Path) -> None:
    path = trace(tmp_path / "short.blocks.txt", 20, writes=False)
    good = environment(server.endpoint)
    told = refusal(path, "s3://no-such-bucket/x", good)
    assert "s3://no-such-bucket: " in told
    assert "404" in told
    assert "s3://Bad_Bucket!: " in refusal(path, "s3://Bad_Bucket!/x", good)
    told = refusal(path, f"s3://{BUCKET}/x", environment(server.endpoint, "a wrong secret"))
    assert f"s3://{BUCKET}: " in told
    assert "403" in told
    assert "a wrong secret" not in told
    nobody = f"http://127.0.0.1:{free_port()}"
    assert nobody in refusal(path, f"s3://{BUCKET}/x", environment(nobody))
    assert "nonsense" in refusal(path, f"s3://{BUCKET}/x", environment("nonsense"))
    without = environment(server.endpoint) | {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}
    assert "credentials" in refusal(path, f"s3://{BUCKET}/x", without)


def test_a_server_that_is_killed_ends_the_run_with_a_line(server: S3Server, tmp_path: Path) -> None:
    path = trace(tmp_path / "long.blocks.txt", 20_000, writes=True)
    begun = server.folder / BUCKET / "killed"
    process = subprocess.Popen(
        command(path, "lru_seq", f"s3://{BUCKET}/killed"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=os.environ | environment(server.endpoint),
    )  # fmt: skip
    try:
        wait_for(lambda: begun.is_dir() and len(list(begun.iterdir())) > 3, RUN_LIMIT_S, "objects of the run")
        server.kill9()
        output, errors = process.communicate(timeout=RUN_LIMIT_S)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == REFUSED, errors
    assert output == ""
    assert f"s3://{BUCKET}/killed/" in only_line(errors)
