"""Bad input is refused with a message that says where and why."""

import gzip
from itertools import pairwise
from pathlib import Path

import pytest

from samples import ARC, BLOCKS
from tombolo_sim import engine
from tombolo_sim.engine import EngineError
from tombolo_sim.jobs import Choice, OptionError, cache_blocks
from tombolo_sim.models import CLOUDS, tables
from tombolo_sim.policies import policy
from tombolo_sim.sources import Trace


def refusal(path: Path, file_format: str = "auto") -> str:
    with pytest.raises(EngineError) as caught:
        engine.info({"path": str(path), "format": file_format})
    return str(caught.value)


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "trace.txt"
    path.write_text(text)
    return path


def test_a_missing_trace_is_named(tmp_path: Path) -> None:
    path = tmp_path / "nowhere"
    assert refusal(path).startswith(f"{path}: file: No such file or directory")


def test_a_malformed_line_is_named(tmp_path: Path) -> None:
    path = written(tmp_path, "0 R 0 4\n5 R x 4\n")
    assert refusal(path, "blocks").startswith(f"{path}: line 2: ")


def test_a_line_without_its_end_is_named(tmp_path: Path) -> None:
    path = written(tmp_path, "0 R 0 4\n5 R 8 ")
    assert refusal(path, "blocks").startswith(f"{path}: line 2: the file ends in the middle of ")


def test_time_that_goes_back_is_named(tmp_path: Path) -> None:
    path = written(tmp_path, "0 R 0 4\n9 R 8 4\n7 R 16 4\n")
    assert refusal(path, "blocks") == (
        f"{path}: line 3: time goes back from 9 to 7 us; say whether to clamp or to sort"
    )


def test_a_truncated_compressed_trace_is_told(tmp_path: Path) -> None:
    path = tmp_path / "trace.gz"
    path.write_bytes(gzip.compress(BLOCKS.read_bytes())[:-20])
    assert refusal(path) == f"{path}: file: the file ends in the middle of compressed data"


def test_a_truncated_binary_trace_names_the_byte(tmp_path: Path) -> None:
    path = tmp_path / "trace.bin"
    path.write_bytes(bytes(24) + bytes(10))
    assert refusal(path, "oracle-general").startswith(f"{path}: byte 24: the file ends in the middle of ")


def test_what_is_no_trace_is_told(tmp_path: Path) -> None:
    path = written(tmp_path, "# Read me\n\nThis is prose.\n")
    assert refusal(path) == f"{path}: file: nothing tells the format; name it"


def test_an_unknown_policy_is_told_with_those_there_are() -> None:
    job = Choice(Trace("arc", ARC), policy("clairvoyant+seq"), 100).job()
    with pytest.raises(EngineError, match=r"^replacement: .*lru"):
        engine.replay(job)
    job = Choice(Trace("arc", ARC), policy("lru+clairvoyant"), 100).job()
    with pytest.raises(EngineError, match=r"^prefetch: .*amp"):
        engine.replay(job)


def test_an_unknown_field_is_told() -> None:
    job = Choice(Trace("arc", ARC), policy("lru_seq"), 100).job() | {"cash_blocks": 3}
    with pytest.raises(EngineError, match=r"^job: unknown field `cash_blocks`, expected one of .*`cache_blocks`"):
        engine.replay(job)


def test_an_unknown_setting_is_told() -> None:
    job = Choice(Trace("arc", ARC), policy("lru_graph"), 100, settings={"degrees": 3}).job()
    with pytest.raises(EngineError, match=r"^prefetch_settings: .*degrees"):
        engine.replay(job)


@pytest.mark.parametrize("size", ["0", "0%", "-3", "ten", "10 percent", "99999TiB", "3KiB"])
def test_impossible_sizes_are_told(size: str) -> None:
    with pytest.raises(OptionError) as caught:
        cache_blocks(size, 1000)
    assert size in str(caught.value)


def test_sizes_are_blocks() -> None:
    assert cache_blocks("10%", 1005) == 100
    assert cache_blocks("64MiB") == 16_384
    assert cache_blocks("77") == 77
    with pytest.raises(OptionError, match="not known"):
        cache_blocks("10%")


def test_an_unknown_cloud_is_told_with_those_there_are() -> None:
    with pytest.raises(OptionError, match=r"^there is no cloud 'moon'; there are s3-2014, "):
        Choice(Trace("arc", ARC), policy("lru_seq"), 100, cloud="moon").job()


@pytest.mark.parametrize("name", CLOUDS)
def test_latencies_ascend(name: str) -> None:
    for table in (CLOUDS[name].get_ms(), tables()[CLOUDS[name].put]):
        assert all(a[0] < b[0] and a[1] <= b[1] for a, b in pairwise(table))
