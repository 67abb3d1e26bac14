"""The Rust engine. Jobs and reports are JSON; their fields are those of the serde structs named here."""

from collections.abc import Callable
from os import PathLike
from typing import Protocol, TypeAlias

Progress: TypeAlias = Callable[[int, int], object]

__version__: str

class EngineError(ValueError):
    """The engine refuses a job, or a trace cannot be read."""

class _Store(Protocol):
    def get(self, object_number: int, offset_bytes: int, count_bytes: int, demand: bool, /) -> float | None: ...
    def put(self, object_number: int, count_bytes: int, /) -> float | None: ...

def replay(job: str, store: _Store | None = None, progress: Progress | None = None) -> str:
    """`tombolo_engine::replay::Job` to `Report`."""

def keys(job: str, progress: Progress | None = None) -> str:
    """`tombolo_engine::keys::Job` to `Report`."""

def objects(job: str, progress: Progress | None = None) -> str:
    """`tombolo_engine::objects::Job` to `Report`."""

def load(job: str, progress: Progress | None = None) -> str:
    """`tombolo_engine::load::Job` to `Report`."""

def chunks(job: str, progress: Progress | None = None) -> str:
    """`tombolo_engine::load::ChunkJob` to `ChunkReport`."""

def info(source: str, progress: Progress | None = None) -> str:
    """`tombolo_trace::Source` to `Info`."""

def analyse(job: str, progress: Progress | None = None) -> str:
    """`{trace: Source, interval_us}` to `tombolo_trace::Analysis`."""

def convert(source: str, target: str | PathLike[str], progress: Progress | None = None) -> int:
    """Writes the project's own format; returns the number of records."""

def shuffle(job: str, progress: Progress | None = None) -> int:
    """`{trace, target, window, seed}`: writes a trace with its jumps in another order."""

def generate(job: str, progress: Progress | None = None) -> int:
    """`tombolo_engine::synthetic::Job`: writes a made-up trace; returns the number of records."""

def history(job: str, progress: Progress | None = None) -> str:
    """The history graph after a trace's reads: nodes and edges."""

def models() -> str:
    """The latency tables by name: (quantile, milliseconds) pairs."""

def latency_table(text: str) -> str:
    """`tombolo_cloud_driver::latency_table::LatencyTable` as text, checked: the same with every field in its place."""

class Recommendation:
    """`tombolo_cloud_driver::latency_table::Recommendation` of cells of one kind, as JSON."""

    def __init__(self, cells: str) -> None: ...
    def data(self) -> str: ...
    def parallelism(self, size_bytes: int) -> int: ...
    def saturating_parallelism(self, size_bytes: int) -> int: ...

class StoreClient:
    """The gateway's own client of a store. `place` is `{url, endpoint, region}`; nothing is sent yet."""

    def __init__(self, place: str) -> None: ...
    def run(self, run: str, progress: Progress | None = None) -> str:
        """`store_client::Run` to `Outcome`: requests of one kind and size, many at a time, each timed."""

def prices() -> str:
    """The shipped prices of stores by name: `tombolo_billing::Prices`."""

def storage_usd_per_gib(initial_gib: float, gib_per_period: float, periods: float, usd_per_gib_period: float) -> float:
    """Equation (6) of the Tombolo paper."""

def expand(job: str) -> str:
    """The history graph of given reads, and its balanced expansion from one block."""
