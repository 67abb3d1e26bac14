"""Traces for the tests: those that are committed beside the readers, the public ones, and one made up."""

import os
from pathlib import Path
from random import Random

import pytest

REPOSITORY = Path(__file__).parents[3]
COMMITTED = REPOSITORY / "trace" / "tests" / "data"
BLOCKS = COMMITTED / "blocks.txt"
ARC = COMMITTED / "arc_p3.lis"

_OBJECTS = 40
_OBJECT_BLOCKS = 24
_STEP_US = 2_000


def public(name: str) -> Path:
    """A public trace; the test is skipped where nobody says where they lie."""
    folder = os.environ.get("TOMBOLO_TRACES")
    if not folder:
        pytest.skip("TOMBOLO_TRACES, the folder of public traces, is not set")
    path = Path(folder) / name
    if not path.exists():
        pytest.skip(f"{path} is not there")
    return path


def made_up(path: Path, requests: int = 3000, seed: int = 1) -> Path:
    """Readers that walk between the same few ranges in the same order, streams, and writes: enough for every policy to
    have something to do."""
    random = Random(seed)
    starts = [random.randrange(1 << 16) * 8 for _ in range(_OBJECTS)]
    lines: list[str] = []
    time_us = walk = 0
    stream = 1 << 24
    while len(lines) < requests:
        time_us += random.randrange(_STEP_US)
        choice = random.random()
        if choice < 0.6:
            walk = (walk + 1) % _OBJECTS if random.random() < 0.9 else random.randrange(_OBJECTS)
            lines.append(f"{time_us} R {starts[walk]} {1 + walk % 4}\n")
        elif choice < 0.85:
            lines.append(f"{time_us} R {stream} 8\n")
            stream += 8
        else:
            first = starts[random.randrange(_OBJECTS)] + random.randrange(_OBJECT_BLOCKS)
            lines.append(f"{time_us} W {first} 2 {random.randrange(1, 500)}+2\n")
    path.write_text("".join(lines))
    return path
