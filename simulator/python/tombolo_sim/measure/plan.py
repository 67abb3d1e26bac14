"""Which cells are measured, with how many requests and bytes at the most, and what that can cost.

Sizes 1 KiB to 16 MiB and parallelisms 1 to 64, as in Hou et al.; every bound is known before the first request.
"""

from dataclasses import dataclass

from tombolo_sim.measure.place import MeasureError
from tombolo_sim.models import Cloud

# In the order in which they are measured.
OPERATIONS = ("put", "get")
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
SIZES = tuple(KIB << shift for shift in range(0, 15, 2))
PARALLELISMS = (1, 2, 4, 8, 16, 32, 64)
QUICK_SIZES = (KIB, 16 * KIB, 256 * KIB, 4 * MIB)
QUICK_PARALLELISMS = (1, 4, 16)
SIZE_BYTES_MAX = 64 * MIB
PARALLELISM_MAX = 256
# Of what is read again and again: more than one server's connections hold, and little to put.
_POOL_MIN = 64
# Requests that are priced as PUTs: checks; listings before removals, for each run.
_CHECK_REQUESTS = 100
_RUN_LISTINGS = 4


@dataclass(frozen=True)
class Estimate:
    """At the most."""

    puts: int
    gets: int
    bytes_up: int
    bytes_down: int
    stored_bytes: int
    seconds: float
    dollars: float


@dataclass(frozen=True)
class Plan:
    sizes: tuple[int, ...] = SIZES
    parallelisms: tuple[int, ...] = PARALLELISMS
    repeats: int = 5
    seconds: float = 2.0
    """Of each repeat; the paper's take 60 or more."""
    run_requests_max: int = 1000
    run_bytes_max: int = 256 * MIB
    in_flight_bytes_max: int = 256 * MIB
    clients: int = 1

    def check(self) -> None:
        for option, value, least, most in (
            ("--sizes", self.sizes, 8, SIZE_BYTES_MAX),
            ("--parallelism", self.parallelisms, 1, PARALLELISM_MAX),
            ("--repeats", (self.repeats,), 1, 100),
            ("--seconds", (self.seconds,), 0.01, 3600),
        ):
            if not value or list(value) != sorted(set(value)) or not least <= value[0] <= value[-1] <= most:
                raise MeasureError(f"{option}: they must ascend from {least} to {most} at the most")
        if 1 not in self.parallelisms:
            raise MeasureError("--parallelism: 1 must be among them, since all others are compared with it")
        if self.sizes[-1] > self.in_flight_bytes_max:
            raise MeasureError(f"--in-flight-max: {self.in_flight_bytes_max} bytes hold no object of {self.sizes[-1]}")

    def parallelisms_of(self, size_bytes: int) -> list[int]:
        """Those whose requests hold no more than is permitted."""
        return [count for count in self.parallelisms if count * size_bytes <= self.in_flight_bytes_max]

    def left_out(self) -> list[tuple[int, int]]:
        return [(size, count) for size in self.sizes for count in self.parallelisms
                if count not in self.parallelisms_of(size)]  # fmt: skip

    def run_requests(self, size_bytes: int, parallelism: int) -> int:
        """Of one repeat."""
        return max(parallelism, min(self.run_requests_max, self.run_bytes_max // size_bytes))

    def pool(self, size_bytes: int) -> int:
        """Objects that are put to be read."""
        return max(*self.parallelisms_of(size_bytes), min(_POOL_MIN, self.run_bytes_max // size_bytes))

    def runs(self) -> int:
        return len(OPERATIONS) * sum(len(self.parallelisms_of(size)) for size in self.sizes) * self.repeats

    def estimate(self, cloud: Cloud | None) -> Estimate:
        gets = bytes_down = stored = 0
        puts, bytes_up = 1, self.sizes[0]
        for size in self.sizes:
            requests = sum(self.repeats * self.run_requests(size, count) for count in self.parallelisms_of(size))
            most = max(self.run_requests(size, count) for count in self.parallelisms_of(size))
            # The first of each cell open connections with the smallest objects.
            opening = sum(self.parallelisms_of(size))
            put = requests + self.pool(size)
            puts += put
            bytes_up += put * size
            gets += requests + opening * len(OPERATIONS)
            bytes_down += requests * size + opening * len(OPERATIONS) * self.sizes[0]
            # The smallest objects stay: connections are opened with one of them.
            stored = max(stored, (most + self.pool(size)) * size + self.pool(self.sizes[0]) * self.sizes[0])
        seconds = self.runs() * self.seconds * self.clients
        puts, gets, bytes_up, bytes_down = (value * self.clients for value in (puts, gets, bytes_up, bytes_down))
        upkeep = (_CHECK_REQUESTS + _RUN_LISTINGS * self.runs()) * self.clients
        dollars = 0.0
        if cloud:
            prices = cloud.prices
            dollars = (
                (puts + upkeep) * prices["put_usd_per_1000"] / 1000
                + gets * prices["get_usd_per_1000"] / 1000
                + bytes_down / GIB * prices["egress_usd_per_gib"]
                # For an hour at the least, however short it lies there.
                + stored / GIB * prices["storage_usd_per_gib_month"] / 720 * max(1.0, seconds / 3600)
            )
        return Estimate(puts, gets, bytes_up, bytes_down, stored, seconds, dollars)


def sizes_of(words: str, option: str) -> tuple[int, ...]:
    """`1KiB,64KiB,4MiB`, or bytes."""
    units = {"KiB": KIB, "MiB": MIB, "GiB": GIB}
    found = []
    for word in words.split(","):
        number, unit = word.strip(), 1
        if number[-3:] in units:
            number, unit = number[:-3].strip(), units[number[-3:]]
        if not number.isdecimal():
            raise MeasureError(f"{option} {words}: {word!r} is no size")
        found.append(int(number) * unit)
    return tuple(found)


def size_name(size_bytes: int) -> str:
    for unit, length in (("MiB", MIB), ("KiB", KIB)):
        if size_bytes >= length and size_bytes % length == 0:
            return f"{size_bytes // length} {unit}"
    return f"{size_bytes} B"
