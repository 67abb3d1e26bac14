"""s3fs: a file is an object, uploaded by fsync and close."""

import shutil
from dataclasses import dataclass, field
from typing import ClassVar

from bench.systems.base import FuseProcess, MountedSystem
from harness.object_store import ACCESS_KEY, REGION, SECRET_KEY
from harness.tools import run


@dataclass
class S3fs(MountedSystem):
    name: ClassVar[str] = "s3fs"
    options: ClassVar[str] = "use_cache (a cache on the local disk)"
    served: FuseProcess = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.served = FuseProcess("s3fs", self.folder, self.place.folder / "s3fs.log")

    @classmethod
    def version(cls) -> str:
        return run(["s3fs", "--version"]).stdout.splitlines()[0]

    def prepare(self) -> None:
        """The bucket is the file system."""
        password = self.place.folder / "password"
        password.touch(mode=0o600)
        password.write_text(f"{ACCESS_KEY}:{SECRET_KEY}")

    def mount(self) -> None:
        options = [f"url={self.place.endpoint}", "use_path_request_style", f"endpoint={REGION}"]
        options += [f"passwd_file={self.place.folder / 'password'}", f"use_cache={self.place.folder / 'cache'}"]
        self.served.start(["s3fs", self.place.bucket, self.folder, "-f", "-o", ",".join(options)])

    def settle(self, limit_s: float) -> None:
        """All is there when fsync or close have returned."""

    def unmount(self) -> None:
        self.served.stop()

    def forget(self) -> None:
        shutil.rmtree(self.place.folder / "cache", ignore_errors=True)

    def end(self) -> None:
        self.served.end()
