"""Small durable writes of many clients: pairs of a 4 KiB write and a sync a second.

Over NBD with a LUN each and on a mounted share with a file each, beside one loop of pwrite and fdatasync on the disk.
"""

import json
import shutil
from contextlib import ExitStack
from functools import cache, partial
from pathlib import Path

from bench.cloud import held_back
from bench.load import WARNINGS
from bench.report import Section
from bench.rotation import Figures, beside, rotate
from harness.gateway import Gateway, Settings, merged
from harness.mount import Mount
from harness.tools import REPOSITORY, preloaded_library, run

CLIENTS = (1, 4, 16, 64)
RULES = ("gather", "immediate", "stout")
DISK, OTHER, SHARE = "one loop on the disk", "the other build", "bench"
HOUR_MS = 3_600_000
VOLUME_BYTES = 8 << 20
FRONT_ENDS = ("NBD", "mount")
UNITS = {f"{front_end}, {count} client(s)": "pairs/s" for front_end in FRONT_ENDS for count in CLIENTS}


def measure_group_commit(
    folder: Path, other: Path | None, delay_us: int, rounds: int, seconds: float, stack: ExitStack
) -> list[Section]:
    """With `delay_us` each sync of gateways and of the loop takes so much longer."""
    slowness = {}
    if delay_us > 0:
        library = preloaded_library(REPOSITORY / "tests/harness/slow_disk.c")
        slowness = {"LD_PRELOAD": str(library), "TOMBOLO_SYNC_DELAY_US": str(delay_us)}
    once = {rule: partial(pairs, *begun(folder, rule, None, slowness, stack), seconds) for rule in RULES}
    if other is not None:
        once[OTHER] = partial(pairs, *begun(folder, None, other, slowness, stack), seconds)
    once[DISK] = partial(loop, folder / "disk", slowness, seconds)
    measured = rotate(once, rounds, lambda: None)
    remark = f"Each sync takes {delay_us / 1e3:g} ms longer than the disk." if delay_us > 0 else ""
    return [
        Section(f"`{RULES[0]}` beside {name}", (RULES[0], name), beside(measured, RULES[0], name, UNITS), remark)
        for name in (DISK, *RULES[1:], *([OTHER] if other is not None else []))
    ]


def begun(
    folder: Path, rule: str | None, binary: Path | None, slowness: dict[str, str], stack: ExitStack
) -> tuple[Gateway, Mount]:
    """Nothing is uploaded meanwhile. `rule` is none of a build that knows no rules."""
    settings: Settings = {
        "cache": {"size": "2GiB"},
        "flush": {"recovery_point_ms": HOUR_MS},
    }
    settings = merged(settings, held_back(256 << 20, binary))
    if rule is not None:
        settings["journal"] = {"group_commit": rule}
    gateway = Gateway(folder / (rule or "other"), settings, binary=binary)
    gateway.daemon_environment = dict(slowness)
    stack.callback(gateway.close)
    gateway.start()
    for index in range(max(CLIENTS)):
        gateway.create_volume(f"volume-{index}", str(VOLUME_BYTES))
    gateway.create_share(SHARE)
    mount = Mount(gateway, SHARE)
    stack.callback(mount.close)
    return gateway, mount.start()


def pairs(gateway: Gateway, mount: Mount, seconds: float) -> Figures:
    wheres = {"NBD": ("nbd", gateway.nbd_socket), "mount": ("files", mount.folder)}
    return {
        f"{front_end}, {count} client(s)": per_s(*where, count, seconds)
        for front_end, where in wheres.items()
        for count in CLIENTS
    }


def loop(folder: Path, slowness: dict[str, str], seconds: float) -> Figures:
    folder.mkdir(exist_ok=True)
    try:
        return dict.fromkeys(UNITS, per_s("files", folder, 1, seconds, slowness))
    finally:
        shutil.rmtree(folder)


def per_s(kind: str, where: Path, clients: int, seconds: float, environment: dict[str, str] | None = None) -> float:
    done = run([generator(), kind, where, str(clients), str(seconds)], environment=environment)
    return float(json.loads(done.stdout)["per_s"])


@cache
def generator() -> Path:
    built = REPOSITORY / "build/bench/sync_load"
    built.parent.mkdir(parents=True, exist_ok=True)
    source = Path(__file__).resolve().parent / "sync_load/sync_load.c"
    run(["gcc", "-std=c17", "-D_GNU_SOURCE", "-O2", *WARNINGS, source, "-pthread", "-o", built])
    return built
