"""A share mounted by the kernel: the process `tombolo share mount`, which holds the mount."""

import ctypes
import os
import tempfile
from pathlib import Path
from typing import Self

from harness.front_ends import LocalFrontEnd
from harness.gateway import Gateway
from harness.process import Process

READY_LIMIT_S = 30.0
MNT_DETACH = 2


def mounted_type(folder: Path) -> str | None:
    """The type of the file system mounted at a folder. Read from the kernel's list: nothing is asked of the file
    system, which may not answer."""
    found = None
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        if before.split()[4] == str(folder):
            found = after.split()[0]
    return found


def detach(folder: Path) -> None:
    """Takes all mounts at a folder away, also from under those who use them. Does not wait for the file system."""
    library = ctypes.CDLL(None, use_errno=True)
    while mounted_type(folder) is not None:
        if library.umount2(os.fsencode(folder), MNT_DETACH) != 0:
            raise OSError(ctypes.get_errno(), f"cannot unmount {folder}")


class Mount:
    """Not mounted until `start`, at a folder of its own that nobody looks into by accident: a look may wait for the
    daemon. `close` never does. With `folder`, at another mount's place."""

    def __init__(self, gateway: Gateway, share: str, folder: Path | None = None) -> None:
        self._owns_folder = folder is None
        self.folder = folder or Path(tempfile.mkdtemp(prefix="tombolo-mount-"))
        self._gateway = gateway
        self._share = share
        self.process = Process("mount", gateway.folder / f"{self.folder.name}.log")

    def start(self, *options: str) -> Self:
        """With options of `tombolo share mount`."""
        self.launch(options=options)
        self.process.wait_until(lambda: mounted_type(self.folder) is not None, READY_LIMIT_S, "mount")
        return self

    def launch(self, *before: str, options: tuple[str, ...] = ()) -> None:
        """Starts the process without waiting: for mounts that must fail, or that are not seen from here. `before` are
        words of a command that starts it."""
        socket = ["--socket", str(self._gateway.admin_socket)]
        words = [*socket, "share", "mount", self._share, str(self.folder), *options]
        self.process.start([*before, self._gateway.binary, *words], self._gateway.environment)

    def stop(self) -> None:
        """SIGTERM unmounts and ends the process with exit code 0."""
        code = self.process.stop(60)
        if code != 0 or mounted_type(self.folder) is not None:
            raise AssertionError(f"ended with {code}, mounted: {mounted_type(self.folder)}\n{self.process.log_tail()}")

    def kill9(self) -> None:
        self.process.kill9()

    def close(self) -> None:
        self.detach()
        self.process.kill9()
        if self._owns_folder:
            self.folder.rmdir()

    def detach(self) -> None:
        """Takes the mount away, also from under those who use it."""
        detach(self.folder)

    def front_end(self) -> LocalFrontEnd:
        return LocalFrontEnd(self.folder, "mount")
