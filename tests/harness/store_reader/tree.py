"""Reads trees of nodes: of each only those that the range asked for needs."""

from collections.abc import Callable
from itertools import pairwise

from harness.store_reader.extents import Extents
from harness.store_reader.fields import Cursor, Damaged
from harness.store_reader.heads import HEAD, NODES, Sealed, Secrets
from harness.store_reader.nodes import ENTRIES, MAP, MapKey, Node, Pointer, Reference, read_node
from harness.store_reader.stores import Store

Complain = Callable[[Damaged], None]
MAP_END: MapKey = (1 << 64, 0)
ENTRIES_END = b"\xff" * 401


def fail(damage: Damaged) -> None:
    raise damage


class Nodes:
    """The nodes of a bucket. What cannot be read is said to `complain`, and then taken for empty."""

    def __init__(self, store: Store, secrets: Secrets, complain: Complain = fail) -> None:
        self.store, self.secrets, self.complain = store, secrets, complain
        self._opened: dict[str, Sealed] = {}
        self.asked: set[Pointer] = set()
        """Of the nodes that were read so far."""

    def node(self, pointer: Pointer, family: int, is_segment: bool, height: int) -> Node | None:
        try:
            return self._node(pointer, family, is_segment, height)
        except Damaged as damage:
            self.complain(damage)
            return None

    def message(self, pointer: Pointer) -> Cursor:
        """What the message holds that the pointer names."""
        name, part = pointer.name, f"message {pointer.message} at byte {pointer.offset}"
        self.asked.add(pointer)
        if name not in self._opened:
            self._opened[name] = Sealed(name, self.store.get(name, 0, HEAD.size), NODES, self.secrets)
        sealed = self._opened[name]
        stored = self.store.get(name, pointer.offset, pointer.length)
        sealed.require(len(stored) == pointer.length, f"{part}: the object ends within it")
        sealed.require(stored[-16:] == pointer.tag, f"{part}: does not end with the tag that its pointer names")
        return Cursor(name, part, sealed.open_node(pointer.message, stored))

    def _node(self, pointer: Pointer, family: int, is_segment: bool, height: int) -> Node:
        fields = self.message(pointer)
        node = read_node(fields, family, is_segment)
        fields.require(node.height == height, f"has height {node.height} instead of {height}")
        return node

    def runs(self, tree: Reference, low: MapKey, high: MapKey, into: dict[int, Extents]) -> None:
        """Lays the runs of a map that lie from `low` to below `high` over what is there, by file."""
        self._runs(tree, (0, 0), MAP_END, low, high, into)

    def _runs(
        self, tree: Reference, begin: MapKey, end: MapKey, low: MapKey, high: MapKey, into: dict[int, Extents]
    ) -> None:
        """`begin` and `end` are the bounds of the keys in this part of the tree."""
        for pointer, is_segment in with_segments(tree):
            node = self.node(pointer, MAP, is_segment, 0 if is_segment else tree.height)
            if node is None:
                continue
            first_keys = [begin, *(key for key, _ in node.map_children[1:] if key is not None), end]
            for (child_begin, child_end), (_, child) in zip(pairwise(first_keys), node.map_children, strict=False):
                if child_begin < high and low < child_end:
                    self._runs(child, child_begin, child_end, low, high, into)
            for file, run in node.runs:
                if (file, run.first) < begin or end < (file, run.end):
                    self.complain(Damaged(pointer.name, f"message {pointer.message}: a run outside its range"))
                if (file, run.first) < high and low < (file, run.end):
                    first = low[1] if low[0] == file else 0
                    beyond = high[1] if high[0] == file else run.end
                    into.setdefault(file, Extents()).put(run.within(first, beyond))

    def entries(self, tree: Reference, low: bytes = b"", high: bytes = ENTRIES_END) -> dict[bytes, bytes]:
        """The entries from `low` to below `high`, ascending."""
        found: dict[bytes, bytes | None] = {}
        self._entries(tree, b"", ENTRIES_END, low, high, found)
        return {key: value for key, value in sorted(found.items()) if value is not None}

    def _entries(
        self, tree: Reference, begin: bytes, end: bytes, low: bytes, high: bytes, into: dict[bytes, bytes | None]
    ) -> None:
        for pointer, is_segment in with_segments(tree):
            node = self.node(pointer, ENTRIES, is_segment, 0 if is_segment else tree.height)
            if node is None:
                continue
            first_keys = [begin, *(key for key, _ in node.entry_children[1:] if key is not None), end]
            for (child_begin, child_end), (_, child) in zip(pairwise(first_keys), node.entry_children, strict=False):
                if child_begin < high and low < child_end:
                    self._entries(child, child_begin, child_end, low, high, into)
            for key, value in node.entries:
                if not begin <= key < end:
                    self.complain(Damaged(pointer.name, f"message {pointer.message}: a key outside its range"))
                if low <= key < high:
                    into[key] = value


def with_segments(tree: Reference) -> list[tuple[Pointer, bool]]:
    """The node of a tree, then its segments, which go before it, the oldest first; with whether it is a segment."""
    top = [(tree.pointer, False)] if tree.pointer else []
    return [*top, *((pointer, True) for pointer in tree.segments)]
