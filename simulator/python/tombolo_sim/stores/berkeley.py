"""Objects in a Berkeley DB B-tree, as in the simulator of the Tombolo paper (section 5): an object's key is made of the
SHA-256 digests of its blocks, so that equal objects are there once. Latencies are drawn from the job's tables, as
there; the file is scratch space, not kept consistent over a crash."""

from collections import Counter
from hashlib import sha256
from os import fspath
from pathlib import Path
from typing import Self

from berkeleydb import db

from tombolo_sim.stores.base import BLOCK_BYTES, Store, StoreError

_CACHE_BYTES = 64 << 20


class BerkeleyStore(Store):
    def __init__(self, database: db.DB, path: Path) -> None:
        super().__init__()
        self._database = database
        self._keys: dict[int, bytes] = {}
        self._references = Counter[bytes]()
        self.path = path

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """Creates the file; one that is there is refused, since nobody knows what it holds."""
        database = db.DB()
        try:
            database.set_cachesize(0, _CACHE_BYTES, 1)
            database.open(fspath(path), None, db.DB_BTREE, db.DB_CREATE | db.DB_EXCL, 0o600)
        except db.DBError as error:
            database.close()
            raise StoreError(f"{path}: {error.args[-1]}") from error
        return cls(database, Path(path))

    @property
    def object_count(self) -> int:
        return len(self._references)

    def _put(self, object_number: int, contents: bytes) -> None:
        key = key_of(contents)
        if key not in self._references:
            self._database.put(key, contents)
        self._references[key] += 1
        self._release(self._keys.get(object_number))
        self._keys[object_number] = key

    def _release(self, key: bytes | None) -> None:
        if key is None:
            return
        self._references[key] -= 1
        if not self._references[key]:
            del self._references[key]
            self._database.delete(key)

    def _get(self, object_number: int, offset_bytes: int, count_bytes: int) -> tuple[bytes, None]:
        found = self._database.get(self._keys[object_number], dlen=count_bytes, doff=offset_bytes)
        if found is None:
            raise StoreError(f"{self.path}: object {object_number} is not there")
        return found, None

    def delete_all(self) -> None:
        self._database.truncate()
        self._keys.clear()
        self._references.clear()
        self._lengths.clear()

    def close(self) -> None:
        self._database.close()


def key_of(contents: bytes) -> bytes:
    blocks = (contents[at : at + BLOCK_BYTES] for at in range(0, len(contents), BLOCK_BYTES))
    return sha256(b"".join(sha256(block).digest() for block in blocks)).digest()
