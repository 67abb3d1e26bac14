"""The files in deploy/ are valid for the programs that read them, and name only metrics that exist."""

import json
import re
import shutil
from pathlib import Path

import pytest

from harness.tools import REPOSITORY, run, tombolo_binary

DEPLOY = REPOSITORY / "deploy"
RULES = DEPLOY / "prometheus/tombolo-alerts.yml"
DASHBOARD = DEPLOY / "grafana/tombolo.json"
METRIC = re.compile(r"\btombolo_[a-z_]+\b")


def test_alert_rules_are_valid() -> None:
    run(["promtool", "check", "rules", RULES])
    run(["promtool", "check", "config", DEPLOY / "prometheus/prometheus.yml"])


def test_alert_rules_fire_when_they_should_and_only_then() -> None:
    run(["promtool", "test", "rules", "tombolo-alerts.test.yml"], cwd=RULES.parent)


def test_every_alert_has_a_unit_test() -> None:
    alerts = set(re.findall(r"- alert: (\w+)", RULES.read_text()))
    tested = set(re.findall(r"alertname: (\w+)", RULES.with_name("tombolo-alerts.test.yml").read_text()))
    assert tested == alerts


def dashboard_queries() -> list[str]:
    dashboard = json.loads(DASHBOARD.read_text())
    return [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]


def test_dashboard_panels_do_not_overlap_and_have_queries() -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    cells = [
        (panel["gridPos"]["x"] + x, panel["gridPos"]["y"] + y)
        for panel in panels
        for x in range(panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["h"])
    ]
    assert len(cells) == len(set(cells))
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert all(panel["targets"] for panel in panels)


def test_dashboard_queries_are_valid_prometheus_expressions(folder: Path) -> None:
    rules = [
        f"      - record: query:{index}\n        expr: {json.dumps(query.replace('$__rate_interval', '5m'))}\n"
        for index, query in enumerate(dashboard_queries())
    ]
    file = folder / "queries.yml"
    file.write_text("groups:\n  - name: dashboard\n    rules:\n" + "".join(rules))
    run(["promtool", "check", "rules", file])


def test_alerts_and_dashboard_name_only_metrics_that_exist() -> None:
    existing = set(run([tombolo_binary(), "metrics", "--names"]).stdout.split())
    used = set(METRIC.findall(RULES.read_text())) | set(METRIC.findall(" ".join(dashboard_queries())))
    assert used
    assert used - existing == set()


def test_example_settings_are_accepted() -> None:
    run([tombolo_binary(), "--config", DEPLOY / "tombolo.toml", "check-config"])


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_units_are_valid(folder: Path) -> None:
    """Verified with a command that exists, as the daemon is not installed here."""
    for unit in [*(DEPLOY / "systemd").glob("*.service"), DEPLOY / "systemd/tgt.service.d/tombolo.conf"]:
        # A template is judged by an instance.
        copy = folder / str(unit.relative_to(DEPLOY / "systemd")).replace("@", "@name")
        copy.parent.mkdir(exist_ok=True)
        copy.write_text(unit.read_text().replace("/usr/bin/tombolo", "/bin/true"))
    (folder / "tgt.service").write_text("[Service]\nExecStart=/bin/true\n")
    units = sorted(folder.glob("*.service"))
    assert len(units) == 5
    for unit in units:
        done = run(["systemd-analyze", "verify", "--man=no", "--recursive-errors=yes", unit])
        assert done.stderr.strip() == ""


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_service_is_hardened(folder: Path) -> None:
    copy = folder / "tombolo.service"
    copy.write_text((DEPLOY / "systemd/tombolo.service").read_text())
    done = run(["systemd-analyze", "security", "--offline=true", "--threshold=20", copy])
    assert "OK" in done.stdout


@pytest.mark.skipif(shutil.which("systemd-sysusers") is None, reason="systemd-sysusers is not installed")
def test_user_and_folders_can_be_created(folder: Path) -> None:
    for name in ("etc", "usr/lib", "var/lib", "run"):
        (folder / name).mkdir(parents=True)
    run(["systemd-sysusers", f"--root={folder}", DEPLOY / "systemd/tombolo-sysusers.conf"])
    assert "tombolo:" in (folder / "etc/passwd").read_text()
    run(["systemd-tmpfiles", f"--root={folder}", "--create", DEPLOY / "systemd/tombolo-tmpfiles.conf"])
    assert (folder / "etc/tombolo").stat().st_mode & 0o777 == 0o750
