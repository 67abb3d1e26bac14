"""The file part: shares through both doors, NFS and mount, out of one daemon.

The daemon's journal, cache and store and the folders of all others lie in one ext4.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from bench.ext4 import Ext4
from bench.file_mount import compare_mounts
from bench.file_nfs import compare_nfs
from bench.file_scale import Scale
from bench.report import Section
from harness.gateway import Gateway

MIB = 1 << 20
DOORS = {"nfs": compare_nfs, "mount": compare_mounts}


def compare_files(
    folder: Path, scale: Scale, doors: Sequence[str], stack: ExitStack
) -> tuple[list[Section], dict[str, int]]:
    """The sections, and the daemon's memory."""
    data_mib = scale.data_bytes // MIB
    settings = {
        "cache": {"size": f"{max(2048, 8 * data_mib)}MiB"},
        "flush": {"dirty_bytes_max": f"{max(512, 2 * data_mib)}MiB"},
    }
    disk = Ext4(folder / "ext4")
    stack.callback(disk.close)
    disk.start()
    gateway = Gateway(disk.folder / "gateway", settings)
    stack.callback(gateway.close)
    gateway.start()
    sections: list[Section] = []
    for door in doors:
        with ExitStack() as held:
            sections += DOORS[door](gateway, disk.folder, scale, held)
    return sections, {"highest_under_file_load": gateway.process.resident_bytes(peak=True)}
