"""A local disk that goes bad under a gateway: its syncs fail, and what had not been synced is gone afterwards; or it
has no room, or cannot be read for a while."""

import shutil
from pathlib import Path

from harness.gateway import Gateway
from harness.tools import preloaded_library

SOURCE = Path(__file__).with_name("failing_disk.c")


class FailingDisk:
    """Of a gateway that is not started yet."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._faults = gateway.folder / "faults"
        self._faults.mkdir()
        self._kept = gateway.folder / "kept"
        gateway.daemon_environment = {"LD_PRELOAD": str(preloaded_library(SOURCE)), "FAILING_DISK": str(self._faults)}

    def begin(self, fault: str) -> None:
        """One of those that `failing_disk.c` lists."""
        (self._faults / fault).touch()

    def end(self, fault: str) -> None:
        (self._faults / fault).unlink()

    def fail(self) -> None:
        """From now on no sync succeeds. All that was written so far had been synced."""
        self.begin("syncs")
        shutil.copytree(self._journal, self._kept)

    def restart(self) -> None:
        """The daemon is killed and started on the mended disk, which lacks what was written since it failed. Slots of
        the cache file may keep what they got: nothing refers to them."""
        self._gateway.kill9()
        shutil.rmtree(self._journal)
        self._kept.rename(self._journal)
        self.end("syncs")
        self._gateway.start()

    @property
    def _journal(self) -> Path:
        return self._gateway.state_directory / "journal"
