"""What a bucket holds: the metadata tree, and the journal laid over it."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from harness.store_reader.extents import Extents, Run
from harness.store_reader.fields import Cursor, Damaged
from harness.store_reader.heads import Secrets, key_id, read_keys
from harness.store_reader.journal import Part, Root, read_journal, read_root
from harness.store_reader.nodes import BLOCKS_MAX, Reference, read_tree_root
from harness.store_reader.packs import SPAN, Block, Descriptor, read_descriptor, read_pack
from harness.store_reader.stores import Store
from harness.store_reader.tree import MAP_END, Complain, Nodes, fail

FILE = 1 << 63
PACKS_KEPT = 64
NO_TREE = Reference(None, [])


FLUSH_TO_BUCKET = 1 << 63
"""In a volume's size."""


@dataclass(frozen=True)
class Volume:
    number: int
    name: str
    size: int

    @property
    def blocks(self) -> int:
        return self.size & ~FLUSH_TO_BUCKET

    @property
    def flush(self) -> str:
        """What its flushes wait for."""
        return "bucket" if self.size & FLUSH_TO_BUCKET else "local"


def big(number: int) -> bytes:
    return number.to_bytes(8, "big")


def beyond(prefix: bytes) -> bytes:
    """The first key behind all that begin so."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1])


class Bucket:
    """What a root names, the newest or a kept one. What is damaged is said to `complain`, then taken for absent."""

    def __init__(self, store: Store, master: bytes | None, complain: Complain = fail, kept: int | None = None) -> None:
        self.store, self.complain = store, complain
        self.root_name = "root" if kept is None else f"roots/{kept:016x}"
        self.secrets: Secrets = {}
        if master is not None:
            try:
                self.secrets = {key_id(key): key for key in read_keys(store.get("keys"), master)}
            except Damaged as damage:
                complain(damage)
        self.nodes = Nodes(store, self.secrets, complain)
        self._descriptors: dict[int, Descriptor] = {}
        """Of the journal, by first PVBN."""
        self._volumes: dict[int, Volume | None] = {}
        self._runs: dict[int, list[Run]] = {}
        self._without_tree: set[int] = set()
        """Numbers of maps of which the tree's part does not count."""
        self._entries: dict[bytes, bytes | None] = {}
        self._counters: dict[bytes, int] = {}
        self._by_pvbn: dict[int, Descriptor] = {}
        self._pack = lru_cache(PACKS_KEPT)(self._read_pack)
        self.checkpoint, self._tree = 0, NO_TREE
        self.root: Root | None = None
        self.parts: list[Part] = []
        if master is None or self.secrets:
            self._read_root()
        for point in points(self.parts):
            if any(part.is_alone for part in point):
                self._forget_all()
            for part in point:
                self._lay(part)
        self._files_map, self._files_entries = self._read_files_roots()

    def _read_root(self) -> None:
        try:
            self.root = read_root(self.root_name, self.store.get(self.root_name), self.secrets)
            if self.root.tree:
                fields = Cursor("root", "metadata tree", self.root.tree)
                self.checkpoint, self._tree = fields.u32(), read_tree_root(fields)
                fields.end()
            self.parts = read_journal(self.store, self.secrets, self.root, self.complain)
        except Damaged as damage:
            self.complain(damage)

    def _forget_all(self) -> None:
        self._tree = NO_TREE
        for known in (self._descriptors, self._volumes, self._runs, self._entries, self._counters):
            known.clear()
        self._without_tree.clear()

    def _lay(self, part: Part) -> None:
        changes = part.changes
        for number, volume in changes.volumes.items():
            if volume is None:
                self._runs.pop(number, None)
                self._without_tree.add(number)
            self._volumes[number] = None if volume is None else Volume(number, volume[1], volume[0])
        for number, first, count, pvbn in changes.runs:
            self._runs.setdefault(number, []).append(Run(first, count, pvbn))
        self._descriptors |= {descriptor.first: descriptor for descriptor in changes.descriptors}
        self._entries |= changes.entries
        self._counters |= changes.counters

    def _datasets(self, key: bytes) -> dict[int, Cursor]:
        """Values under keys that begin so, by the number that ends the key."""
        found = self.nodes.entries(self._tree, key, beyond(key))
        return {int.from_bytes(name[1:], "big"): Cursor("root", f"entry {name.hex()}", found[name]) for name in found}

    def _read_files_roots(self) -> tuple[Reference, Reference]:
        fields = self._datasets(b"D" + big(0)).get(0)
        if fields is None:
            return NO_TREE, NO_TREE
        try:
            fields.require(fields.u8() == 2, "the dataset 0 is not that of the shares")
            roots = read_tree_root(fields), read_tree_root(fields)
            fields.end()
            return roots
        except Damaged as damage:
            self.complain(damage)
            return NO_TREE, NO_TREE

    def _tree_volumes(self) -> dict[int, tuple[Volume, Reference]]:
        found = {}
        for number, fields in self._datasets(b"D").items():
            if number == 0:
                continue
            try:
                fields.require(fields.u8() == 1, "a dataset that is not a volume")
                size, name = fields.u64(), fields.text(fields.u8())
                found[number] = Volume(number, name, size), read_tree_root(fields)
                fields.end()
            except Damaged as damage:
                self.complain(damage)
        return found

    def read_tree(self) -> None:
        """Reads every node."""
        self.nodes.entries(self._tree)
        self.nodes.entries(self._files_entries)
        for number, (_, tree) in self._tree_volumes().items():
            self.nodes.runs(tree, (number, 0), (number, BLOCKS_MAX), {})
        self.nodes.runs(self._files_map, (0, 0), MAP_END, {})

    def volumes(self) -> list[Volume]:
        of_tree = {number: volume for number, (volume, _) in self._tree_volumes().items()}
        known = of_tree | self._volumes
        return sorted((volume for volume in known.values() if volume is not None), key=lambda volume: volume.name)

    def map_of(self, number: int) -> list[Run]:
        """The runs of a volume or file, without holes."""
        maps: dict[int, Extents] = {}
        if number not in self._without_tree:
            tree = self._files_map if number & FILE else self._tree_volumes().get(number, (None, NO_TREE))[1]
            self.nodes.runs(tree, (number, 0), (number, BLOCKS_MAX), maps)
        return self._laid(maps.get(number, Extents()), number)

    def _laid(self, found: Extents, number: int) -> list[Run]:
        for run in self._runs.get(number, ()):
            found.put(run)
        return [run for run in found if run.pvbn is not None]

    def files_with_maps(self) -> dict[int, list[Run]]:
        """The maps of all files, by number."""
        maps: dict[int, Extents] = {}
        self.nodes.runs(self._files_map, (FILE, 0), (1 << 64, 0), maps)
        for gone in self._without_tree & maps.keys():
            del maps[gone]
        numbers = sorted(maps.keys() | {number for number in self._runs if number & FILE})
        return {number: self._laid(maps.get(number, Extents()), number) for number in numbers}

    def entries(self, prefix: bytes) -> dict[bytes, bytes]:
        """Entries of the file service whose keys begin so, ascending."""
        found: dict[bytes, bytes | None] = dict(self.nodes.entries(self._files_entries, prefix, beyond(prefix)))
        found |= {key: value for key, value in self._entries.items() if key.startswith(prefix)}
        return {key: value for key, value in sorted(found.items()) if value is not None}

    def entry(self, key: bytes) -> bytes | None:
        if key in self._entries:
            return self._entries[key]
        return self.nodes.entries(self._files_entries, key, key + b"\0").get(key)

    def counters(self) -> dict[bytes, int]:
        of_tree = self.nodes.entries(self._tree, b"K", b"L")
        found = {key[1:]: int.from_bytes(value, "little", signed=True) for key, value in of_tree.items()}
        return {key: value for key, value in sorted((found | self._counters).items()) if value != 0}

    def descriptors(self, first: int = 0, last: int = (1 << 64) - 1) -> list[Descriptor]:
        """Of the objects whose first PVBN lies in a range."""
        found: dict[int, Descriptor] = {}
        for key, value in self.nodes.entries(self._tree, b"O" + big(first), b"O" + big(last) + b"\0").items():
            fields = Cursor("root", f"entry {key.hex()}", value)
            try:
                fields.require(fields.u8() == 1, "an object of unknown kind")
                descriptor = read_descriptor(fields)
                fields.end()
                fields.require(key == b"O" + big(descriptor.first), "the descriptor begins with another PVBN")
                found[descriptor.first] = descriptor
            except Damaged as damage:
                self.complain(damage)
        found |= {pvbn: described for pvbn, described in self._descriptors.items() if first <= pvbn <= last}
        return [found[pvbn] for pvbn in sorted(found)]

    def descriptor_of(self, pvbn: int) -> Descriptor | None:
        if pvbn not in self._by_pvbn:
            for descriptor in self.descriptors(max(0, pvbn - SPAN + 1), pvbn + SPAN):
                self._by_pvbn |= dict.fromkeys(descriptor.pvbns, descriptor)
        return self._by_pvbn.get(pvbn)

    def _read_pack(self, descriptor: Descriptor) -> dict[int, Block]:
        name = descriptor.name
        blocks = read_pack(name, self.store.get(name), self.secrets, descriptor)
        return {block.pvbn: block for block in blocks}

    def block(self, pvbn: int) -> bytes:
        descriptor = self.descriptor_of(pvbn)
        if descriptor is None:
            raise Damaged("root", f"no object has PVBN {pvbn}, which is mapped")
        return self._pack(descriptor)[pvbn].data


def points(parts: Iterable[Part]) -> list[list[Part]]:
    """Parts by the recovery point that they belong to."""
    found: list[list[Part]] = [[]]
    for part in parts:
        found[-1].append(part)
        if part.is_last:
            found.append([])
    return [point for point in found if point]
