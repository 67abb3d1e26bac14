"""What the bucket costs for a GiB that is written: bytes and requests of packs, and of the metadata beside them."""

from dataclasses import dataclass, field
from pathlib import Path

from bench.fio import Workload, measure
from bench.report import Figure, Section
from harness.gateway import Gateway
from harness.store_reader.bucket import Bucket
from harness.store_reader.stores import DirectoryStore

GIB = 1 << 30
WORKLOADS = (
    Workload("sequential, 1 MiB", "write", "1m", 8, "mib_s"),
    Workload("random, 4 KiB", "randwrite", "4k", 32, "iops"),
)
PUT_MICRODOLLARS = 5.0
"""S3 Standard in us-east-1, November 2026; GETs and DELETEs of the metadata are free or next to it."""
REMARK = (
    "Incompressible data, a folder as the store, encryption on, the settings' defaults but for sizes. A request is a "
    f"PUT at {PUT_MICRODOLLARS:g} microdollars. Journal objects are removed after they were folded into the tree, "
    "`removal_delay_ms` later, and nodes when no root needs them: the bytes beside packs are those before that."
)


@dataclass
class Cost:
    pack_bytes: list[float] = field(default_factory=list)
    packs: list[float] = field(default_factory=list)
    journal_bytes: list[float] = field(default_factory=list)
    journal_objects: list[float] = field(default_factory=list)
    node_bytes: list[float] = field(default_factory=list)
    node_objects: list[float] = field(default_factory=list)
    roots: list[float] = field(default_factory=list)

    def figures(self, name: str) -> list[Figure]:
        metadata = [sum(each) for each in zip(self.journal_objects, self.node_objects, self.roots, strict=True)]
        return [
            Figure(f"{name}: packs", "MB", [value / 1e6 for value in self.pack_bytes]),
            Figure(f"{name}: packs", "PUTs", self.packs),
            Figure(f"{name}: journal", "kB", [value / 1e3 for value in self.journal_bytes]),
            Figure(f"{name}: journal", "PUTs", self.journal_objects),
            Figure(f"{name}: nodes of the tree", "kB", [value / 1e3 for value in self.node_bytes]),
            Figure(f"{name}: nodes of the tree", "PUTs", self.node_objects),
            Figure(f"{name}: roots", "PUTs", self.roots),
            Figure(f"{name}: requests for packs", "microdollars", [PUT_MICRODOLLARS * value for value in self.packs]),
            Figure(f"{name}: requests for metadata", "microdollars", [PUT_MICRODOLLARS * value for value in metadata]),
        ]


def measure_bucket_cost(folder: Path, size: int, rounds: int) -> list[Section]:
    """All per GiB."""
    figures: list[Figure] = []
    for workload in WORKLOADS:
        cost = Cost()
        for number in range(rounds):
            once(workload, folder / f"{workload.operation}-{number}", size, cost)
        figures += cost.figures(workload.name)
    return [Section("What a GiB costs in the bucket", remark=REMARK, figures=figures)]


def once(workload: Workload, folder: Path, size: int, cost: Cost) -> None:
    sizes = {"cache": {"size": f"{2 * size}"}, "flush": {"dirty_bytes_max": f"{size // 4}"}}
    gateway = Gateway(folder, sizes)
    try:
        gateway.start()
        gateway.create_volume("cost", str(size))
        measure(workload, gateway.nbd_uri("cost"), size, None)
        gateway.drain(limit_s=600)
        store = DirectoryStore(gateway.store_directory)
        master = bytes.fromhex((gateway.state_directory / "master.key").read_text())
        root = Bucket(store, master).root
        assert root is not None
        stored: dict[str, list[int]] = {}
        for name in store.names():
            length = (gateway.store_directory / name).stat().st_size
            stored.setdefault(name.split("/")[0], []).append(length)
        scale = GIB / size
        cost.pack_bytes.append(scale * sum(stored["objects"]))
        cost.packs.append(scale * len(stored["objects"]))
        cost.journal_bytes.append(scale * sum(stored.get("journal", [])))
        cost.journal_objects.append(scale * root.last)
        cost.node_bytes.append(scale * sum(stored.get("nodes", [])))
        cost.node_objects.append(scale * len(stored.get("nodes", [])))
        cost.roots.append(scale * (root.sequence + len(stored.get("roots", []))))
    finally:
        gateway.close()
