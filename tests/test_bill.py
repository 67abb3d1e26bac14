"""The bill: requests and bytes by cause are those that the store has seen, priced by hand; sums survive restarts; a
budget is warned of; prices with gaps are refused."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from conftest import BUCKET, GatewayFactory, s3_settings
from harness.fault_proxy import Exchange, FaultProxy
from harness.gateway import Gateway, merged
from harness.object_store import S3Server
from harness.tools import wait_for
from test_recover import MIB, noise, read, write

# No prefetch, so that every GET of data is a reader's. Nothing renews the root meanwhile; recovery points are those of
# drains.
CALM: dict[str, Any] = {
    "prefetch": {"policy": "none", "window_bytes_max": "1MiB"},
    "cache": {"size": "16MiB"},
    "flush": {"dirty_bytes_max": "8MiB", "recovery_point_ms": 3_600_000},
    "store": {"lease_ms": 3_600_000},
}
PRICES = {"put": 0.005, "list": 0.005, "get": 0.0004, "head": 0.0004, "delete": 0.0}
"""Of a thousand, at S3 Standard."""
EGRESS_PER_GIB = 0.09
PREFIXES = {"flush": "objects/", "journal": "journal/", "tree": "nodes/", "root": "root"}
"""What is put for which cause."""
ATTEMPTS = ("put", "get", "head", "list", "delete", "check")


@pytest.fixture
def gateway(make_gateway: GatewayFactory, s3: S3Server, proxy: FaultProxy) -> Gateway:
    """One that is not started yet, behind the proxy."""
    return make_gateway(merged(CALM, s3_settings(proxy.endpoint)), s3.environment)


def key_of(exchange: Exchange) -> str:
    """Below the gateway's prefix; of a list nothing."""
    return exchange.target.partition("?")[0].removeprefix(f"/{BUCKET}").removeprefix("/gateway/").lstrip("/")


def operation_of(exchange: Exchange) -> str:
    is_list = exchange.method == "GET" and key_of(exchange) == ""
    return "list" if is_list else exchange.method.lower()


def seen(proxy: FaultProxy) -> Counter[str]:
    """Every attempt that has come to the store, by operation."""
    return Counter(operation_of(exchange) for exchange in proxy.counts.exchanges)


def bill(gateway: Gateway) -> dict[str, Any]:
    found: dict[str, Any] = gateway.status()["bill"]
    return found


def by_cause(gateway: Gateway) -> dict[str, dict[str, Any]]:
    return {cause["cause"]: cause for cause in bill(gateway)["causes"]}


def counted(gateway: Gateway) -> Counter[str]:
    """The same as the gateway has counted it. A check is a list of one key."""
    counts: Counter[str] = Counter()
    for cause in by_cause(gateway).values():
        for operation in ATTEMPTS:
            counts["list" if operation == "check" else operation] += cause["requests"][operation]
    return +counts


def wait_counted(gateway: Gateway, proxy: FaultProxy, before: Counter[str] | None = None) -> None:
    """What came to the store since `before` is what was counted."""
    expected: Counter[str] = Counter()

    def is_equal() -> bool:
        expected.clear()
        expected.update(seen(proxy) - (before or Counter()))
        return counted(gateway) == expected

    wait_for(is_equal, 30, "counts that are equal")
    assert expected.total() > 0


def puts_below(proxy: FaultProxy, prefix: str) -> tuple[int, int]:
    """How many, and the bytes of those that succeeded."""
    puts = [exchange for exchange in proxy.counts.exchanges if exchange.method == "PUT"]
    puts = [exchange for exchange in puts if key_of(exchange).startswith(prefix)]
    return len(puts), sum(exchange.sent_bytes for exchange in puts if exchange.status == 200)


def charged_usd(exchanges: list[Exchange]) -> float:
    """By hand, of requests and transfers."""
    charged = [exchange for exchange in exchanges if exchange.status < 500]
    requests = sum(PRICES[operation_of(exchange)] / 1000 for exchange in charged)
    gets = [exchange for exchange in charged if operation_of(exchange) == "get" and exchange.status in (200, 206)]
    return requests + sum(exchange.received_bytes for exchange in gets) / 2**30 * EGRESS_PER_GIB


def month_of_operation(gateway: Gateway) -> float:
    found = bill(gateway)
    return float(found["month_usd"] - found["month_storage_usd"])


def metric(gateway: Gateway, name: str) -> dict[str, float]:
    lines = [line for line in gateway.metrics().splitlines() if line.startswith((name + "{", name + " "))]
    return {series: float(value) for series, value in (line.rsplit(" ", 1) for line in lines)}


def work(gateway: Gateway, seed: int) -> None:
    """Uploads, duplicates, recovery points, and reads of what the cache has lost."""
    data = noise(24, seed)
    for at in range(0, len(data), 4 * MIB):
        write(gateway, data[at : at + 4 * MIB], at)
        gateway.drain()
    # As others have written it: found as duplicates.
    write(gateway, data[: 2 * MIB], 28 * MIB)
    gateway.drain()
    assert read(gateway, 4 * MIB) == data[: 4 * MIB]


