#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Runs every test of libiscsi's iscsi-test-cu, each in a process of its own, and
compares the results with a baseline.

Each test alone: some leave reservations behind, and one that hangs must not take the
rest with it.  Without --url, a private tgtd with a 256 MiB unit on nbdkit is used.

Exit status 1 if a test that passes in the baseline does not pass here, or if a test
named in REQUIRED does not pass.
"""

import argparse
import collections
import json
import pathlib
import re
import signal
import subprocess
import sys
import time

import harness

BASELINE = pathlib.Path(__file__).with_name("iscsi_test_cu_baseline.tsv")
REQUIRED = ("ALL.CompareAndWrite.", "ALL.GetLBAStatus.", "ALL.Unmap.")
LUN_BYTES = 256 << 20

# This test asks for the status of block i + 1 and wants the answer to begin at block
# i + (logical blocks per physical block): no target with 4 KiB physical blocks can
# pass.  It runs on a second unit, which reports physical blocks of 512 bytes.
NEEDS_512_PHYSICAL = ("ALL.GetLBAStatus.UnmapSingle",)

Result = collections.namedtuple("Result", "test outcome seconds reason")


def list_tests():
    listing = subprocess.run(["iscsi-test-cu", "--list"], capture_output=True, text=True, check=True).stdout
    names = [line.strip() for line in listing.splitlines()]
    return [name for name in names if re.fullmatch(r"ALL\.[^.]+\.[^.]+", name)]


def outcome_of(output):
    """(outcome, reason) from the report of one test."""
    lines = [line.strip() for line in output.splitlines()]
    summary = re.search(r"asserts\s+\d+\s+\d+\s+\d+\s+(\d+)", output)
    if not summary:
        return "ERROR", lines[-1] if lines else "no output"
    if int(summary.group(1)) > 0:
        failed = [line for line in lines if "[FAILED]" in line or re.match(r"\d+\. .*\.c:\d+", line)]
        return "FAIL", failed[0] if failed else ""
    skipped = [line for line in lines if "[SKIPPED]" in line]
    return ("SKIP", skipped[0]) if skipped else ("PASS", "")


def run_test(test, url, timeout_s):
    started = time.monotonic()
    try:
        process = subprocess.run(
            ["iscsi-test-cu", "-d", "-n", "-t", test, url], capture_output=True, text=True, errors="replace", timeout=timeout_s
        )
        outcome, reason = outcome_of(process.stdout + process.stderr)
    except subprocess.TimeoutExpired:
        outcome, reason = "TIMEOUT", f"more than {timeout_s} s"
    return Result(test, outcome, round(time.monotonic() - started, 1), reason)


def read_baseline(path):
    rows = [line.split("\t") for line in path.read_text().splitlines() if line and not line.startswith("#")]
    return {row[0]: row[1] for row in rows}


def regressions(results, baseline):
    for result in results:
        required = result.test.startswith(REQUIRED) or baseline.get(result.test) == "PASS"
        if required and result.outcome != "PASS":
            yield result


def private_target(tests, run):
    with harness.temporary_directory() as directory:
        server, tgtd = harness.NbdServer(directory), harness.Tgtd(directory)
        try:
            server.create("disk", LUN_BYTES)
            server.create("disk512", LUN_BYTES)
            server.start()
            tgtd.start()
            tgtd.add_target()
            tgtd.add_lun(1, server.address("disk"))
            tgtd.add_lun(2, server.address("disk512"))
            tgtd.admin("--op", "update", "--mode", "logicalunit", "--tid", "1", "--lun", "2", "--params", "lbppbe=0")
            results = run(tests, tgtd.url(1), tgtd.url(2))
            if not tgtd.is_alive():
                raise SystemExit("tgtd died:\n" + tgtd.log()[-4000:])
            return results
        finally:
            tgtd.stop()
            server.kill()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", help="test this unit; ITS DATA IS LOST")
    parser.add_argument("--only", default="", help="regular expression of test names")
    parser.add_argument("--timeout-s", type=int, default=60)
    parser.add_argument("--baseline", type=pathlib.Path, default=BASELINE)
    parser.add_argument("--json", type=pathlib.Path, help="write the results here")
    parser.add_argument("--tsv", type=pathlib.Path, help="write the results here")
    options = parser.parse_args()
    # So that the servers are stopped when the run is.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))

    if not options.url and (missing := harness.missing_requirement()):
        print(f"SKIPPED: {missing}")
        return 77

    def run(tests, url, url_512):
        results = []
        for test in tests:
            results.append(run_test(test, url_512 if test in NEEDS_512_PHYSICAL else url, options.timeout_s))
            print("\t".join(map(str, results[-1])), flush=True)
        return results

    tests = [test for test in list_tests() if re.search(options.only, test)]
    results = run(tests, options.url, options.url) if options.url else private_target(tests, run)
    bad = list(regressions(results, read_baseline(options.baseline)))
    counts = collections.Counter(result.outcome for result in results)
    if options.json:
        report = {"counts": counts, "regressions": [r.test for r in bad], "results": [r._asdict() for r in results]}
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    if options.tsv:
        options.tsv.write_text("".join(f"{r.test}\t{r.outcome}\t{r.reason}\n" for r in results))
    print(dict(counts), "regressions:", [result.test for result in bad] or "none")
    return 1 if bad or not results else 0


if __name__ == "__main__":
    sys.exit(main())
