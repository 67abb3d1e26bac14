"""`tombolo bench cloud`, on a share of ours: what is known of us is what it finds out."""

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from conftest import s3_settings
from harness.bench_cloud import BenchCloud
from harness.gateway import Gateway
from harness.mount import Mount
from harness.object_store import S3Server
from harness.tools import free_port, run, tombolo_binary

LIMIT_S = 280.0
WAITS_S = 2
"""Longer than the gateway waits before it uploads, and before it tells the store of changes."""
FLUSH = {"flush_delay_ms": 300, "recovery_point_ms": 500}


class Measured:
    """A gateway whose store is behind the proxy, with a share mounted."""

    def __init__(self, folder: Path, s3: S3Server, closing: ExitStack, compression: str) -> None:
        self.s3 = s3
        self.listen = f"127.0.0.1:{free_port()}"
        # With warm connections the wire would not come to rest.
        store = s3_settings(f"http://{self.listen}")["store"]
        settings = {"store": store, "flush": FLUSH, "compression": {"algorithm": compression}}
        self.gateway = Gateway(folder / "gateway", settings, s3.environment)
        self.mount = Mount(self.gateway, "bench")
        self.bench = BenchCloud(folder / "bench")
        closing.callback(self.gateway.close)
        closing.callback(self.mount.close)
        closing.callback(self.bench.close)

    def start(self) -> None:
        self.gateway.start()
        self.gateway.create_share("bench")
        self.mount.start()

    def remount(self) -> None:
        self.mount.stop()
        self.gateway.stop()
        self.gateway.cache_file.unlink()
        self.gateway.start()
        self.mount.start()

    def run(self, *words: str) -> dict[str, Any]:
        common = ["--quiet-s", str(WAITS_S), "--gap-s", "0", "--repeats", "1", "--limit-s", "60", "--seed", "7"]
        actions = {"start": self.start, "remount": self.remount}
        store = f"127.0.0.1:{self.s3.port}"
        return self.bench.run(self.listen, store, self.mount.folder, actions, [*common, *words], LIMIT_S)


@pytest.fixture
def measured(folder: Path, s3: S3Server, closing: ExitStack) -> Measured:
    return Measured(folder, s3, closing, "zstd")


def verdicts(report: dict[str, Any]) -> dict[str, str]:
    return {finding["probe"]: finding["verdict"] for finding in report["capabilities"]}


def test_what_is_known_of_a_share_is_found_out(measured: Measured) -> None:
    report = measured.run("--probes", "bundling,compression,dedup,delta,peer-to-peer", "--workloads", "none")
    assert verdicts(report) == {
        "bundling": "yes",
        "compression": "always",
        "dedup": "yes",
        "delta": "changed chunks",
        "peer-to-peer": "not applicable",
    }
    assert list(measured.mount.folder.iterdir()) == [], "nothing is left behind"
    delta = {each["stimulus"]: each["upload"]["stored_bytes"] for each in report["capabilities"][3]["observations"]}
    # What has moved by something that is no multiple of a block is new to a store of blocks.
    assert delta["1000 kB at the end of 10000 kB"] < 1_500_000
    assert delta["1000 kB at the start of 10000 kB"] > 9_000_000


def test_chunks_and_workloads_in_both_directions(measured: Measured) -> None:
    report = measured.run("--probes", "chunking", "--workloads", "1,4")
    chunking = report["capabilities"][0]
    assert chunking["verdict"] == "yes"
    # 1,024 blocks of 4 KiB and less make an object.
    assert all(each["download"]["fetched_bytes"] >= each["bytes"] for each in chunking["observations"])
    assert [each["number"] for each in report["workloads"]] == [1, 4]
    for workload in report["workloads"]:
        [once] = workload["rounds"]
        assert once["startup_s"] > 0
        assert once["upload_s"] is not None and once["download_s"] is not None
        assert once["propagation_s"] is None
        assert once["upload"]["requests"]["PUT"] > 0 and once["download"]["requests"]["GET"] > 0
    assert report["workloads"][0]["rounds"][0]["upload"]["stored_bytes"] >= 100_000
    # Half of it is text.
    assert report["workloads"][1]["rounds"][0]["upload"]["stored_bytes"] < 900_000


def test_without_compression_none_is_found(folder: Path, s3: S3Server, closing: ExitStack) -> None:
    plain = Measured(folder, s3, closing, "off")
    report = plain.run("--probes", "compression", "--workloads", "none")
    assert verdicts(report) == {"compression": "no"}


def test_a_system_that_goes_another_way_is_said_to(folder: Path, s3: S3Server) -> None:
    words: list[str | Path] = [tombolo_binary(), "bench", "cloud", "--listen", f"127.0.0.1:{free_port()}"]
    words += ["--store", f"127.0.0.1:{s3.port}", "--folder", folder, "--quiet-s", "1"]
    refused = run(words, expected_codes=(1,))
    assert "does the system reach its store at the address that --listen names" in refused.stderr
