"""Exact miss ratios: libCacheSim's, by replacement policies alone (`ignore_obj_size`)."""

from dataclasses import dataclass

import pytest

from samples import public
from tombolo_sim import engine


@dataclass(frozen=True)
class Expected:
    file: str
    view: str
    keys: int
    ratios: dict[str, float]


POINTS = [
    Expected("cloudPhysicsIO.oracleGeneral.bin.zst", "ids", 489, {
        "lru": 0.8379584094, "arc": 0.8274992975, "s3-fifo": 0.8304851061, "sieve": 0.8291678376, "min": 0.7926707180}),
    Expected("cloudPhysicsIO.oracleGeneral.bin.zst", "ids", 4897, {
        "lru": 0.8049125334, "arc": 0.7728150906, "s3-fifo": 0.7552866376, "sieve": 0.7907123788, "min": 0.6289518055}),
    Expected("cloudPhysicsIO.oracleGeneral.bin.zst", "ids", 14692, {
        "lru": 0.6608033582, "arc": 0.6001563159, "s3-fifo": 0.5833479697, "sieve": 0.6328245750, "min": 0.5018880849}),
    Expected("arc_OLTP.lis.zst", "units", 1868, {
        "lru": 0.5836710806, "arc": 0.5460391951, "s3-fifo": 0.5353756789, "sieve": 0.5970770501, "min": 0.4024164657}),
    Expected("arc_OLTP.lis.zst", "units", 18688, {
        "lru": 0.3347871508, "arc": 0.3273495999, "s3-fifo": 0.3233557040, "sieve": 0.3333978745, "min": 0.2379338070}),
    Expected("arc_OLTP.lis.zst", "units", 56064, {
        "lru": 0.2557110743, "arc": 0.2490162939, "s3-fifo": 0.2501145879, "sieve": 0.2518320398, "min": 0.2044314633}),
    Expected("arc_P3.lis.zst", "units", 7625, {
        "lru": 0.9840835152, "arc": 0.9617119973, "s3-fifo": 0.9579244515, "sieve": 0.9714211297, "min": 0.8931295076}),
    Expected("arc_P3.lis.zst", "units", 76254, {
        "lru": 0.8319332177, "arc": 0.6773554455, "s3-fifo": 0.6608426356, "sieve": 0.7517220067, "min": 0.4479402888}),
    Expected("arc_P3.lis.zst", "units", 228762, {
        "lru": 0.3749844081, "arc": 0.3743671236, "s3-fifo": 0.3497322288, "sieve": 0.4191676703, "min": 0.2390473522}),
]  # fmt: skip


@pytest.mark.parametrize("expected", POINTS, ids=lambda expected: f"{expected.file.split('.')[0]}-{expected.keys}")
def test_miss_ratios_are_libcachesims(expected: Expected) -> None:
    path = public(expected.file)
    runs = [{"policy": name, "capacity": {"keys": expected.keys}} for name in expected.ratios]
    report = engine.keys({"trace": {"path": str(path), "view": expected.view}, "runs": runs})
    found = {run["policy"]: round(run["miss_ratio"], 10) for run in report["runs"]}
    assert found == pytest.approx(expected.ratios, abs=1.01e-10)
