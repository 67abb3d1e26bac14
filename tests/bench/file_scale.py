"""How much the file workloads do: enough for a steady figure in a few minutes, or just enough to see that they run."""

from dataclasses import dataclass

CLIENTS = 8
FILE_BYTES = 4096
NAMES = {
    "create": "operations/s",
    "stat": "operations/s",
    "readdir": "names/s",
    "rename": "operations/s",
    "unlink": "operations/s",
}
"""What the load generator measures of names, and the units."""


@dataclass(frozen=True)
class Scale:
    rounds: int
    nfs_names: int
    """Files that are created, looked at, listed, renamed and removed, where every change waits for the disk."""
    mount_names: int
    """The same where no change does."""
    stable_files: int
    """Small files, of all clients together, each on stable storage before the next."""
    cached_files: int
    """Small files that nobody waits for."""
    data_bytes: int
    data_seconds: float
    """The longest time of one data workload in one round."""


FULL = Scale(4, 800, 4000, 800, 4000, 256 << 20, 0.8)
QUICK = Scale(1, 40, 100, 40, 100, 16 << 20, 0.1)
