"""libfuse's own example of a file system that passes everything on: what a file server in a process of its own costs.

Debian ships its source with the library; it is compiled here. It runs with threads and its default caching, which lets
the kernel use names and attributes for one second, as ours does.
"""

import shlex
import tempfile
from functools import cache
from pathlib import Path
from typing import Self

from harness.mount import READY_LIMIT_S, mounted_type
from harness.process import Process
from harness.tools import REPOSITORY, run

SOURCE = Path("/usr/share/doc/libfuse3-dev/examples/passthrough_ll.c")


@cache
def passthrough_binary() -> Path:
    if not SOURCE.exists():
        raise FileNotFoundError("libfuse's examples are missing: install the package libfuse3-dev")
    built = REPOSITORY / "build/bench/passthrough_ll"
    built.parent.mkdir(parents=True, exist_ok=True)
    options = shlex.split(run(["pkg-config", "--cflags", "--libs", "fuse3"]).stdout)
    run(["gcc", "-O2", "-w", SOURCE, *options, "-o", built])
    return built


class Passthrough:
    """A folder, mounted once more at a folder of its own."""

    def __init__(self, tree: Path, log: Path) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="tombolo-passthrough-"))
        self._tree = tree
        self.process = Process("passthrough", log)

    def start(self) -> Self:
        self.process.start([passthrough_binary(), "-f", "-o", f"source={self._tree}", self.folder])
        self.process.wait_until(lambda: mounted_type(self.folder) is not None, READY_LIMIT_S, "mount")
        return self

    def close(self) -> None:
        if mounted_type(self.folder) is not None:
            run(["umount", "--lazy", self.folder])
        self.process.kill9()
        self.folder.rmdir()
