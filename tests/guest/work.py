"""Everyday programs on a mounted share: work.py FOLDER SOURCE WORK...

Runs in a guest, with the tests' folder on Python's path. Each work has folders of its own in FOLDER and in SOURCE,
which is a folder of the machine outside and knows neither attributes nor sockets.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path

from harness import suites
from harness.postgres import Postgres

MIB = 1 << 20
PGBENCH_S = 60


def say(words: str) -> None:
    print(f"GUEST {words}", flush=True)


def postgres(folder: Path, _: Path) -> None:
    """pgbench, while whoever reads "loading" kills what he likes; the books balance afterwards."""
    base = Postgres(folder / "base", Path("/run/postgres"))
    try:
        base.start()
        base.prepare()
        load = base.load(PGBENCH_S)
        say("loading")
        if code := load.wait(PGBENCH_S + 240):
            raise AssertionError(f"pgbench ended with {code}\n{load.log_tail()}")
        say(f"{base.transactions()} transactions")
        base.check_books()
        base.stop()
        base.check_files()
    finally:
        base.close()


def rsync(folder: Path, _: Path) -> None:
    source = folder / "source"
    source.mkdir()
    suites.rsync(folder, source, has_lists_of_rights=False)


WORKS: dict[str, Callable[[Path, Path], None]] = {
    "build": lambda folder, _: suites.build_c(folder),
    "git": lambda folder, source: suites.git(folder, source, 24 * MIB),
    "postgres": postgres,
    "rsync": rsync,
    "sqlite": lambda folder, _: suites.sqlite(folder / "base", lambda committed: committed >= 200),
    "tar": lambda folder, source: suites.tar_of_small_files(folder, source, 5_000),
    "tar-large": lambda folder, source: suites.tar_of_small_files(folder, source, 50_000),
}


def main() -> None:
    folder, source = Path(sys.argv[1]), Path(sys.argv[2])
    for name in sys.argv[3:]:
        places = (folder / name, source / name)
        for place in places:
            place.mkdir()
        began = time.monotonic()
        WORKS[name](*places)
        say(f"{name}: {time.monotonic() - began:.0f} s")


main()
