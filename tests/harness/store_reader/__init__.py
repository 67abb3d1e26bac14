"""Reads a bucket from what docs/FORMAT.md says of it and nothing else: none of the daemon's code is used.

`python -m harness.store_reader --help` lists, verifies and exports what is in one.
"""

from harness.store_reader.heads import key_id
from harness.store_reader.packs import BLOCK, read_store

__all__ = ["BLOCK", "key_id", "read_store"]
