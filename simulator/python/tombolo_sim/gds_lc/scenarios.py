"""The paper's three clouds and the workloads that stand in for its three, each figure with its source.

Nothing here was fitted to results: what the paper prints is taken from it, the rest from the literature or left at a
generator's own value.
"""

from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from tombolo_sim.gds_lc.conditions import Condition
from tombolo_sim.models import prices
from tombolo_sim.sources import Selection

Json: TypeAlias = dict[str, Any]

CACHE_SHARES = (0.05, 0.10, 0.15, 0.20)
"""Of the bytes of all objects. The text names 5, 10 and 20 %; the figures' axes are pictures."""

# A small GET at parallelism 1 takes 33 ms (1 KB at .03 MB/s), a 4 KB PUT 36 ms, a 4 MB GET 192 ms, a 16 MB upload
# runs at 20 MB/s: Hou et al., MSST'16, section IV and figures 1-5, same authors, same data centre.
_SERVICE = {"get_ms": 32.7, "put_ms": 35.7, "get_mib_per_s": 25.0, "put_mib_per_s": 20.0}
# Medians and 90th percentiles of S3 GETs (26.8 and 46.9 ms) give the first; the second is ordinary jitter of
# round trips.
_FLUCTUATION = {"service_sigma": 0.44, "round_trip_sigma": 0.1}


def _location(name: str, round_trip_ms: float, get_per_10_000: float, put_per_1000: float, egress: float) -> Json:
    charged = prices(get=get_per_10_000 / 10, put=put_per_1000, egress=egress)
    return {"name": name, "round_trip_ms": round_trip_ms, "prices": charged} | _SERVICE | _FLUCTUATION


@dataclass(frozen=True)
class Scenario:
    """Round trips: sections 5.2.1 to 5.2.3; prices: table 2."""

    name: str
    title: str
    figure: int
    locations: tuple[Json, ...]


SCENARIOS = (
    Scenario("local", "Local cloud", 6, (_location("Oregon", 0.28, 0.004, 0.005, 0.0),)),
    Scenario("internet", "Internet cloud", 9, (_location("Oregon", 113, 0.004, 0.005, 0.09),)),
    Scenario(
        "hetero",
        "Heterogeneous cloud",
        11,
        (_location("Oregon", 161, 0.004, 0.005, 0.02), _location("Tokyo", 74, 0.0037, 0.0047, 0.09)),
    ),
)


def scenarios(condition: Condition) -> tuple[Scenario, ...]:
    """As they are under a condition."""
    return tuple(
        replace(scenario, locations=tuple({**location, **condition.location} for location in scenario.locations))
        for scenario in SCENARIOS
    )


@dataclass(frozen=True)
class Workload:
    name: str
    stands_for: str
    about: str
    specification: Json
    write_mode: Any


_MIB = 1 << 20
_MEDIA_OBJECTS = 5000
_BACK = {"back": {"age_ms": 30_000, "period_ms": 5_000, "uploads_max": 1}}
# Clark: 645 PUTs to 229,233 GETs (table 1).
_WRITES = {"per_million": 2806, "seed": 1}


def _netfs(condition: Condition) -> Workload:
    return Workload(
        "netfs",
        "Netfs",
        "filebench's networkfs personality, 60 % of its files laid out, 730,382 requests as in table 1; written back "
        "after 30 s, looked for every 5 s, one upload at a time",
        {"netfs": {"requests": 730_382, "seed": 1, **condition.netfs}},
        _BACK,
    )


_MEDIA = Workload(
    "media",
    "Media",
    "Zipf (exponent 1) over 5,000 objects of 1,294 MB (log-normal sizes, sigma 1), 166,366 GETs; bytes and GETs are "
    "table 1's, the number of objects and both parameters ours",
    {
        "zipf": {
            "objects": _MEDIA_OBJECTS,
            "requests": 166_366,
            "exponent": 1.0,
            "sizes": {"log-normal": {"mean_bytes": 1294 * _MIB / _MEDIA_OBJECTS, "sigma": 1.0}},
            "seed": 1,
        }
    },
    _BACK,
)


def _of_traces(traces: Selection) -> list[Workload]:
    folder = traces.folder
    sized = folder / "caffeine_adaptsize_request.trace.xz"
    keyed = folder / "caffeine_cache2k_web07.trace.xz"
    tiny = folder / "webcachesim_test.tr.zst"
    found = [
        Workload(
            "web-adaptsize",
            "Clark",
            "web objects with their sizes (AdaptSize's request trace), 66,987 requests; 0.28 % taken for PUTs, "
            "written through",
            {"sized-trace": {"path": str(sized), "writes": _WRITES}},
            "through",
        ),
        Workload(
            "web-web07",
            "Clark",
            "web objects by name (cache2k's web07), 76,118 requests, sizes drawn from Surge's distribution; 0.28 % "
            "taken for PUTs, written through",
            {"keyed-trace": {"path": str(keyed), "sizes": "web", "writes": _WRITES}},
            "through",
        ),
        Workload(
            "web-sample",
            "Clark",
            "webcachesim's sample, 10,492 requests for 960 objects, sizes of 1 to 46 taken for KiB",
            {"sized-trace": {"path": str(tiny), "bytes_of_unit": 1024, "writes": _WRITES}},
            "through",
        ),
    ]
    paths = (sized, keyed, tiny)
    return [workload for workload, path in zip(found, paths, strict=True) if traces.takes(path)]


def workloads(traces: Selection | None, condition: Condition) -> list[Workload]:
    """Those that can be had: the web's need traces."""
    return [*(_of_traces(traces) if traces else []), _netfs(condition), _MEDIA]
