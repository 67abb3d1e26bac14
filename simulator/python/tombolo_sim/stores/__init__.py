"""Where a replay's objects can lie, other than in the engine's own ledger.

The replay knows no contents: it says which object of how many bytes is put, and which part of which object is got. A
store makes up the contents from the object's number, keeps them, and verifies what it gets back. It answers with the
milliseconds that the request is to take in virtual time, or with None for a draw from the job's latency tables, in
which case every count of the replay is what it is without a store.
"""

from tombolo_sim.stores.base import Store, StoreError, payload
from tombolo_sim.stores.berkeley import BerkeleyStore
from tombolo_sim.stores.memory import MemoryStore
from tombolo_sim.stores.s3 import S3Store

__all__ = ["BerkeleyStore", "MemoryStore", "S3Store", "Store", "StoreError", "open_store", "payload"]


def open_store(url: str) -> Store:
    """`memory:`, `berkeley:FILE`, or `s3://BUCKET/PREFIX` with credentials from the usual places."""
    scheme, separator, rest = url.partition(":")
    if scheme == "memory" and separator and not rest:
        return MemoryStore()
    if scheme == "berkeley" and rest:
        return BerkeleyStore.open(rest)
    if scheme == "s3" and rest.startswith("//"):
        bucket, _, prefix = rest[2:].partition("/")
        if bucket:
            return S3Store.connect(bucket, prefix)
    raise StoreError(f"{url!r} is not a valid store: use memory:, berkeley:FILE or s3://BUCKET/PREFIX")
