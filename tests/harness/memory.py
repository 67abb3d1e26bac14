"""The most memory that settings let the daemon hold, part by part, as docs/OPERATIONS.md has it."""

import tomllib
from typing import Any

from harness.gateway import Gateway, parse_size

KIB, MIB = 1 << 10, 1 << 20
BLOCK_BYTES = 4 * KIB

SLOT_BYTES = 52
"""Names, sums, states, the index at its emptiest, and 2Q's lists and ghosts."""
DIRTY_BLOCK_BYTES = 128
"""Its place in the queue, which may have room for as many again, and an extent of its own."""
UNREAD_BLOCK_BYTES = 48
RECORD_BYTES = 256
"""Two extents: those of two overlays are no more than the records that may have to be replayed."""
ENTRY_BYTES_MAX, OVERLAY_OBJECTS_MAX, DESCRIPTOR_BYTES = 64 * MIB, 4096, 3200
TRANSACTION_PAGES, SLOT_PAGE_BYTES = 4096, 64 * 33
"""The last transaction may bring every page of the slot index, 64 slots each, and each takes a page of LMDB."""
MEMTABLE_ENTRY_BYTES, SORTED_ENTRY_BYTES, MERGE_BYTES = 48, 40, 4 * MIB
CONNECTION_BYTES = (128 + 128 + 128) * KIB
"""Its own part of the payload, its input, and what its threads use of their stacks."""
ALLOCATOR_BYTES, PROGRAM_BYTES = 8 * 4 * MIB, 32 * MIB


def in_force(gateway: Gateway) -> dict[str, Any]:
    return tomllib.loads(gateway.cli("settings", "--config", str(gateway.config_path)))


def bounds(settings: dict[str, Any], connections: int | None = None) -> dict[str, int]:
    """Bytes of each part. `connections`: as many clients, where not all there may be."""
    memory = settings["memory"]
    slots = parse_size(settings["cache"]["size"]) // BLOCK_BYTES
    cap = settings["flush"].get("dirty_bytes_max")
    dirty = parse_size(cap) // BLOCK_BYTES if cap else slots // 2
    entries = memory["fingerprint_memtable_entries"]
    policy = settings["prefetch"]["policy"]
    clients = settings["nbd"]["connections_max"] + settings["files"]["connections_max"]
    return {
        "slots": slots * SLOT_BYTES,
        "dirty blocks": dirty * DIRTY_BLOCK_BYTES,
        "prefetched, not read yet": 0 if policy == "none" else slots * UNREAD_BLOCK_BYTES,
        "map since the last checkpoint": settings["journal"]["replay_records_max"] * RECORD_BYTES,
        "entries since the last checkpoint": 2 * ENTRY_BYTES_MAX,
        "objects since the last checkpoint": 2 * OVERLAY_OBJECTS_MAX * DESCRIPTOR_BYTES,
        "a checkpoint's transaction": TRANSACTION_PAGES * BLOCK_BYTES + slots // 64 * (BLOCK_BYTES + SLOT_PAGE_BYTES),
        "caches of maps and descriptors": parse_size(memory["map_cache_bytes"])
        + parse_size(memory["descriptor_cache_bytes"]),
        "fingerprint index": parse_size(memory["fingerprint_filter_bytes"])
        + parse_size(memory["fingerprint_fence_bytes"])
        + entries * (2 * MEMTABLE_ENTRY_BYTES + SORTED_ENTRY_BYTES)
        + MERGE_BYTES,
        "history of reads": parse_size(settings["prefetch"]["graph_memory_bytes_max"]) if policy == "graph" else 0,
        "payload": parse_size(memory["payload_bytes_max"]),
        "connections": (clients if connections is None else connections) * CONNECTION_BYTES,
        "objects on their way": 3 * parse_size(memory["transfer_bytes_max"])
        + 2 * parse_size(memory["upload_buffer_bytes_max"]),
        "allocator": ALLOCATOR_BYTES,
        "program and its threads": PROGRAM_BYTES,
    }
