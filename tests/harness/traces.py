"""Traces of block requests: made up from a seed, or slices of public ones, as CSV that both the player of
`harness.trace_player` and the simulator read."""

import csv
import random
import subprocess
from bisect import bisect
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, islice
from pathlib import Path

BLOCK = 4096
PAGE_BLOCKS = 256
"""The simulator fills whole pages of the map with data, so a volume should be made of whole pages too."""
COLUMNS = ("time_us", "op", "block", "count", "client", "contents")
SECTORS_PER_BLOCK = 8


@dataclass(frozen=True)
class Request:
    time_us: int
    op: str
    block: int
    count: int
    client: int
    contents: tuple[int, ...] = ()
    """Names of what a write's blocks contain: equal names are equal contents, zero is a block of zeroes. Empty: like
    nothing else."""


def save(path: Path, trace: Iterable[Request]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for request in trace:
            contents = ";".join(str(name) for name in request.contents)
            writer.writerow((request.time_us, request.op, request.block, request.count, request.client, contents))


def load(path: Path) -> list[Request]:
    with path.open(newline="") as file:
        rows = csv.DictReader(file)
        return [
            Request(
                int(row["time_us"]), row["op"], int(row["block"]), int(row["count"]), int(row["client"]),
                tuple(int(name) for name in row["contents"].split(";") if name),
            )
            for row in rows
        ]  # fmt: skip


def mixed(
    seed: int, requests: int, volume_blocks: int, per_second: float = 100.0, written: float = 0.1
) -> list[Request]:
    """Three clients: places by Zipf's law, a share of them written; sequential runs; chains of far places that come
    back in the same order. They arrive at random, this many a second."""
    generator = random.Random(seed)
    clients = [
        popular(generator, volume_blocks, written),
        runs(generator, volume_blocks),
        chains(generator, volume_blocks),
    ]
    trace, now = [], 0.0
    for _ in range(requests):
        client = generator.choices(range(3), weights=(5, 3, 2))[0]
        now += generator.expovariate(per_second)
        op, block, count = next(clients[client])
        trace.append(Request(int(now * 1e6), op, block, count, client))
    return trace


Step = tuple[str, int, int]


def popular(generator: random.Random, volume_blocks: int, written: float) -> Iterator[Step]:
    places = list(range(0, volume_blocks, 8))
    generator.shuffle(places)
    weights = list(accumulate(1 / rank**0.9 for rank in range(1, len(places) + 1)))
    while True:
        place = places[bisect(weights, generator.random() * weights[-1])]
        op = "W" if generator.random() < written else "R"
        yield op, place, generator.randint(1, 8)


def runs(generator: random.Random, volume_blocks: int) -> Iterator[Step]:
    while True:
        count = generator.choice((1, 4, 8, 16))
        length = generator.randint(64, 1024) // count
        first = generator.randrange(volume_blocks - length * count)
        for index in range(length):
            yield "R", first + index * count, count


def chains(generator: random.Random, volume_blocks: int) -> Iterator[Step]:
    known = [[generator.randrange(volume_blocks - 4) for _ in range(generator.randint(4, 24))] for _ in range(60)]
    while True:
        for block in generator.choice(known):
            yield "R", block, 4


def with_copies(seed: int, trace: Sequence[Request], share: float, different: int) -> list[Request]:
    """The same, and this share of what is written is one of so many contents, a tenth as much zeroes."""
    generator = random.Random(seed)
    fresh = iter(range(different + 1, 1 << 62))

    def name() -> int:
        drawn = generator.random()
        if drawn >= share:
            return next(fresh)
        return 0 if drawn < share / 10 else generator.randint(1, different)

    return [
        replace(request, contents=tuple(name() for _ in range(request.count))) if request.op == "W" else request
        for request in trace
    ]


def large(seed: int, requests: int, volume_blocks: int) -> list[Request]:
    """One client that reads and writes 64 blocks at a time, at places by Zipf's law: a gigabyte is soon filled."""
    generator = random.Random(seed)
    places = popular(generator, volume_blocks // 8, 0.1)
    return [Request(0, op, place * 8, 64, 0) for op, place, _ in islice(places, requests)]


def capture_slice(path: Path, skipped: int, records: int) -> list[Request]:
    """Reads and writes of a block capture (`time_us op block count ...`, compressed with zstd), without their times."""
    with subprocess.Popen(["zstd", "-dcq", path], stdout=subprocess.PIPE, text=True) as unpacking:
        assert unpacking.stdout is not None
        lines = [line.split() for line in islice(unpacking.stdout, skipped, skipped + records)]
        unpacking.terminate()
    return dense([Request(0, op, int(block), int(blocks), 0) for _, op, block, blocks, *_ in lines if op in "RW"])


def arc_slice(path: Path, records: int) -> list[Request]:
    """The first records of a trace of the ARC paper (compressed with zstd): reads of sectors, without times."""
    with subprocess.Popen(["zstd", "-dcq", path], stdout=subprocess.PIPE, text=True) as unpacking:
        assert unpacking.stdout is not None
        lines = [line.split() for line in islice(unpacking.stdout, records)]
        unpacking.terminate()
    trace = []
    for start, count in ((int(line[0]), int(line[1])) for line in lines):
        first, end = start // SECTORS_PER_BLOCK, -(-(start + count) // SECTORS_PER_BLOCK)
        trace.append(Request(0, "R", first, end - first, 0))
    return dense(trace)


def dense(trace: Sequence[Request]) -> list[Request]:
    """The same with the pages that nothing touches taken out. Neighbours stay neighbours; what is far stays apart by a
    page at least, so that no two runs join."""
    touched = {page for request in trace for page in pages_of(request)}
    touched |= {page + 1 for page in touched}
    place = {page: index for index, page in enumerate(sorted(touched))}
    move = {page: (index - page) * PAGE_BLOCKS for page, index in place.items()}
    return [replace(request, block=request.block + move[request.block // PAGE_BLOCKS]) for request in trace]


def pages_of(request: Request) -> range:
    return range(request.block // PAGE_BLOCKS, (request.block + request.count - 1) // PAGE_BLOCKS + 1)


def pages_before(trace: Sequence[Request]) -> list[int]:
    """Pages with a block that is read before it is ever written: what the simulator takes to be there beforehand."""
    written: set[int] = set()
    pages = set()
    for request in trace:
        blocks = range(request.block, request.block + request.count)
        if request.op == "W":
            written.update(blocks)
        else:
            pages |= {block // PAGE_BLOCKS for block in blocks if block not in written}
    return sorted(pages)


def volume_bytes(trace: Sequence[Request]) -> int:
    """Of the smallest volume of whole pages that the trace fits into."""
    return (max(page for request in trace for page in pages_of(request)) + 1) * PAGE_BLOCKS * BLOCK
