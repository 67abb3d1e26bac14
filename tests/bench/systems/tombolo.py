"""Ours: a share, mounted by the kernel."""

from dataclasses import dataclass, field
from typing import ClassVar

from bench.systems.base import MountedSystem
from harness.gateway import Gateway
from harness.mount import Mount
from harness.tools import run, tombolo_binary

MIB = 1 << 20
SHARE = "bench"


@dataclass
class Tombolo(MountedSystem):
    name: ClassVar[str] = "Tombolo"
    options: ClassVar[str] = "[cache] size and [flush] dirty_bytes_max for all data, [store] warm_connections = 0"
    deduplicates: ClassVar[bool] = True
    gateway: Gateway = field(init=False)
    mounted: Mount = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        data_mib = self.place.data_bytes_max // MIB
        store = {"url": f"s3://{self.place.bucket}/gateway", "endpoint": self.place.endpoint, "allow_http": True}
        settings = {
            # A benchmark of what is on the wire waits until it is at rest.
            "store": {**store, "warm_connections": 0},
            "cache": {"size": f"{2 * data_mib}MiB"},
            "flush": {"dirty_bytes_max": f"{data_mib + data_mib // 2}MiB"},
        }
        self.gateway = Gateway(self.place.folder / "gateway", settings, self.place.server.environment)
        self.mounted = Mount(self.gateway, SHARE, self.folder)

    @classmethod
    def version(cls) -> str:
        return run([tombolo_binary(), "--version"]).stdout.strip()

    def prepare(self) -> None:
        self.gateway.start()
        self.gateway.create_share(SHARE)
        self.gateway.stop()

    def mount(self) -> None:
        self.gateway.start()
        self.mounted.start()

    def settle(self, limit_s: float) -> None:
        self.gateway.drain(limit_s)

    def unmount(self) -> None:
        self.mounted.stop()
        self.gateway.stop()

    def forget(self) -> None:
        self.gateway.cache_file.unlink()

    def end(self) -> None:
        self.mounted.close()
        self.gateway.close()
