"""Two builds of the daemon side by side, each with a gateway of its own on the same disk: what a change costs."""

from contextlib import ExitStack
from functools import partial
from pathlib import Path

from bench.blocks import FILL
from bench.cloud import cold_read, fill_and_drain, upload_only_on_drain
from bench.file_mount import DATA_UNITS, NAME_UNITS, SHARE, Tree
from bench.file_scale import Scale
from bench.fio import WORKLOADS, Workload, measure
from bench.report import Section
from bench.rotation import beside, rotate
from bench.rounds import Comparison, alternate
from harness.gateway import Gateway
from harness.mount import Mount

MIB = 1 << 20
OURS, OTHER = "this build", "the other"
COLUMNS = (OURS, OTHER)


def compare_builds(
    other: Path,
    folder: Path,
    size: int,
    cloud_size: int,
    rounds: int,
    seconds: float,
    scale: Scale,
    stack: ExitStack,
) -> list[Section]:
    gateways = {}
    for name, binary in ((OURS, None), (OTHER, other)):
        largest = max(size, cloud_size) // MIB
        settings = {"cache": {"size": f"{4 * largest}MiB"}, "flush": {"dirty_bytes_max": f"{2 * largest}MiB"}}
        gateway = Gateway(folder / name.replace(" ", "-"), settings, binary=binary)
        stack.callback(gateway.close)
        gateways[name] = gateway.start()
    ours, theirs = gateways[OURS], gateways[OTHER]
    for gateway in (ours, theirs):
        gateway.create_volume("bench", str(size))
        measure(FILL, gateway.nbd_uri("bench"), size, None)
    volumes = [compare_workload(workload, ours, theirs, size, rounds, seconds) for workload in WORKLOADS]
    shares = compare_shares(gateways, scale, stack)
    return [
        Section("Volumes over NBD, all data cached", COLUMNS, volumes),
        Section("Shares through the mount", COLUMNS, shares),
        Section("Cloud, a folder as the store", COLUMNS, compare_cloud(ours, theirs, cloud_size, rounds)),
    ]


def compare_workload(
    workload: Workload, ours: Gateway, theirs: Gateway, size: int, rounds: int, seconds: float
) -> Comparison:
    def once(gateway: Gateway) -> float:
        for each in (ours, theirs):
            each.drain()
        return measure(workload, gateway.nbd_uri("bench"), size, seconds).value

    unit = "IOPS" if workload.unit == "iops" else "MiB/s"
    return alternate(Comparison(workload.name, unit), rounds, partial(once, ours), partial(once, theirs))


def compare_shares(gateways: dict[str, Gateway], scale: Scale, stack: ExitStack) -> list[Comparison]:
    trees = {}
    for name, gateway in gateways.items():
        gateway.create_share(SHARE)
        mount = Mount(gateway, SHARE)
        stack.callback(mount.close)
        trees[name] = Tree(mount.start().folder, pages_are_ours=True)
        trees[name].fill(scale)

    def drain() -> None:
        for gateway in gateways.values():
            gateway.drain()

    names = rotate({name: partial(tree.names_and_files, scale) for name, tree in trees.items()}, scale.rounds, drain)
    data = rotate({name: partial(tree.data, scale) for name, tree in trees.items()}, scale.rounds, drain)
    return beside(names, OURS, OTHER, NAME_UNITS) + beside(data, OURS, OTHER, DATA_UNITS)


def compare_cloud(ours: Gateway, theirs: Gateway, size: int, rounds: int) -> list[Comparison]:
    for gateway in (ours, theirs):
        upload_only_on_drain(gateway, size)
        gateway.create_volume("cloud", str(size))
    drain, read = Comparison("drain", "MiB/s"), Comparison("cold sequential read", "MiB/s")
    alternate(drain, rounds, *(partial(fill_and_drain, gateway, "cloud", size) for gateway in (ours, theirs)))
    alternate(read, rounds, *(partial(cold_read, gateway, "cloud", size) for gateway in (ours, theirs)))
    return [drain, read]
