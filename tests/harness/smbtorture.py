"""Samba's own suite for SMB servers, judged against what the same smbd passes over ext4.

The suite finds faults in smbd, wherever its files lie; `suites/smbtorture-ext4-*.tsv` list them, for smbd as `tombolo
export smb` configures it and as it does with `--durable-handles`. So a share must pass what ext4 passes, and may fail
only where ext4 fails. `suites/smbtorture-permissive-ext4.tsv` is what smbd passes at best; docs/results/smbtorture.md
sets the three side by side. Rows: suite, passed, failed, skipped, names of what failed.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from harness.smbd import PASSWORD, Smbd
from harness.tools import REPOSITORY, ToolFailed, run

BASELINES = REPOSITORY / "tests/suites"
LIMIT_S = 700


@dataclass(frozen=True)
class Verdict:
    """Names of failures as a sorted list: some sub-tests of a suite share theirs."""

    passed: int
    failed: tuple[str, ...]
    skipped: int


def verdict(said: str) -> Verdict:
    results = re.findall(r"^(success|failure|error|skip): (\S+)", said, re.MULTILINE)
    failed = sorted(name for result, name in results if result in ("failure", "error"))
    kinds = [result for result, _ in results]
    return Verdict(kinds.count("success"), tuple(failed), kinds.count("skip"))


def baseline(kind: str) -> dict[str, Verdict]:
    """`kind` is `coherent`, `durable` or `permissive`."""
    name = "smbtorture-permissive-ext4.tsv" if kind == "permissive" else f"smbtorture-ext4-{kind}.tsv"
    found = {}
    for line in (BASELINES / name).read_text().splitlines():
        if line.startswith("#"):
            continue
        suite, passed, _failed, skipped, names = line.split("\t")
        found[suite] = Verdict(int(passed), tuple(sorted(names.split())), int(skipped))
    return found


def smbtorture(server: Smbd, suite: str, user: str) -> Verdict:
    share = f"//127.0.0.1/{server.share}"
    words = ["smbtorture", f"--configfile={server.configuration}", "-p", str(server.port), "-U", f"{user}%{PASSWORD}"]
    # By default some tests wait for two seconds of delay that this server does not have.
    words += ["--option=torture:writetimeupdatedelay=500000"]
    try:
        done = run([*words, share, suite], LIMIT_S, expected_codes=range(-64, 256))
    except ToolFailed:
        return Verdict(0, ("did-not-end",), 0)
    return verdict(done.stdout)


def worse_than(expected: Verdict, found: Verdict) -> str:
    """What is worse, or nothing."""
    more = set(found.failed) - set(expected.failed)
    if not more and found.passed >= expected.passed:
        return ""
    return f"{found.passed} passed of {expected.passed}, new failures: {sorted(more)}"


def worse_than_baseline(kind: str, judge: Callable[[str], Verdict]) -> list[str]:
    """One line for each suite in which the server does worse."""
    verdicts = ((suite, worse_than(expected, judge(suite))) for suite, expected in baseline(kind).items())
    return [f"{suite}: {said}" for suite, said in verdicts if said]