def test_causes_are_what_the_store_has_seen(gateway: Gateway, proxy: FaultProxy) -> None:
    gateway.settings = merged(gateway.settings, {"journal": {"store_checkpoint_interval_ms": 1_000}})
    gateway.start()
    gateway.create_volume("vol", "32MiB")
    work(gateway, 1)
    causes: dict[str, dict[str, Any]] = {}

    def puts(cause: str) -> tuple[int, int]:
        return causes[cause]["requests"]["put"], causes[cause]["sent_bytes"]

    def are_as_seen() -> bool:
        """Also while the journal is folded into the tree."""
        causes.update(by_cause(gateway))
        return all(puts(cause) == puts_below(proxy, prefix) for cause, prefix in PREFIXES.items())

    wait_for(are_as_seen, 30, "puts by cause that are those by name")
    assert all(puts(cause)[0] > 0 for cause in PREFIXES), causes
    wait_counted(gateway, proxy)
    causes = by_cause(gateway)
    # Reads of data are those of readers, and what they brought came through the proxy.
    gets = [exchange for exchange in proxy.counts.exchanges if exchange.method == "GET"]
    data = [exchange for exchange in gets if key_of(exchange).startswith("objects/")]
    assert causes["demand"]["requests"]["get"] == len(data) > 0
    assert causes["demand"]["received_bytes"] == sum(exchange.received_bytes for exchange in data)
    assert causes["prefetch"]["requests"] == dict.fromkeys(ATTEMPTS, 0)
    # A start asks too, and nobody asks for nothing.
    assert sum(causes["recovery"]["requests"].values()) > 0
    assert sum(causes["other"]["requests"].values()) == 0
    # A check reads everything once more, and nothing of it counts as somebody else's.
    before = causes
    gateway.cli("check", "--store")
    wait_counted(gateway, proxy)
    after = by_cause(gateway)
    assert after["check"]["requests"]["get"] >= puts("flush")[0]
    assert after["demand"] == before["demand"]
    assert after["flush"] == before["flush"]
    # The same in metrics.
    requests = metric(gateway, "tombolo_store_requests_total")
    assert requests['tombolo_store_requests_total{operation="put",cause="flush"}'] == puts("flush")[0]
    assert sum(requests.values()) == len(proxy.counts.exchanges)
    durations = metric(gateway, "tombolo_store_request_duration_seconds_count")
    assert sum(durations.values()) == len(proxy.counts.exchanges)


def test_the_month_is_priced_by_hand_and_goes_on_over_restarts(gateway: Gateway, proxy: FaultProxy) -> None:
    gateway.start()
    gateway.create_volume("vol", "32MiB")
    before: Counter[str] = Counter()
    for life in range(3):
        work(gateway, life)
        wait_counted(gateway, proxy, before)
        assert month_of_operation(gateway) == pytest.approx(charged_usd(proxy.counts.exchanges), rel=1e-9)
        found = bill(gateway)
        assert found["month_storage_usd"] >= 0
        assert found["forecast_usd"] > found["month_usd"]
        assert found["storage_usd_per_day"] > 0
        gateway.stop()
        before = seen(proxy)
        gateway.start()
    wait_counted(gateway, proxy, before)
    assert month_of_operation(gateway) == pytest.approx(charged_usd(proxy.counts.exchanges), rel=1e-9)
    # Since the start it is only this life.
    assert bill(gateway)["since_start_usd"] < month_of_operation(gateway)


def test_a_crash_loses_no_more_than_what_was_not_written_yet(gateway: Gateway, proxy: FaultProxy) -> None:
    gateway.start()
    gateway.create_volume("vol", "32MiB")
    work(gateway, 1)
    gateway.stop()
    kept = charged_usd(proxy.counts.exchanges)
    gateway.start()
    gateway.kill9()
    ledger = gateway.state_directory / "bill"
    assert ledger.exists()
    gateway.start()
    all_of_it = charged_usd(proxy.counts.exchanges)
    assert kept < month_of_operation(gateway) <= all_of_it * (1 + 1e-9)
    # A ledger that is damaged is a warning, not the end.
    gateway.stop()
    ledger.write_text("{")
    before = seen(proxy)
    begun = len(proxy.counts.exchanges)
    gateway.start()
    assert "what the store has cost so far cannot be read" in gateway.process.log_path.read_text()
    wait_counted(gateway, proxy, before)
    assert month_of_operation(gateway) == pytest.approx(charged_usd(proxy.counts.exchanges[begun:]), rel=1e-9)


