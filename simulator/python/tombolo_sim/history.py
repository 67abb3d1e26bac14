"""The history graph of GRAPH under networkx: written for other tools, analysed, drawn.

A node is a range of blocks; an edge says how likely its target is read right after its source (prefetch/src/graph). An
*adjacent* edge leads to the range that begins where the source ends; it is there without ever having been seen.
"""

from collections import Counter
from pathlib import Path
from typing import Any, TypeAlias

import networkx as nx

from tombolo_sim import plots
from tombolo_sim.engine import Json
from tombolo_sim.jobs import OptionError

CHAIN_LIKELIHOOD_MIN = 0.5
CHAINS_SHOWN = 10
NODES_DRAWN_MAX = 30
_BUCKETS = 20

# networkx is untyped.
Graph: TypeAlias = Any


def is_global(scope: str) -> bool:
    if scope not in ("client", "global"):
        raise OptionError(f"--scope {scope}: it must be client or global")
    return scope == "global"


def graph_of(exported: Json) -> Graph:
    graph = nx.DiGraph()
    for number, node in enumerate(exported["nodes"]):
        graph.add_node(number, volume=node["volume"], first=node["first"], count=node["count"])
    for edge in exported["edges"]:
        graph.add_edge(
            edge["from"],
            edge["to"],
            likelihood=min(1.0, edge["part"] / edge["whole"]),
            count=edge["count"],
            adjacent=edge["adjacent"],
        )
    return graph


def hot_chains(graph: Graph) -> list[list[int]]:
    """Paths along each node's likeliest successor, where that is more likely than not; the longest first. Every node is
    in one chain at the most."""
    following: dict[int, int] = {}
    for node in graph:
        successors = graph.succ[node].items()
        likeliest = max(successors, key=lambda item: (item[1]["likelihood"], -item[0]), default=None)
        if likeliest is not None and likeliest[1]["likelihood"] >= CHAIN_LIKELIHOOD_MIN and likeliest[0] != node:
            following[node] = likeliest[0]
    led_to = set(following.values())
    chains, taken = [], set[int]()
    # What no chain leads to begins one; what is left after that lies on circles.
    for node in [*(node for node in following if node not in led_to), *following]:
        chain: list[int] = []
        at: int | None = node
        while at is not None and at not in taken:
            taken.add(at)
            chain.append(at)
            at = following.get(at)
        if len(chain) > 1:
            chains.append(chain)
    return sorted(chains, key=lambda chain: (-len(chain), chain[0]))


def analyse(graph: Graph) -> dict[str, Any]:
    components = sorted((len(component) for component in nx.weakly_connected_components(graph)), reverse=True)
    chains = hot_chains(graph)
    likelihoods = [likelihood for _, _, likelihood in graph.edges(data="likelihood")]
    seen = sum(1 for _, _, count in graph.edges(data="count") if count > 0)
    return {
        "nodes": graph.number_of_nodes(),
        "edges": graph.number_of_edges(),
        "edges_adjacent": sum(1 for _, _, adjacent in graph.edges(data="adjacent") if adjacent),
        "edges_seen": seen,
        "blocks": sum(count for _, count in graph.nodes(data="count")),
        "components": len(components),
        "largest_component": components[0] if components else 0,
        "strong_components": nx.number_strongly_connected_components(graph) if graph else 0,
        "out_degree_max": max((degree for _, degree in graph.out_degree()), default=0),
        "in_degree_max": max((degree for _, degree in graph.in_degree()), default=0),
        "likelihood_mean": sum(likelihoods) / len(likelihoods) if likelihoods else 0.0,
        "chains": len(chains),
        "longest_chains": [_described(graph, chain) for chain in chains[:CHAINS_SHOWN]],
    }


def _described(graph: Graph, chain: list[int]) -> dict[str, Any]:
    first = graph.nodes[chain[0]]
    return {
        "nodes": len(chain),
        "blocks": sum(graph.nodes[node]["count"] for node in chain),
        "volume": first["volume"],
        "first": first["first"],
    }


def write(exported: Json, folder: Path) -> dict[str, Any]:
    """`history.graphml`, `history.edgelist` and `history.png`/`.svg`; returns the analysis."""
    graph = graph_of(exported)
    nx.write_graphml(graph, folder / "history.graphml")
    nx.write_edgelist(graph, folder / "history.edgelist", data=["likelihood", "count", "adjacent"])
    _draw(graph, folder)
    return analyse(graph) | {"memory_bytes": exported["bytes"]}


def _draw(graph: Graph, folder: Path) -> None:
    figure, (degrees, likelihoods, neighbourhood) = plots.panels(3, "History graph")
    for label, found in (("out", graph.out_degree()), ("in", graph.in_degree())):
        counts = sorted(Counter(degree for _, degree in found).items())
        plots.lines(
            degrees, {label: [(float(degree), float(count)) for degree, count in counts]}, "degree", "nodes", "o"
        )
    degrees.set_yscale("log")
    degrees.set_xscale("symlog")
    degrees.set_xlim(left=0)
    degrees.legend()
    likelihoods.hist([value for _, _, value in graph.edges(data="likelihood")], bins=_BUCKETS, range=(0, 1))
    likelihoods.set_xlabel("likelihood")
    likelihoods.set_ylabel("edges")
    part = hottest(graph)
    nx.draw_networkx(
        part,
        nx.spring_layout(part, k=1.0, seed=1),
        ax=neighbourhood,
        with_labels=False,
        node_size=30,
        width=[3 * likelihood for _, _, likelihood in part.edges(data="likelihood")],
        arrowsize=6,
        edge_color="grey",
    )
    neighbourhood.set_title("around the node that is read most")
    plots.save(figure, folder, "history")


def hottest(graph: Graph) -> Graph:
    """The node that was most often read after others, and the nodes nearest to it."""
    if not graph:
        return graph
    centre = max(graph, key=lambda node: (sum(count for _, _, count in graph.in_edges(node, data="count")), -node))
    near = [centre, *(node for _, node in nx.bfs_edges(graph.to_undirected(as_view=True), centre))]
    return graph.subgraph(near[:NODES_DRAWN_MAX])


def shown(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3f}"
    if isinstance(value, list):
        return "; ".join(
            f"{chain['nodes']} nodes, {chain['blocks']} blocks from {chain['first']} on" for chain in value
        )
    return f"{value:,}"
