"""fio jobs over iSCSI and NBD, and what is read from their JSON."""

import json
from dataclasses import dataclass
from typing import Any

from harness.tools import built_tool, run


@dataclass(frozen=True)
class Workload:
    name: str
    operation: str
    """fio's word for it."""
    block: str
    depth: int
    unit: str
    """`iops` or `mib_s`, whichever a reader expects."""

    @property
    def writes(self) -> bool:
        return "write" in self.operation


WORKLOADS = (
    Workload("random read 4 KiB, depth 1", "randread", "4k", 1, "iops"),
    Workload("random read 4 KiB, depth 32", "randread", "4k", 32, "iops"),
    Workload("random write 4 KiB, depth 1", "randwrite", "4k", 1, "iops"),
    Workload("random write 4 KiB, depth 32", "randwrite", "4k", 32, "iops"),
    Workload("sequential read 1 MiB, depth 8", "read", "1m", 8, "mib_s"),
    Workload("sequential write 1 MiB, depth 8", "write", "1m", 8, "mib_s"),
)


@dataclass(frozen=True)
class Figures:
    value: float
    p50_us: float
    p99_us: float


def address(url: str) -> list[str]:
    """The engine for a URL and the URL in fio's spelling."""
    if url.startswith("iscsi://"):
        return ["--ioengine=libiscsi", "--filename=" + url.replace(":", "\\:")]
    return ["--ioengine=nbd", f"--uri={url}"]


def words(workload: Workload, url: str, size: int, seconds: float | None) -> list[str]:
    """The command line. Every written block is new and incompressible, so that nothing is saved by deduplication."""
    options = [
        str(built_tool("fio")),
        "--name=job",
        "--thread",
        *address(url),
        f"--rw={workload.operation}",
        f"--bs={workload.block}",
        f"--iodepth={workload.depth}",
        f"--size={size}",
        "--randrepeat=0",
        "--refill_buffers",
        "--buffer_compress_percentage=0",
        "--output-format=json",
    ]
    if workload.writes:
        options.append("--end_fsync=1")
    if seconds is not None:
        options += ["--time_based", f"--runtime={seconds}", f"--ramp_time={min(1.0, seconds / 4)}"]
    return options


def measure(workload: Workload, url: str, size: int, seconds: float | None) -> Figures:
    """One run; without `seconds` it passes over the whole size once."""
    done = run(words(workload, url, size, seconds), limit_s=600)
    job: dict[str, Any] = json.loads(done.stdout[done.stdout.index("{") :])["jobs"][0]
    if job["error"]:
        raise RuntimeError(f"fio: {workload.name} on {url} ended with error {job['error']}")
    side = job["write" if workload.writes else "read"]
    value = side["iops"] if workload.unit == "iops" else side["bw_bytes"] / (1 << 20)
    percentiles = side["clat_ns"].get("percentile", {})
    return Figures(value, percentiles.get("50.000000", 0) / 1e3, percentiles.get("99.000000", 0) / 1e3)
