"""The file part: shares through both doors, NFS and mount, out of one daemon over a store on the same disk."""

from contextlib import ExitStack
from pathlib import Path

from bench.file_mount import compare_mounts
from bench.file_nfs import compare_nfs
from bench.file_scale import Scale
from bench.report import Section
from harness.gateway import Gateway

MIB = 1 << 20


def compare_files(folder: Path, scale: Scale, stack: ExitStack) -> tuple[list[Section], dict[str, int]]:
    """The sections, and the daemon's memory."""
    data_mib = scale.data_bytes // MIB
    settings = {
        "cache": {"size": f"{max(2048, 8 * data_mib)}MiB"},
        "flush": {"dirty_bytes_max": f"{max(512, 2 * data_mib)}MiB"},
    }
    gateway = Gateway(folder / "gateway", settings)
    stack.callback(gateway.close)
    gateway.start()
    sections: list[Section] = []
    for compare in (compare_nfs, compare_mounts):
        with ExitStack() as doors:
            sections += compare(gateway, folder, scale, doors)
    return sections, {"highest_under_file_load": gateway.process.resident_bytes(peak=True)}
