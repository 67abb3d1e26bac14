"""Clouds and disks by name: whose latencies they have, what they cost, and what that rests on.

The latency tables are the engine's (`simulator/engine/src/replay/models.rs`); prices of today are those that are
shipped (`billing/src/tables.rs`), those of 2014 stand here. Nothing is fitted to a trace; the same models are used for
all of them.
"""

import json
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

from tombolo_sim import _engine
from tombolo_sim.measure.table import Json, read

Quantiles: TypeAlias = list[tuple[float, float]]
"""(quantile, milliseconds)."""


@cache
def tables() -> dict[str, Quantiles]:
    """The engine's latency tables."""
    return {name: [(quantile, ms) for quantile, ms in points] for name, points in json.loads(_engine.models()).items()}


@cache
def shipped_prices() -> dict[str, dict[str, float]]:
    """What stores charge, by the names of the gateway's settings."""
    tables: dict[str, dict[str, float]] = json.loads(_engine.prices())
    return tables


def prices(get: float, put: float, egress: float, storage: float = 0.0) -> dict[str, float]:
    """All fields of the engine's prices: a thousand requests, and GiB that leave or lie there for a month. Other
    writing requests cost what a PUT does, other reading ones what a GET does."""
    writing = dict.fromkeys(("put_usd_per_1000", "copy_usd_per_1000", "list_usd_per_1000"), put)
    reading = dict.fromkeys(("get_usd_per_1000", "head_usd_per_1000"), get)
    lasting = {"egress_usd_per_gib": egress, "storage_usd_per_gib_month": storage}
    return shipped_prices()["free"] | writing | reading | lasting


def operation_usd(dollars: dict[str, float]) -> float:
    """All of a bill but storage."""
    return sum(amount for item, amount in dollars.items() if item not in ("storage", "total"))


@dataclass(frozen=True)
class Cloud:
    name: str
    title: str
    basis: str
    get: str
    """A latency table's name; without meaning where the store was measured."""
    put: str
    prices: dict[str, float] = field(hash=False)
    rtt_ms: float = 0.0
    ms_per_mib: float = 0.0
    parallel_requests: int = 16
    measured: Json | None = None
    """A table of `tombolo-sim measure`, in place of the names."""

    def get_ms(self) -> Quantiles:
        """Of a small request."""
        if self.measured:
            return [(quantile, ms) for quantile, ms in self.measured["get"][0]["latency_ms"]]
        return [(quantile, ms + self.rtt_ms) for quantile, ms in tables()[self.get]]

    def job_fields(self) -> dict[str, Any]:
        return {
            "cloud": {
                "get_ms": self.measured["get"] if self.measured else self.get,
                "put_ms": self.measured["put"] if self.measured else self.put,
                "rtt_ms": self.rtt_ms,
                "ms_per_mib": self.ms_per_mib,
                "parallel_requests": self.parallel_requests,
            },
            "prices": self.prices,
        }


@dataclass(frozen=True)
class Disk:
    name: str
    title: str
    basis: str
    read: str
    write: str
    queue_depth: int

    def job_fields(self) -> dict[str, Any]:
        return {"disk": {"read_ms": self.read, "write_ms": self.write, "queue_depth": self.queue_depth}}


CLOUDS: dict[str, Cloud] = {
    cloud.name: cloud
    for cloud in (
        Cloud(
            name="s3-2014",
            title="S3 2014",
            basis="Tombolo table 4: printed p90/p95/p99, lower quantiles inverted from its rows; a whole object's "
            "latency whatever the request's size; PUT as GET; list prices of 2014",
            get="s3-2014",
            put="s3-2014",
            prices=prices(get=0.0004, put=0.005, egress=0.12, storage=0.0295),
        ),
        Cloud(
            name="cloudfront-2014",
            title="CloudFront 2014",
            basis="Tombolo table 5, as above; uploads go to S3; requests and transfer at CloudFront's and the origin's "
            "prices of 2014 together",
            get="cloudfront-2014",
            put="s3-2014",
            prices=prices(get=0.00115, put=0.005, egress=0.24, storage=0.0295),
        ),
        Cloud(
            name="modern",
            title="S3 2025, in region",
            basis="a model fitted by others to measurements of 2025, 20 ms/MiB; list prices of 2025",
            get="s3-2025-get",
            put="s3-2025-put",
            ms_per_mib=20.0,
            prices=shipped_prices()["aws-s3-standard"],
        ),
        Cloud(
            name="modern-remote",
            title="S3 2025, 74 ms away",
            basis="as in the region, and a round trip of 74 ms to each request (Singapore to Tokyo)",
            get="s3-2025-get",
            put="s3-2025-put",
            rtt_ms=74.0,
            ms_per_mib=20.0,
            prices=shipped_prices()["aws-s3-standard"],
        ),
    )
}

DISKS: dict[str, Disk] = {
    disk.name: disk
    for disk in (
        Disk(
            name="hdd-2014",
            title="500 GB hard disk, random",
            basis="the tail follows from the 33 and 40 ms of the GRAPH rows of tables 4 and 5; the median is that of "
            "7200 revolutions a minute (assumed)",
            read="hdd-2014",
            write="hdd-2014",
            queue_depth=1,
        ),
        Disk(
            name="ssd",
            title="NVMe SSD",
            basis="assumed: reads of 0.09 ms, writes into its memory",
            read="ssd-read",
            write="ssd-write",
            queue_depth=32,
        ),
    )
}


def measured(path: Path) -> Cloud:
    """A store as `tombolo-sim measure` found it, at the prices of `modern`."""
    table = read(path)
    origin = table["measured"]
    return Cloud(
        name=str(path),
        title=f"{origin['store']}, {origin['at']}",
        basis=f"measured with {origin['client']}; list prices of 2025",
        get="",
        put="",
        prices=CLOUDS["modern"].prices,
        measured=table,
    )


# The disk that goes with a cloud's year.
DISK_OF_MEASURED = "ssd"
DISK_OF_CLOUD = {"s3-2014": "hdd-2014", "cloudfront-2014": "hdd-2014", "modern": "ssd", "modern-remote": "ssd"}
