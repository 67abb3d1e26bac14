"""Reads all of a bucket and says what is missing or does not verify."""

from collections import Counter
from dataclasses import dataclass, field

from harness.store_reader.bucket import Bucket
from harness.store_reader.extents import Run
from harness.store_reader.fields import Damaged
from harness.store_reader.files import read_shares, walk
from harness.store_reader.heads import HEAD, NODES, Sealed
from harness.store_reader.journal import read_part, read_root
from harness.store_reader.packs import read_pack
from harness.store_reader.stores import Store
from harness.store_reader.usage import read_usage

WITHOUT_MESSAGES = ("keys", "root", "conditions")


@dataclass
class Report:
    problems: list[Damaged] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)

    def complain(self, damage: Damaged) -> None:
        if all(str(damage) != str(known) for known in self.problems):
            self.problems.append(damage)


def verify(store: Store, master: bytes | None, kept: int | None = None) -> Report:
    """What follows from something that is missing or altered is not said again: if it is metadata, blocks and files are
    not looked for in what is left of them."""
    report = Report()
    bucket = Bucket(store, master, report.complain, kept)
    if master is not None and not bucket.secrets:
        return report
    bucket.read_tree()
    verify_usage(bucket, report)
    metadata_are_whole = not report.problems
    names = store.names()
    known = verify_packs(bucket, names, report)
    verify_others(bucket, names, report)
    report.counts |= {
        "journal objects": len(bucket.parts),
        "nodes": len(bucket.nodes.asked),
        "packs": known,
        "packs that nothing refers to": sum(name.startswith("objects/") for name in names) - known,
    }
    if metadata_are_whole:
        verify_contents(bucket, report)
    return report


def verify_usage(bucket: Bucket, report: Report) -> None:
    """The table counts the nodes that the tree has, all of which were read; and each object of nodes is in it."""
    if report.problems or bucket.root is None or bucket.root.usage is None or not bucket.root.tree:
        return
    pointer = bucket.root.usage
    try:
        table = read_usage(bucket.nodes.message(pointer), pointer.object)
    except Damaged as damage:
        report.complain(damage)
        return
    counted = Counter(node.object for node in bucket.nodes.asked)
    if counted != {number: usage.live for number, usage in table.items() if usage.live}:
        report.complain(Damaged(pointer.name, f"message {pointer.message}: does not count the nodes of the tree"))


def verify_contents(bucket: Bucket, report: Report) -> None:
    """Volumes and shares."""
    volumes = bucket.volumes()
    blocks = sum(verify_map(bucket, f"volume {volume.name}", bucket.map_of(volume.number)) for volume in volumes)
    for number, runs in bucket.files_with_maps().items():
        blocks += verify_map(bucket, f"the file of map {number:016x}", runs)
    shares = read_shares(bucket)
    found = [inode for share in shares for _, inode in walk(bucket, share)]
    inodes = {inode.number: inode for inode in found}
    names = Counter(inode.number for inode in found)
    for number, inode in inodes.items():
        if inode.kind != "directory" and inode.links != names[number]:
            report.complain(Damaged("root", f"inode {number} has {inode.links} links and {names[number]} names"))
    report.counts |= {"volumes": len(volumes), "shares": len(shares), "inodes": len(inodes), "blocks mapped": blocks}


def verify_map(bucket: Bucket, whose: str, runs: list[Run]) -> int:
    """Each block lies in an object that says that it has it. The number of blocks."""
    for run in runs:
        for pvbn in range(run.pvbn or 0, (run.pvbn or 0) + run.count):
            if bucket.descriptor_of(pvbn) is None:
                block = run.first + pvbn - (run.pvbn or 0)
                bucket.complain(Damaged("root", f"{whose}: block {block} is PVBN {pvbn}, which no object has"))
    return sum(run.count for run in runs)


def verify_packs(bucket: Bucket, names: list[str], report: Report) -> int:
    """Every pack, those first that the metadata know. The number of these."""
    known = {descriptor.name: descriptor for descriptor in bucket.descriptors()}
    for name in [*known, *(name for name in names if name.startswith("objects/") and name not in known)]:
        try:
            read_pack(name, bucket.store.get(name), bucket.secrets, known.get(name))
        except Damaged as damage:
            report.complain(damage)
    return len(known)


def verify_others(bucket: Bucket, names: list[str], report: Report) -> None:
    """Objects that the root does not lead to, as far as they can be read alone; and names that mean nothing."""
    read = {part.name for part in bucket.parts} | {pointer.name for pointer in bucket.nodes.asked}
    for name in names:
        if name in read or name in WITHOUT_MESSAGES or name.startswith("objects/"):
            continue
        try:
            if name.startswith("journal/"):
                read_part(name, bucket.store.get(name), bucket.secrets)
            elif name.startswith("nodes/"):
                Sealed(name, bucket.store.get(name, 0, HEAD.size), NODES, bucket.secrets)
            elif name.startswith("roots/"):
                kept = read_root(name, bucket.store.get(name), bucket.secrets)
                if name != f"roots/{kept.sequence:016x}":
                    raise Damaged(name, f"is root {kept.sequence:016x}")
            else:
                raise Damaged(name, "is no object of a gateway")
        except Damaged as damage:
            report.complain(damage)
