"""Misses as libCacheSim counts them, for the tests of exactness: `python -m bench.key_goldens`, in `tests`, after
`scripts/setup.sh bench`.

Writes `cache/tests/data/libcachesim.tsv`: for each sample beside it, and for each public trace in the folder that
TOMBOLO_TRACES names, every policy at several sizes. All traces must be there, so that no line is lost unnoticed.
"""

import tempfile
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench.key_replay import LIBCACHESIM_POLICIES, libcachesim
from bench.key_traces import ORACLE_GENERAL, as_oracle_general, public
from harness.tools import REPOSITORY, run

DATA = REPOSITORY / "cache/tests/data"
GOLDENS = DATA / "libcachesim.tsv"
SAMPLES = ("web07.u32.zst", "arc_P3_head.lis.zst", "arc_OLTP_head.lis.zst", "cloudphysics_w106_head.u32.zst")
PUBLIC = ("cloudPhysicsIO.oracleGeneral.bin.zst", "arc_OLTP.lis.zst", "arc_P3.lis.zst")
SAMPLE_PERCENT = (1, 5, 10, 30)
PUBLIC_PERCENT = (1, 10, 30)
"""Sizes, of the trace's distinct keys."""
KEYS_MIN = 100
"""With fewer its W-TinyLFU has a window of no keys, and misses every request."""
COLUMNS = ("origin", "file", "keys", "policy", "misses", "requests")


def ids_of(file: Path, scratch: Path) -> NDArray[np.uint64]:
    """The keys of a trace in order, a range taken for as many keys."""
    plain = scratch / file.name.removesuffix(".zst")
    run(["zstd", "-dqf", file, "-o", plain])
    match plain.suffix:
        case ".u32":
            return np.fromfile(plain, "<u4").astype(np.uint64)
        case ".bin":
            return np.fromfile(plain, ORACLE_GENERAL)["id"].astype(np.uint64)
        case ".lis":
            first, count = np.loadtxt(plain, np.int64, usecols=(0, 1), unpack=True)
            starts = np.repeat(first - np.concatenate(([0], np.cumsum(count)[:-1])), count)
            return (starts + np.arange(count.sum())).astype(np.uint64)
    raise ValueError(f"{file}: neither .u32 nor .bin nor .lis")


def lines_of(origin: str, file: Path, percent: tuple[int, ...], scratch: Path) -> Iterator[str]:
    ids = ids_of(file, scratch)
    distinct = len(np.unique(ids))
    replayed = scratch / "replayed.oracleGeneral"
    as_oracle_general(ids, replayed)
    for share in percent:
        keys = max(distinct * share // 100, KEYS_MIN)
        for policy in LIBCACHESIM_POLICIES:
            misses = round(libcachesim(replayed, policy, keys)() * len(ids))
            yield "\t".join((origin, file.name, str(keys), policy, str(misses), str(len(ids))))


def main() -> None:
    missing = [name for name in PUBLIC if public(name) is None]
    if missing:
        raise SystemExit(f"TOMBOLO_TRACES names no folder with {', '.join(missing)}")
    lines = [f"# libCacheSim {version('libcachesim')} (PyPI), ignore_obj_size; by tests/bench/key_goldens.py"]
    lines.append("# " + "\t".join(COLUMNS))
    with tempfile.TemporaryDirectory() as folder:
        for name in SAMPLES:
            lines += lines_of("sample", DATA / name, SAMPLE_PERCENT, Path(folder))
        for name in PUBLIC:
            file = public(name)
            assert file is not None
            lines += lines_of("public", file, PUBLIC_PERCENT, Path(folder))
    GOLDENS.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
