"""The file part: shares through both front ends, NFS and mount, out of one daemon.

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
FRONT_ENDS = {"nfs": compare_nfs, "mount": compare_mounts}


def compare_files(
    folder: Path, scale: Scale, front_ends: Sequence[str], stack: ExitStack
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
    for front_end in front_ends:
        with ExitStack() as held:
            sections += FRONT_ENDS[front_end](gateway, disk.folder, scale, held)
    return sections, {"highest_under_file_load": gateway.process.resident_bytes(peak=True)}
