"""`run`: one replay. Its options are those of other replays too."""

from typing import Annotated

import typer

from tombolo_sim import engine
from tombolo_sim.cli import options
from tombolo_sim.cli.options import (
    AsJson,
    Format,
    Limit,
    TimeOrder,
    TraceArgument,
    print_json,
    print_pairs,
)
from tombolo_sim.engine import Json
from tombolo_sim.jobs import Choice, OptionError, cache_blocks
from tombolo_sim.models import CLOUDS, operation_usd
from tombolo_sim.policies import DEFAULT, policy
from tombolo_sim.progress import watching
from tombolo_sim.report.results import quantile
from tombolo_sim.sources import Trace
from tombolo_sim.stores import open_store

CloudName = Annotated[
    str, typer.Option("--cloud", help=f"Latencies and prices: {', '.join(CLOUDS)}, or a FILE.json of measure.")
]
DiskName = Annotated[str | None, typer.Option("--disk", help="The cache's disk; by default one as old as the cloud.")]
Settings = Annotated[list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A setting of the prefetcher.")]
ArrivalsOption = Annotated[str, typer.Option("--arrivals", help="closed-loop, trace, or a rate such as 50/s.")]
Addressing = Annotated[str, typer.Option("--addressing", help="What the prefetcher sees: logical, pvbn or both.")]
Clients = Annotated[str, typer.Option("--clients", help="Whether the prefetcher tells clients apart: trace or one.")]

WaitPrice = Annotated[
    int | None,
    typer.Option("--wait-microdollars-per-second", min=0, help="A prefetch must save more waiting than it costs."),
]
SequentialFloor = Annotated[
    bool, typer.Option("--sequential-floor", help="SARC keeps room for what is prefetched for streams.")
]

FetchUnit = Annotated[str, typer.Option("--fetch-unit", help="What a GET brings: range (what is asked for) or object.")]
SequentialBy = Annotated[
    str,
    typer.Option("--sequential-by", help="Who tells SARC what is sequential: prefetcher or replacement (itself)."),
]
Preload = Annotated[
    str,
    typer.Option("--preload", help="What is stored before: touched, pages (with neighbours) or aged (a log)."),
]

_GIB = 1 << 30


def register(app: typer.Typer) -> None:
    app.command()(run)


def arrivals_of(word: str) -> str | dict[str, float]:
    if word.endswith("/s"):
        try:
            return {"poisson_per_s": float(word[:-2])}
        except ValueError:
            raise OptionError(f"--arrivals {word}: the rate is not a number") from None
    return word


def distinct_blocks(trace: Trace, sizes: list[str]) -> int | None:
    """Counted only where a size needs it."""
    if not any("%" in size for size in sizes):
        return None
    with watching(f"footprint of {trace.name}") as progress:
        return int(engine.info(trace.source(), progress)["distinct_units"])


def run(
    path: TraceArgument,
    policy_name: Annotated[
        str, typer.Option("--policy", help="lru_seq … sarc_graph, or REPLACEMENT+PREFETCH.")
    ] = DEFAULT,
    cache: Annotated[str, typer.Option("--cache", help="10% of the footprint, 64MiB, or blocks.")] = "10%",
    cloud: CloudName = "modern",
    disk: DiskName = None,
    settings: Settings = None,
    arrivals: ArrivalsOption = "closed-loop",
    time_scale: Annotated[float, typer.Option("--time-scale", min=0.0)] = 1.0,
    addressing: Addressing = "logical",
    clients: Clients = "trace",
    seed: Annotated[int, typer.Option("--seed", min=0)] = 1,
    warmup: Annotated[int, typer.Option("--warmup", min=0, help="Requests that are left out of the report.")] = 0,
    flush_delay_ms: Annotated[int, typer.Option("--flush-delay-ms", min=1)] = 5000,
    pack_blocks: Annotated[int, typer.Option("--pack-blocks", min=1)] = 64,
    dedup: Annotated[bool, typer.Option("--dedup/--no-dedup")] = True,
    wait_price: WaitPrice = None,
    sequential_floor: SequentialFloor = False,
    fetch_unit: FetchUnit = "range",
    sequential_by: SequentialBy = "prefetcher",
    preload: Preload = "pages",
    store: Annotated[str | None, typer.Option("--store", help="memory:, berkeley:FILE, or s3://BUCKET/PREFIX.")] = None,
    file_format: Format = "auto",
    limit: Limit = None,
    time_order: TimeOrder = "error",
    as_json: AsJson = False,
) -> None:
    """Replays one trace with one policy."""
    trace = options.trace_of(path, file_format, limit, time_order)
    choice = Choice(
        trace, policy(policy_name), cache_blocks(cache, distinct_blocks(trace, [cache])), cloud, disk, seed,
        arrivals_of(arrivals), time_scale, warmup, addressing, clients, dedup, flush_delay_ms, pack_blocks,
        options.settings_of(settings), wait_price, sequential_floor, fetch_unit, sequential_by, preload,
    )  # fmt: skip
    with watching(f"{trace.name} {policy_name}") as progress:
        if store is None:
            report = engine.replay(choice.job(), progress=progress)
        else:
            with open_store(store) as opened:
                report = engine.replay(choice.job(), opened, progress)
    if as_json:
        print_json(report)
    else:
        print_pairs(f"{trace.name}, {policy_name}, {choice.cache_blocks:,} blocks, {cloud}", summary(report))


def summary(report: Json) -> list[tuple[str, str]]:
    reads, prefetched, cloud, dollars = report["reads"], report["prefetched"], report["cloud"], report["dollars"]
    writes = report["writes"]
    down, up = cloud["bytes_down"] / _GIB, cloud["bytes_up"] / _GIB
    lines = [
        (
            "reads",
            f"{reads['requests']:,}: {reads['hits']:,} hits, {reads['partial_misses']:,} partial and "
            f"{reads['complete_misses']:,} complete misses",
        ),
        ("miss ratio", f"{reads['miss_ratio']:.2%} of requests, {reads['block_miss_ratio']:.2%} of blocks"),
        ("prefetched", f"{prefetched['blocks']:,} blocks, {prefetched['efficiency']:.1%} of them used"),
        ("writes", f"{writes['requests']:,}: {writes['blocks']:,} blocks, {writes['blocks_duplicate']:,} duplicates"),
        ("cloud", f"{cloud['gets']:,} GETs, {cloud['puts']:,} PUTs, {down:.3g} GiB down, {up:.3g} GiB up"),
        ("dollars", f"{operation_usd(dollars):.4g} for requests and transfer"),
        (
            "time",
            f"{report['virtual_seconds']:,.0f} s virtual, {report['wall_seconds']:.2f} s real, "
            f"{report['requests_per_second']:,.0f} requests/s",
        ),
    ]
    if report["read_latency"]["count"]:
        tail = ", ".join(f"p{wanted * 100:g} {quantile(report, wanted):.3g}" for wanted in (0.5, 0.9, 0.95, 0.99))
        lines.insert(2, ("read latency, ms", f"mean {report['read_latency']['mean']:.3g}, {tail}"))
    return lines
