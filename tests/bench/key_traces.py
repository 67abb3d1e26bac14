"""Traces for the simulator part: public ones from the folder that TOMBOLO_TRACES names, else a generated one."""

import lzma
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from harness.tools import run

CLOUD_PHYSICS = "cloudPhysicsIO.oracleGeneral.bin.zst"
W106 = "caffeine_cloudphysics_w106.trace.xz"
ORACLE_GENERAL = np.dtype([("time_s", "<u4"), ("id", "<u8"), ("bytes", "<u4"), ("next", "<i8")])
NEVER_AGAIN = -1
BLOCK_BYTES = 4096
ZIPF_REQUESTS = 5_000_000
ZIPF_KEYS = 300_000
SEED = 1


@dataclass(frozen=True)
class KeyTrace:
    name: str
    file: Path
    """In libCacheSim's `oracleGeneral`, uncompressed."""
    requests: int
    distinct: int


@dataclass(frozen=True)
class PageTrace:
    """Numbers of blocks, for a sweep."""

    name: str
    file: Path
    requests: int


def public(name: str) -> Path | None:
    folder = os.environ.get("TOMBOLO_TRACES")
    path = Path(folder) / name if folder else None
    return path if path and path.exists() else None


def zipf(requests: int = ZIPF_REQUESTS, keys: int = ZIPF_KEYS) -> NDArray[np.uint32]:
    """Popularity falls with the rank (exponent 1); the popular ones lie anywhere."""
    random = np.random.default_rng(SEED)
    cumulative = np.cumsum(1.0 / np.arange(1, keys + 1))
    ranks = np.searchsorted(cumulative, random.random(requests) * cumulative[-1])
    chosen: NDArray[np.uint32] = random.permutation(keys).astype(np.uint32)[ranks]
    return chosen


def pages(folder: Path) -> PageTrace:
    """The long trace, as numbers of 32 bits."""
    file = folder / "pages.u32"
    found = public(W106)
    if found:
        file.write_bytes(lzma.decompress(found.read_bytes()))
        return PageTrace("CloudPhysics w106", file, file.stat().st_size // 4)
    ids = zipf()
    ids.astype("<u4").tofile(file)
    return PageTrace(f"generated, Zipf, seed {SEED}", file, len(ids))


def next_uses(ids: NDArray[np.unsignedinteger]) -> NDArray[np.int64]:
    """For each request the number of the next one for the same key, counted from one."""
    order = np.argsort(ids, kind="stable")
    again = ids[order][1:] == ids[order][:-1]
    found = np.full(len(ids), NEVER_AGAIN, np.int64)
    found[order[:-1][again]] = order[1:][again] + 1
    return found


def as_oracle_general(ids: NDArray[np.unsignedinteger], file: Path) -> None:
    records = np.zeros(len(ids), ORACLE_GENERAL)
    records["id"] = ids
    records["bytes"] = BLOCK_BYTES
    records["next"] = next_uses(ids)
    records.tofile(file)


def key_trace(name: str, file: Path) -> KeyTrace:
    ids = np.fromfile(file, ORACLE_GENERAL)["id"]
    return KeyTrace(name, file, len(ids), len(np.unique(ids)))


def key_traces(long: PageTrace, folder: Path) -> list[KeyTrace]:
    """The long trace, and a short one if it is at hand."""
    file = folder / "long.oracleGeneral"
    as_oracle_general(np.fromfile(long.file, "<u4"), file)
    traces = [key_trace(long.name, file)]
    compressed = public(CLOUD_PHYSICS)
    if compressed:
        file = folder / "short.oracleGeneral"
        run(["zstd", "-dq", compressed, "-o", file])
        traces.append(key_trace("cloudPhysicsIO", file))
    return traces
