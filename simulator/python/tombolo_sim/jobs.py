"""Replay jobs from what people choose: a trace, a policy, a cache size, a cloud, a disk, a seed."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from tombolo_sim.models import CLOUDS, DISK_OF_CLOUD, DISK_OF_MEASURED, DISKS, Cloud, measured
from tombolo_sim.policies import Policy
from tombolo_sim.sources import Trace

Model = TypeVar("Model")

BLOCK_BYTES = 4096
_UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
CACHE_BLOCKS_MAX = 0xFFFF_FFFF


class OptionError(ValueError):
    """An option that cannot be carried out; the message says which option and why."""


def known(models: dict[str, Model], name: str, what: str) -> Model:
    try:
        return models[name]
    except KeyError:
        raise OptionError(f"there is no {what} {name!r}; choose one of {', '.join(models)}") from None


def cloud_of(name: str) -> Cloud:
    """By its name, or of a table that `tombolo-sim measure` has written."""
    return measured(Path(name)) if name.endswith(".json") else known(CLOUDS, name, "cloud")


def cache_blocks(size: str, distinct_blocks: int | None = None) -> int:
    """`10%` of the trace's distinct blocks, `64MiB`, or a plain number of blocks."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*(%|[KMGT]iB)?", size.strip())
    if match is None:
        raise OptionError(f"{size!r} is not a valid cache size: use 10%, 64MiB or a number of blocks")
    number, unit = float(match[1]), match[2] or ""
    if unit == "%":
        if distinct_blocks is None:
            raise OptionError(f"{size!r}: the trace's distinct blocks are not known")
        blocks = int(distinct_blocks * number / 100)
    else:
        blocks = int(number * _UNITS[unit]) // (BLOCK_BYTES if unit else 1)
    if not 1 <= blocks <= CACHE_BLOCKS_MAX:
        raise OptionError(f"a cache of {size} is {blocks} blocks, which is not 1 to {CACHE_BLOCKS_MAX}")
    return blocks


@dataclass(frozen=True)
class Choice:
    """One replay."""

    trace: Trace
    policy: Policy
    cache_blocks: int
    cloud: str = "modern"
    disk: str | None = None
    seed: int = 1
    arrivals: Any = "closed-loop"
    time_scale: float = 1.0
    warmup_requests: int = 0
    addressing: str = "logical"
    clients: str = "trace"
    dedup: bool = True
    flush_delay_ms: int = 5000
    pack_blocks: int = 64
    settings: dict[str, Any] = field(default_factory=dict)
    wait_microdollars_per_second: int | None = None
    """What a second that a reader waits is worth; None: whatever a prefetch costs."""
    sequential_floor: bool = False
    fetch_unit: str = "range"
    sequential_by: str = "prefetcher"
    preload: str = "pages"

    def job(self) -> dict[str, Any]:
        cloud = cloud_of(self.cloud)
        disk = known(DISKS, self.disk or DISK_OF_CLOUD.get(self.cloud, DISK_OF_MEASURED), "disk")
        policy = self.policy.job_fields()
        policy["prefetch_settings"] = policy["prefetch_settings"] | self.settings
        return {
            "trace": self.trace.source(),
            "cache_blocks": self.cache_blocks,
            **policy,
            "addressing": self.addressing,
            "clients": self.clients,
            "arrivals": self.arrivals,
            "time_scale": self.time_scale,
            "seed": self.seed,
            "warmup_requests": self.warmup_requests,
            **cloud.job_fields(),
            **disk.job_fields(),
            "flush_delay_ms": self.flush_delay_ms,
            "pack_blocks": self.pack_blocks,
            "microdollars_per_second": self.wait_microdollars_per_second,
            "sequential_floor": self.sequential_floor,
            "dedup": self.dedup,
            "fetch_unit": self.fetch_unit,
            "sequential_by": self.sequential_by,
            "preload": self.preload,
        }
