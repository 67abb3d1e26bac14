"""Exact misses: libCacheSim's, by replacement policies alone. What they are and of which policies exactly is said in
`cache/tests/reference.rs`."""

from itertools import groupby
from operator import itemgetter
from pathlib import Path

import pytest

from samples import public
from tombolo_sim import engine

DATA = Path(__file__).parents[3] / "cache/tests/data"
EXACT = ("lru", "arc", "2q", "s3-fifo", "sieve", "min")
Line = tuple[str, str, str, str, str, str]


def goldens() -> list[tuple[str, list[Line]]]:
    """By file."""
    lines: list[Line] = []
    for text in (DATA / "libcachesim.tsv").read_text().splitlines():
        if not text.startswith("#"):
            origin, file, keys, policy, misses, requests = text.split("\t")
            if policy in EXACT:
                lines.append((origin, file, keys, policy, misses, requests))
    return [(file, list(of_file)) for file, of_file in groupby(lines, itemgetter(1))]


def source(origin: str, file: str) -> dict[str, str]:
    path = DATA / file if origin == "sample" else public(file)
    source = {"path": str(path), "view": "units" if ".lis" in file else "ids"}
    return source | {"format": "u32-le"} if ".u32" in file else source


def replayed(trace: dict[str, str], lines: list[Line]) -> list[Line]:
    """The lines with misses as the engine counts them."""
    runs = [{"policy": policy, "capacity": {"keys": int(keys)}} for _, _, keys, policy, _, _ in lines]
    report = engine.keys({"trace": trace, "runs": runs})
    counted = [(str(run["misses"]), str(report["requests"])) for run in report["runs"]]
    return [(*line[:4], *counts) for line, counts in zip(lines, counted, strict=True)]


def test_all_traces_are_there() -> None:
    assert [file.split(".")[0] for file, _ in goldens()] == [
        "web07", "arc_P3_head", "arc_OLTP_head", "cloudphysics_w106_head", "cloudPhysicsIO", "arc_OLTP", "arc_P3",
    ]  # fmt: skip


@pytest.mark.parametrize(("file", "lines"), goldens(), ids=lambda value: value if isinstance(value, str) else "")
def test_misses_are_libcachesims(file: str, lines: list[Line]) -> None:
    assert len(lines) in (3 * len(EXACT), 4 * len(EXACT))
    assert replayed(source(lines[0][0], file), lines) == lines


def test_another_policy_is_found() -> None:
    """A canary."""
    file, lines = goldens()[0]
    trace = source("sample", file)
    assert replayed(trace, lines) == lines
    swapped: list[Line] = [(*line[:3], "lru" if line[3] == "arc" else line[3], *line[4:]) for line in lines]
    assert replayed(trace, swapped) != swapped
