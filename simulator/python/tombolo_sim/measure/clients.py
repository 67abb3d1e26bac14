"""What sends the requests: the gateway's own client (Rust), or boto3 with a thread for each request under way."""

import json
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import asdict, dataclass, field
from random import Random
from typing import Any

from tombolo_sim import _engine
from tombolo_sim._engine import EngineError
from tombolo_sim.measure.own_keys import OwnKeys
from tombolo_sim.measure.place import FAILURES, MeasureError, line

FAILURES_MAX = 16
_HEAD_BYTES = 8


@dataclass(frozen=True)
class Run:
    """Requests of one kind. Objects are numbered from `first` on; GETs begin again after `objects` of them."""

    operation: str
    size_bytes: int
    parallelism: int
    first: int
    objects: int
    requests_max: int
    seconds: float
    seed: int = 1

    @property
    def key_prefix(self) -> str:
        return f"{self.size_bytes}/"

    def name(self, number: int) -> str:
        return f"{self.key_prefix}{number:08}"


@dataclass
class Outcome:
    latencies_ms: list[float] = field(default_factory=list)
    elapsed_s: float = 0.0
    begun: int = 0
    """Requests; so many objects from the first on may be there after PUTs."""
    failures: dict[str, int] = field(default_factory=dict)


class Client(ABC):
    name: str

    @abstractmethod
    def run(self, run: Run) -> Outcome:
        """When it is interrupted, no request begins any more, and those under way are waited for."""


class NativeClient(Client):
    """The crate `cloud_driver`, as the gateway uses it, without its repetitions."""

    name = "cloud_driver"

    def __init__(self, keys: OwnKeys, endpoint: str | None, region: str) -> None:
        place = {"url": keys.place.url(), "endpoint": endpoint, "region": region}
        try:
            self._client = _engine.StoreClient(json.dumps(place))
        except EngineError as error:
            raise MeasureError(str(error)) from error

    def run(self, run: Run) -> Outcome:
        found = json.loads(self._client.run(json.dumps({**asdict(run), "key_prefix": run.key_prefix})))
        return Outcome(**found)


class Boto3Client(Client):
    name = "boto3"

    def __init__(self, keys: OwnKeys, client: Any) -> None:  # noqa: ANN401
        self._keys = keys
        self._client = client

    def run(self, run: Run) -> Outcome:
        shared = _Shared(run, self._keys, self._client)
        workers = [threading.Thread(target=shared.work, args=(number,)) for number in range(run.parallelism)]
        begun = time.perf_counter()
        try:
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()
        finally:
            shared.stopped.set()
            for worker in workers:
                if worker.ident is not None:
                    worker.join()
        elapsed = time.perf_counter() - begun
        return Outcome(shared.latencies_ms, elapsed, min(shared.next, run.requests_max), dict(shared.failures))


class _Shared:
    """What the threads of a run share."""

    def __init__(self, run: Run, keys: OwnKeys, client: Any) -> None:  # noqa: ANN401
        self.run, self._keys, self._client = run, keys, client
        self.next = 0
        self.latencies_ms: list[float] = []
        self.failures: Counter[str] = Counter()
        self.stopped = threading.Event()
        self._lock = threading.Lock()
        self._deadline = time.perf_counter() + run.seconds

    def work(self, worker: int) -> None:
        run = self.run
        contents = bytearray(
            Random(run.seed << 16 | worker).randbytes(run.size_bytes) if run.operation == "put" else b""
        )
        while not self.stopped.is_set() and time.perf_counter() < self._deadline:
            with self._lock:
                index, self.next = self.next, self.next + 1
                if index >= run.requests_max or self.failures.total() >= FAILURES_MAX:
                    self.next = index
                    return
            number = run.first + (index if run.operation == "put" else index % max(1, run.objects))
            try:
                took = self._request(self._keys.key(run.name(number)), number, contents)
            except (*FAILURES, MeasureError) as error:
                with self._lock:
                    self.failures[line(error)] += 1
            else:
                with self._lock:
                    self.latencies_ms.append(took * 1000)

    def _request(self, key: str, number: int, contents: bytearray) -> float:
        """Seconds. Contents begin with the object's number."""
        head = number.to_bytes(_HEAD_BYTES, "little")
        bucket = self._keys.place.bucket
        if self.run.operation == "put":
            contents[:_HEAD_BYTES] = head
            body = bytes(contents)
            begun = time.perf_counter()
            self._client.put_object(Bucket=bucket, Key=key, Body=body)
            return time.perf_counter() - begun
        begun = time.perf_counter()
        found = self._client.get_object(Bucket=bucket, Key=key)["Body"].read()
        took = time.perf_counter() - begun
        if len(found) != self.run.size_bytes or not found.startswith(head):
            raise MeasureError("an object has other contents than were put")
        return took
