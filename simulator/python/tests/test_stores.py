"""Stores, and replays over them."""

import hashlib
import zlib
from pathlib import Path
from typing import Any

import pytest

from tombolo_sim import engine
from tombolo_sim.jobs import Choice
from tombolo_sim.policies import policy
from tombolo_sim.sources import Trace
from tombolo_sim.stores import BerkeleyStore, MemoryStore, Store, StoreError, open_store, payload

# Wall time and the memory of hash tables differ from run to run, whatever the store.
_VARYING = ("wall_seconds", "requests_per_second", "policy")


def stores(tmp_path: Path) -> list[Store]:
    return [MemoryStore(), BerkeleyStore.open(tmp_path / "objects.db")]


def job(trace: Path, name: str = "sarc_graph") -> dict[str, Any]:
    return Choice(Trace("made-up", trace), policy(name), 400, cloud="s3-2014", flush_delay_ms=50).job()


def counted(report: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in report.items() if name not in _VARYING}


def test_parts_of_a_payload_are_parts_of_the_whole() -> None:
    whole = payload(7, 0, 20_000)
    assert payload(7, 4097, 9000) == whole[4097:13_097]
    assert payload(8, 0, 20_000) != whole


def test_contents_shrink_and_repeat_in_part() -> None:
    blocks = [payload(number, 4096 * place, 4096) for number in range(20) for place in range(64)]
    assert 0.5 < len(zlib.compress(b"".join(blocks))) / (4096 * len(blocks)) < 0.6
    assert 0.88 < len(set(blocks)) / len(blocks) < 0.96


def test_equal_objects_are_there_once_under_the_digest_of_their_blocks(tmp_path: Path) -> None:
    one, other = b"a" * 5000, b"b" * 5000
    parts = hashlib.sha256(one[:4096]).digest() + hashlib.sha256(one[4096:]).digest()
    with BerkeleyStore.open(tmp_path / "objects.db") as store:
        for number, contents in ((1, one), (2, one), (3, other)):
            store._put(number, contents)
        assert store.object_count == 2
        assert store._database.get(hashlib.sha256(parts).digest()) == one
        store._put(1, other)
        assert (store.object_count, store._get(2, 0, 5000)[0]) == (2, one)
        store._put(2, other)
        assert store.object_count == 1, "what nothing names any more goes"
        assert store._database.get(hashlib.sha256(parts).digest()) is None


@pytest.mark.parametrize("kind", [0, 1], ids=["memory", "berkeley"])
def test_what_was_put_is_got(kind: int, tmp_path: Path) -> None:
    with stores(tmp_path)[kind] as store:
        store.put(3, 10_000)
        assert store.get(3, 4096, 5000, True) is None
        # In the cloud before the trace began.
        assert store.get(9, 8192, 4096, False) is None
        with pytest.raises(StoreError, match=r"^object 3 was put with 10000 bytes, 10001 are asked for$"):
            store.get(3, 0, 10_001, True)
        assert (store.requests.puts, store.requests.gets, store.requests.bytes_down) == (1, 2, 9096)
        store.delete_all()
        assert store.get(3, 0, 10_001, True) is None, "it is forgotten, so it may have been there before the trace"


def test_a_damaged_object_is_told() -> None:
    store = MemoryStore()
    store.put(1, 4096)
    store._objects[1] = bytes(4096)
    with pytest.raises(StoreError, match=r"^object 1: bytes 0\+4096 are not what was put$"):
        store.get(1, 0, 4096, True)


def test_a_file_that_is_there_is_not_taken_for_a_store(tmp_path: Path) -> None:
    (tmp_path / "objects.db").write_text("precious")
    with pytest.raises(StoreError, match=r"objects\.db: "):
        BerkeleyStore.open(tmp_path / "objects.db")
    assert (tmp_path / "objects.db").read_text() == "precious"


@pytest.mark.parametrize("url", ["berkeley:", "memory", "memory:x", "s3:bucket", "s3://", "ftp://host"])
def test_words_that_name_no_store_are_refused(url: str) -> None:
    with pytest.raises(StoreError, match="is not a valid store: use memory:, berkeley:FILE or s3://BUCKET/PREFIX"):
        open_store(url)


def test_a_replay_over_berkeley_db_counts_what_one_in_memory_does(trace: Path, tmp_path: Path) -> None:
    alone = engine.replay(job(trace))
    assert alone["cloud"]["gets"] > 100
    assert alone["cloud"]["puts"] > 5
    for store in stores(tmp_path):
        with store:
            assert counted(engine.replay(job(trace), store)) == counted(alone)
            assert (store.requests.gets, store.requests.puts) == (alone["cloud"]["gets"], alone["cloud"]["puts"])
            assert store.requests.bytes_down == alone["cloud"]["bytes_down"]


class _Slow(MemoryStore):
    def _get(self, object_number: int, offset_bytes: int, count_bytes: int) -> Any:  # noqa: ANN401
        return super()._get(object_number, offset_bytes, count_bytes)[0], 5000.0


def test_what_a_store_says_it_took_is_what_a_miss_takes(trace: Path) -> None:
    report = engine.replay(job(trace, "lru"), _Slow())
    assert report["reads"]["complete_misses"] > 100
    assert report["read_latency"]["max"] >= 5000


class _Broken(MemoryStore):
    def _get(self, object_number: int, offset_bytes: int, count_bytes: int) -> Any:  # noqa: ANN401, ARG002
        raise StoreError("the disk is on fire")


def test_what_a_store_raises_is_raised(trace: Path) -> None:
    with pytest.raises(StoreError, match=r"^the disk is on fire$"):
        engine.replay(job(trace), _Broken())


@pytest.mark.parametrize("name", ["lru_seq", "sarc_amp", "lru_graph", "sarc_graph"])
def test_reads_of_prefetched_blocks_add_up(name: str, trace: Path) -> None:
    prefetched = engine.replay(job(trace, name))["prefetched"]
    never, *used = prefetched["blocks_by_reads"]
    came = prefetched["blocks"] - prefetched["dropped"]
    assert (never + sum(used), sum(used)) == (came, prefetched["used"])
