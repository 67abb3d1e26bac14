"""Carries out a plan, cell by cell, and removes what it put."""

import contextlib
import socket
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from tombolo_sim.measure.clients import Boto3Client, Client, NativeClient, Outcome, Run
from tombolo_sim.measure.own_keys import OwnKeys
from tombolo_sim.measure.place import MeasureError, Place, line
from tombolo_sim.measure.plan import OPERATIONS, Plan, size_name
from tombolo_sim.measure.table import Cell, Json, table_of

QUANTILES = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999)
CLIENTS = {"native": ("native",), "boto3": ("boto3",), "both": ("native", "boto3")}
# Its first digit tells what is put to be measured from what is put to be read.
_FIRST_PUT = 10_000_000
_CONNECTIONS = 9
# To a nanosecond: no clock tells more, and every parser reads so few digits alike.
_MS_DIGITS = 6
_FILL_SECONDS = 600.0
# Iglewicz and Hoaglin's modified z-score; and what deviates less than this is none, however close the others are.
_SCORE_MAX = 3.5
_DEVIATION_MIN = 0.1

Tell = Callable[[int, int, str], object]
"""Runs done, all of them, and what comes next."""


def outliers(values: Sequence[float]) -> set[int]:
    """Places of the obvious ones; never half of the values or more."""
    middle = statistics.median(values)
    spread = statistics.median(abs(value - middle) for value in values)
    return {
        place
        for place, value in enumerate(values)
        if abs(value - middle) > _DEVIATION_MIN * middle and 0.6745 * abs(value - middle) > _SCORE_MAX * spread
    }


def quantiles(latencies_ms: Sequence[float]) -> list[tuple[float, float]]:
    """Those that so many values can tell: of ten values no p99."""
    count = len(latencies_ms)
    told = [quantile for quantile in QUANTILES if quantile == 0.5 or min(quantile, 1 - quantile) * count >= 1 - 1e-9]
    return [
        (quantile, round(float(ms), _MS_DIGITS))
        for quantile, ms in zip(told, np.quantile(latencies_ms, told), strict=True)
    ]


def cell_of(size_bytes: int, parallelism: int, outcomes: Sequence[Outcome]) -> Cell | None:
    """None where nothing was answered."""
    answered = [outcome for outcome in outcomes if outcome.latencies_ms]
    if not answered:
        return None
    means = [statistics.fmean(outcome.latencies_ms) for outcome in answered]
    bandwidths = [len(outcome.latencies_ms) * size_bytes / outcome.elapsed_s for outcome in answered]
    dropped = outliers(means) | outliers(bandwidths)
    if 2 * len(dropped) >= len(answered):
        dropped = set()
    kept = [mean for place, mean in enumerate(means) if place not in dropped]
    latencies = [ms for outcome in answered for ms in outcome.latencies_ms]
    return Cell(
        size_bytes=size_bytes,
        parallelism=parallelism,
        requests=len(latencies),
        failed=sum(sum(outcome.failures.values()) for outcome in outcomes),
        repeats=len(answered),
        dropped=len(dropped),
        bytes_per_s=round(statistics.fmean(rate for place, rate in enumerate(bandwidths) if place not in dropped), 1),
        mean_ms=round(statistics.fmean(kept), _MS_DIGITS),
        mean_ms_deviation=round(statistics.stdev(kept), _MS_DIGITS) if len(kept) > 1 else 0.0,
        latency_ms=quantiles(latencies),
    )


def round_trip_ms(endpoint: str) -> float:
    """The median time until a TCP connection to the server stands."""
    parts = urlsplit(endpoint)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    host = parts.hostname or ""
    took = []
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        for _ in range(_CONNECTIONS):
            with socket.socket(family, kind, protocol) as connection:
                connection.settimeout(10)
                begun = time.perf_counter()
                connection.connect(address)
                took.append((time.perf_counter() - begun) * 1000)
    except OSError as error:
        raise MeasureError(f"{endpoint}: {error}") from error
    return round(statistics.median(took), _MS_DIGITS)


@dataclass
class Measured:
    """One client's tables, and what went wrong on the way."""

    tables: dict[str, Json] = field(default_factory=dict)
    failures: dict[str, int] = field(default_factory=dict)
    removed: int = 0


