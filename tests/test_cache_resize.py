"""The cache gets another size, and nothing that only it has is lost."""

import random
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from conftest import SEED, GatewayFactory
from harness.gateway import Gateway, merged
from test_recover import MIB, checked_store, noise, read, write
from test_take_over import store_files

HELD = {
    "cache": {"size": "64MiB"},
    "prefetch": {"window_bytes_max": "4MiB"},
    "flush": {
        "flush_delay_ms": 3_600_000,
        "early_flush_bytes": "1TiB",
        "recovery_point_ms": 3_600_000,
        "dirty_bytes_max": "48MiB",
    },
}
"""What is written stays in the cache."""


def with_size(gateway: Gateway, size: str, dirty_bytes_max: str) -> None:
    changed = {"cache": {"size": size}, "flush": {"dirty_bytes_max": dirty_bytes_max}}
    gateway.settings = merged(gateway.settings, changed)
    gateway.write_config()


def resize(gateway: Gateway) -> dict[str, Any]:
    return gateway.offline_json("cache", "resize")


@pytest.fixture
def gateway(make_gateway: GatewayFactory) -> Gateway:
    """24 MiB that its store has too, and 12 MiB behind them that only the cache has."""
    gateway = make_gateway(HELD).start()
    gateway.create_volume("vol", "128MiB")
    write(gateway, noise(24))
    gateway.drain(limit_s=120)
    write(gateway, noise(12, SEED + 1), at=24 * MIB)
    return gateway


def holds_everything(gateway: Gateway) -> None:
    assert read(gateway, 24 * MIB) == noise(24)
    assert read(gateway, 12 * MIB, 24 * MIB) == noise(12, SEED + 1)


def cached_bytes(gateway: Gateway) -> int:
    found: int = gateway.status()["cache"]["used_bytes"]
    return found


@pytest.mark.parametrize("end", ["stop", "kill9"])
def test_a_smaller_cache_keeps_what_the_store_lacks(gateway: Gateway, end: str) -> None:
    """Also of a gateway that was killed, and without the store."""
    gateway.stop() if end == "stop" else gateway.kill9()
    with_size(gateway, "16MiB", "14MiB")
    code, said = gateway.refused_start()
    assert code == 1 and "run `tombolo cache resize`" in said
    away = gateway.folder / "away"
    gateway.store_directory.rename(away)
    done = resize(gateway)
    assert store_files(gateway.store_directory) == {}, "the store is left alone"
    shutil.rmtree(gateway.store_directory)
    away.rename(gateway.store_directory)
    assert (done["bytes_before"], done["bytes"]) == (64 * MIB, 16 * MIB)
    assert done["blocks_moved"] > 0 and done["blocks_dropped"] > 0
    assert (gateway.state_directory / "cache").stat().st_size < 17 * MIB
    gateway.start()
    holds_everything(gateway)
    gateway.drain(limit_s=120)
    checked_store(gateway)
    gateway.lose_state()
    gateway.recover("--take-over")
    gateway.start()
    holds_everything(gateway)


def test_a_larger_cache_keeps_all_that_it_has(gateway: Gateway) -> None:
    before = cached_bytes(gateway)
    gateway.stop()
    with_size(gateway, "128MiB", "48MiB")
    assert resize(gateway) == {
        "bytes_before": 64 * MIB,
        "bytes": 128 * MIB,
        "blocks_moved": 0,
        "blocks_dropped": 0,
    }
    assert resize(gateway)["bytes_before"] == 128 * MIB, "it may be run again"
    gateway.start()
    assert cached_bytes(gateway) == before
    holds_everything(gateway)
    write(gateway, noise(24, SEED + 2), at=40 * MIB)
    gateway.kill9()
    gateway.start()
    holds_everything(gateway)
    assert read(gateway, 24 * MIB, 40 * MIB) == noise(24, SEED + 2)


def test_too_small_a_cache_is_refused_and_nothing_is_changed(gateway: Gateway) -> None:
    write(gateway, noise(12, SEED + 3), at=36 * MIB)
    running = gateway.try_offline("cache", "resize")
    assert running.returncode == 1 and "is in use by another gateway" in running.stderr
    gateway.stop()
    with_size(gateway, "16MiB", "8MiB")
    refused = gateway.try_offline("cache", "resize")
    assert refused.returncode == 1
    assert "6144 blocks of 4 KiB are not in the store yet, and 4096 slots cannot hold them" in refused.stderr
    with_size(gateway, "64MiB", "48MiB")
    gateway.start()
    holds_everything(gateway)
    assert read(gateway, 12 * MIB, 36 * MIB) == noise(12, SEED + 3)


def test_a_resize_that_is_killed_at_any_moment_is_run_again(gateway: Gateway) -> None:
    chosen = random.Random(SEED)
    sizes = ["16MiB", "40MiB", "128MiB"]
    gateway.stop()
    started = time.monotonic()
    with_size(gateway, "32MiB", "14MiB")
    resize(gateway)
    longest_s = time.monotonic() - started
    unfinished = 0
    for _ in range(12):
        with_size(gateway, chosen.choice(sizes), "14MiB")
        command: list[str | Path] = [gateway.binary, "cache", "resize", "--json", "--config", gateway.config_path]
        process = subprocess.Popen(command, env=gateway.environment, stdout=subprocess.DEVNULL)
        time.sleep(chosen.uniform(0, 1.1 * longest_s))
        process.kill()
        unfinished += process.wait() != 0
    assert unfinished > 0, "none was killed"
    resize(gateway)
    gateway.start()
    holds_everything(gateway)
    gateway.drain(limit_s=120)
    checked_store(gateway)
