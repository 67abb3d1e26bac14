"""What is recommended, and in which words."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tombolo_sim.advise import Advice, Comparison, Option, dollars
from tombolo_sim.engine import EngineError


def option(policy: str, miss: float, p99: float, usd: float, blocks: int = 25_600, size: str = "10%") -> Option:
    return Option(size, blocks, policy, miss, p99, usd, 2.5)


NOW = option("lru+ramp", 0.40, 80.0, 50.0)


def advice(*others: Option, span_seconds: float = 86_400.0) -> Advice:
    return Advice(NOW, (NOW, *others), span_seconds, "advice.png")


def test_a_bill_that_multiplies_for_a_small_gain_is_not_recommended() -> None:
    told = advice(option("lru_graph", 0.33, 80.0, 500.0))
    assert told.recommended() == NOW
    assert "Recommended: stay with lru+ramp. " in told.text()
    assert "Not recommended: lru_graph: 33.0% of the reads wait, p99 80 ms, $500; its bill is 10.0 times" in told.text()


def test_a_price_in_proportion_is_paid() -> None:
    better = option("sarc_amp", 0.20, 60.0, 70.0)
    told = advice(better, option("lru_graph", 0.18, 60.0, 400.0))
    assert told.recommended() == better
    assert "Recommended: sarc_amp with the cache as it is, because fewer reads wait: 20.0% of the reads" in told.text()
    assert "tombolo policy set combination=sarc_amp" in told.text()
    assert "Not recommended: lru_graph: " in told.text()


@pytest.mark.parametrize(
    ("other", "worth"),
    [
        (option("a", 0.39, 80.0, 51.0), True),
        (option("a", 0.395, 80.0, 50.0), False),
        (option("a", 0.30, 80.0, 62.0), True),
        (option("a", 0.30, 80.0, 63.0), False),
        (option("a", 0.30, 100.0, 50.0), False),
        (option("a", 0.405, 80.0, 40.0), True),
        (option("a", 0.405, 80.0, 46.0), False),
        (option("a", 0.42, 80.0, 10.0), False),
        (option("a", 0.40, 120.0, 10.0), False),
    ],
)
def test_the_rule(other: Option, worth: bool) -> None:
    assert (advice(other).recommended() == other) is worth


def test_of_equals_the_cheapest_is_recommended() -> None:
    cheap = option("b", 0.105, 80.0, 45.0)
    assert advice(option("a", 0.10, 80.0, 60.0), cheap).recommended() == cheap


def test_a_policy_that_costs_less_is_recommended_for_that() -> None:
    told = advice(option("s3-fifo+amp", 0.40, 80.0, 30.0)).text()
    assert "because it costs less and misses no more" in told
    assert "tombolo policy set replacement=s3-fifo policy=amp" in told


def test_larger_and_smaller_caches_are_told() -> None:
    larger = option("lru+ramp", 0.10, 40.0, 20.0, 256_000, "100%")
    smaller = option("lru+ramp", 0.405, 82.0, 51.0, 5_120, "2%")
    text = advice(larger, smaller).text()
    assert "A larger cache: 1,000 MiB (100%) with lru+ramp: 10.0% of the reads wait" in text
    assert "A smaller cache: 20 MiB (2%) would do as well: " in text
    text = advice(option("lru+ramp", 0.395, 80.0, 50.0, 256_000, "100%")).text()
    assert "nothing gains a point or more." in text


def test_months_are_told_with_what_they_rest_on() -> None:
    assert "a month, if the 24 hours of the trace are like the rest" in advice().text()
    assert "a month, if the 30 seconds of the trace are like the rest" in advice(span_seconds=30.0).text()
    assert "no times and so no month" in advice(span_seconds=0.0).text()


def test_a_growing_queue_is_told() -> None:
    assert "Beware" not in advice().text()
    busy = option("lru+ramp", 0.4, 90_000.0, 50.0)
    assert "Beware: reads come faster" in Advice(busy, (busy,), 60.0, "advice.png").text()


@pytest.mark.parametrize(
    ("amount", "told"), [(0.0, "$0"), (0.0234, "$0.023"), (1.5, "$1.50"), (1828.4, "$1,828"), (123_456.0, "$123,456")]
)
def test_dollars(amount: float, told: str) -> None:
    assert dollars(amount) == told


COMPARED = Comparison("lru", "ramp", 5_000, {"lru": 2_200, "lirs": 3_050}, "lirs")


@pytest.mark.parametrize(
    ("comparison", "named", "told"),
    [
        (
            COMPARED,
            option("lirs+ramp", 0.30, 80.0, 50.0),
            "lirs: it would hold 61.0% of them, lru 44.0%. The trace bears",
        ),
        (
            COMPARED,
            option("lirs+ramp", 0.40, 80.0, 50.0),
            "lru 44.0%. On this trace lirs+ramp is not what is recommended: 40.0%",
        ),
        (replace(COMPARED, better=None), option("lirs+ramp", 0.40, 80.0, 50.0), "names no other replacement policy."),
        (
            replace(COMPARED, replacement="sarc", better=None),
            option("lirs+ramp", 0.40, 80.0, 50.0),
            "has sarc, which is at work, not among its policies; of those that it compares lirs would hold most: 61.0%",
        ),
        (
            Comparison("lru", "ramp", 0, {}, None),
            option("lirs+ramp", 0.40, 80.0, 50.0),
            "The gateway's own comparison has not seen a block read yet.",
        ),
    ],
)
def test_what_the_gateway_names_is_held_against_the_trace(comparison: Comparison, named: Option, told: str) -> None:
    assert told in Advice(NOW, (NOW, named), 86_400.0, "advice.png", comparison).text()


def test_pairs_of_the_paper_have_its_names() -> None:
    assert (COMPARED.present(), COMPARED.named()) == ("lru+ramp", "lirs+ramp")
    assert replace(COMPARED, prefetch="graph").present() == "lru_graph"


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"replacement": "lru", "prefetch": "graph", "comparison": null}'])
def test_what_is_no_status_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "status.json"
    path.write_text(text)
    with pytest.raises(EngineError, match=r"status\.json: not what `tombolo policy show --json` prints"):
        Comparison.read(path)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"better": "w-tinylfu"}, "better is w-tinylfu, but it or lru is not among the policies"),
        ({"better": ["lirs"]}, "unhashable type: 'list'"),
        ({"replacement": "sarc"}, "better is lirs, but it or sarc is not among the policies"),
        ({"blocks_read": float("inf")}, "cannot convert float infinity to integer"),
        ({"blocks_read": -1}, "lru holds 20 of -1 blocks read"),
        ({"policies": [{"replacement": "lru", "hits": -5}]}, "lru holds -5 of 100 blocks read"),
        ({"policies": [], "better": None}, "blocks were read, but no policies are compared"),
    ],
)
def test_a_status_that_contradicts_itself_is_refused(tmp_path: Path, changes: dict[str, object], why: str) -> None:
    hits = [{"replacement": "lru", "hits": 20}, {"replacement": "lirs", "hits": 90}]
    found = {"better": "lirs", "blocks_read": 100, "policies": hits} | changes
    replacement = found.pop("replacement", "lru")
    path = tmp_path / "status.json"
    path.write_text(json.dumps({"replacement": replacement, "prefetch": "graph", "comparison": found}))
    with pytest.raises(EngineError) as caught:
        Comparison.read(path)
    assert str(caught.value) == f"{path}: not what `tombolo policy show --json` prints: {why}"


def test_a_status_without_an_end_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "status.json"
    path.write_text("[" * 100_000)
    with pytest.raises(EngineError, match="not what `tombolo policy show --json` prints"):
        Comparison.read(path)
