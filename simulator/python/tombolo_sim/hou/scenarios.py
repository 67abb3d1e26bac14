"""The store of Hou's case study, the files that stand in for its trace, and stores to find the right parallelism of.

What the paper prints of the way from its campus: 4 MB take 4 s and 16 MB 14.2 s, which is 0.6 s and 1.18 MB/s; a
miss of 64 KB takes 0.43 s (95.2 ms at 77.8 % hits), so 0.37 s besides transfer are taken. That four downloads of
4 MB do not feel each other and eight do (figure 15) gives the link: 5 MB/s. Nothing else was fitted. The trace (a
segment of Harvard's NFS traces, 4.8 GB in files of 12.9 MB) is not to be had: lengths of runs, popularity and the
share of writes are ours.
"""

from typing import Any, TypeAlias

Json: TypeAlias = dict[str, Any]

KIB, MIB = 1 << 10, 1 << 20
CAMPUS: Json = {
    "servers": 1000,
    "base_ms": 310.0,
    "sigma": 0.2,
    "round_trip_ms": 60.0,
    "connection_mib_per_s": 1.13,
    "link_mib_per_s": 4.9,
}
FILES: Json = {
    "count": 372,
    "mean_bytes": 12.9e6,
    "sigma": 1.0,
    "exponent": 1.0,
    "request_bytes": 16 * KIB,
    "run_requests": 400.0,
    "write_permille": 300,
    "from_beginning_permille": 700,
    "requests": 200_000,
    "think_ms": 10.0,
}
CHUNKS = {"64 KB": 64 * KIB, "1 MB": MIB, "4 MB": 4 * MIB, "8 MB": 8 * MIB, "16 MB": 16 * MIB}
PREFETCHED = ("64 KB", "1 MB", "4 MB")
WINDOW = 8
DEGREES = (1, 2, 4, 8, 16, 32)


def chunk_job(chunk: str, window: int, seed: int) -> Json:
    return {
        "store": CAMPUS,
        "files": FILES,
        "chunk_bytes": CHUNKS[chunk],
        "cache_bytes": 200_000_000,
        "prefetch_chunks_max": window,
        "write_back_s": 30.0,
        "local_ms": 0.2,
        "seed": seed,
    }


def _closed(store: Json, sizes: object, limiter: object, windows_s: object, seed: int, outstanding: int = 1000) -> Json:
    gateway = {"source": {"closed": [[0, outstanding]]}, "sizes": sizes, "limiter": limiter}
    return {"store": store, "gateways": [gateway], "windows_s": windows_s, "seed": seed}


def degree_job(chunk: str, degree: int, seed: int) -> Json:
    seconds = 100 + CHUNKS[chunk] / MIB * 20 * max(1, degree / 4)
    return _closed(CAMPUS, [[CHUNKS[chunk], 1]], {"fixed": degree}, [(seconds / 4, seconds)], seed)


_NEAR: Json = {"servers": 1000, "base_ms": 25.0, "sigma": 0.4, "round_trip_ms": 2.0, "connection_mib_per_s": 60.0}
STORES: dict[str, Json] = {
    "8 servers": _NEAR | {"servers": 8},
    "24 servers": _NEAR | {"servers": 24},
    "link of 300 MiB/s": _NEAR | {"link_mib_per_s": 300.0},
    "distance of 80 ms": _NEAR | {"round_trip_ms": 80.0, "connection_mib_per_s": 12.0, "link_mib_per_s": 100.0},
    "link of 12 MiB/s": _NEAR | {"round_trip_ms": 40.0, "connection_mib_per_s": 12.0, "link_mib_per_s": 12.0},
    "no limit": _NEAR,
    "24 servers, 2 % lost": _NEAR | {"servers": 24, "loss_permille": 20},
    "refuses above 300/s": _NEAR | {"requests_per_s_max": 300.0},
    "16 servers, refuses a queue of 16": _NEAR | {"servers": 16, "queue_max": 16},
}
MIXES: dict[str, Any] = {
    "4 KiB": [[4 * KIB, 1]],
    "mixed": [[4 * KIB, 0.5], [256 * KIB, 0.3], [4 * MIB, 0.2]],
    "4 MiB": [[4 * MIB, 1]],
}
CEILING = 64
FIXED = (2, 4, 8, 12, 16, 24, 32, 48, 64)
CONTROLLERS = ("adaptive", "gradient", "vegas", "bbr")
SLOW_WINDOWS = [(60.0, 300.0), (600.0, 3900.0), (3960.0, 4200.0)]
"""Before, in the hour at a tenth (less its first five minutes), and from a minute after it."""


def limiters() -> dict[str, Any]:
    return {f"fixed {limit}": {"fixed": limit} for limit in FIXED} | {name: {name: CEILING} for name in CONTROLLERS}


def limit_job(store: Json, mix: str, limiter: object, seed: int) -> Json:
    return _closed(store, MIXES[mix], limiter, [(60.0, 180.0)], seed)


def slow_hour_job(limiter: object, seed: int) -> Json:
    slow = {"slow_periods": [{"from_s": 300.0, "to_s": 3900.0, "factor": 10.0}]}
    return _closed(STORES["24 servers"] | slow, MIXES["4 KiB"], limiter, SLOW_WINDOWS, seed) | {"sample_s": 5.0}
