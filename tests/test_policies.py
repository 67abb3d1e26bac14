"""Replacement and prefetch policies: right bytes under every pair, change without loss, history across restarts."""

import json
import random
import re
from typing import Any

import pytest

from conftest import SEED, GatewayFactory
from harness.gateway import Gateway
from harness.nbd import NbdDisk

MIB = 1 << 20
BLOCK = 4096
CACHE = {"cache": {"size": "16MiB"}, "flush": {"dirty_bytes_max": "4MiB"}, "prefetch": {"window_bytes_max": "1MiB"}}
SET_BYTES = 32 * MIB
READ_BYTES = 64 * 1024
COMBINATIONS = ["lru_seq", "lru_amp", "lru_graph", "sarc_seq", "sarc_amp", "sarc_graph"]
REPLACEMENTS = ["arc", "2q", "lirs", "s3-fifo", "sieve", "w-tinylfu", "sarc-streams", "gds-latency"]
PREFETCHES = ["none", "ramp", "hou", "linux", "leap", "mithril", "probability"]


def filled(gateway: Gateway, size_bytes: int = SET_BYTES) -> bytes:
    """A volume of data that does not compress, all of it in the store."""
    data = random.Random(SEED).randbytes(size_bytes)
    gateway.create_volume("vol", f"{size_bytes // MIB}MiB")
    with gateway.disk("vol") as disk:
        for offset in range(0, size_bytes, MIB):
            disk.write(offset, data[offset : offset + MIB])
    gateway.drain()
    return data


def read_in_order(disk: NbdDisk, data: bytes) -> None:
    for offset in range(0, len(data), READ_BYTES):
        assert disk.read(offset, READ_BYTES) == data[offset : offset + READ_BYTES], f"at {offset}"


