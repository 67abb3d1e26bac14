"""An ext4 with a journal for all contenders, in an image on the disk that is measured.

What a sync costs depends on the journal, and the machine's own file system may have none (it then also makes creations
slow for a minute after removals, by keeping away from the inodes that were freed). The loop device bypasses the page
cache and passes flushes on.
"""

from pathlib import Path

from harness.tools import run

IMAGE_BYTES = 12 << 30
INODES = 1 << 18


class Ext4:
    """Mounted at `folder` from `start` to `close`. The image lies beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._image = folder.with_suffix(".image")
        self._device = ""

    def start(self) -> None:
        self.folder.mkdir()
        run(["fallocate", "--length", str(IMAGE_BYTES), self._image])
        # Nothing is left to be initialised in the background, and no discard makes holes in the image.
        initialised = "nodiscard,lazy_itable_init=0,lazy_journal_init=0"
        run(["mkfs.ext4", "-q", "-F", "-N", str(INODES), "-E", initialised, self._image])
        self._device = run(["losetup", "--find", "--show", "--direct-io=on", self._image]).stdout.strip()
        run(["mount", "-t", "ext4", self._device, self.folder])

    def close(self) -> None:
        if self._device:
            # Both let go by themselves once nothing uses them any more.
            run(["umount", "--lazy", self.folder], expected_codes=range(256))
            run(["losetup", "--detach", self._device])
            self._device = ""
        self._image.unlink(missing_ok=True)
