"""Names of policies, and the six combinations of the Tombolo paper (table 3)."""

from dataclasses import dataclass
from typing import Any

COMBINATIONS = ("lru_seq", "lru_amp", "sarc_seq", "sarc_amp", "lru_graph", "sarc_graph")
"""In the order of the paper's tables 4 and 5: the miss ratio falls from the first to the last."""

DEFAULT = "2q+graph"
"""The gateway's own when nothing is set."""

PREFETCHERS = ("none", "ramp", "seq", "amp", "graph", "hou", "linux", "leap", "mithril", "probability")

# A stream is one from its third read on where SARC judges, and where GRAPH takes what does not belong to one.
_SARC_THRESHOLD = 3


@dataclass(frozen=True)
class Policy:
    """A replacement and a prefetch policy under one name."""

    name: str
    replacement: str
    prefetch: str
    settings: tuple[tuple[str, Any], ...] = ()

    def job_fields(self) -> dict[str, Any]:
        return {
            "replacement": self.replacement,
            "prefetch": self.prefetch,
            "prefetch_settings": dict(self.settings),
        }


def policy(name: str) -> Policy:
    """`lru_graph` and its like, or any `REPLACEMENT+PREFETCH`, such as `s3-fifo+amp`; one word is a replacement policy
    without prefetch. Whether the names exist is for the engine to say."""
    if name in COMBINATIONS:
        replacement, prefetch = name.split("_")
        sarc_amp = (replacement, prefetch) == ("sarc", "amp")
        return Policy(name, replacement, prefetch, (("threshold", _SARC_THRESHOLD),) if sarc_amp else ())
    replacement, _, prefetch = name.partition("+")
    return Policy(name, replacement, prefetch or "none")


def title(name: str) -> str:
    return name.upper() if name in COMBINATIONS else name
