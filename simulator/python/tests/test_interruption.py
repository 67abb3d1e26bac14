"""What the progress callback raises ends a job of the engine at once, and is what the caller sees."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from samples import made_up
from tombolo_sim import _engine
from tombolo_sim.jobs import Choice
from tombolo_sim.models import shipped_prices
from tombolo_sim.policies import policy
from tombolo_sim.sources import Trace

Work = Callable[[Callable[[int, int], object]], Any]

_PLACE = {
    "name": "only", "round_trip_ms": 10.0, "get_ms": 30.0, "put_ms": 36.0, "get_mib_per_s": 25.0,
    "put_mib_per_s": 20.0,
    "prices": shipped_prices()["aws-s3-standard"],
}  # fmt: skip
_ZIPF = {"objects": 500, "requests": 200_000, "exponent": 0.9, "sizes": {"fixed": {"bytes": 100}}, "seed": 3}


class Enough(Exception):
    """Raised by the callback."""


@pytest.fixture(scope="session")
def long_trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_up(tmp_path_factory.mktemp("traces") / "long.blocks.txt", requests=150_000)


@pytest.fixture
def works(long_trace: Path, tmp_path: Path) -> dict[str, Work]:
    source = {"path": str(long_trace), "format": "blocks"}
    replay = Choice(Trace("long", long_trace), policy("lru_seq"), 500).job()
    objects = {"workload": {"zipf": _ZIPF}, "policy": "lru", "cache_bytes": 10_000, "locations": [_PLACE]}
    keys = {"trace": source, "runs": [{"policy": "lru", "capacity": {"keys": 500}}]}
    shuffle = {"trace": source, "target": str(tmp_path / "shuffled.tbtr"), "window": 1 << 20, "seed": 1}
    return {
        "replay": lambda progress: _engine.replay(json.dumps(replay), None, progress),
        "objects": lambda progress: _engine.objects(json.dumps(objects), progress),
        "keys": lambda progress: _engine.keys(json.dumps(keys), progress),
        "shuffle": lambda progress: _engine.shuffle(json.dumps(shuffle), progress),
        "info": lambda progress: _engine.info(json.dumps(source), progress),
        "analyse": lambda progress: _engine.analyse(json.dumps({"trace": source, "interval_us": 1000}), progress),
        "convert": lambda progress: _engine.convert(json.dumps(source), tmp_path / "converted.tbtr", progress),
        "history": lambda progress: _engine.history(json.dumps({"trace": source}), progress),
    }


@pytest.mark.parametrize("kind", ["replay", "objects", "keys", "shuffle", "info", "analyse", "convert", "history"])
def test_a_callback_that_raises_ends_the_job(works: dict[str, Work], kind: str, tmp_path: Path) -> None:
    calls: list[tuple[int, int]] = []
    works[kind](lambda done, total: calls.append((done, total)))
    assert len(calls) >= 1, "the job is too short to be interrupted"
    for last in {1, (len(calls) + 1) // 2}:
        again = 0

        def stop(done: int, total: int, last: int = last) -> None:
            nonlocal again
            again += 1
            if again >= last:
                raise Enough(f"at {done} of {total}")

        with pytest.raises(Enough):
            works[kind](stop)
        assert again == last, "the job asked again after it had been told to stop"
    assert not list(tmp_path.glob("*.partial")), "what is not whole is removed"
