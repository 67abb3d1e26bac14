"""Under which conditions the six combinations are compared: the paper's, as far as it says, and the gateway's own."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, eq=False)
class Condition:
    name: str
    title: str
    options: Mapping[str, Any]
    """Fields of `jobs.Choice`."""
    says: str


PAPER = Condition(
    "paper",
    "the paper's conditions",
    {"fetch_unit": "object", "addressing": "pvbn", "preload": "aged", "sequential_by": "replacement"},
    "a GET brings the whole object; policies see physical addresses, in a log that the trace itself has aged by a "
    "first pass; SARC says by itself what is sequential",
)
GATEWAY = Condition(
    "gateway",
    "the gateway's conditions",
    {"fetch_unit": "range", "addressing": "logical", "preload": "pages", "sequential_by": "prefetcher"},
    "a GET brings a range of an object; policies see places in files and volumes, which lie in order before the trace "
    "begins; the table of streams says what is sequential",
)
CONDITIONS = (PAPER, GATEWAY)

AMP_THRESHOLD = 2
"""Reads from which on AMP follows a stream, in all combinations."""


def amp_settings(prefetch: str) -> dict[str, Any]:
    names = {"amp": "threshold", "graph": "amp.threshold"}
    return {names[prefetch]: AMP_THRESHOLD} if prefetch in names else {}
