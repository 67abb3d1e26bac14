"""The store of Stout's evaluation as far as the paper prints it, and what is asked of it.

Half of the paper's requests are writes, and only those reach the store. Four partitions, one server each. What a
server takes for a request and for each operation in it follows from two printed maxima: 12,000 requests a second with
intervals of 20 ms (32 gateways; 3.75 writes a batch, of which 66 % of the partitions get a part: 1,056 parts and
1,500 operations a second and server), and 41,000 with large batches (200 parts and 5,125 operations). Nothing else
was fitted; latencies were not.
"""

from collections.abc import Sequence
from typing import Any, TypeAlias

Json: TypeAlias = dict[str, Any]

STORE: Json = {
    "partitions": 4,
    "servers": 1,
    "base_ms": 0.709,
    "per_operation_ms": 0.1675,
    "sigma": 0.3,
    "round_trip_ms": 1.0,
}
GATEWAYS = 32
DOCUMENTS = 2000
"""Of each gateway, of 256 bytes (section 5.1.1)."""

FIXED_MS = (20, 40, 80, 160)
REQUESTS_PER_S = (5_000, 6_000, 9_000, 12_000, 15_000, 18_000, 24_000, 26_400, 30_000, 36_000, 41_000)

SENDERS: dict[str, Any] = {
    "at once": "none",
    **{f"fixed {ms} ms": {"fixed-ms": ms} for ms in FIXED_MS},
    "Stout": {"stout": {}},
}
READINGS_OF_STOUT: dict[str, Any] = {
    "bytes of a request": {"stout": {}},
    "bytes of an interval": {"stout": {"bytes": "interval"}},
    "bytes of the window": {"stout": {"bytes": "window"}},
    "counting operations": {"stout": {"counts_operations": True}},
    "alpha by the formula": {"stout": {"alpha_max_rule": True}},
    "SDS": {"stout": {"calibration": "sds"}},
    "PacificA": {"stout": {"calibration": "pacific-a"}},
}


def job(
    requests_per_s: float | Sequence[tuple[float, float]],
    sender: object,
    windows_s: Sequence[tuple[float, float]],
    seed: int,
    gateways: int = GATEWAYS,
    store: Json = STORE,
) -> Json:
    """Requests of all gateways together, in steps of (from second, rate)."""
    steps = [(0, requests_per_s)] if isinstance(requests_per_s, int | float) else list(requests_per_s)
    gateway = {
        "count": gateways,
        "source": {"poisson": [[begin, rate / 2 / gateways] for begin, rate in steps]},
        "sizes": [[256, 1]],
        "keys": DOCUMENTS,
        "batching": sender,
    }
    return {"store": store, "gateways": [gateway], "windows_s": list(windows_s), "seed": seed, "sample_s": 0.5}


def upload_job(sender: object, limiter: object, mib_per_s: float, seed: int) -> Json:
    """Packs of 256 KiB, up to 16 in an object, over a wide area network."""
    store = {
        "servers": 1000,
        "base_ms": 25.0,
        "sigma": 0.4,
        "round_trip_ms": 80.0,
        "connection_mib_per_s": 12.0,
        "link_mib_per_s": 100.0,
    }
    gateway = {
        "source": {"poisson": [[0, mib_per_s * 4]]},
        "sizes": [[256 << 10, 1]],
        "batching": sender,
        "operations_max": 16,
        "limiter": limiter,
    }
    return {"store": store, "gateways": [gateway], "windows_s": [(60, 180)], "seed": seed}


UPLOAD_SENDERS: dict[str, Any] = {
    "at once": "none",
    "every 0.2 s": {"fixed-ms": 200},
    "every 5 s": {"fixed-ms": 5000},
    "Stout": {"stout": {"calibration": {"uploads": {"latency_p50_ms": 200.0, "dirty_age_max_ms": 5000.0}}}},
}
UPLOAD_LIMITERS: dict[str, Any] = {"4": {"fixed": 4}, "16": {"fixed": 16}, "adaptive": {"adaptive": 64}}
UPLOAD_MIB_PER_S = (4, 40, 80, 120)
"""The link carries 100."""
