"""The parts of the bench that hold papers' claims against a live store: it is as limited as is said, and the parts
run and are read correctly."""

import json
import threading
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import boto3
import pytest
from botocore.config import Config

from bench import hou_live, upload_interval, upload_runs
from bench.capacity import BLOCK_BYTES, Capacity, Exchange, LimitedStore, marked, now_s
from bench.claims import Claim, jain, section
from bench.hou_live import KIB, MIB
from bench.report import table
from bench.upload_runs import Phase, Recorded, Rule, Watched
from conftest import BUCKET
from harness.object_store import ACCESS_KEY, REGION, SECRET_KEY, S3Server

RULES = (Rule("100 ms", 100), Rule("1 s", 1000), Rule("Stout", 1000, True))
TINY = upload_runs.Plan(
    gateways=2,
    capacity=Capacity(2, 10, 50),
    rules=RULES,
    loads=(40,),
    warm_s=1,
    warm_stout_s=2,
    measured_s=3,
    steps=(Phase(3, 20), Phase(4, 100), Phase(5, 20)),
    pause_s=0.5,
    around_pause_s=(5, 6),
    pause_load=40,
)


def put(endpoint: str, key: str, body: bytes) -> None:
    client = boto3.client(
        "s3",
        endpoint_url=endpoint,
        aws_access_key_id=ACCESS_KEY,
        aws_secret_access_key=SECRET_KEY,
        region_name=REGION,
        config=Config(s3={"addressing_style": "path"}, retries={"max_attempts": 1}),
    )
    client.put_object(Bucket=BUCKET, Key=key, Body=body)
    client.close()


def test_a_limited_store_serves_so_many_at_once_and_tells_when_blocks_came(
    s3: S3Server, folder: Path, closing: ExitStack
) -> None:
    store = LimitedStore(Capacity(1, 300), s3, folder, closing)
    written = [now_s(), now_s() - 5]
    body = b"head" + b"".join(marked(at, b"%d" % index) for index, at in enumerate(written)) + b"tail"
    begun = time.monotonic()
    threads = [threading.Thread(target=put, args=(store.endpoint, f"object-{index}", body)) for index in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert time.monotonic() - begun >= 3 * 0.2, "one after the other"
    puts = [exchange for exchange in store.exchanges() if exchange.method == "PUT"]
    assert [exchange.status for exchange in puts] == [200] * 3
    assert max(exchange.waited_s for exchange in puts) >= 0.2
    for exchange in puts:
        assert exchange.written_s == pytest.approx(written, abs=1e-5)
        assert exchange.bytes >= 2 * BLOCK_BYTES
    assert (s3.folder / BUCKET / "object-0").read_bytes() == body


def test_ages_are_those_until_the_put_is_answered_and_what_is_missing_has_at_least_its_age_at_the_end() -> None:
    exchange = Exchange(12.0, "PUT", "/bucket/1/gateway-0/object", 200, 4096, 0.0, (10.5, 11.0))
    recorded = Recorded(10.0, 20.0, [exchange], [[10.5, 11.0, 12.5]], Watched())
    assert recorded.ages(0, 10.0, 12.0) == [(10.5, 1.5), (11.0, 1.0)]
    assert recorded.ages(0, 12.0, 20.0) == [(12.5, 7.5)]


def test_a_load_that_the_store_cannot_take_is_told_from_one_that_it_can() -> None:
    plan = replace(TINY, warm_s=0, measured_s=30)
    due = [float(second) for second in range(30)]
    for growth, is_sustained in ((0.0, True), (0.2, False)):
        puts = [Exchange(at + 0.5 + growth * at, "PUT", "/b/1/gateway-0/o", 200, 4096, 0.0, (at,)) for at in due]
        cell = upload_runs.cell_of(Recorded(0.0, 40.0, puts, [due], Watched()), plan, RULES[0])
        assert cell.is_sustained is is_sustained


def test_settled_is_what_stays_near_its_end() -> None:
    falling = [(float(second), 1.0 if second > 10 else 4.0) for second in range(30)]
    assert upload_interval.settled(falling) == (10.0, 1.0)
    swinging = [(float(second), 4.0 if second % 2 else 1.0) for second in range(30)]
    assert upload_interval.settled(swinging)[0] is None


def test_claims_are_counted_and_have_a_reading_where_they_fail() -> None:
    said = [
        Claim("A", "figure 1", "2", "3", True, "never shown"),
        Claim("B", "figure 2", "2", "1", False, "too slow"),
        Claim("C", "figure 3", "", "nothing", None),
    ]
    shown = table(section("Claims", said))
    assert "3 claims: 1 hold, 1 do not hold, 1 cannot be tested here." in shown
    assert "| A | figure 1 | 2 | **holds** | 3 |" in shown
    assert "| B | figure 2 | 2 | **does not hold** | 1; our reading: too slow |" in shown
    assert jain([1.0, 1.0, 1.0]) == pytest.approx(1.0)
    assert jain([1.0, 0.0]) == pytest.approx(0.5)


def test_uploads_before_a_limited_store_are_measured(folder: Path, closing: ExitStack) -> None:
    sections = upload_interval.measure_upload_interval(folder, TINY, 1, closing)
    assert [len(each.words) for each in sections[1:5]] == [1, 1, 1, 1]
    ages = [cell for cell in sections[1].words[0][1:]]
    means = [float(cell.removeprefix("queues (").split(" / ")[0].replace(",", "")) for cell in ages]
    # Nothing is there before its round, and a round begins when the oldest of its blocks has waited.
    assert 10 < means[0] < means[1] and means[1] > 500
    assert len(sections[-1].words) >= 2
    json.dumps([each.words for each in sections])


def test_chunks_are_measured(folder: Path, closing: ExitStack) -> None:
    plan = hou_live.Plan(
        path=hou_live.Route(2, 10, 100, 50),
        sizes=(64 * KIB, MIB, 4 * MIB),
        degrees=(1, 4),
        chunks=(64 * KIB, MIB),
        prefetchers=("none", "hou"),
        files=4,
        requests=300,
        seconds=0.3,
    )
    said, loaded, read = hou_live.measure_chunks(folder, plan, closing)
    assert len(said.words) == 3 + 2 + 3 + 1
    alone = [float(row[1].split(", ")[1]) for row in loaded.words]
    assert alone == sorted(alone), "a larger download brings more a second"
    assert [len(row) for row in read.words] == [3, 3]
