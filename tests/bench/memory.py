"""Memory that the machine has at hand.

A virtual machine's host takes back what its guest has not used for a while, and brings it anew at first touch, which
costs several times what copying into it does (`copy_folio_from_iter_atomic` was a quarter of all processor time in a
drain). Whoever measures after a pause pays for that, and whoever measures in what another has just freed does not. So
everybody begins after as much as is needed was touched and freed again.
"""

import os
from pathlib import Path

MIB = 1 << 20


def touch_memory(folder: Path, size: int) -> None:
    """Fills so much of the page cache with a file in the folder, and frees it."""
    file = folder / "touched"
    content = os.urandom(MIB)
    try:
        with file.open("wb") as opened:
            for _ in range(size // MIB):
                opened.write(content)
    finally:
        file.unlink(missing_ok=True)
