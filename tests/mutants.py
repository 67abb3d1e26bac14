"""Mutation test: do the unit tests and the fault simulation notice small defects that are put into the code?

cargo-mutants lists the mutants; a sample, drawn with a seed that is printed, is tried one at a time in a copy of the
tree: first the unit tests of the mutant's crate, then, for what the simulation runs, a number of its seeds. The results
are written to docs/results/mutants.md, where a reason that somebody added to a survivor stays.
"""

import argparse
import hashlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / "build" / "mutants"
TREE = WORK / "tree"
REPORT = ROOT / "docs" / "results" / "mutants.md"
# What only tests call, and what is only printed.
EXCLUDED = r"check_invariants|check_accounts|test_bench|impl (fmt::)?(Debug|Display) for|memory_bytes|weight_bytes"
# A mutant that makes a test or a run this much slower hangs.
PATIENCE_FACTOR = 10
PATIENCE_S_MIN = 120.0
NO_REASON = "not looked into yet"


class Verdict(StrEnum):
    NOT_VIABLE = "does not build"
    UNIT_TESTS = "noticed by unit tests"
    SIMULATION = "noticed by the simulation"
    SURVIVED = "survived"


@dataclass(frozen=True)
class Area:
    name: str
    package: str
    files: tuple[str, ...]
    # Whether the fault simulation runs this code.
    is_simulated: bool


AREAS = (
    Area("checkpoint", "tombolo-core", ("gateway/core/src/checkpoint.rs", "gateway/core/src/page.rs"), True),
    Area("recovery", "tombolo-core", ("gateway/core/src/recovery.rs", "gateway/core/src/recovery/*.rs"), True),
    Area("core", "tombolo-core", ("gateway/core/src/**/*.rs",), True),
    Area("files", "tombolo-files", ("gateway/files/src/**/*.rs",), False),
)


@dataclass(frozen=True)
class Mutant:
    area: Area
    name: str
    file: str
    diff: str

    @property
    def key(self) -> str:
        return hashlib.sha256(self.diff.encode()).hexdigest()[:16]

    @property
    def title(self) -> str:
        """Without the position, which moves with every edit."""
        return re.sub(r":\d+:\d+:", ":", self.name)


def mutants_of(area: Area, tool: Path) -> list[Mutant]:
    command = [str(tool), "mutants", "--list", "--json", "--diff", "--package", area.package, "--exclude-re", EXCLUDED]
    for pattern in area.files:
        command += ["--file", pattern]
    listed = subprocess.run(command, cwd=TREE, check=True, capture_output=True, text=True)
    found = json.loads(listed.stdout)
    return [Mutant(area, entry["name"], entry["file"], entry["diff"]) for entry in found]


def copy_tree() -> None:
    """The files that git knows, as they are now. Those that did not change keep their times, for cargo's sake."""
    known = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True)
    wanted = {name for name in known.stdout.split("\0") if name and (ROOT / name).is_file()}
    if TREE.exists():
        for path in TREE.rglob("*"):
            if path.is_file() and str(path.relative_to(TREE)) not in wanted:
                path.unlink()
    for name in wanted:
        source, target = ROOT / name, TREE / name
        if not target.exists() or target.read_bytes() != source.read_bytes():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
            shutil.copymode(source, target)


def run(command: Sequence[str], patience_s: float | None = None) -> bool:
    """Whether it ended well, and in time."""
    environment = os.environ | {"CARGO_TARGET_DIR": str(WORK / "target"), "CARGO_TERM_COLOR": "never"}
    log = (WORK / "last.log").open("w")
    with subprocess.Popen(
        command, cwd=TREE, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
    ) as process:
        try:
            return process.wait(patience_s) == 0
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return False


def build(area: Area) -> bool:
    command = ["cargo", "test", "--locked", "--no-run", "-q", "-p", area.package]
    simulator = ["cargo", "build", "--locked", "-q", "-p", "tombolo-engine", "--bin", "sim"]
    return run(command) and (not area.is_simulated or run(simulator))


def unit_tests(area: Area) -> list[str]:
    return ["cargo", "test", "--locked", "-q", "-p", area.package]


def simulation(seeds: int) -> list[str]:
    return [str(WORK / "target" / "debug" / "sim"), "--seeds", str(seeds), "--failures-max", "1"]