class _Measuring:
    def __init__(self, plan: Plan, keys: OwnKeys, client: Client, failures: dict[str, int]) -> None:
        self._plan, self._keys, self._client, self._failures = plan, keys, client, failures

    def cells(self, tell: Callable[[str], object]) -> dict[str, list[Cell]]:
        found: dict[str, list[Cell]] = {operation: [] for operation in OPERATIONS}
        smallest = self._plan.sizes[0]
        self._put(Run("put", smallest, 1, 0, 1, 1, _FILL_SECONDS))
        for size in self._plan.sizes:
            for operation in OPERATIONS:
                if operation == "get":
                    pool = self._plan.pool(size)
                    self._put(Run("put", size, min(8, pool), 0, pool, pool, _FILL_SECONDS, seed=size))
                for parallelism in self._plan.parallelisms_of(size):
                    # Connections are opened by requests that nobody counts.
                    self._client.run(Run("get", smallest, parallelism, 0, 1, parallelism, _FILL_SECONDS))
                    outcomes = []
                    for repeat in range(self._plan.repeats):
                        tell(f"{self._client.name}: {operation} {size_name(size)} x {parallelism}")
                        outcomes.append(self._repeat(operation, size, parallelism, repeat))
                    cell = cell_of(size, parallelism, outcomes)
                    if cell is None:
                        raise MeasureError(
                            f"no {operation} of {size_name(size)} was answered: {self._first_failure(outcomes)}"
                        )
                    found[operation].append(cell)
            if size != smallest:
                self._keys.remove_below(f"{size}/")
        return found

    def _repeat(self, operation: str, size: int, parallelism: int, repeat: int) -> Outcome:
        requests = self._plan.run_requests(size, parallelism)
        first, objects = (0, self._plan.pool(size)) if operation == "get" else (_FIRST_PUT, requests)
        run = Run(operation, size, parallelism, first, objects, requests, self._plan.seconds, seed=repeat + 2)
        outcome = self._client.run(run)
        for message, count in outcome.failures.items():
            self._failures[message] = self._failures.get(message, 0) + count
        if operation == "put":
            self._keys.remove_below(f"{run.key_prefix}{str(_FIRST_PUT)[0]}")
        return outcome

    def _put(self, run: Run) -> None:
        outcome = self._client.run(run)
        if len(outcome.latencies_ms) < run.requests_max:
            raise MeasureError(
                f"{len(outcome.latencies_ms)} of {run.requests_max} objects of {size_name(run.size_bytes)} were put: "
                f"{self._first_failure([outcome])}"
            )

    @staticmethod
    def _first_failure(outcomes: list[Outcome]) -> str:
        return next((message for outcome in outcomes for message in outcome.failures), "no time was left")


@contextlib.contextmanager
def removing(keys: OwnKeys, measured: Measured) -> Iterator[None]:
    """Also after Ctrl-C."""
    try:
        yield
    except BaseException as error:
        try:
            keys.remove_all()
        except MeasureError as left:
            raise MeasureError(f"{line(error) or 'interrupted'}; and {left}") from error
        raise
    measured.removed = keys.remove_all()


def measure(place: Place, connection: Any, plan: Plan, clients: Sequence[str], tell: Tell) -> Measured:  # noqa: ANN401
    plan.check()
    endpoint, region = str(connection.meta.endpoint_url), str(connection.meta.region_name)
    round_trip = round_trip_ms(endpoint)
    measured = Measured()
    all_runs = plan.runs() * len(clients)
    done = 0

    def next_run(words: str) -> None:
        nonlocal done
        tell(done, all_runs, words)
        done += 1

    for name in clients:
        keys = OwnKeys(connection, place)
        client = Boto3Client(keys, connection) if name == "boto3" else NativeClient(keys, place.endpoint, region)
        with removing(keys, measured):
            cells = _Measuring(plan, keys, client, measured.failures).cells(next_run)
        at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        origin = {"at": at, "store": place.url(), "endpoint": place.endpoint, "client": client.name}
        measured.tables[client.name] = table_of(origin, round_trip, cells)
    tell(done, all_runs, "done")
    return measured
