"""s3backer: one file whose blocks are objects, with ext4 on a loop device over it."""

import re
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from bench.systems.base import FuseProcess, MountedSystem, unmount
from harness.mount import detach
from harness.object_store import ACCESS_KEY, SECRET_KEY
from harness.tools import run

BLOCK_BYTES = 256 << 10
POLL_S = 0.05


@dataclass
class S3backer(MountedSystem):
    name: ClassVar[str] = "s3backer and ext4"
    options: ClassVar[str] = (
        "--blockSize=256k (its 4k would be an object each), --blockCacheSize and --md5CacheSize for all data,"
        " --blockCacheThreads=32 --readAhead=32 --listBlocks"
    )
    served: FuseProcess = field(init=False)
    below: Path = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.below = self.new_mount_point("s3backer")
        self.served = FuseProcess("s3backer", self.below, self.place.folder / "s3backer.log")

    @classmethod
    def version(cls) -> str:
        return run(["s3backer", "--version"]).stderr.splitlines()[0]

    @property
    def _device(self) -> Path:
        return self.below / "file"

    def prepare(self) -> None:
        access = self.place.folder / "access"
        access.touch(mode=0o600)
        access.write_text(f"{ACCESS_KEY}:{SECRET_KEY}\n")
        self._serve()
        # Nothing is left to be made in the background.
        extended = "nodiscard,lazy_itable_init=0,lazy_journal_init=0"
        self.act(["mke2fs", "-q", "-F", "-t", "ext4", "-E", extended, self._device], 120)
        self.served.stop()

    def _serve(self) -> None:
        size = 2 * self.place.data_bytes_max
        blocks = size // BLOCK_BYTES
        words = [f"--accessFile={self.place.folder / 'access'}", f"--baseURL={self.place.endpoint}/"]
        words += [f"--blockSize={BLOCK_BYTES}", f"--size={size}", f"--blockCacheSize={blocks}"]
        words += [f"--md5CacheSize={blocks}", "--blockCacheThreads=32", "--readAhead=32", "--listBlocks"]
        self.served.start(["s3backer", "-f", *words, self.place.bucket, self.below])

    def mount(self) -> None:
        self._serve()
        self.act(["mount", "-o", "loop", self._device, self.folder], 120)

    def settle(self, limit_s: float) -> None:
        """ext4 and the loop device first, as far as fsync goes. Then the blocks that its cache still has to write."""
        deadline = time.monotonic() + limit_s
        self.act(["sync", "--file-system", self.folder], limit_s)
        while self._dirty_ratio() > 0:
            if time.monotonic() > deadline:
                raise TimeoutError(f"s3backer's cache is not clean within {limit_s} s")
            time.sleep(POLL_S)

    def _dirty_ratio(self) -> float:
        told = run(["cat", self.below / "stats"], 30).stdout
        found = re.search(r"^block_cache_dirty_ratio\s+([0-9.]+)", told, re.MULTILINE)
        if found is None:
            raise RuntimeError(f"s3backer's statistics have no ratio of dirty blocks:\n{told}")
        return float(found[1])

    def unmount(self) -> None:
        unmount(self.folder)
        self.served.stop()

    def forget(self) -> None:
        """Its cache was in its memory."""

    def end(self) -> None:
        detach(self.folder)
        self.served.end()

    def close(self) -> None:
        super().close()
        self.below.rmdir()
