"""Reads a store of objects from what docs/FORMAT.md says of them and nothing else: none of the daemon's code is used.

A head in clear, then messages; with AES-256-GCM each object has a key of its own, derived from a data key by
HKDF-SHA256 over head and name, and the nonce is the number of the message.
"""

import hashlib
import hmac
import struct
from dataclasses import dataclass
from pathlib import Path

import zstandard
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

BLOCK = 4096
HEAD = struct.Struct("<4sHBBQII32s")
DESCRIPTOR = struct.Struct("<8sHHIQ32s")
ENTRY = struct.Struct("<Q32sIHBB")
PACK, KEYS = 1, 2
TAG_BYTES = 16


@dataclass
class Block:
    """One block of an object, decrypted, decompressed and verified."""

    pvbn: int
    fingerprint: bytes
    data: bytes


def derive(secret: bytes, info: bytes, length: int) -> bytes:
    return HKDF(SHA256(), length, None, info).derive(secret)


def key_id(secret: bytes) -> int:
    return max(1, int.from_bytes(derive(secret, b"tombolo 2 key id", 8), "little"))


class Messages:
    """The messages of one object."""

    def __init__(self, name: str, data: bytes, kind: int, secrets: dict[int, bytes]) -> None:
        magic, version, found, cipher, key, self.count, zero, self.salt = HEAD.unpack_from(data)
        assert (magic, version, found, zero) == (b"TOMB", 2, kind, 0), name
        assert cipher == (key != 0), name
        self.key, self.data, self.place, self.number = key, data, HEAD.size, 0
        self.secret = secrets[key] if key else bytes(32)
        self.aead = AESGCM(derive(self.secret, data[: HEAD.size] + name.encode(), 32)) if key else None

    def next(self, length: int) -> bytes:
        """The next message, which was so long before encryption."""
        nonce = struct.pack("<IQ", self.number, 0)
        self.number += 1
        stored = self.data[self.place : self.place + length + (TAG_BYTES if self.aead else 0)]
        self.place += len(stored)
        return self.aead.decrypt(nonce, stored, None) if self.aead else stored

    def digest(self, contents: bytes) -> bytes:
        key = derive(self.secret, b"tombolo 2 names", 32) if self.aead else bytes(32)
        return hmac.digest(key, contents, "sha256")

    def end(self, name: str) -> None:
        assert (self.number, self.place) == (self.count, len(self.data)), name


def read_keys(data: bytes, master: bytes) -> list[bytes]:
    """The data keys, oldest first."""
    messages = Messages("keys", data, KEYS, {key_id(master): master})
    text = messages.next(len(data) - HEAD.size - TAG_BYTES)
    messages.end("keys")
    assert messages.digest(text) == messages.salt
    _identity, count = struct.unpack_from("<QI", text)
    entries = [struct.unpack_from("<Q32s", text, 12 + 40 * index) for index in range(count)]
    assert len(text) == 12 + 40 * count
    return [secret for _made, secret in entries]


def read_pack(name: str, data: bytes, secrets: dict[int, bytes]) -> list[Block]:
    """All blocks of an object, each verified against its SHA-256; and the object against its name."""
    messages = Messages(name, data, PACK, secrets)
    count = messages.count - 1
    text = messages.next(DESCRIPTOR.size + ENTRY.size * count + 8)
    magic, blocks, _zero, length, key, identity = DESCRIPTOR.unpack_from(text)
    assert (magic, blocks, length, key) == (b"TMBOBJ02", count, len(text), messages.key), name
    assert f"objects/{identity.hex()[:2]}/{identity.hex()[2:]}" == name
    assert identity == messages.salt
    found, named = [], b""
    for index in range(count):
        entry = ENTRY.unpack_from(text, DESCRIPTOR.size + ENTRY.size * index)
        pvbn, fingerprint, offset, stored_bytes, encoding, _zero = entry
        assert offset == messages.place, name
        stored = messages.next(stored_bytes)
        block = zstandard.ZstdDecompressor().decompress(stored, BLOCK) if encoding else stored
        assert hashlib.sha256(block).digest() == fingerprint, name
        named += struct.pack("<Q32sHB", pvbn, fingerprint, stored_bytes, encoding) + (stored if encoding else b"")
        found.append(Block(pvbn, fingerprint, block))
    messages.end(name)
    assert messages.digest(named) == identity, name
    return found


def read_store(store: Path, master: bytes | None) -> list[Block]:
    """Every block of every object of a directory store."""
    secrets = {} if master is None else {key_id(key): key for key in read_keys((store / "keys").read_bytes(), master)}
    files = sorted(path for path in (store / "objects").rglob("*") if path.is_file())
    packs = (read_pack(str(path.relative_to(store)), path.read_bytes(), secrets) for path in files)
    return [block for pack in packs for block in pack]
