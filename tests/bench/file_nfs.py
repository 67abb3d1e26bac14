"""A share over NFSv3, through ganesha and our module, beside ganesha and its own module on the same ext4.

Our module answers a create, rename or remove when the change is on stable storage, as the protocol demands; ganesha's
own does not wait. So it runs twice: on a plain directory, and on one with the attribute `D` (`chattr +D`), where ext4
itself makes each such change stable before it returns.
"""

from contextlib import ExitStack
from functools import partial
from pathlib import Path

from bench.file_scale import CLIENTS, FILE_BYTES, NAMES, Scale
from bench.load import files_per_s, load
from bench.report import Section
from bench.rotation import Figures, beside, rotate
from harness.ganesha import Ganesha
from harness.gateway import Gateway
from harness.tools import run

SHARE = "benchnfs"
DATA = "data"
OURS, SYNCED, PLAIN = "share", "FSAL_VFS, dirsync", "FSAL_VFS"
STABLE_FILES = {clients: f"create, write 4 KiB stable, close; {clients} client(s)" for clients in (1, CLIENTS)}
TRANSFERS = {
    "sequential write 1 MiB, depth 4, and commit": ("write", "sequential", 1 << 20, 4),
    "sequential read 1 MiB, depth 4": ("read", "sequential", 1 << 20, 4),
    "random read 4 KiB, depth 1": ("read", "random", 4096, 1),
    "random read 4 KiB, depth 16": ("read", "random", 4096, 16),
    "random write 4 KiB, depth 1, and commit": ("write", "random", 4096, 1),
    "random write 4 KiB, depth 16, and commit": ("write", "random", 4096, 16),
}
EVENLY_LIKE_OURS = ("Attr_Expiration_Time = 0;", "Attr_Expiration_Time = 1;")
"""Ganesha may use attributes for a second unasked, as in the exports of shares."""

LIKE_WITH_LIKE = "Every change of a name is on stable storage when it is answered, on both sides."
UNLIKE = (
    "FSAL_VFS does not sync creations, renames and removals: it answers before they are on the disk, and a crash of"
    " the server loses them. Ours does sync them. Where the disk is waited for, these ratios compare unlike promises;"
    " of the rest (stat, readdir) they are fair."
)
DATA_REMARK = "Writes are unstable until one COMMIT at the end, which is within the measured time, on both sides."


class Served:
    """One export and the addresses of its clients: each has a directory of its own."""

    def __init__(self, ganesha: Ganesha) -> None:
        ganesha.start()
        front_end = ganesha.front_end()
        for index in range(CLIENTS):
            front_end.mkdir(f"c{index}")
        front_end.create(f"c0/{DATA}")
        front_end.close()
        query = f"version=3&nfsport={ganesha.port}&mountport={ganesha.mount_port}&dircache=0&autoreconnect=-1"
        self.clients = [
            ("nfs", f"nfs://{ganesha.address}{ganesha.pseudo}/c{index}?{query}") for index in range(CLIENTS)
        ]

    def names_and_files(self, scale: Scale) -> Figures:
        figures = load(self.clients[1], "names", scale.nfs_names)
        for clients, name in STABLE_FILES.items():
            count = scale.stable_files // clients
            figures[name] = files_per_s(self.clients[:clients], count, FILE_BYTES, stable=True)
        return figures

    def fill(self, scale: Scale) -> None:
        load(self.clients[0], "data", DATA, "write", "sequential", 1 << 20, 4, scale.data_bytes, 60)

    def data(self, scale: Scale) -> Figures:
        return {name: self._transfer(scale, *words) for name, words in TRANSFERS.items()}

    def _transfer(self, scale: Scale, direction: str, order: str, block: int, depth: int) -> float:
        limits = (scale.data_bytes, scale.data_seconds)
        figures = load(self.clients[0], "data", DATA, direction, order, block, depth, *map(str, limits))
        return figures["mib_s" if order == "sequential" else "iops"]


def compare_nfs(gateway: Gateway, folder: Path, scale: Scale, stack: ExitStack) -> list[Section]:
    gateway.create_share(SHARE)
    served = {
        OURS: serve_share(gateway, folder / "ganesha-share", stack),
        SYNCED: serve_ext4(folder, "dirsync", stack),
        PLAIN: serve_ext4(folder, "plain", stack),
    }
    for each in (served[OURS], served[PLAIN]):
        each.fill(scale)
    each_names = {name: partial(each.names_and_files, scale) for name, each in served.items()}
    names = rotate(each_names, scale.rounds, gateway.drain)
    both = {name: served[name] for name in (OURS, PLAIN)}
    each_data = {name: partial(each.data, scale) for name, each in both.items()}
    data = rotate(each_data, scale.rounds, gateway.drain)
    units = {**NAMES, **dict.fromkeys(STABLE_FILES.values(), "files/s")}
    data_units = {name: "MiB/s" if words[1] == "sequential" else "IOPS" for name, words in TRANSFERS.items()}
    return [
        Section(
            f"NFS, names and small files, beside {SYNCED}",
            (OURS, SYNCED),
            beside(names, OURS, SYNCED, units),
            LIKE_WITH_LIKE,
        ),
        Section(
            f"NFS, names and small files, beside {PLAIN} as it is",
            (OURS, PLAIN),
            beside(names, OURS, PLAIN, units),
            UNLIKE,
        ),
        Section(f"NFS, data, beside {PLAIN}", (OURS, PLAIN), beside(data, OURS, PLAIN, data_units), DATA_REMARK),
    ]


def serve_share(gateway: Gateway, folder: Path, stack: ExitStack) -> Served:
    ganesha = Ganesha(folder)
    stack.callback(ganesha.close)
    ganesha.serve_share(gateway, SHARE)
    return Served(ganesha)


def serve_ext4(folder: Path, kind: str, stack: ExitStack) -> Served:
    tree = folder / f"ext4-{kind}"
    tree.mkdir()
    if kind == "dirsync":
        run(["chattr", "+D", tree])
    ganesha = Ganesha(folder / f"ganesha-{kind}")
    stack.callback(ganesha.close)
    ganesha.serve_folder(tree)
    text = ganesha.configuration.read_text()
    if EVENLY_LIKE_OURS[0] not in text:
        raise AssertionError(f"no expiry of attributes to set in\n{text}")
    ganesha.configuration.write_text(text.replace(*EVENLY_LIKE_OURS))
    return Served(ganesha)
