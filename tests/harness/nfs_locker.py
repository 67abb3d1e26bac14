"""A byte-range lock over NFSv4, held by a process of its own.

    python -m harness.nfs_locker PORT EXPORT PATH START LENGTH x|s STOP

It says `held` or `denied`, keeps the lock until the file STOP exists, then says `released`. One process is one client
and one lock owner to the server; libnfs makes one client of all its contexts in a process.
"""

import sys
import time
from pathlib import Path

from harness.nfs import NfsFrontEnd
from harness.process import Process
from harness.tools import REPOSITORY

HELD, DENIED, RELEASED = "held", "denied", "released"


class NfsLock:
    """`held` tells whether the server granted it."""

    def __init__(
        self, folder: Path, port: int, export: str, path: str, span: tuple[int, int], exclusive: bool = True
    ) -> None:
        number = len(list(folder.glob("nfs-lock-*.log")))
        self._stop = folder / f"nfs-lock-{number}.stop"
        self._process = Process("nfs-lock", folder / f"nfs-lock-{number}.log")
        self._process.log_path.touch()
        words = [str(port), export, path, *map(str, span), "x" if exclusive else "s", str(self._stop)]
        self._process.start(
            [sys.executable, "-m", "harness.nfs_locker", *words], {"PYTHONPATH": str(REPOSITORY / "tests")}
        )
        self._process.wait_until(lambda: self._said(HELD) or self._said(DENIED), 30, "answer to the lock")
        self.held = self._said(HELD)

    def _said(self, word: str) -> bool:
        return word in self._process.log_path.read_text().split()

    def release(self) -> None:
        self._stop.touch()
        if self._process.wait(30) != 0 or (self.held and not self._said(RELEASED)):
            raise AssertionError(f"the lock was not released\n{self._process.log_tail()}")

    def kill9(self) -> None:
        """The client vanishes; the server keeps its lock until the lease ends."""
        self._process.kill9()


def main() -> None:
    port, export, path, start, length, kind, stop = sys.argv[1:]
    front_end = NfsFrontEnd(int(port), 0, export, version=4)
    unlock = front_end.try_lock_once(path, int(start), int(length), exclusive=kind == "x")
    print(HELD if unlock else DENIED, flush=True)
    while not Path(stop).exists():
        time.sleep(0.02)
    if unlock:
        unlock()
        print(RELEASED, flush=True)


if __name__ == "__main__":
    main()
