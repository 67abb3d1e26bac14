"""What the paper leaves open: SEQ's degree m, GRAPH's tracks T and likelihoods tau, chosen on other traces than those
on which they are judged.

The traces, by name, belong to two folds in turn. For each fold the values are taken that are best on the other: the
geometric mean of misses times dollars, LRU, a cache of 10 % of the footprint, the first seed. By misses alone, whatever
fetches most would win.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import geometric_mean
from typing import Any

from tombolo_sim.engine import Json
from tombolo_sim.models import operation_usd
from tombolo_sim.sources import Trace

DEGREE_BLOCKS = (8, 16, 32, 64, 128, 256, 512)
"""SEQ's m: 1 to 64 tracks of SARC's 8 blocks."""
DEGREES: tuple[Mapping[str, Any], ...] = tuple({"degree_blocks": blocks} for blocks in DEGREE_BLOCKS)
GRAPHS: tuple[Mapping[str, Any], ...] = tuple(
    {"track_blocks": track, "threshold_miss_permille": miss, "threshold_hit_permille": hit}
    for track in (4, 16)
    for miss, hit in ((250, 500), (500, 750), (700, 850))
)
GRIDS = {"seq": DEGREES, "graph": GRAPHS}
FOLDS = 2
_MISS_RATIO_MIN, _USD_MIN = 1e-4, 1e-9
"""A trace that misses next to nothing, or asks nothing of the cloud in the part that counts, would decide alone."""


@dataclass(frozen=True)
class Parameters:
    """Settings by prefetcher; of one that is not there, the gateway's own."""

    by_prefetcher: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def of(self, prefetch: str) -> Mapping[str, Any]:
        return self.by_prefetcher.get(prefetch, {})


SHIPPED = Parameters()

PARAMETERS = (
    "SEQ's degree (m) and GRAPH's tracks (T) and likelihoods (tau, after a miss and after a hit) are the gateway's own "
    "under its conditions: m = 64 blocks, T = 16 blocks, tau = 700 and 850 permille, chosen on some of these traces. "
    "Under the paper's they are cross-validated: the traces belong, by name, to two folds in turn, and each is judged "
    "with the values that are best on the other fold (geometric mean of misses times dollars, LRU, 10 % of the "
    "footprint, first seed). p begins at 64 blocks and is 1,024 at the most; edges are remembered for 84 to 168 hours; "
    "SEQ follows a stream from the third read on; SARC's own detection takes a track of 8 blocks for sequential when "
    "the two before it were read in order."
)


def grid() -> Iterator[tuple[str, int, Mapping[str, Any]]]:
    """(prefetcher, place in its grid, settings)."""
    for prefetch, values in GRIDS.items():
        for place, settings in enumerate(values):
            yield prefetch, place, settings


def fold_of(traces: Sequence[Trace], trace: Trace) -> int:
    names = sorted(other.name for other in traces)
    return names.index(trace.name) % FOLDS


def loss(report: Json) -> float:
    """Misses times dollars of requests and transfer."""
    usd = float(operation_usd(report["dollars"]))
    return max(float(report["reads"]["miss_ratio"]), _MISS_RATIO_MIN) * max(usd, _USD_MIN)


Losses = Mapping[tuple[str, str, int], float]
"""By (trace, prefetcher, place in the grid)."""


def chosen(names: Sequence[str], losses: Losses) -> Parameters:
    """What loses least on these traces."""

    def mean(prefetch: str, place: int) -> float:
        of = [losses[name, prefetch, place] for name in names if (name, prefetch, place) in losses]
        return geometric_mean(of) if of else 0.0

    best = {}
    for prefetch, values in GRIDS.items():
        place = min(range(len(values)), key=lambda place: mean(prefetch, place))
        best[prefetch] = values[place]
    return Parameters(best)


def cross_validated(traces: Sequence[Trace], losses: Losses) -> dict[str, Parameters]:
    """For each trace, from the other fold; with one trace alone there is no other, and the gateway's own are kept."""
    found = {}
    for trace in traces:
        others = [other.name for other in traces if fold_of(traces, other) != fold_of(traces, trace)]
        found[trace.name] = chosen(others, losses) if others else SHIPPED
    return found