def jumps(seed: int, data: bytes, count: int) -> list[int]:
    generator = random.Random(seed)
    return [generator.randrange(len(data) // BLOCK) * BLOCK for _ in range(count)]


def read_at(disk: NbdDisk, data: bytes, offsets: list[int]) -> None:
    for offset in offsets:
        assert disk.read(offset, BLOCK) == data[offset : offset + BLOCK], f"at {offset}"


def policy(gateway: Gateway, *changes: str) -> dict[str, Any]:
    words = ["set", *changes] if changes else ["show"]
    parsed: dict[str, Any] = json.loads(gateway.cli("policy", *words, "--json"))
    return parsed


def metric(gateway: Gateway, name: str, **labels: str) -> float:
    """The sum of the samples that have these labels."""
    total, found = 0.0, False
    for line in gateway.metrics().splitlines():
        series, _, value = line.rpartition(" ")
        if re.split(r"[{ ]", series)[0] == name and all(f'{key}="{word}"' in series for key, word in labels.items()):
            total, found = total + float(value), True
    assert found, f"there is no {name} {labels}"
    return total


@pytest.mark.parametrize("combination", COMBINATIONS)
def test_each_combination_serves_a_working_set_larger_than_the_cache(
    make_gateway: GatewayFactory, combination: str
) -> None:
    settings = {**CACHE, "prefetch": {**CACHE["prefetch"], "combination": combination}}
    gateway = make_gateway(settings).start()
    data = filled(gateway)
    again = jumps(SEED, data, 150)
    with gateway.disk("vol") as disk:
        read_in_order(disk, data)
        for _ in range(2):
            read_at(disk, data, again)
        read_in_order(disk, data)
    shown = policy(gateway)
    replacement, _, prefetch = combination.partition("_")
    assert (shown["combination"], shown["replacement"], shown["prefetch"]) == (combination, replacement, prefetch)
    labels = {"replacement": replacement, "prefetch": prefetch}
    assert metric(gateway, "tombolo_policy_reads_total", **labels) == 2 * len(data) // READ_BYTES + 2 * len(again)
    prefetched = metric(gateway, "tombolo_prefetch_blocks_total", **labels)
    used = metric(gateway, "tombolo_prefetch_used_blocks_total", **labels)
    wasted = metric(gateway, "tombolo_prefetch_wasted_blocks_total", **labels)
    assert prefetched >= used + wasted > 0
    assert used > len(data) // BLOCK // 4, "readers in order find much of what they want"
    assert (metric(gateway, "tombolo_prefetch_graph_nodes") > 0) == (prefetch == "graph")


def test_a_change_while_running_keeps_what_is_cached(make_gateway: GatewayFactory) -> None:
    gateway = make_gateway({**CACHE, "prefetch": {"policy": "none", "window_bytes_max": "1MiB"}}).start()
    data = filled(gateway, 8 * MIB)
    with gateway.disk("vol") as disk:
        read_in_order(disk, data)
        missed = gateway.status()["cache"]["complete_misses"]
        for replacement, prefetch in zip(REPLACEMENTS, [*PREFETCHES, "none"], strict=True):
            shown = policy(gateway, f"replacement={replacement}", f"policy={prefetch}")
            assert (shown["replacement"], shown["prefetch"]) == (replacement, prefetch)
            read_in_order(disk, data)
            assert gateway.status()["cache"]["complete_misses"] == missed, f"{replacement} has lost blocks"
    assert [tally["replacement"] for tally in policy(gateway)["tallies"]][-1] == REPLACEMENTS[-1]


def test_changes_under_load_return_right_bytes(make_gateway: GatewayFactory) -> None:
    gateway = make_gateway(CACHE).start()
    data = filled(gateway)
    with gateway.disk("vol") as disk:
        for turn, replacement in enumerate(REPLACEMENTS):
            addressing = ("logical", "pvbn")[turn % 2]
            prefetch = (*PREFETCHES[1:], "amp", "graph")[turn]
            policy(gateway, f"replacement={replacement}", f"policy={prefetch}", f"addressing={addressing}")
            half = len(data) // 2
            read_in_order(disk, data[:half])
            read_at(disk, data, jumps(SEED + turn, data, 100))
    assert gateway.status()["cache"]["blocks_lost"] == 0


def test_history_survives_a_restart(make_gateway: GatewayFactory) -> None:
    settings = {**CACHE, "prefetch": {**CACHE["prefetch"], "combination": "sarc_graph"}}
    gateway = make_gateway(settings).start()
    data = filled(gateway)
    with gateway.disk("vol") as disk:
        read_at(disk, data, jumps(SEED, data, 300))
    nodes = metric(gateway, "tombolo_prefetch_graph_nodes")
    edges = metric(gateway, "tombolo_prefetch_graph_edges")
    assert nodes > 100 and edges > 100
    gateway.restart()
    assert metric(gateway, "tombolo_prefetch_graph_nodes") == nodes
    assert metric(gateway, "tombolo_prefetch_graph_edges") == edges

    # Another policy for a while: the history waits for the graph's return.
    policy(gateway, "combination=lru_amp")
    assert metric(gateway, "tombolo_prefetch_graph_nodes") == 0
    policy(gateway, "combination=lru_graph", "graph_threshold_hit_permille=300")
    assert metric(gateway, "tombolo_prefetch_graph_nodes") == nodes

    gateway.stop()
    history = gateway.state_directory / "history"
    damaged = bytearray(history.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    history.write_bytes(damaged)
    gateway.start()
    assert metric(gateway, "tombolo_prefetch_graph_nodes") == 0
    assert "begins anew" in gateway.process.log_tail()
    with gateway.disk("vol") as disk:
        read_at(disk, data, jumps(SEED, data, 50))


def test_a_price_keeps_prefetch_from_spending(make_gateway: GatewayFactory) -> None:
    gateway = make_gateway(CACHE).start()
    data = filled(gateway)
    policy(gateway, "wait_microdollars_per_second=0")
    with gateway.disk("vol") as disk:
        read_in_order(disk, data)
        assert metric(gateway, "tombolo_prefetch_blocks_total") == 0
        assert metric(gateway, "tombolo_prefetch_suggestions_refused_total") > 0
        policy(gateway, "wait_microdollars_per_second=unset")
        read_in_order(disk, data)
    assert metric(gateway, "tombolo_prefetch_blocks_total") > 0


def test_refused_changes_change_nothing(make_gateway: GatewayFactory) -> None:
    gateway = make_gateway(CACHE).start()
    before = policy(gateway)
    for change in ("replacement=clock", "policy=oracle", "size=1GiB", "graph_track_bytes=12288", "nonsense"):
        refused = gateway.try_cli("policy", "set", change)
        assert refused.returncode == 2, refused.stderr
        assert change.partition("=")[0] in refused.stderr
    assert policy(gateway)["settings"] == before["settings"]


def test_changes_last_until_the_next_start(make_gateway: GatewayFactory) -> None:
    gateway = make_gateway(CACHE).start()
    assert policy(gateway, "combination=sarc_amp")["combination"] == "sarc_amp"
    gateway.restart()
    shown = policy(gateway)
    assert (shown["replacement"], shown["prefetch"]) == ("2q", "graph")


def test_a_loop_larger_than_the_cache_shows_which_policy_would_hold_more(make_gateway: GatewayFactory) -> None:
    # The cache is compared as a whole below 1,024 slots, by a sample of an eighth from there on: so it is here.
    gateway = make_gateway({**CACHE, "prefetch": {"policy": "none", "window_bytes_max": "1MiB"}}).start()
    data = filled(gateway, 20 * MIB)
    before = policy(gateway)["comparison"]["blocks_read"]
    with gateway.disk("vol") as disk:
        for _ in range(6):
            read_in_order(disk, data)
    shown = policy(gateway)["comparison"]
    read = shown["blocks_read"] - before
    assert 0.05 < read / (6 * len(data) // BLOCK) < 0.25, "a sample of an eighth"
    share = {one["replacement"]: one["hits"] / shown["blocks_read"] for one in shown["policies"]}
    assert share["lru"] < 0.1, "every block goes just before it is read again"
    assert share["lirs"] > 0.5
    assert shown["better"] in {name for name in share if share[name] > 0.3}
    text = gateway.cli("policy", "show")
    assert f"`tombolo policy set replacement={shown['better']}`" in text
    assert metric(gateway, "tombolo_policy_sample_hits_total", replacement="lirs") > read / 2
    policy(gateway, f"replacement={shown['better']}")
    assert policy(gateway)["comparison"]["better"] is None
