"""s3fs: a file is an object, uploaded by fsync and close."""

from dataclasses import dataclass
from typing import ClassVar

from bench.systems.base import ServedSystem
from harness.object_store import ACCESS_KEY, REGION, SECRET_KEY
from harness.tools import run


@dataclass
class S3fs(ServedSystem):
    name: ClassVar[str] = "s3fs"
    options: ClassVar[str] = "use_cache (a cache on the local disk)"
    program: ClassVar[str] = "s3fs"

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
        options += [f"passwd_file={self.place.folder / 'password'}", f"use_cache={self.cache}"]
        self.served.start(["s3fs", self.place.bucket, self.folder, "-f", "-o", ",".join(options)])

    def settle(self, limit_s: float) -> None:
        """All is there when fsync or close have returned."""
