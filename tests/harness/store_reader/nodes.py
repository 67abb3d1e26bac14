"""Nodes of metadata trees: maps, and entries."""

from dataclasses import dataclass, field

from harness.store_reader.extents import Run
from harness.store_reader.fields import Cursor

MAP, ENTRIES = 0, 3
LEAF, INTERIOR, SEGMENT = 1, 2, 3
HEIGHT_MAX, BLOCKS_MAX, KEY_BYTES_MAX = 16, 1 << 52, 400
HOLE, BIRTH, OTHER_FILE = 1, 2, 4

MapKey = tuple[int, int]
"""File and block."""


@dataclass(frozen=True)
class Pointer:
    object: int
    message: int
    offset: int
    """Of its stored bytes, from the object's beginning on."""
    length: int
    birth: int
    tag: bytes

    @property
    def name(self) -> str:
        return f"nodes/{self.object:016x}"


NO_POINTER = Pointer(0, 0, 0, 0, 0, b"")


@dataclass
class Reference:
    """What names a tree: the node at its top, if there is one, and the segments before it, the oldest first."""

    pointer: Pointer | None
    segments: list[Pointer]
    height: int = 0


@dataclass
class Node:
    height: int
    runs: list[tuple[int, Run]] = field(default_factory=list)
    """Of a leaf or segment of a map, with their file."""
    entries: list[tuple[bytes, bytes | None]] = field(default_factory=list)
    """Of a leaf or segment of entries; None: a deletion."""
    map_children: list[tuple[MapKey | None, Reference]] = field(default_factory=list)
    entry_children: list[tuple[bytes | None, Reference]] = field(default_factory=list)


class Pointers:
    """Pointers that follow each other."""

    def __init__(self, fields: Cursor) -> None:
        self.fields, self.before = fields, NO_POINTER

    def one(self) -> Pointer:
        fields, before = self.fields, self.before
        number = fields.difference(before.object)
        message, offset, length = (fields.varint(32) for _ in range(3))
        birth = fields.difference(before.birth)
        fields.require(birth < 1 << 32, "a birth that is too large")
        self.before = Pointer(number, message, offset, length, birth, fields.take(16))
        return self.before

    def segments(self) -> list[Pointer]:
        count = self.fields.u8()
        if count > 0:
            _hidden = self.fields.varint(32)
        return [self.one() for _ in range(count)]


def read_tree_root(fields: Cursor) -> Reference:
    pointers = Pointers(fields)
    height, has_node = fields.u8(), fields.u8()
    fields.require(height <= HEIGHT_MAX and has_node in (0, 1), f"a root of height {height}")
    fields.require(has_node == 1 or height == 0, "a root with a height and without a node")
    pointer = pointers.one() if has_node else None
    return Reference(pointer, pointers.segments(), height)


def read_node(fields: Cursor, family: int, is_segment: bool) -> Node:
    """A node of a map or of entries."""
    fields.require(fields.take(2) == b"TN", "does not begin with TN")
    kind, height, zero, follow = fields.u8() - family, fields.u8(), fields.u32(), fields.u32()
    fields.require(kind in ((SEGMENT,) if is_segment else (LEAF, INTERIOR)), f"is a node of kind {kind + family}")
    fields.require(zero == 0 and follow == fields.left, f"{fields.left} bytes follow instead of {follow}")
    fields.require((1 <= height <= HEIGHT_MAX) if kind == INTERIOR else height == 0, f"has height {height}")
    count = fields.varint()
    fields.require(count >= 1, "holds nothing")
    node = Node(height)
    if kind == INTERIOR and family == MAP:
        read_map_children(fields, count, node)
    elif kind == INTERIOR:
        read_entry_children(fields, count, node)
    elif family == MAP:
        read_runs(fields, count, is_segment, node)
    else:
        read_entries(fields, count, is_segment, node)
    fields.end()
    return node


def read_runs(fields: Cursor, count: int, is_segment: bool, node: Node) -> None:
    file = end = pvbn_end = 0
    for _ in range(count):
        mixed = fields.varint()
        length, flags = mixed >> 3, mixed & 7
        if flags & OTHER_FILE:
            higher = fields.varint()
            fields.require(higher > 0, "another file that is the same")
            file, end = file + higher, 0
        first = end + fields.varint()
        end = first + length
        fields.require(length >= 1 and end <= BLOCKS_MAX, f"a run of {length} blocks from {first} on")
        pvbn = None
        if flags & HOLE:
            fields.require(is_segment and not flags & BIRTH, "holes that may not be there")
        else:
            pvbn = fields.difference(pvbn_end)
            pvbn_end = pvbn + length
            fields.require(pvbn_end <= 1 << 64, "PVBNs of more than 64 bits")
        if flags & BIRTH:
            _birth = fields.varint(32)
        node.runs.append((file, Run(first, length, pvbn)))


def read_key(fields: Cursor, before: bytes) -> bytes:
    shared, follow = fields.varint(), fields.varint()
    fields.require(shared <= len(before) and shared + follow <= KEY_BYTES_MAX, "a key that is too long")
    more = fields.take(follow)
    key = before[:shared] + more
    fields.require(before[shared : shared + 1] != more[:1] or not more, "a key that shares less than it could")
    return key


def read_entries(fields: Cursor, count: int, is_segment: bool, node: Node) -> None:
    key = b""
    for number in range(count):
        before, key = key, read_key(fields, key)
        fields.require(number == 0 or before < key, f"key {key.hex()} does not ascend")
        length = fields.varint()
        fields.require(length > 0 or is_segment, "a deletion in a leaf")
        node.entries.append((key, fields.take(length - 1) if length else None))


def read_map_children(fields: Cursor, count: int, node: Node) -> None:
    pointers = Pointers(fields)
    file = block = 0
    for number in range(count):
        key = None
        if number > 0:
            higher = fields.varint()
            before = (file, block)
            file, block = file + higher, fields.varint() + (0 if higher else block)
            key = (file, block)
            fields.require(before < key, f"child {key} does not ascend")
        pointer = pointers.one()
        node.map_children.append((key, Reference(pointer, pointers.segments(), node.height - 1)))


def read_entry_children(fields: Cursor, count: int, node: Node) -> None:
    pointers = Pointers(fields)
    text = b""
    for number in range(count):
        key = None
        if number > 0:
            before, text = text, read_key(fields, text)
            key = text
            fields.require(before < key, f"child {key.hex()} does not ascend")
        pointer = pointers.one()
        node.entry_children.append((key, Reference(pointer, pointers.segments(), node.height - 1)))
