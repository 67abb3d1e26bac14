"""Block workloads over iSCSI: a LUN of ours beside a LUN of tgtd's own rdwr store, in one tgtd, on one disk."""

from pathlib import Path

from bench.fio import WORKLOADS, Workload, measure
from bench.rounds import Comparison, alternate
from harness.gateway import Gateway
from harness.target import Tgtd

FILL = Workload("fill", "write", "1m", 8, "mib_s")


def compare_blocks(
    gateway: Gateway, tgtd: Tgtd, folder: Path, size: int, rounds: int, seconds: float
) -> list[Comparison]:
    """All workloads on LUNs that were filled with unique data, so that reads of ours are cache hits."""
    gateway.create_volume("bench", str(size))
    iqn = tgtd.create_target(1, "bench")
    tgtd.add_lun(1, 1, gateway.nbd_socket, "bench")
    file = folder / "rdwr.lun"
    with file.open("wb") as opened:
        opened.truncate(size)
    tgtd.add_file_lun(1, 2, file)
    ours, other = tgtd.url(iqn, 1), tgtd.url(iqn, 2)
    for url in (ours, other):
        measure(FILL, url, size, None)
    gateway.drain()
    return [compare_one(gateway, tgtd, workload, ours, other, size, rounds, seconds) for workload in WORKLOADS]


def compare_one(
    gateway: Gateway, tgtd: Tgtd, workload: Workload, ours: str, other: str, size: int, rounds: int, seconds: float
) -> Comparison:
    latencies: dict[str, list[float]] = {"ours": [], "other": []}
    cpu: dict[str, list[float]] = {"ours": [], "other": []}

    def once(side: str, url: str) -> float:
        gateway.drain()
        before = gateway.process.cpu_s() + tgtd.process.cpu_s()
        figures = measure(workload, url, size, seconds)
        cpu[side].append(gateway.process.cpu_s() + tgtd.process.cpu_s() - before)
        latencies[side].append(figures.p50_us)
        return figures.value

    unit = "IOPS" if workload.unit == "iops" else "MiB/s"
    result = Comparison(workload.name, unit)
    alternate(result, rounds, lambda: once("ours", ours), lambda: once("other", other))
    for side in ("ours", "other"):
        result.notes[f"{side}_p50_us"] = sorted(latencies[side])[len(latencies[side]) // 2]
        result.notes[f"{side}_cpu_s_per_round"] = round(sum(cpu[side]) / len(cpu[side]), 3)
    return result