def test_a_recovery_is_on_the_bill(gateway: Gateway, proxy: FaultProxy) -> None:
    gateway.start()
    gateway.create_volume("vol", "32MiB")
    work(gateway, 1)
    gateway.stop()
    gateway.lose_state()
    begun = len(proxy.counts.exchanges)
    gateway.recover()
    before = seen(proxy)
    assert len(proxy.counts.exchanges) > begun
    gateway.start()
    wait_counted(gateway, proxy, before)
    assert month_of_operation(gateway) == pytest.approx(charged_usd(proxy.counts.exchanges[begun:]), rel=1e-9)


def test_attempts_that_fail_count_and_only_refusals_are_charged(gateway: Gateway, proxy: FaultProxy) -> None:
    gateway.settings = merged(gateway.settings, {"store": {"retry_delay_ms_max": 100, "attempts_max": 30}})
    gateway.start()
    gateway.create_volume("vol", "32MiB")
    gateway.drain()
    proxy.faults.error_fraction = 0.3
    work(gateway, 1)
    proxy.faults.error_fraction = 0.0
    wait_counted(gateway, proxy)
    causes = by_cause(gateway).values()
    failed = proxy.counts.refused_with_error
    assert failed > 0
    assert sum(sum(cause["requests"].values()) for cause in causes) == len(proxy.counts.exchanges)
    assert sum(cause["charged_requests"] for cause in causes) == len(proxy.counts.exchanges) - failed
    assert month_of_operation(gateway) == pytest.approx(charged_usd(proxy.counts.exchanges), rel=1e-9)


def test_a_budget_is_warned_of_once_and_again_after_no_restart(gateway: Gateway) -> None:
    gateway.settings = merged(gateway.settings, {"prices": {"budget_usd_per_month": 0.00001}})
    gateway.start()

    def warnings() -> int:
        return gateway.process.log_path.read_text().count("of the budget")

    wait_for(lambda: warnings() == 1, 30, "a warning")
    gateway.restart()
    found = bill(gateway)
    assert found["budget_usd"] == 0.00001
    assert found["budget_percent"] > 100
    assert "% of the budget of" in gateway.cli("status")
    assert metric(gateway, "tombolo_bill_budget_dollars") == {"tombolo_bill_budget_dollars": 0.00001}
    # A stop looks once more.
    gateway.stop()
    assert warnings() == 1


def test_a_price_file_is_what_a_table_prints(gateway: Gateway, folder: Path) -> None:
    printed = gateway.try_cli("prices", "wasabi").stdout
    file = folder / "prices.toml"
    file.write_text(printed.replace("put_usd_per_1000 = 0\n", "put_usd_per_1000 = 1000\n"))
    gateway.settings = merged(gateway.settings, {"prices": {"file": str(file)}})
    gateway.start()
    found = bill(gateway)
    assert (found["prices"], found["prices_date"]) == (str(file), "2026-07-01")
    puts = sum(cause["requests"]["put"] for cause in found["causes"])
    # A dollar each; all else is free but storage.
    assert puts > 0
    assert found["since_start_usd"] == pytest.approx(puts)
    tables = json.loads(gateway.cli("prices", "--json"))
    assert tables["aws-s3-standard"]["prices"]["get_usd_per_1000"] == PRICES["get"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("get_usd_per_1000 = 0.0004\n", ""), "`get_usd_per_1000` is missing"),
        (("get_usd_per_1000 = 0.0004", "get_usd_per_1000 = -1"), "`get_usd_per_1000` is -1"),
        (("get_usd_per_1000 = 0.0004", "get_usd_per_1000 = nan"), "`get_usd_per_1000` is NaN"),
        (("get_usd_per_1000", "got_usd_per_1000"), "there is no price `got_usd_per_1000`"),
        (('date = "2025-10-01"', 'date = "soon"'), '`date` = "soon"'),
        (("source = ", "sauce = "), "`source` is missing"),
    ],
)
def test_a_price_file_with_a_gap_is_refused(gateway: Gateway, folder: Path, change: tuple[str, str], said: str) -> None:
    file = folder / "prices.toml"
    printed = gateway.try_cli("prices", "aws-s3-standard").stdout
    assert change[0] in printed
    file.write_text(printed.replace(*change, 1))
    gateway.settings = merged(gateway.settings, {"prices": {"file": str(file)}})
    code, words = gateway.refused_start()
    assert code != 0 and said in words and str(file) in words
    checked = gateway.try_offline("check-config")
    assert checked.returncode == 2 and said in checked.stderr


def test_old_prices_are_warned_of(gateway: Gateway, folder: Path) -> None:
    file = folder / "prices.toml"
    printed = gateway.try_cli("prices", "aws-s3-standard").stdout
    file.write_text(printed.replace("2025-10-01", "2014-05-01"))
    gateway.settings = merged(gateway.settings, {"prices": {"file": str(file)}})
    gateway.start()
    assert "were looked up long ago" in gateway.process.log_path.read_text()
