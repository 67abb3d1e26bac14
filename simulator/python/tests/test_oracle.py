"""GRAPH's balanced expansion against Dijkstra's algorithm on -ln(likelihood), by networkx."""

import math
from random import Random
from typing import Any

import networkx as nx
import pytest

from tombolo_sim import engine
from tombolo_sim.history import graph_of

# The engine's likelihoods are fractions of 2^30, rounded down at each step of a path.
_TOLERANCE = 1e-6


def reads(random: Random) -> list[tuple[int, int, int]]:
    """Walks over a few places with habits, some of them next to each other."""
    places = [(0, random.randrange(40) * 4, random.randrange(1, 9)) for _ in range(random.randrange(3, 12))]
    found = []
    at = 0
    for _ in range(random.randrange(5, 150)):
        at = (at + 1) % len(places) if random.random() < 0.6 else random.randrange(len(places))
        found.append(places[at])
    return found


def dijkstra(graph: Any, source: int) -> dict[int, float]:  # noqa: ANN401 networkx is untyped
    def weight(_: int, __: int, data: dict[str, float]) -> float:
        return -math.log(data["likelihood"])

    lengths = nx.single_source_dijkstra_path_length(graph, source, weight=weight)
    return {node: math.exp(-length) for node, length in lengths.items() if node != source}


def key(node: dict[str, int]) -> tuple[int, int, int]:
    return node["volume"], node["first"], node["count"]


@pytest.mark.parametrize("seed", range(60))
def test_candidates_are_the_likeliest_nodes_in_order(seed: int) -> None:
    random = Random(seed)
    history = reads(random)
    threshold_permille = random.choice([20, 100, 250, 500])
    report = engine.expand({
        "reads": history, "volume": 0, "block": history[-1][1], "threshold_permille": threshold_permille,
        "blocks_max": 1 << 20, "candidates_max": 1 << 10,
    })  # fmt: skip
    graph = graph_of(report["graph"])
    nodes = report["graph"]["nodes"]
    source = next(number for number, node in enumerate(nodes) if key(node) == key(report["source"]))
    oracle = {key(nodes[node]): value for node, value in dijkstra(graph, source).items()}
    found = {key(candidate["node"]): candidate["likelihood"] for candidate in report["candidates"]}
    assert len(found) == len(report["candidates"]), "a node is a candidate twice"
    threshold = threshold_permille / 1000
    for place, likelihood in found.items():
        assert likelihood == pytest.approx(oracle[place], abs=_TOLERANCE)
        assert likelihood >= threshold - _TOLERANCE
    missing = {place: value for place, value in oracle.items() if place not in found}
    assert all(value < threshold + _TOLERANCE for value in missing.values())
    likelihoods = [candidate["likelihood"] for candidate in report["candidates"]]
    assert likelihoods == sorted(likelihoods, reverse=True)


def test_an_expansion_ends_at_its_budget() -> None:
    # 0 -> 100 -> 200 -> 300, always.
    history = [(0, first, 4) for first in (0, 100, 200, 300)] * 3
    job = {"reads": history, "volume": 0, "block": 0, "threshold_permille": 1, "candidates_max": 100}
    whole = engine.expand({**job, "blocks_max": 1000})["candidates"]
    part = engine.expand({**job, "blocks_max": 5})["candidates"]
    assert len(whole) > len(part)
    assert part == whole[: len(part)]
    taken = [candidate["node"]["count"] for candidate in part]
    assert sum(taken) >= 5 > sum(taken[:-1])


def test_a_block_that_was_not_read_is_refused() -> None:
    job = {"reads": [(0, 0, 4)], "volume": 0, "block": 9, "threshold_permille": 1, "blocks_max": 9, "candidates_max": 9}
    with pytest.raises(engine.EngineError, match=r"^block 9 of volume 0 was not read$"):
        engine.expand(job)
