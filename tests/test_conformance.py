"""Foreign judges: libiscsi's conformance suite, and Linux's own SCSI stack in user-mode Linux."""

import os
import re
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from harness.gateway import Gateway
from harness.process import Process
from harness.target import Tgtd
from harness.tools import REPOSITORY, run, wait_for

UML_RUN = REPOSITORY / "scripts/uml-run.sh"
BASELINE = REPOSITORY / "tests/suites/iscsi-test-cu.tsv"
"""The verdict on each test, and why where it is not `passed`. `failed` are those that tgtd's own store fails as well,
since tgtd answers these commands itself: such a test may pass, every other one must end as it did."""

NEEDS_512_PHYSICAL = "ALL.GetLBAStatus.UnmapSingle"
"""Counts in physical blocks of 512 bytes, whatever the LUN reports; ours reports 4 KiB unless told otherwise."""


def iscsi_lun(gateway: Gateway, tgtd: Tgtd, size: str) -> str:
    gateway.create_volume("vol", size)
    iqn = tgtd.create_target(1, "conformance")
    tgtd.add_lun(1, 1, gateway.nbd_socket, "vol")
    return iqn


def verdict(output: str) -> str:
    asserts = re.search(r"asserts\s+\d+\s+\d+\s+\d+\s+(\d+)", output)
    if asserts is None:
        return "error"
    if int(asserts.group(1)) > 0:
        return "failed"
    return "skipped" if "[SKIPPED]" in output else "passed"


def judge(name: str, url: str) -> str:
    try:
        done = run(["iscsi-test-cu", "-d", "-n", "-t", name, url], 60, expected_codes=range(-64, 256))
    except Exception:  # A test that hangs is a verdict as well.
        return "timeout"
    return verdict(done.stdout + done.stderr)


@pytest.mark.timeout(600)
def test_iscsi_test_cu_finds_no_fault_beyond_those_of_tgtd(gateway: Gateway, tgtd: Tgtd) -> None:
    url = tgtd.url(iscsi_lun(gateway, tgtd, "256MiB"))
    listed = run(["iscsi-test-cu", "--list"]).stdout.split()
    tests = [name for name in listed if name.startswith("ALL.") and name.count(".") == 2]
    verdicts = {name: judge(name, url) for name in tests if name != NEEDS_512_PHYSICAL}
    tgtd.admin("--op", "update", "--mode", "logicalunit", "--tid", "1", "--lun", "1", "--params", "lbppbe=0")
    verdicts[NEEDS_512_PHYSICAL] = judge(NEEDS_512_PHYSICAL, url)
    assert differing(verdicts, baseline()) == {}


def baseline() -> dict[str, str]:
    rows = [line.split("\t") for line in BASELINE.read_text().splitlines() if not line.startswith("#")]
    return {name: verdict for name, verdict, _why in rows}


def differing(found: dict[str, str], expected: dict[str, str]) -> dict[str, tuple[str | None, str | None]]:
    """What was found and what should be, where that matters."""
    names = {name for name in found | expected if found.get(name) != expected.get(name)}
    return {
        name: (found.get(name), expected.get(name))
        for name in sorted(names)
        if expected.get(name) != "failed" or name not in found
    }


def test_a_skip_where_a_test_should_pass_is_a_difference() -> None:
    expected = {"A": "passed", "B": "skipped", "C": "failed", "D": "passed"}
    assert differing(expected, expected) == {}
    assert differing(expected | {"C": "passed"}, expected) == {}
    assert differing(expected | {"A": "skipped"}, expected) == {"A": ("skipped", "passed")}
    assert differing(expected | {"B": "passed"}, expected) == {"B": ("passed", "skipped")}
    missing = {name: verdict for name, verdict in expected.items() if name not in ("C", "D")}
    assert set(differing(missing, expected)) == {"C", "D"}


def test_baseline_lets_no_command_that_we_promise_be_skipped() -> None:
    promised = ("CompareAndWrite", "GetLBAStatus", "Unmap", "WriteSame10", "WriteSame16")
    verdicts = [verdict for name, verdict in baseline().items() if name.split(".")[1] in promised]
    assert len(verdicts) > 25
    assert set(verdicts) == {"passed"}


@pytest.fixture
def namespace(closing: ExitStack) -> str:
    """A network of its own for a guest and the tgtd it talks to."""
    name = f"tombolo-{os.getpid()}"
    run([UML_RUN, "network", name])
    closing.callback(run, [UML_RUN, "remove", name])
    return name


@pytest.mark.conformance
@pytest.mark.timeout(900)
def test_linux_initiator_keeps_its_file_system_through_a_restart_of_the_daemon(
    gateway: Gateway, folder: Path, namespace: str, closing: ExitStack
) -> None:
    tgtd = Tgtd(folder / "tgtd", namespace, "10.99.0.1")
    closing.callback(tgtd.close)
    tgtd.start()
    iqn = iscsi_lun(gateway, tgtd, "512MiB")
    guest = Process("guest", folder / "guest.log")
    closing.callback(guest.kill9)
    script = REPOSITORY / "tests/guest/initiator.sh"
    guest.start([UML_RUN, "run", namespace, script, tgtd.address, str(tgtd.port), iqn], {"GUEST_LIMIT_S": "600"})

    def said(line: str) -> bool:
        return f"GUEST {line}" in guest.log_path.read_text(errors="replace")

    guest.wait_until(lambda: said("loading"), 300, "load in the guest")
    for _ in range(2):
        time.sleep(6)
        gateway.kill9()
        gateway.start()
    wait_for(lambda: not guest.running, 600, "end of the guest")
    assert said("clean"), guest.log_tail()
    assert guest.exit_code == 0, guest.log_tail()


def test_verdicts_are_read_from_the_suite_as_it_speaks() -> None:
    assert verdict("asserts      3      3      3      0        0") == "passed"
    assert verdict("asserts      3      3      2      1        0") == "failed"
    assert verdict("[SKIPPED] x\nasserts      0      0      0      0        0") == "skipped"
    assert verdict("Segmentation fault") == "error"
