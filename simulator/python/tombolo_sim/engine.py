"""The engine with dictionaries in place of JSON. What it refuses is an `EngineError` whose message names the field of
the job, or the line or byte of the trace."""

import hashlib
import json
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

from tombolo_sim import _engine
from tombolo_sim._engine import EngineError
from tombolo_sim.stores import Store

__all__ = [
    "EngineError",
    "Json",
    "Progress",
    "analyse",
    "chunks",
    "convert",
    "digest",
    "expand",
    "generate",
    "history",
    "info",
    "keys",
    "load",
    "objects",
    "replay",
    "shuffle",
]

Json: TypeAlias = dict[str, Any]
Progress: TypeAlias = Callable[[int, int], object]


def _object(text: str) -> Json:
    value = json.loads(text)
    assert isinstance(value, dict)
    return value


def replay(job: Mapping[str, Any], store: Store | None = None, progress: Progress | None = None) -> Json:
    return _object(_engine.replay(json.dumps(job), store, progress))


def keys(job: Mapping[str, Any], progress: Progress | None = None) -> Json:
    return _object(_engine.keys(json.dumps(job), progress))


def load(job: Mapping[str, Any], progress: Progress | None = None) -> Json:
    return _object(_engine.load(json.dumps(job), progress))


def chunks(job: Mapping[str, Any], progress: Progress | None = None) -> Json:
    return _object(_engine.chunks(json.dumps(job), progress))


def objects(job: Mapping[str, Any], progress: Progress | None = None) -> Json:
    return _object(_engine.objects(json.dumps(job), progress))


def info(source: Mapping[str, Any], progress: Progress | None = None) -> Json:
    return _object(_engine.info(json.dumps(source), progress))


def analyse(source: Mapping[str, Any], interval_us: int, progress: Progress | None = None) -> Json:
    job = {"trace": source, "interval_us": interval_us}
    return _object(_engine.analyse(json.dumps(job), progress))


def convert(source: Mapping[str, Any], target: Path, progress: Progress | None = None) -> int:
    return _engine.convert(json.dumps(source), target, progress)


def shuffle(job: Mapping[str, Any], progress: Progress | None = None) -> int:
    return _engine.shuffle(json.dumps(job), progress)


def generate(job: Mapping[str, Any], progress: Progress | None = None) -> int:
    return _engine.generate(json.dumps(job), progress)


def history(job: Mapping[str, Any], progress: Progress | None = None) -> Json:
    return _object(_engine.history(json.dumps(job), progress))


def expand(job: Mapping[str, Any]) -> Json:
    return _object(_engine.expand(json.dumps(job)))


@cache
def digest() -> str:
    """Names the engine that is loaded, so that results of another are not taken for its own."""
    return hashlib.sha256(Path(str(_engine.__file__)).read_bytes()).hexdigest()[:16]
