"""How long a recovery takes, by how much there is: until the first read, and until all metadata is here."""

import random
import struct
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from bench.report import Figure, Section
from harness.fault_proxy import FaultProxy
from harness.gateway import Gateway, merged
from harness.object_store import S3Server
from harness.tools import wait_for

BUCKET = "tombolo-bench"
BLOCK = 4096
ROUND_TRIP_S = 0.02
LOADED_LIMIT_S = 900.0
REMARK = (
    "A volume of distinct, compressible blocks, written in the order of the volume but for one block in sixteen, "
    f"at random places; an S3 server that answers each request {ROUND_TRIP_S * 1e3:g} ms late from the recovery on, "
    "encryption on, the settings' defaults but for sizes. `recover --take-over`, then `serve`, then a read in the "
    "middle; requests and bytes until then, both processes together, the background's included. Then the time until "
    "all metadata is here."
)


@dataclass
class Taken:
    recover_s: list[float] = field(default_factory=list)
    first_read_s: list[float] = field(default_factory=list)
    requests: list[float] = field(default_factory=list)
    reply_mb: list[float] = field(default_factory=list)
    loaded_s: list[float] = field(default_factory=list)

    def figures(self, name: str) -> list[Figure]:
        return [
            Figure(f"{name}: recover", "ms", [1e3 * value for value in self.recover_s]),
            Figure(f"{name}: start and first read", "ms", [1e3 * value for value in self.first_read_s]),
            Figure(f"{name}: until then", "requests", self.requests),
            Figure(f"{name}: until then", "MB", self.reply_mb),
            Figure(f"{name}: all metadata here, after the start", "ms", [1e3 * value for value in self.loaded_s]),
        ]


def measure_recovery(folder: Path, sizes: list[int], rounds: int) -> list[Section]:
    figures: list[Figure] = []
    for blocks in sizes:
        taken = Taken()
        for number in range(rounds):
            with ExitStack() as stack:
                once(folder / f"{blocks}-{number}", blocks, taken, stack)
        figures += taken.figures(f"{blocks:,} blocks")
    return [Section("Recovery until the first read", remark=REMARK, figures=figures)]


def contents(number: int) -> bytes:
    return struct.pack("<Q", number + 1) * (BLOCK // 8)


def fill(gateway: Gateway, blocks: int) -> None:
    rng = random.Random(blocks)
    with gateway.disk("vol", limit_s=600) as disk:
        for first in range(0, blocks, 1024):
            count = min(1024, blocks - first)
            disk.write(first * BLOCK, b"".join(contents(first + offset) for offset in range(count)))
        for _ in range(blocks // 16):
            block = rng.randrange(blocks)
            disk.write(block * BLOCK, contents(blocks + block))
        disk.flush()


def once(folder: Path, blocks: int, taken: Taken, stack: ExitStack) -> None:
    server = S3Server(folder / "s3")
    stack.callback(server.close)
    server.start()
    server.create_bucket(BUCKET)
    proxy = FaultProxy(server.port, blocks)
    proxy.start()
    stack.callback(proxy.close)
    store = {"url": f"s3://{BUCKET}/gateway", "endpoint": server.endpoint, "allow_http": True}
    sizes = {"store": store, "cache": {"size": "2GiB"}, "flush": {"dirty_bytes_max": "1GiB"}}
    gateway = Gateway(folder / "gateway", sizes, server.environment)
    stack.callback(gateway.close)
    gateway.start()
    gateway.create_volume("vol", str(blocks * BLOCK))
    fill(gateway, blocks)
    gateway.drain(limit_s=3600)
    gateway.lose_state()
    gateway.settings = merged(gateway.settings, {"store": {"endpoint": proxy.endpoint}})
    proxy.faults.delay_s = ROUND_TRIP_S
    begun = time.monotonic()
    gateway.recover("--take-over")
    taken.recover_s.append(time.monotonic() - begun)
    begun = time.monotonic()
    gateway.start()
    block = blocks // 2
    with gateway.disk("vol") as disk:
        found = disk.read(block * BLOCK, BLOCK)
    assert found in (contents(block), contents(blocks + block))
    taken.first_read_s.append(time.monotonic() - begun)
    taken.requests.append(sum(proxy.counts.methods.values()))
    taken.reply_mb.append(proxy.counts.reply_bytes / 1e6)
    wait_for(lambda: gateway.status()["metadata"]["is_complete"], LOADED_LIMIT_S, "all metadata to be brought here")
    taken.loaded_s.append(time.monotonic() - begun)
