"""Objects in a Berkeley DB B-tree, as in the simulator of the Tombolo paper (section 5). Latencies are drawn from the
job's tables, as there; the file is scratch space, not kept consistent over a crash."""

from os import fspath
from pathlib import Path
from typing import Self

from berkeleydb import db

from tombolo_sim.stores.base import Store, StoreError

_CACHE_BYTES = 64 << 20


class BerkeleyStore(Store):
    def __init__(self, database: db.DB, path: Path) -> None:
        super().__init__()
        self._database = database
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

    def _put(self, object_number: int, contents: bytes) -> None:
        self._database.put(_key(object_number), contents)

    def _get(self, object_number: int, offset_bytes: int, count_bytes: int) -> tuple[bytes, None]:
        found = self._database.get(_key(object_number), dlen=count_bytes, doff=offset_bytes)
        if found is None:
            raise StoreError(f"{self.path}: object {object_number} is not there")
        return found, None

    def delete_all(self) -> None:
        self._database.truncate()
        self._lengths.clear()

    def close(self) -> None:
        self._database.close()


def _key(object_number: int) -> bytes:
    """Big endian, so that the tree has objects in the order of their numbers."""
    return object_number.to_bytes(8, "big")
