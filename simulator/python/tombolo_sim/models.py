"""Latencies and prices of clouds and disks, and what they rest on.

Latencies are (quantile, milliseconds) pairs. No model is fitted to a trace; the same ones are used for all of them.
"""

from dataclasses import dataclass
from typing import Any, TypeAlias

Quantiles: TypeAlias = list[tuple[float, float]]


@dataclass(frozen=True)
class Cloud:
    name: str
    title: str
    basis: str
    get_ms: Quantiles
    put_ms: Quantiles
    ms_per_mib: float
    get_usd_per_1000: float
    put_usd_per_1000: float
    egress_usd_per_gib: float
    storage_usd_per_gib_month: float
    parallel_requests: int = 16

    def job_fields(self) -> dict[str, Any]:
        return {
            "cloud": {
                "get_ms": self.get_ms,
                "put_ms": self.put_ms,
                "ms_per_mib": self.ms_per_mib,
                "parallel_requests": self.parallel_requests,
            },
            "prices": {
                "get_usd_per_1000": self.get_usd_per_1000,
                "put_usd_per_1000": self.put_usd_per_1000,
                "egress_usd_per_gib": self.egress_usd_per_gib,
                "storage_usd_per_gib_month": self.storage_usd_per_gib_month,
            },
        }


@dataclass(frozen=True)
class Disk:
    name: str
    title: str
    basis: str
    read_ms: Quantiles
    write_ms: Quantiles
    queue_depth: int

    def job_fields(self) -> dict[str, Any]:
        return {"disk": {"read_ms": self.read_ms, "write_ms": self.write_ms, "queue_depth": self.queue_depth}}


# Table 4 prints p90, p95 and p99 of the cloud itself; the lower quantiles are inverted from its six algorithm rows.
# Above p99 the lognormal through p95 and p99 goes on to p99.9.
_S3_2014: Quantiles = [
    (0.01, 700), (0.05, 765), (0.10, 800), (0.25, 955), (0.50, 1300), (0.75, 1845),
    (0.90, 2105), (0.95, 2322), (0.99, 2865), (0.999, 3627),
]  # fmt: skip

# Table 5, in the same way.
_CLOUDFRONT_2014: Quantiles = [
    (0.01, 386), (0.05, 402), (0.10, 408), (0.25, 440), (0.50, 467), (0.75, 511),
    (0.90, 539), (0.95, 593), (0.99, 805), (0.999, 1134),
]  # fmt: skip

# A request of 4 KiB within the region, 2025: p50 26.8, p90 46.9, p99 113.3 were measured; the floor and p10 are those
# of a lognormal with a floor of 10 ms, p99.9 goes on from p90 and p99.
_S3_2025_GET: Quantiles = [
    (0.01, 10),
    (0.10, 12.2),
    (0.25, 17.7),
    (0.50, 26.8),
    (0.90, 46.9),
    (0.99, 113.3),
    (0.999, 190),
]

# PUT of some 500 KiB, 2025: p50, p95 and p99.
_S3_2025_PUT: Quantiles = [(0.01, 40), (0.50, 69.8), (0.95, 101.1), (0.99, 137.2), (0.999, 200)]

# A round trip more to each request.
_ACROSS_MS = 74.0

CLOUDS: dict[str, Cloud] = {
    cloud.name: cloud
    for cloud in (
        Cloud(
            name="s3-2014",
            title="S3 2014",
            basis="Tombolo table 4: printed p90/p95/p99, lower quantiles inverted from its rows; a whole object's "
            "latency whatever the request's size; PUT as GET; list prices of 2014",
            get_ms=_S3_2014,
            put_ms=_S3_2014,
            ms_per_mib=0.0,
            get_usd_per_1000=0.0004,
            put_usd_per_1000=0.005,
            egress_usd_per_gib=0.12,
            storage_usd_per_gib_month=0.0295,
        ),
        Cloud(
            name="cloudfront-2014",
            title="CloudFront 2014",
            basis="Tombolo table 5, as above; uploads go to S3; requests and transfer at CloudFront's and the origin's "
            "prices of 2014 together",
            get_ms=_CLOUDFRONT_2014,
            put_ms=_S3_2014,
            ms_per_mib=0.0,
            get_usd_per_1000=0.00115,
            put_usd_per_1000=0.005,
            egress_usd_per_gib=0.24,
            storage_usd_per_gib_month=0.0295,
        ),
        Cloud(
            name="modern",
            title="S3 2025, in region",
            basis="third-party measurements of 2025 (p50/p90/p99), 20 ms/MiB; list prices of 2025",
            get_ms=_S3_2025_GET,
            put_ms=_S3_2025_PUT,
            ms_per_mib=20.0,
            get_usd_per_1000=0.0004,
            put_usd_per_1000=0.005,
            egress_usd_per_gib=0.09,
            storage_usd_per_gib_month=0.023,
        ),
        Cloud(
            name="modern-remote",
            title="S3 2025, 74 ms away",
            basis="as in the region, a round trip of 74 ms more to each request (model)",
            get_ms=[(quantile, ms + _ACROSS_MS) for quantile, ms in _S3_2025_GET],
            put_ms=[(quantile, ms + _ACROSS_MS) for quantile, ms in _S3_2025_PUT],
            ms_per_mib=20.0,
            get_usd_per_1000=0.0004,
            put_usd_per_1000=0.005,
            egress_usd_per_gib=0.09,
            storage_usd_per_gib_month=0.023,
        ),
    )
}

DISKS: dict[str, Disk] = {
    disk.name: disk
    for disk in (
        Disk(
            name="hdd-2014",
            title="500 GB hard disk, random",
            basis="p94.7 and p99.4 follow from the 33 and 40 ms of the GRAPH rows of tables 4 and 5; the median is "
            "that of 7200 revolutions a minute (assumed)",
            read_ms=[(0.01, 4), (0.50, 12), (0.947, 33), (0.994, 40), (0.999, 50)],
            write_ms=[(0.01, 4), (0.50, 12), (0.947, 33), (0.994, 40), (0.999, 50)],
            queue_depth=1,
        ),
        Disk(
            name="ssd",
            title="NVMe SSD",
            basis="assumed: 0.1 ms reads, 0.03 ms writes into its cache",
            read_ms=[(0.01, 0.06), (0.50, 0.1), (0.99, 0.3), (0.999, 1.0)],
            write_ms=[(0.01, 0.015), (0.50, 0.03), (0.99, 0.2), (0.999, 1.0)],
            queue_depth=32,
        ),
    )
}

# The disk that goes with a cloud's year.
DISK_OF_CLOUD = {"s3-2014": "hdd-2014", "cloudfront-2014": "hdd-2014", "modern": "ssd", "modern-remote": "ssd"}
