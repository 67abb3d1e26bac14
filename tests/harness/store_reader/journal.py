"""The root, and the journal that it names."""

from collections.abc import Callable
from dataclasses import dataclass, field

from harness.store_reader.fields import Cursor, Damaged
from harness.store_reader.heads import JOURNAL, ROOT, Secrets, expanded, only_message
from harness.store_reader.nodes import Pointer, Pointers
from harness.store_reader.packs import Descriptor, read_descriptor
from harness.store_reader.stores import Store

NOTHING = bytes(32)
FLAG_ALONE, FLAG_LAST = 1, 2


@dataclass(frozen=True)
class Root:
    epoch: int
    sequence: int
    writer: int
    position: int
    time_s: int
    next_pvbn: int
    next_volume: int
    first: int
    """Sequence of the first journal object that is to be read; 0: none is."""
    last: int
    last_salt: bytes
    journal_bytes: int
    has_stopped: bool
    tree: bytes
    usage: Pointer | None
    """Of the usage table."""
    kept: list[int]
    """Sequences of earlier roots."""
    writer_name: str


def read_root(name: str, data: bytes, secrets: Secrets) -> Root:
    """Of the current root, or of one that is kept."""
    message, _ = only_message(name, data, ROOT, secrets)
    fields = Cursor(name, "contents", expanded(name, message))
    fields.require(fields.take(8) == b"TMBROOT1", "does not begin with TMBROOT1")
    epoch, sequence, _random, writer, position = (fields.u64() for _ in range(5))
    time_s, _lease = fields.u32(), fields.u32()
    next_pvbn, next_volume, first, last = (fields.u64() for _ in range(4))
    last_salt, _before, length, flags = fields.take(32), fields.take(32), fields.u64(), fields.u32()
    tree = fields.take(fields.u32())
    has_usage = fields.u8()
    fields.require(has_usage <= 1, f"a usage table that is {has_usage}")
    usage = Pointers(fields).one() if has_usage else None
    kept = [fields.u64() for _ in range(fields.u16())]
    fields.require(kept == sorted(set(kept)), "kept roots that do not ascend")
    writer_name = fields.text(fields.u16())
    fields.end()
    fields.require(flags <= 1 and first <= last, f"flags {flags}, journal {first} to {last}")
    return Root(
        epoch, sequence, writer, position, time_s, next_pvbn, next_volume, first, last, last_salt, length,
        flags == 1, tree, usage, kept, writer_name,
    )  # fmt: skip


@dataclass
class Changes:
    """The items of one or several parts, by the last value of each key."""

    volumes: dict[int, tuple[int, str] | None] = field(default_factory=dict)
    """Size and name, by number; None: no volume any more."""
    runs: list[tuple[int, int, int, int | None]] = field(default_factory=list)
    """Volume, first block, count and first PVBN; None: holes. In their order."""
    descriptors: list[Descriptor] = field(default_factory=list)
    entries: dict[bytes, bytes | None] = field(default_factory=dict)
    counters: dict[bytes, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Part:
    name: str
    sequence: int
    before: bytes
    is_alone: bool
    is_last: bool
    changes: Changes
    stored_bytes: int


def journal_name(sequence: int, salt: bytes) -> str:
    return f"journal/{sequence:016x}-{salt[:16].hex()}"


def read_part(name: str, data: bytes, secrets: Secrets) -> Part:
    message, salt = only_message(name, data, JOURNAL, secrets)
    fields = Cursor(name, "contents", expanded(name, message))
    fields.require(fields.take(8) == b"TMBBJ001", "does not begin with TMBBJ001")
    sequence, _epoch, before, flags = fields.u64(), fields.u64(), fields.take(32), fields.u32()
    fields.require(name == journal_name(sequence, salt), f"is the object {journal_name(sequence, salt)}")
    fields.require(flags <= FLAG_ALONE | FLAG_LAST, f"flags {flags}")
    _time, _next_pvbn, _next_volume, _totals = fields.u32(), fields.u64(), fields.u64(), fields.take(48)
    changes = Changes()
    while fields.left:
        read_item(fields, changes)
    alone, last = bool(flags & FLAG_ALONE), bool(flags & FLAG_LAST)
    return Part(name, sequence, before, alone, last, changes, len(data))


def read_item(fields: Cursor, changes: Changes) -> None:
    kind = fields.u8()
    if kind == 1:
        number, size = fields.u64(), fields.u64()
        changes.volumes[number] = (size, fields.text(fields.u8()))
    elif kind == 2:
        changes.volumes[fields.u64()] = None
    elif kind in (3, 4):
        volume, first, count = fields.u64(), fields.u64(), fields.u64()
        changes.runs.append((volume, first, count, fields.u64() if kind == 3 else None))
    elif kind == 5:
        changes.descriptors.append(read_descriptor(fields))
    elif kind == 6:
        key = fields.take(fields.u16())
        changes.entries[key] = fields.take(fields.u32())
    elif kind == 7:
        changes.entries[fields.take(fields.u16())] = None
    elif kind == 8:
        key = fields.take(fields.u16())
        changes.counters[key] = fields.i64()
    else:
        raise fields.damaged(f"an item of kind {kind}")


def read_journal(store: Store, secrets: Secrets, root: Root, complain: Callable[[Damaged], None]) -> list[Part]:
    """The parts that the root names, the first one first. Where the chain breaks, those before cannot be found."""
    parts: list[Part] = []
    sequence, salt = root.last, root.last_salt
    while 0 < root.first <= sequence:
        name = journal_name(sequence, salt)
        try:
            part = read_part(name, store.get(name), secrets)
            if part.sequence > 1 and part.before == NOTHING:
                raise Damaged(name, "names no journal object before it, although it is not the first")
            parts.append(part)
        except Damaged as damage:
            complain(damage)
            break
        sequence, salt = sequence - 1, part.before
    else:
        stored = sum(part.stored_bytes for part in parts)
        if stored != root.journal_bytes:
            complain(Damaged("root", f"says {root.journal_bytes} bytes of journal, there are {stored}"))
    if parts and not parts[0].is_last:
        complain(Damaged(parts[0].name, "is the last that the root names, but not the last part of its point"))
    return parts[::-1]
