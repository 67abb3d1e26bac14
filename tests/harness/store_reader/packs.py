"""Packs: objects that hold blocks."""

import hashlib
import struct
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import zstandard

from harness.store_reader.fields import Cursor, Damaged
from harness.store_reader.heads import HEAD, PACK, Sealed, Secrets, key_id, read_keys
from harness.store_reader.stores import DirectoryStore
from harness.store_reader.sums import xxh3

BLOCK = 4096
DESCRIPTOR_HEAD, ENTRY_BYTES, SUM_BYTES = 56, 48, 8
SPAN = 1 << 14


@dataclass
class Block:
    """One block of an object, decrypted, decompressed and verified."""

    pvbn: int
    fingerprint: bytes
    data: bytes


@dataclass(frozen=True)
class Entry:
    """What a descriptor says of one block."""

    pvbn: int
    fingerprint: bytes
    offset: int
    stored_bytes: int
    encoding: int


@dataclass(frozen=True)
class Descriptor:
    raw: bytes
    key: int
    identity: bytes
    entries: tuple[Entry, ...]

    @property
    def name(self) -> str:
        return f"objects/{self.identity.hex()[:2]}/{self.identity.hex()[2:]}"

    @property
    def first(self) -> int:
        return self.entries[0].pvbn

    @cached_property
    def pvbns(self) -> frozenset[int]:
        return frozenset(entry.pvbn for entry in self.entries)


def read_descriptor(fields: Cursor) -> Descriptor:
    """The descriptor that begins where the fields are."""
    begin = fields.place
    fields.require(fields.take(8) == b"TMBOBJ02", "a descriptor does not begin with TMBOBJ02")
    count, zero, length, key, identity = fields.u16(), fields.u16(), fields.u32(), fields.u64(), fields.take(32)
    whole = DESCRIPTOR_HEAD + ENTRY_BYTES * count + SUM_BYTES
    fields.require(1 <= count <= 1024 and zero == 0 and length == whole, f"a descriptor of {count} blocks, {length} B")
    entries: list[Entry] = []
    for _ in range(count):
        entry = Entry(fields.u64(), fields.take(32), fields.u32(), fields.u16(), fields.u8())
        before = entries[-1].pvbn if entries else -1
        fields.require(before < entry.pvbn, f"PVBN {entry.pvbn} does not ascend")
        fields.require(fields.u8() == 0 and entry.encoding in (0, 1), f"PVBN {entry.pvbn}: unknown encoding")
        fields.require(entry.encoding == 1 or entry.stored_bytes == BLOCK, f"PVBN {entry.pvbn}: a cut block")
        entries.append(entry)
    fields.require(entries[-1].pvbn - entries[0].pvbn < SPAN, "the PVBNs of a descriptor are too far apart")
    body = fields.data[begin : fields.place]
    fields.require(fields.u64() == xxh3(body), "the sum of a descriptor is wrong")
    return Descriptor(fields.data[begin : fields.place], key, identity, tuple(entries))


def read_pack(name: str, data: bytes, secrets: Secrets, expected: Descriptor | None = None) -> list[Block]:
    """All blocks of an object, each verified against its SHA-256; and the object against its name, and against the
    descriptor that the metadata have of it."""
    sealed = Sealed(name, data, PACK, secrets)
    count = sealed.count - 1
    place = HEAD.size + DESCRIPTOR_HEAD + ENTRY_BYTES * count + SUM_BYTES + sealed.tag_bytes
    fields = Cursor(name, "descriptor", sealed.open(0, data[HEAD.size : place]))
    descriptor = read_descriptor(fields)
    fields.end()
    sealed.require(len(descriptor.entries) == count, f"has {count} blocks, its descriptor says otherwise")
    sealed.require(descriptor.key == sealed.key, "head and descriptor name different keys")
    sealed.require(descriptor.identity == sealed.salt, "head and descriptor have different salts")
    sealed.require(descriptor.name == name, f"is the object {descriptor.name}")
    sealed.require(expected is None or expected.raw == descriptor.raw, "has another descriptor than the metadata say")
    found, named = [], b""
    for number, entry in enumerate(descriptor.entries, 1):
        sealed.require(entry.offset == place, f"block {entry.pvbn} does not lie at byte {entry.offset}")
        place += entry.stored_bytes + sealed.tag_bytes
        stored = sealed.open(number, data[entry.offset : place])
        found.append(Block(entry.pvbn, entry.fingerprint, plain_block(name, entry, stored)))
        named += struct.pack("<Q32sHB", entry.pvbn, entry.fingerprint, entry.stored_bytes, entry.encoding)
        named += stored if entry.encoding else b""
    sealed.require(place == len(data), f"has {len(data)} bytes instead of {place}")
    sealed.require(sealed.digest(named) == sealed.salt, "the salt is not the digest of its blocks")
    return found


def plain_block(name: str, entry: Entry, stored: bytes) -> bytes:
    try:
        block = zstandard.ZstdDecompressor().decompress(stored, BLOCK) if entry.encoding else stored
    except zstandard.ZstdError as error:
        raise Damaged(name, f"block {entry.pvbn} cannot be decompressed: {error}") from None
    if len(block) != BLOCK or hashlib.sha256(block).digest() != entry.fingerprint:
        raise Damaged(name, f"block {entry.pvbn} does not have its SHA-256")
    return block


def read_store(folder: Path, master: bytes | None) -> list[Block]:
    """Every block of every object of a directory store."""
    store = DirectoryStore(folder)
    secrets = {} if master is None else {key_id(key): key for key in read_keys(store.get("keys"), master)}
    packs = (read_pack(name, store.get(name), secrets) for name in store.names() if name.startswith("objects/"))
    return [block for pack in packs for block in pack]
