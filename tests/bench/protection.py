"""What encryption and the metadata in the store cost: the gateway as it is by default, beside one that has neither, and
beside another build. Each round has a new gateway, so that all begin alike."""

import shutil
import time
from functools import partial
from pathlib import Path

from bench.blocks import FILL
from bench.fio import Workload, measure
from bench.report import Section
from bench.rotation import Figures, beside, rotate
from harness.gateway import Gateway, Settings, merged

MIB = 1 << 20
RANDOM_WRITE = Workload("random write", "randwrite", "4k", 32, "iops")
UNITS = {
    "write until the store has it": "MiB/s",
    "random write 4 KiB, depth 32, uploads beside it": "IOPS",
    "processor time of a round": "s",
}
DEFAULT, BARE, OTHER = "default", "neither", "the other build"
WITHOUT = {"store": {"encryption": "none"}, "flush": {"recovery_point_ms": 3_600_000}}


def measure_protection(folder: Path, other: Path | None, size: int, seconds: float, rounds: int) -> list[Section]:
    roomy: Settings = {
        "cache": {"size": f"{4 * size // MIB}MiB"},
        "flush": {"dirty_bytes_max": f"{2 * size // MIB}MiB"},
    }
    contenders: dict[str, tuple[Settings, Path | None]] = {
        DEFAULT: (roomy, None),
        BARE: (merged(roomy, WITHOUT), None),
    }
    if other is not None:
        contenders[OTHER] = (roomy, other)
    once = {
        name: partial(one_round, folder / name.replace(" ", "-"), settings, binary, size, seconds)
        for name, (settings, binary) in contenders.items()
    }
    measured = rotate(once, rounds, lambda: None)
    return [
        Section(title, (DEFAULT, name), beside(measured, DEFAULT, name, UNITS))
        for name, title in (
            (BARE, "Beside a store in clear, told of nothing but the data"),
            (OTHER, "Beside another build"),
        )
        if name in measured
    ]


def one_round(folder: Path, settings: Settings, binary: Path | None, size: int, seconds: float) -> Figures:
    gateway = Gateway(folder, settings, binary=binary)
    gateway.start()
    try:
        gateway.create_volume("bench", str(size))
        begun = time.monotonic()
        measure(FILL, gateway.nbd_uri("bench"), size, None)
        gateway.drain(600)
        ended = time.monotonic()
        iops = measure(RANDOM_WRITE, gateway.nbd_uri("bench"), size, seconds).value
        gateway.drain(600)
        values = (
            size / MIB / (ended - begun),
            iops,
            gateway.process.processor_seconds(),
        )
        return dict(zip(UNITS, values, strict=True))
    finally:
        gateway.close()
        shutil.rmtree(folder, ignore_errors=True)
