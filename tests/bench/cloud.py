"""Cloud workloads: cold reads and drains beside plain parallel GETs and PUTs of equal objects on the same server."""

import json
import os
import statistics
import time
from pathlib import Path

from bench.blocks import FILL
from bench.fio import Workload, measure
from bench.rounds import Comparison, alternate
from harness.gateway import Gateway, Settings, merged
from harness.object_store import S3Server
from harness.tools import REPOSITORY, build_folder, run

MIB = 1 << 20
CONCURRENCY = 16
COLD_READ = Workload("cold read", "read", "1m", 8, "mib_s")


def raw_binary() -> Path:
    named = os.environ.get("TOMBOLO_RAW_THROUGHPUT")
    return Path(named) if named else build_folder() / "release/examples/raw_throughput"


def example_binary(name: str) -> Path:
    """One of cloud_driver/examples: beside raw_throughput, else as the tests of the workspace have built it."""
    released = raw_binary().with_name(name)
    return released if released.exists() else build_folder() / "debug/examples" / name


def raw_mib_per_s(server: S3Server, bucket: str, object_bytes: int, total: int) -> dict[str, float]:
    """PUT and GET rates of the bare driver."""
    words: list[str | Path] = [raw_binary(), "--store", f"s3://{bucket}/raw", "--endpoint", server.endpoint]
    words += ["--sizes", str(object_bytes), "--concurrency", str(CONCURRENCY), "--count", str(total // object_bytes)]
    done = run(words, limit_s=600, environment=server.environment, cwd=REPOSITORY)
    measured = json.loads(done.stdout.splitlines()[-1])
    return {side: float(measured[side]["mebibytes_per_second"]) for side in ("put", "get")}


def typical_object_bytes(bucket_folder: Path) -> int:
    """The median size of data objects; small ones are checkpoints and the like."""
    sizes = [path.stat().st_size for path in bucket_folder.rglob("*") if path.is_file()]
    return int(statistics.median([size for size in sizes if size >= 64 << 10]))


def fill_and_drain(gateway: Gateway, volume: str, size: int) -> float:
    """MiB/s of a drain of unique data that lies in the cache: hashing, compression's attempt, upload, confirmation."""
    measure(FILL, gateway.nbd_uri(volume), size, None)
    begun = time.monotonic()
    gateway.drain(600)
    return size / MIB / (time.monotonic() - begun)


def held_back(size: int, binary: Path | None = None) -> Settings:
    """Nothing of so many bytes goes to the store by itself, so that a drain has everything before it."""
    flush: dict[str, object] = {"flush_delay_ms": 3_600_000, "dirty_bytes_max": f"{3 * size // MIB}MiB"}
    early = "early_flush_bytes"
    if binary is None or early in run([binary, "settings", "--markdown"]).stdout:
        flush[early] = "1TiB"
    return {"flush": flush}


def upload_only_on_drain(gateway: Gateway, size: int) -> None:
    gateway.stop()
    gateway.settings = merged(gateway.settings, held_back(size))
    gateway.start()


def cold_read(gateway: Gateway, volume: str, size: int) -> float:
    gateway.drain(600)
    gateway.stop()
    gateway.cache_file.unlink()
    gateway.start()
    return measure(COLD_READ, gateway.nbd_uri(volume), size, None).value


def compare_cloud(gateway: Gateway, server: S3Server, bucket: str, size: int, rounds: int) -> list[Comparison]:
    upload_only_on_drain(gateway, size)
    gateway.create_volume("cloud", str(size))
    fill_and_drain(gateway, "cloud", size)
    object_bytes = typical_object_bytes(server.folder / bucket)
    drain = Comparison("drain, beside parallel PUT", "MiB/s", notes={"object_bytes": object_bytes})
    read = Comparison("cold sequential read, beside parallel GET", "MiB/s", notes={"object_bytes": object_bytes})
    alternate(
        drain,
        rounds,
        lambda: fill_and_drain(gateway, "cloud", size),
        lambda: raw_mib_per_s(server, bucket, object_bytes, size)["put"],
    )
    alternate(
        read,
        rounds,
        lambda: cold_read(gateway, "cloud", size),
        lambda: raw_mib_per_s(server, bucket, object_bytes, size)["get"],
    )
    return [drain, read]
