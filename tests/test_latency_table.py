"""What `tombolo-sim measure` found of a store is what a gateway begins with: one file, one setting."""

import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from conftest import BUCKET, GatewayFactory, s3_settings
from harness.gateway import Settings, merged
from harness.object_store import S3Server
from harness.tools import run

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("tombolo_sim") is None, reason="the simulator is not installed: make sim-python"
)

MEASURE_LIMIT_S = 120
SHORT = ["--sizes", "4KiB,256KiB,4MiB", "--parallelism", "1,2,4", "--repeats", "2", "--seconds", "0.2"]


def measured(s3: S3Server, folder: Path) -> dict[str, Any]:
    words = [sys.executable, "-m", "tombolo_sim", "measure", f"s3://{BUCKET}/measured", "--endpoint", s3.endpoint]
    surroundings = s3.environment | {"PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    done = run([*words, "-o", str(folder), *SHORT, "--yes", "--json"], MEASURE_LIMIT_S, environment=surroundings)
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


def begun_with(s3: S3Server, table: Path, **store: int) -> Settings:
    return merged(s3_settings(s3.endpoint), {"store": {"latency_table": str(table), **store}})


def test_a_gateway_begins_with_what_was_measured(make_gateway: GatewayFactory, s3: S3Server, folder: Path) -> None:
    table = folder / "measured" / "latency-table.json"
    found = measured(s3, table.parent)
    lanes = {name: least for name, (least, _) in found["settings"].items()}
    gateway = make_gateway(begun_with(s3, table), s3.environment)
    assert "is valid" in gateway.try_offline("check-config").stdout
    store = gateway.start().status()["store"]
    # Too little was asked for yet to have found out anything.
    assert store["downloads"]["limit"] == lanes["downloads_in_flight_max"] <= 4
    assert store["uploads"]["limit"] == lanes["uploads_in_flight_max"] <= 4
    assert store["latency_table"] == {
        "file": str(table),
        "measured_at": found["tables"]["cloud_driver"]["measured"]["at"],
        "measured_store": f"s3://{BUCKET}/measured",
    }
    assert f"begun with {table}" in gateway.cli("status")
    gateway.create_volume("disk", "64MiB")
    with gateway.disk("disk") as disk:
        disk.write(0, os.urandom(1 << 20))
    gateway.drain()
    gateway.stop()
    gateway.settings["store"]["uploads_in_flight_max"] = 7
    assert gateway.start().status()["store"]["uploads"]["limit"] == 7, "what is pinned holds"


def test_a_table_that_cannot_be_used_is_refused_before_anything_is_opened(
    make_gateway: GatewayFactory, s3: S3Server, folder: Path
) -> None:
    table = folder / "latency-table.json"
    gateway = make_gateway(begun_with(s3, table), s3.environment)
    for text, words in (
        (None, "No such file"),
        ("{}", "no latency table: missing field `format`"),
        ('{"format": "tombolo-latency-table", "version": 0}', "version: 0 is not 1"),
        ('{"format": "somebody else\'s", "version": 1}', 'format: "somebody else\'s" is not'),
    ):
        if text is not None:
            table.write_text(text)
        code, told = gateway.refused_start()
        assert code != 0
        assert "[store] latency_table: " in told and words in told, told
        assert "leave the setting out" in told
        checked = gateway.try_offline("check-config")
        assert checked.returncode != 0
        assert "[store] latency_table" in checked.stderr and words in checked.stderr, checked.stderr
    assert not list(gateway.state_directory.iterdir())
