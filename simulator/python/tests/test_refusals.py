"""Bad input is refused with a message that says where and why."""

import gzip
import lzma
import re
import struct
from collections.abc import Callable
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
    assert refusal(path).endswith(": the file ends in the middle of compressed data")
    assert refusal(path).startswith(f"{path}: byte ")


def test_a_truncated_binary_trace_names_the_byte(tmp_path: Path) -> None:
    path = tmp_path / "trace.bin"
    path.write_bytes(bytes(24) + bytes(10))
    assert refusal(path, "oracle-general").startswith(f"{path}: byte 24: the file ends in the middle of ")


def test_what_is_no_trace_is_told(tmp_path: Path) -> None:
    path = written(tmp_path, "# Read me\n\nThis is prose.\n")
    assert refusal(path) == f"{path}: file: the format cannot be told from contents or name; say which it is"


def test_an_unknown_policy_is_told_with_those_there_are() -> None:
    job = Choice(Trace("arc", ARC), policy("clairvoyant+seq"), 100).job()
    with pytest.raises(EngineError, match=r"^replacement: .*lru .*adaptive"):
        engine.replay(job)
    job = Choice(Trace("arc", ARC), policy("lru+clairvoyant"), 100).job()
    with pytest.raises(EngineError, match=r"^prefetch: .*amp .*oracle"):
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
    with pytest.raises(OptionError, match=r"^there is no cloud 'moon'; choose one of s3-2014, "):
        Choice(Trace("arc", ARC), policy("lru_seq"), 100, cloud="moon").job()


@pytest.mark.parametrize("name", CLOUDS)
def test_latencies_ascend(name: str) -> None:
    for table in (CLOUDS[name].get_ms(), tables()[CLOUDS[name].put]):
        assert all(a[0] < b[0] and a[1] <= b[1] for a, b in pairwise(table))


def test_a_data_series_file_is_refused_with_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "nfs-1.set-0.ds"
    path.write_bytes(b"DSv1" + (0x12345678).to_bytes(4, "little") + bytes(200))
    told = f"{path}: file: it is a DataSeries file, which is not read: make text of it with ds2txt --csv (dstotxt), "
    assert refusal(path).startswith(told)
    assert refusal(path, "nfsdump").startswith(told)


@pytest.mark.parametrize(("suffix", "pack"), [("gz", gzip.compress), ("xz", lzma.compress)])
def test_a_trace_cut_in_its_compressed_data_names_a_place(
    tmp_path: Path, suffix: str, pack: Callable[[bytes], bytes]
) -> None:
    lines = b"".join(b"%d R %d 4\n" % (at, at * 977 % 65_537) for at in range(60_000))
    path = tmp_path / f"trace.{suffix}"
    packed = pack(lines)
    path.write_bytes(packed[: len(packed) // 2])
    assert re.fullmatch(
        rf"{re.escape(str(path))}: line [0-9]+: the file ends in the middle of compressed data", refusal(path)
    )


def test_a_cut_columnar_trace_names_the_byte(trace: Path, tmp_path: Path) -> None:
    target = tmp_path / "trace.tbtr"
    engine.convert({"path": str(trace)}, target)
    whole = target.read_bytes()
    for length in (4, 30, 64, 100, len(whole) // 2, len(whole) - 1):
        target.write_bytes(whole[:length])
        told = refusal(target, "tbtr")
        assert re.fullmatch(rf"{re.escape(str(target))}: byte [0-9]+: the file ends in the middle of .+", told), told


@pytest.mark.parametrize(
    ("file_format", "line"),
    [
        ("blocks", "5 R -8 4"),
        ("blocks", "5 R 8 -4"),
        ("blocks", "5 R 8 99999999999"),
        ("blocks", "5 R 99999999999999999999 4"),
        ("blocks", "-5 R 8 4"),
        ("files", "5 R 7 0 -1"),
        ("files", "5 R 7 0 18446744073709551615"),
        ("arc", "16 -8 0 2"),
        ("arc", "16 18446744073709551615 0 2"),
        ("mqsim", "5 0 8 -8 1"),
        ("mqsim", "5 0 8 99999999999 1"),
        ("csv", "5,r,8,-4096"),
        ("csv", "5,r,8,1e9"),
        ("csv", "5,r,8,999999999999"),
        ("csv", "-5,r,8,4096"),
        ("msr", "128166372016382155,hm,1,Write,2822144,-4096,7"),
        ("msr", "128166372016382155,hm,1,Write,2822144,99999999999,7"),
        ("objects", "5 7 -10"),
        ("ids", "-7"),
    ],
)
def test_a_size_that_no_request_has_names_the_line(tmp_path: Path, file_format: str, line: str) -> None:
    first = {
        "blocks": "0 R 0 4", "files": "0 R 7 0 10", "arc": "0 8 0 1", "mqsim": "0 0 8 8 1", "csv": "time,op,lbn,size",
        "msr": "128166372003061629,hm,1,Read,383496192,32768,413", "objects": "1 7 10", "ids": "7",
    }  # fmt: skip
    path = written(tmp_path, f"{first[file_format]}\n{line}\n")
    told = refusal(path, file_format)
    assert told.startswith(f"{path}: line 2: "), told
    assert "which is not" in told


def test_binary_time_that_goes_back_names_the_byte(tmp_path: Path) -> None:
    path = tmp_path / "trace.oracleGeneral"
    path.write_bytes(b"".join(struct.pack("<IQIq", time, 7, 4096, -1) for time in (5, 6, 4)))
    assert refusal(path, "oracle-general").startswith(f"{path}: byte 48: time goes back from 6000000 to 4000000 us")