class Trial:
    def __init__(self, seeds: int) -> None:
        self.seeds = seeds
        self.patience_s: dict[str, float] = {}

    def check_unchanged(self, areas: Sequence[Area]) -> None:
        """All must pass without a mutant; it also tells how long it takes."""
        for area in areas:
            if not build(area):
                sys.exit(f"{area.package} does not build; see {WORK / 'last.log'}")
            self.measure(area.package, unit_tests(area))
            if area.is_simulated and "simulation" not in self.patience_s:
                self.measure("simulation", simulation(self.seeds))

    def measure(self, what: str, command: Sequence[str]) -> None:
        began = time.monotonic()
        if not run(command):
            sys.exit(f"{what} fails without a mutant; see {WORK / 'last.log'}")
        self.patience_s[what] = max(PATIENCE_S_MIN, (time.monotonic() - began) * PATIENCE_FACTOR)

    def try_mutant(self, mutant: Mutant) -> Verdict:
        path = TREE / mutant.file
        original = path.read_text()
        subprocess.run(["patch", "-s", "-p1", mutant.file], cwd=TREE, input=mutant.diff, text=True, check=True)
        try:
            area = mutant.area
            if not build(area):
                return Verdict.NOT_VIABLE
            if not run(unit_tests(area), self.patience_s[area.package]):
                return Verdict.UNIT_TESTS
            if area.is_simulated and not run(simulation(self.seeds), self.patience_s["simulation"]):
                return Verdict.SIMULATION
            return Verdict.SURVIVED
        finally:
            path.write_text(original)


def reasons() -> dict[str, str]:
    """Those that stand in the report."""
    if not REPORT.exists():
        return {}
    return dict(re.findall(r"^\* `(.+?)`: (.+)$", REPORT.read_text(), re.MULTILINE))


def report(tried: Sequence[tuple[Mutant, Verdict]], seed: int, seeds: int, total: dict[str, int]) -> str:
    known = reasons()
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    lines = [
        "# Mutants",
        "",
        f"`make mutants MUTANTS_SEED={seed} MUTANTS={len(tried)}` on {commit.stdout.strip()}: small defects,",
        "drawn from all that cargo-mutants knows to make, tried one at a time against the unit tests of their crate",
        f"and then, where the fault simulation runs the code, its seeds 0 to {seeds - 1}. A mutant that hangs is",
        "noticed.",
        "",
        "| area | mutants | tried | build | unit tests | simulation | survived | noticed |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for area in AREAS:
        lines.append(row(area.name, str(total.get(area.name, 0)), [v for m, v in tried if m.area == area]))
    lines.append(row("all", str(sum(total.values())), [verdict for _, verdict in tried]))
    lines += ["", "## Survivors", ""]
    survivors = sorted(mutant.title for mutant, verdict in tried if verdict == Verdict.SURVIVED)
    lines += [f"* `{title}`: {known.get(title, NO_REASON)}" for title in survivors] or ["None."]
    return "\n".join(lines) + "\n"


def row(name: str, total: str, verdicts: Sequence[Verdict]) -> str:
    count = {verdict: list(verdicts).count(verdict) for verdict in Verdict}
    viable = len(verdicts) - count[Verdict.NOT_VIABLE]
    share = f"{100 * (viable - count[Verdict.SURVIVED]) / viable:.1f} %" if viable else "-"
    cells = (count[Verdict.UNIT_TESTS], count[Verdict.SIMULATION], count[Verdict.SURVIVED])
    return f"| {name} | {total} | {len(verdicts)} | {viable} | {' | '.join(map(str, cells))} | {share} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100, help="mutants to try (100)")
    parser.add_argument("--seed", type=int, help="draws the sample; printed (random)")
    parser.add_argument("--seeds", type=int, default=200, help="of the simulation, for each mutant (200)")
    parser.add_argument("--area", choices=[area.name for area in AREAS], action="append", help="(all)")
    arguments = parser.parse_args()
    seed = random.SystemRandom().randrange(1_000_000) if arguments.seed is None else arguments.seed
    print(f"sample drawn with --seed {seed}", flush=True)
    WORK.mkdir(parents=True, exist_ok=True)
    copy_tree()
    tool = ROOT / "build" / "bin" / "cargo-mutants"
    areas = [area for area in AREAS if not arguments.area or area.name in arguments.area]
    listed: dict[str, Mutant] = {}
    for area in areas:
        for mutant in mutants_of(area, tool):
            listed.setdefault(mutant.key, mutant)
    total = {area.name: sum(mutant.area == area for mutant in listed.values()) for area in areas}
    sample = sorted(listed.values(), key=lambda mutant: mutant.key)
    random.Random(seed).shuffle(sample)
    trial = Trial(arguments.seeds)
    trial.check_unchanged(areas)
    tried: list[tuple[Mutant, Verdict]] = []
    for number, mutant in enumerate(sample[: arguments.count], 1):
        verdict = trial.try_mutant(mutant)
        tried.append((mutant, verdict))
        print(f"{number}/{arguments.count} {verdict}: {mutant.name}", flush=True)
        # After each, so that an interrupted run has not been for nothing.
        REPORT.write_text(report(tried, seed, arguments.seeds, total))


if __name__ == "__main__":
    main()
