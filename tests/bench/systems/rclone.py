"""`rclone mount`: a file is an object, cached whole on the local disk and uploaded after it was closed."""

import json
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from bench.systems.base import ServedSystem
from harness.object_store import ACCESS_KEY, REGION, SECRET_KEY
from harness.tools import free_port, run, wait_for


@dataclass
class Rclone(ServedSystem):
    name: ClassVar[str] = "rclone mount"
    options: ClassVar[str] = "--vfs-cache-mode writes --vfs-write-back 0s (uploads begin at once, not after 5 s)"
    program: ClassVar[str] = "rclone"
    control_port: int = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.control_port = free_port()

    @classmethod
    def version(cls) -> str:
        return run(["rclone", "version"]).stdout.splitlines()[0]

    def prepare(self) -> None:
        """The bucket is the file system."""

    def mount(self) -> None:
        remote = {"TYPE": "s3", "PROVIDER": "Other", "ENDPOINT": self.place.endpoint, "REGION": REGION}
        remote |= {"ACCESS_KEY_ID": ACCESS_KEY, "SECRET_ACCESS_KEY": SECRET_KEY}
        words: list[str | Path] = [
            "rclone",
            "mount",
            f"store:{self.place.bucket}",
            self.folder,
            "--config",
            "/dev/null",
        ]
        words += ["--vfs-cache-mode", "writes", "--vfs-write-back", "0s", "--cache-dir", self.cache]
        words += ["--rc", "--rc-no-auth", "--rc-addr", f"127.0.0.1:{self.control_port}"]
        environment = {f"RCLONE_CONFIG_STORE_{key}": value for key, value in remote.items()}
        # It ends at once where certificates of authorities are named for AWS's clients, which nobody asks for here.
        self.served.start(words, environment | {"AWS_CA_BUNDLE": ""})

    def settle(self, limit_s: float) -> None:
        """Its fsync does nothing; its statistics say what is waiting."""
        wait_for(lambda: self._uploads() == 0, limit_s, "rclone's uploads")

    def _uploads(self) -> int:
        asked = urllib.request.Request(f"http://127.0.0.1:{self.control_port}/vfs/stats", b"", method="POST")
        with urllib.request.urlopen(asked, timeout=10) as reply:
            cache = json.load(reply)["diskCache"]
        return int(cache["uploadsInProgress"]) + int(cache["uploadsQueued"])
