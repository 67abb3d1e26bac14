"""A mounted share beside libfuse's passthrough example over ext4, and beside ext4 itself, all through the kernel."""

import json
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bench.file_scale import CLIENTS, FILE_BYTES, NAMES, Scale
from bench.load import files_per_s, load
from bench.passthrough import Passthrough
from bench.report import Section
from bench.rotation import Figures, beside, rotate
from harness.gateway import Gateway
from harness.mount import Mount
from harness.tools import built_tool, run

SHARE = "benchmount"
DATA = "c0/data"
OURS, PASSTHROUGH, EXT4 = "share", "passthrough_ll", "ext4"


@dataclass(frozen=True)
class Files:
    clients: int
    stable: bool

    @property
    def name(self) -> str:
        return f"create, write 4 KiB{', fsync' if self.stable else ''}, close; {self.clients} client(s)"


@dataclass(frozen=True)
class Transfer:
    name: str
    operation: str
    """fio's word for it."""
    block: str
    threads: int

    @property
    def sequential(self) -> bool:
        return not self.operation.startswith("rand")


FILES = [Files(clients, stable) for stable in (False, True) for clients in (1, CLIENTS)]
TRANSFERS = [
    Transfer("sequential write 1 MiB, and fsync", "write", "1m", 1),
    Transfer("sequential read 1 MiB", "read", "1m", 1),
    Transfer("random read 4 KiB, 1 thread", "randread", "4k", 1),
    Transfer("random read 4 KiB, 16 threads", "randread", "4k", 16),
    Transfer("random write 4 KiB, 1 thread, and fsync", "randwrite", "4k", 1),
    Transfer("random write 4 KiB, 16 threads, and fsync", "randwrite", "4k", 16),
]
NAME_UNITS = {**NAMES, **{files.name: "files/s" for files in FILES}}
DATA_UNITS = {each.name: "MiB/s" if each.sequential else "IOPS" for each in TRANSFERS}
BESIDE_PASSTHROUGH = (
    "Neither side waits for the disk but at fsync. Before the look at every file, names and attributes are left to"
    " expire in the kernel; before a read, the mount's pages are dropped, so that every byte is asked for, while what"
    " lies below (the cache file of ours, ext4's pages) is warm."
)
BESIDE_EXT4 = "For orientation: ext4 answers reads from the kernel's pages, and is in no process of its own."


class Tree:
    """A folder that contenders are measured in."""

    def __init__(self, folder: Path, pages_are_ours: bool) -> None:
        self.folder = folder
        self._drop_pages = pages_are_ours
        for index in range(CLIENTS):
            (folder / f"c{index}").mkdir()

    def names_and_files(self, scale: Scale) -> Figures:
        figures = load(self._client(1), "names", scale.mount_names)
        for files in FILES:
            count = (scale.stable_files if files.stable else scale.cached_files) // files.clients
            wheres = [self._client(index) for index in range(files.clients)]
            figures[files.name] = files_per_s(wheres, count, FILE_BYTES, files.stable)
        return figures

    def _client(self, index: int) -> tuple[str, str]:
        return "local", str(self.folder / f"c{index}")

    def fill(self, scale: Scale) -> None:
        self._transfer(Transfer("fill", "write", "1m", 1), scale.data_bytes, 60)

    def data(self, scale: Scale) -> Figures:
        return {each.name: self._transfer(each, scale.data_bytes, scale.data_seconds) for each in TRANSFERS}

    def _transfer(self, transfer: Transfer, size: int, seconds_max: float) -> float:
        """One pass over the file, by threads that have a part of it each, cut off after a while."""
        part = size // transfer.threads
        words: list[str | Path] = [
            built_tool("fio"),
            *("--name=job", "--thread", "--ioengine=psync", f"--filename={self.folder / DATA}"),
            *(f"--rw={transfer.operation}", f"--bs={transfer.block}", f"--numjobs={transfer.threads}"),
            *(f"--size={part}", f"--offset_increment={part}", f"--runtime={round(seconds_max * 1000)}ms"),
            *(f"--invalidate={int(self._drop_pages)}", "--fallocate=none", "--group_reporting"),
            *("--randrepeat=0", "--refill_buffers", "--buffer_compress_percentage=0", "--output-format=json"),
        ]
        writes = "write" in transfer.operation
        done = run([*words, "--end_fsync=1"] if writes else words, limit_s=120)
        job: dict[str, Any] = json.loads(done.stdout[done.stdout.index("{") :])["jobs"][0]
        if job["error"]:
            raise RuntimeError(f"fio: {transfer.name} in {self.folder} ended with error {job['error']}")
        side = job["write" if writes else "read"]
        return float(side["bw_bytes"] / (1 << 20) if transfer.sequential else side["iops"])


def compare_mounts(gateway: Gateway, folder: Path, scale: Scale, stack: ExitStack) -> list[Section]:
    gateway.create_share(SHARE)
    mount = Mount(gateway, SHARE)
    stack.callback(mount.close)
    below = folder / "passthrough"
    below.mkdir()
    passthrough = Passthrough(below, folder / "passthrough.log")
    stack.callback(passthrough.close)
    plain = folder / "ext4"
    plain.mkdir()
    trees = {
        OURS: Tree(mount.start().folder, pages_are_ours=True),
        PASSTHROUGH: Tree(passthrough.start().folder, pages_are_ours=True),
        EXT4: Tree(plain, pages_are_ours=False),
    }
    for tree in trees.values():
        tree.fill(scale)
    each_names = {name: partial(each.names_and_files, scale) for name, each in trees.items()}
    names = rotate(each_names, scale.rounds, gateway.drain)
    each_data = {name: partial(each.data, scale) for name, each in trees.items()}
    data = rotate(each_data, scale.rounds, gateway.drain)
    return [
        Section(
            f"Mount, beside {other}",
            (OURS, other),
            beside(names, OURS, other, NAME_UNITS) + beside(data, OURS, other, DATA_UNITS),
            remark,
        )
        for other, remark in ((PASSTHROUGH, BESIDE_PASSTHROUGH), (EXT4, BESIDE_EXT4))
    ]
