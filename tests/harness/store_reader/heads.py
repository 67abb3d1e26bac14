"""Heads of objects, their keys, and the data keys of a store.

A head in clear, then messages; with AES-256-GCM each object has a key of its own, derived from a data key by
HKDF-SHA256 over head and name, and the nonce is the number of the message.
"""

import hmac
import struct
from collections.abc import Mapping
from dataclasses import dataclass

import zstandard
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from harness.store_reader.fields import Cursor, Damaged

HEAD = struct.Struct("<4sHBBQII32s")
PACK, KEYS, JOURNAL, ROOT, NODES, WRAPPED_KEYS = range(1, 7)
AWS_KMS = 1
TAG_BYTES = 16
CONTENTS_MAX = 1 << 30
Secrets = Mapping[int, bytes]


def derive(secret: bytes, info: bytes, length: int) -> bytes:
    return HKDF(SHA256(), length, None, info).derive(secret)


def key_id(secret: bytes) -> int:
    return max(1, int.from_bytes(derive(secret, b"tombolo 2 key id", 8), "little"))


class Sealed:
    """One object by its head: opens its messages."""

    def __init__(self, name: str, head: bytes, kind: int, secrets: Secrets) -> None:
        self.name = name
        if len(head) < HEAD.size:
            raise Damaged(name, f"has {len(head)} bytes, less than a head")
        head = head[: HEAD.size]
        magic, version, found, cipher, self.key, self.count, zero, self.salt = HEAD.unpack(head)
        self.require(magic == b"TOMB", "does not begin with TOMB")
        self.require(version == 2, f"has format version {version} instead of 2")
        self.require(found == kind, f"is of kind {found} instead of {kind}")
        self.require(cipher in (0, 1) and (cipher == 1) == (self.key != 0), f"cipher {cipher}, key {self.key:016x}")
        self.require(zero == 0, "the reserved field of the head is not zero")
        self.require((self.count == 0) == (kind == NODES), f"has {self.count} messages")
        self._aead, self._naming = None, bytes(32)
        if cipher == 1:
            what = "master key" if kind in (KEYS, WRAPPED_KEYS) else "data key"
            self.require(self.key in secrets, f"is encrypted with {what} {self.key:016x}, which is not known")
            self._aead = AESGCM(derive(secrets[self.key], head + name.encode(), 32))
            self._naming = derive(secrets[self.key], b"tombolo 2 names", 32)

    def require(self, holds: bool, what: str) -> None:
        if not holds:
            raise Damaged(self.name, what)

    @property
    def tag_bytes(self) -> int:
        return TAG_BYTES if self._aead else 0

    def open(self, number: int, stored: bytes) -> bytes:
        """A message from its encrypted bytes with their tag."""
        if self._aead is None:
            return stored
        try:
            return self._aead.decrypt(struct.pack("<IQ", number, 0), stored, None)
        except InvalidTag:
            raise Damaged(self.name, f"message {number} does not authenticate") from None

    def digest(self, contents: bytes) -> bytes:
        return hmac.digest(self._naming, contents, "sha256")

    def open_node(self, number: int, stored: bytes) -> bytes:
        """A message that ends with its tag, or without a cipher with the beginning of its digest."""
        if self._aead is not None:
            return self.open(number, stored)
        plain, end = stored[:-TAG_BYTES], stored[-TAG_BYTES:]
        self.require(self.digest(plain)[:TAG_BYTES] == end, f"message {number} does not have the digest behind it")
        return plain


def only_message(name: str, data: bytes, kind: int, secrets: Secrets, clear: bytes = b"") -> tuple[bytes, bytes]:
    """The only message of an object, whose digest, with what stands in clear before it, is the salt; and the salt."""
    sealed = Sealed(name, data, kind, secrets)
    sealed.require(sealed.count == 1, f"has {sealed.count} messages instead of 1")
    message = sealed.open(0, data[HEAD.size + len(clear) :])
    sealed.require(sealed.digest(clear + message) == sealed.salt, "the salt is not the digest of its message")
    return message, sealed.salt


def expanded(name: str, message: bytes) -> bytes:
    """The contents of a message of a root or a journal object."""
    fields = Cursor(name, "message 0", message)
    encoding, length = fields.u8(), fields.u32()
    contents = fields.rest()
    fields.require(encoding in (0, 1) and length <= CONTENTS_MAX, f"encoding {encoding}, {length} bytes")
    if encoding == 1:
        try:
            contents = zstandard.ZstdDecompressor().decompress(contents, length)
        except zstandard.ZstdError as error:
            raise fields.damaged(f"cannot be decompressed: {error}") from None
    fields.require(len(contents) == length, f"{len(contents)} bytes instead of {length}")
    return contents


@dataclass(frozen=True)
class Wrapping:
    """A master key that a key service wraps."""

    identity: int
    """Of the store."""
    master_key: int
    """Its id."""
    key_name: str
    """Of the key that wraps it."""
    wrapped: bytes
    clear: bytes
    """All that stands between head and message."""


def read_wrapping(data: bytes) -> Wrapping | None:
    """Of the data keys; none if the master key is kept elsewhere."""
    if data[6:7] != bytes([WRAPPED_KEYS]) or len(data) < HEAD.size:
        return None
    fields = Cursor("keys", "the wrapped master key", data[HEAD.size :])
    service, identity = fields.u8(), fields.u64()
    fields.require(service == AWS_KMS, f"service {service}")
    name, wrapped = fields.take(fields.u16()), fields.take(fields.u16())
    fields.require(0 < len(name) <= 1024 and 0 < len(wrapped) <= 6144, f"{len(name)} and {len(wrapped)} bytes")
    master_key = HEAD.unpack(data[: HEAD.size])[4]
    return Wrapping(identity, master_key, name.decode(), wrapped, fields.data[: fields.place])


def read_keys(data: bytes, master: bytes) -> list[bytes]:
    """The data keys, oldest first."""
    wrapping = read_wrapping(data)
    kind, clear = (KEYS, b"") if wrapping is None else (WRAPPED_KEYS, wrapping.clear)
    text, _ = only_message("keys", data, kind, {key_id(master): master}, clear)
    fields = Cursor("keys", "message 0", text)
    identity, count = fields.u64(), fields.u32()
    fields.require(wrapping is None or wrapping.identity == identity, "another store's")
    secrets = []
    for _ in range(count):
        _made = fields.u64()
        secrets.append(fields.take(32))
    fields.end()
    fields.require(count > 0, "no data key")
    return secrets
