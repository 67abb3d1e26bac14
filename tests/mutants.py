"""Mutation test: do the unit tests and the fault simulation notice small defects that are put into the code?

cargo-mutants lists the mutants; a sample, drawn with a seed that is printed, is tried one at a time: first with the
unit tests of the mutant's crate, then, for what the simulation runs, with a number of its seeds. All are built at once
in a copy of the tree, in which a function that is drawn holds its mutants beside its own body and an environment
variable chooses; only what cannot be built like that is built alone. Every verdict is kept in build/mutants as it
comes, so that a run that was interrupted goes on where it was. The results are written to docs/results/mutants.md,
where a reason that somebody added to a survivor stays, and so do the notes at the end.
"""

import argparse
import hashlib
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / "build" / "mutants"
TREE = WORK / "tree"
TARGET = WORK / "target"
VERDICTS = WORK / "verdicts.jsonl"
LOG = WORK / "last.log"
REPORT = ROOT / "docs" / "results" / "mutants.md"
# Storage for tests; what only tests and fuzzers call, and what is only printed.
EXCLUDED_FILES = "gateway/files/src/memory.rs"
EXCLUDED = (
    r"check_invariants|check_accounts|test_bench|exercise_decoders|impl (fmt::)?(Debug|Display) for"
    r"|memory_bytes|weight_bytes"
)
# A mutant that makes a test or a run take this many times the processor's time hangs. By the clock it may take longer,
# as others may use the machine too.
PATIENCE_FACTOR = 4
PATIENCE_CPU_S_MIN = 15
PATIENCE_CLOCK = 20
# A loop without end that fills memory must not fill the machine's.
MEMORY_BYTES_MAX = 4 << 30
# All mutants share a build. Tests and simulation run for about as long as it takes.
PROFILE = (
    "profile.dev.debug=false",
    "profile.dev.package.tombolo-core.opt-level=1",
    "profile.dev.package.tombolo-engine.opt-level=1",
)
# Chooses the mutant by its number; 0 is none.
CHOICE = "TOMBOLO_MUTANT"
CHOOSER = """
/// Whether this is the mutant to be tried.
pub(crate) fn is_mutant(number: u32) -> bool {
    extern crate std;
    static CHOSEN: std::sync::OnceLock<u32> = std::sync::OnceLock::new();
    let chosen = || std::env::var("TOMBOLO_MUTANT").map_or(0, |number| number.parse().expect("a number"));
    *CHOSEN.get_or_init(chosen) == number
}
"""
NO_REASON = "not looked into yet"
NOTES = "## Defects made by hand"
# How the reason of a survivor begins that does the same as the code it was made from.
EQUIVALENT = "equivalent"


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

    @property
    def folder(self) -> str:
        """Of the package."""
        return self.files[0].split("/src/")[0]


# What lies in two of them belongs to the first.
AREAS = (
    Area(
        "checkpoint",
        "tombolo-core",
        tuple(
            f"gateway/core/src/{n}.rs" for n in ("merge", "format/local_metadata", "format/page", "format/superblock")
        ),
        True,
    ),
    Area(
        "recovery",
        "tombolo-core",
        (
            "gateway/core/src/recovery.rs",
            "gateway/core/src/recovery/*.rs",
            "gateway/core/src/format/cache_header.rs",
        ),
        True,
    ),
    Area("core", "tombolo-core", ("gateway/core/src/**/*.rs",), True),
    Area("files", "tombolo-files", ("gateway/files/src/**/*.rs",), False),
)


# Line and column as cargo-mutants counts them: both from 1.
Position = tuple[int, int]


@dataclass(frozen=True)
class Mutant:
    area: Area
    name: str
    file: str
    begin: Position
    end: Position
    replacement: str
    # Of the function that it is in, if any.
    function: tuple[Position, Position] | None
    # The lines that differ.
    changed: tuple[str, ...]
    # Among those that change the same lines of the same function in the same way.
    ordinal: int = 0

    @property
    def title(self) -> str:
        """Without the position, which moves with every edit."""
        return re.sub(r":\d+:\d+:", ":", self.name)

    @property
    def key(self) -> str:
        return hashlib.sha256("\n".join([self.title, str(self.ordinal), *self.changed]).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Tried:
    """A line of the file of verdicts."""

    key: str
    title: str
    verdict: Verdict
    # The test or the seed that noticed it.
    by: str
    # Of the processor.
    seconds: float
    commit: str
    # Of the tree, and of what the trial ran.
    state: str


def mutants_of(area: Area, tool: Path) -> dict[str, Mutant]:
    command = [str(tool), "mutants", "--list", "--json", "--diff", "--package", area.package]
    command += ["--exclude", EXCLUDED_FILES, "--exclude-re", EXCLUDED]
    for pattern in area.files:
        command += ["--file", pattern]
    listed = subprocess.run(command, cwd=TREE, check=True, capture_output=True, text=True)

    def position(of: dict[str, int]) -> Position:
        return of["line"], of["column"]

    found: dict[str, Mutant] = {}
    for entry in json.loads(listed.stdout):
        span, function = entry["span"], entry["function"]
        mutant = Mutant(
            area=area,
            name=entry["name"],
            file=entry["file"],
            begin=position(span["start"]),
            end=position(span["end"]),
            replacement=entry["replacement"],
            function=function and (position(function["span"]["start"]), position(function["span"]["end"])),
            changed=tuple(line for line in entry["diff"].splitlines()[2:] if line[:1] in "+-"),
        )
        while mutant.key in found:
            mutant = replace(mutant, ordinal=mutant.ordinal + 1)
        found[mutant.key] = mutant
    return found


def all_mutants(areas: Sequence[Area], tool: Path) -> list[Mutant]:
    listed: list[Mutant] = []
    seen: set[str] = set()
    for area in AREAS:
        found = mutants_of(area, tool)
        if area in areas:
            listed += [mutant for key, mutant in found.items() if key not in seen]
        seen |= found.keys()
    return listed


def draw(listed: Iterable[Mutant], areas: Sequence[Area], count: int, seed: int) -> list[Mutant]:
    """So many of each area, in turn. A mutant's place in the order is its own: others come and go with the code."""

    def place(mutant: Mutant) -> str:
        return hashlib.sha256(f"{seed} {mutant.key}".encode()).hexdigest()

    drawn = [sorted((m for m in listed if m.area == area), key=place)[:count] for area in areas]
    return [mutants[turn] for turn in range(count) for mutants in drawn if turn < len(mutants)]


def copy_tree() -> str:
    """The files that git knows, as they are now. Those that did not change keep their times, for cargo's sake."""
    known = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True)
    wanted = {name for name in known.stdout.split("\0") if name and (ROOT / name).is_file()}
    if TREE.exists():
        for path in TREE.rglob("*"):
            if path.is_file() and str(path.relative_to(TREE)) not in wanted:
                path.unlink()
    state = hashlib.sha256()
    for name in sorted(wanted):
        source, target = ROOT / name, TREE / name
        contents = source.read_bytes()
        if name.endswith((".rs", ".toml", ".lock")):
            state.update(name.encode() + b"\0" + contents)
        write_changed(target, contents)
        shutil.copymode(source, target)
    return state.hexdigest()[:16]


def write_changed(path: Path, contents: bytes) -> None:
    if not path.exists() or path.read_bytes() != contents:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(contents)


class Source:
    """A file of the tree, as it is without mutants."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.text = (ROOT / name).read_text()
        self.line_starts = [0]
        for line in self.text.splitlines(keepends=True):
            self.line_starts.append(self.line_starts[-1] + len(line))

    def offset(self, position: Position) -> int:
        line, column = position
        return self.line_starts[line - 1] + column - 1

    def mutated(self, mutant: Mutant, begin: int, end: int) -> str:
        """What stands between two offsets, around the mutant."""
        first, last = self.offset(mutant.begin), self.offset(mutant.end)
        return self.text[begin:first] + mutant.replacement + self.text[last:end]

    def body(self, mutant: Mutant) -> tuple[int, int] | None:
        """Where the braces of its function are."""
        if not mutant.function:
            return None
        begin, end = (self.offset(position) for position in mutant.function)
        begin = body_begin(self.text, begin)
        is_inside = begin < self.offset(mutant.begin) and self.offset(mutant.end) < end
        return (begin, end) if is_inside else None

    def takes_choices(self, mutant: Mutant) -> bool:
        """Not a constant function, nor one whose bodies would each have a type of their own."""
        body = self.body(mutant)
        if not body or not mutant.function:
            return False
        return not re.search(
            r"\bconst\b.*\bfn\b|->.*\bimpl\b", self.text[self.offset(mutant.function[0]) : body[0]], re.DOTALL
        )


def body_begin(text: str, at: int) -> int:
    """Where the function that starts there has its first brace outside of parentheses, attributes and comments."""
    depth = 0
    while text[at] != "{" or depth > 0:
        if text.startswith("//", at):
            at = text.index("\n", at)
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(text[at], 0)
        at += 1
    return at


@dataclass(frozen=True)
class Region:
    """Lines that a mutant has in a file of the copy."""

    file: str
    lines: range
    mutant: Mutant


class Batch:
    """Mutants of one package that are built together; but for those that do not build, or only alone."""

    def __init__(self, area: Area, mutants: Sequence[Mutant]) -> None:
        self.area = area
        self.mutants = list(mutants)
        self.numbers = {mutant: number for number, mutant in enumerate(mutants, 1)}
        self.not_viable: list[Mutant] = []
        self.alone: list[Mutant] = []
        self.regions: list[Region] = []

    def write(self) -> None:
        """Puts them into the copy."""
        copy_tree()
        self.regions = []
        for name in sorted({mutant.file for mutant in self.mutants}):
            source = Source(name)
            bodies: dict[tuple[int, int], list[Mutant]] = {}
            for mutant in [mutant for mutant in self.mutants if mutant.file == name]:
                body = source.body(mutant) if source.takes_choices(mutant) else None
                if body and all(body == other or body[1] <= other[0] or other[1] <= body[0] for other in bodies):
                    bodies.setdefault(body, []).append(mutant)
                else:
                    self.mutants.remove(mutant)
                    self.alone.append(mutant)
            write_changed(TREE / name, self.with_choices(source, bodies).encode())
        library = TREE / self.area.folder / "src" / "lib.rs"
        library.write_text(library.read_text() + CHOOSER)

    def with_choices(self, source: Source, bodies: dict[tuple[int, int], list[Mutant]]) -> str:
        text, at = "", 0
        for (begin, end), mutants in sorted(bodies.items()):
            text += source.text[at:begin] + "{ "
            for mutant in mutants:
                first_line = text.count("\n") + 1
                text += f"if crate::is_mutant({self.numbers[mutant]}) {source.mutated(mutant, begin, end)} else "
                self.regions.append(Region(source.name, range(first_line, text.count("\n") + 2), mutant))
            text += source.text[begin:end] + " }"
            at = end
        return text + source.text[at:]

    def build(self) -> "Programs":
        while True:
            self.write()
            programs, errors = build(self.area)
            if programs:
                return programs
            at_fault = {region.mutant for region in self.regions for file, line in errors if is_in(region, file, line)}
            if not at_fault:
                sys.exit(f"{self.area.package} does not build; see {LOG}")
            self.mutants = [mutant for mutant in self.mutants if mutant not in at_fault]
            self.not_viable += at_fault


def is_in(region: Region, file: str, line: int) -> bool:
    return region.file == file and line in region.lines


# Commands, the quickest to notice something first.
Programs = list[list[str]]


def build(area: Area) -> tuple[Programs, list[tuple[str, int]]]:
    """The programs to run, or where the errors are. The tests inside the crate come first."""
    programs: Programs = []
    command = cargo("test", "-p", area.package, "--tests", "--no-run", "--message-format=json")
    failed = run(command, TREE)
    messages = [json.loads(line) for line in LOG.read_text().splitlines() if line.startswith('{"reason":')]
    errors = [
        (span["file_name"], span["line_start"])
        for message in messages
        if message["reason"] == "compiler-message" and message["message"]["level"] == "error"
        for span in message["message"]["spans"]
        if span["is_primary"]
    ]
    if failed:
        return [], errors
    artifacts = [message for message in messages if message.get("executable")]
    artifacts.sort(key=lambda artifact: "lib" not in artifact["target"]["kind"])
    programs = [[artifact["executable"], "--test-threads=2"] for artifact in artifacts]
    if area.is_simulated:
        if run(cargo("build", "-q", "-p", "tombolo-engine", "--bin", "sim"), TREE):
            return [], []
        programs.append([str(TARGET / "debug" / "sim"), "--failures-max", "1"])
    return programs, []


def cargo(*arguments: str) -> list[str]:
    settings = [word for setting in PROFILE for word in ("--config", setting)]
    return ["cargo", arguments[0], "--locked", *settings, *arguments[1:]]


@dataclass(frozen=True)
class Patience:
    cpu_s: int
    clock_s: int


def run(command: Sequence[str], directory: Path, chosen: int = 0, patience: Patience | None = None) -> str | None:
    """What failed first; `None`: nothing. A test program is ended with its first failure."""
    name = Path(command[0]).name
    if patience:
        command = ["prlimit", f"--cpu={patience.cpu_s}", f"--as={MEMORY_BYTES_MAX}", "--core=0", *command]
    environment = os.environ | {
        "CARGO_TARGET_DIR": str(TARGET),
        "CARGO_TERM_COLOR": "never",
        "CARGO_MANIFEST_DIR": str(directory),
        CHOICE: str(chosen),
    }
    with (
        LOG.open("w") as log,
        subprocess.Popen(
            command,
            cwd=directory,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        ) as process,
    ):

        def end() -> None:
            os.killpg(process.pid, signal.SIGKILL)

        alarm = threading.Timer(patience.clock_s, end) if patience else None
        if alarm:
            alarm.start()
        failed = None
        for line in process.stdout or ():
            log.write(line)
            if found := re.match(r"test (.+) \.\.\. FAILED|(seed \d+) FAILED", line):
                failed = found[1] or found[2]
                end()
                break
        status = process.wait()
        if alarm:
            alarm.cancel()
    return failed or (f"{name} ended with {status}" if status else None)


def cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


class Trial:
    """Of programs that were built together."""

    def __init__(self, area: Area, programs: Programs, seeds: int) -> None:
        self.directory = TREE / area.folder
        self.programs = [
            [*program, "--seeds", str(seeds)] if is_simulation(program) else program for program in programs
        ]
        self.patience: dict[str, Patience] = {}

    def check_unchanged(self) -> None:
        """All must pass without a mutant; it also tells how long it takes."""
        for program in self.programs:
            began = cpu_s()
            if failed := run(program, self.directory):
                sys.exit(f"{program[0]} fails without a mutant: {failed}; see {LOG}")
            taken = cpu_s() - began
            print(f"{Path(program[0]).name}: {taken:.1f} s of the processor", flush=True)
            limit = max(PATIENCE_CPU_S_MIN, int(taken * PATIENCE_FACTOR) + 1)
            self.patience[program[0]] = Patience(limit, limit * PATIENCE_CLOCK)

    def judge(self, chosen: int) -> tuple[Verdict, str]:
        for program in self.programs:
            if failed := run(program, self.directory, chosen, self.patience[program[0]]):
                return (Verdict.SIMULATION if is_simulation(program) else Verdict.UNIT_TESTS), failed
        return Verdict.SURVIVED, ""


def is_simulation(program: Sequence[str]) -> bool:
    return Path(program[0]).name == "sim"


def trials(area: Area, mutants: Sequence[Mutant], seeds: int) -> Iterator[tuple[Mutant, Verdict, str, float]]:
    """Of one package, and how long each took."""
    batch = Batch(area, mutants)
    trial = Trial(area, batch.build(), seeds)
    for mutant in batch.not_viable:
        yield mutant, Verdict.NOT_VIABLE, "", 0.0
    trial.check_unchanged()
    for mutant in batch.mutants:
        began = cpu_s()
        verdict, by = trial.judge(batch.numbers[mutant])
        yield mutant, verdict, by, cpu_s() - began
    for mutant in batch.alone:
        began = cpu_s()
        copy_tree()
        source = Source(mutant.file)
        (TREE / mutant.file).write_text(source.mutated(mutant, 0, len(source.text)))
        programs, _ = build(area)
        verdict, by = trial.judge(0) if programs else (Verdict.NOT_VIABLE, "")
        yield mutant, verdict, by, cpu_s() - began
    copy_tree()


def kept_verdicts() -> dict[str, list[Tried]]:
    """By mutant, in the order of the trials."""
    kept: dict[str, list[Tried]] = {}
    for line in VERDICTS.read_text().splitlines() if VERDICTS.exists() else []:
        entry = json.loads(line)
        tried = Tried(**entry | {"verdict": Verdict(entry["verdict"])})
        kept.setdefault(tried.key, []).append(tried)
    return kept


def reasons() -> dict[str, str]:
    """Those that stand in the report."""
    if not REPORT.exists():
        return {}
    return dict(re.findall(r"^\* `(.+?)`: (.+)$", REPORT.read_text(), re.MULTILINE))


def notes() -> str:
    """What somebody wrote at the end of the report."""
    _, heading, rest = REPORT.read_text().partition(NOTES) if REPORT.exists() else ("", "", "")
    return f"\n{heading}{rest}" if heading else ""


def git_state() -> str:
    command = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def is_viable(tried: Tried) -> bool:
    return tried.verdict != Verdict.NOT_VIABLE


def survived(tried: Tried) -> bool:
    return tried.verdict == Verdict.SURVIVED


@dataclass(frozen=True)
class Row:
    """Of an area: its drawn mutants, each with all its trials."""

    name: str
    listed: int
    tried: Sequence[list[Tried]]
    reasons: dict[str, str]

    def __str__(self) -> str:
        last = [tried[-1] for tried in self.tried if is_viable(tried[-1])]
        survivors = [tried for tried in last if survived(tried)]
        before = sum(survived(tried[0]) for tried in self.tried)
        same = sum(self.reasons.get(tried.title, "").startswith(EQUIVALENT) for tried in survivors)
        cells = [
            self.name,
            self.listed,
            len(self.tried),
            len(last),
            share(len(last) - before, len(last)),
            *(sum(tried.verdict == verdict for tried in last) for verdict in (Verdict.UNIT_TESTS, Verdict.SIMULATION)),
            len(survivors),
            share(len(last) - len(survivors), len(last)),
            same,
            share(len(last) - len(survivors), len(last) - same),
        ]
        return f"| {' | '.join(map(str, cells))} |"


def share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "-"


COLUMNS = (
    "area",
    "mutants",
    "tried",
    "viable",
    "noticed at first",
    "unit tests",
    "simulation",
    "survived",
    "noticed",
    "equivalent",
    "without them",
)
HEAD = """# Mutants

`make mutants MUTANTS={count} MUTANTS_SEED={seed} MUTANTS_ARGUMENTS='--seeds {seeds}'`: small defects, so many of each
area, drawn from all that cargo-mutants knows to make, and tried one at a time with the unit tests of their crate and
then, where the fault simulation runs the code, with its seeds 0 to {last_seed}. A mutant that hangs is noticed. First
tried on {first}, last on {last}; {seconds:.0f} s of the processor a mutant, beside the build that all share.

"At first" is before tests were written because of survivors. An equivalent mutant does the same as the code, so that no
test can tell them apart; the last column leaves them out.

"""


def report(
    sample: Sequence[Mutant], kept: dict[str, list[Tried]], totals: dict[str, int], seed: int, seeds: int
) -> str:
    known = reasons()
    done = [mutant for mutant in sample if mutant.key in kept]
    tried = [kept[mutant.key] for mutant in done]
    head = HEAD.format(
        count=max(sum(mutant.area.name == name for mutant in sample) for name in totals),
        seed=seed,
        seeds=seeds,
        last_seed=seeds - 1,
        first=", ".join(sorted({f"`{of_one[0].commit}`" for of_one in tried})),
        last=", ".join(sorted({f"`{of_one[-1].commit}`" for of_one in tried})),
        seconds=sum(once.seconds for of_one in tried for once in of_one) / sum(map(len, tried)),
    )
    lines = [f"| {' | '.join(COLUMNS)} |", "|---" * len(COLUMNS) + "|"]
    for area in totals:
        of_area = [kept[mutant.key] for mutant in done if mutant.area.name == area]
        lines.append(str(Row(area, totals[area], of_area, known)))
    lines.append(str(Row("all", sum(totals.values()), tried, known)))
    survivors = sorted({of_one[-1].title for of_one in tried if survived(of_one[-1])})
    lines += ["", "## Survivors", ""]
    lines += [f"* `{title}`: {known.get(title, NO_REASON)}" for title in survivors] or ["None."]
    noticed = [of_one for of_one in tried if survived(of_one[0]) and not survived(of_one[-1])]
    if noticed:
        lines += ["", "## Survivors at first that are noticed now", ""]
        lines += sorted(f"* `{of_one[-1].title}`, by `{of_one[-1].by}`" for of_one in noticed)
    return head + "\n".join(lines) + "\n" + notes()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=25, help="mutants to try of each area (25)")
    parser.add_argument("--seed", type=int, help="draws the sample; printed (random)")
    parser.add_argument("--seeds", type=int, default=200, help="of the simulation, for each mutant (200)")
    parser.add_argument("--area", choices=[area.name for area in AREAS], action="append", help="(all)")
    parser.add_argument(
        "--survivors",
        action="store_true",
        help="try only those again that survived: for when only tests were added, so that the other verdicts stand",
    )
    arguments = parser.parse_args()
    seed = random.SystemRandom().randrange(1_000_000) if arguments.seed is None else arguments.seed
    print(f"sample drawn with --seed {seed}", flush=True)
    WORK.mkdir(parents=True, exist_ok=True)
    state, commit = f"{copy_tree()} {arguments.seeds}", git_state()
    areas = [area for area in AREAS if not arguments.area or area.name in arguments.area]
    listed = all_mutants(areas, ROOT / "build" / "bin" / "cargo-mutants")
    totals = {area.name: sum(mutant.area == area for mutant in listed) for area in areas}
    sample = draw(listed, areas, arguments.count, seed)
    kept = kept_verdicts()

    def stands(tried: Tried) -> bool:
        return tried.state == state or (arguments.survivors and not survived(tried))

    to_try = [mutant for mutant in sample if mutant.key not in kept or not stands(kept[mutant.key][-1])]
    number = 0
    for package in dict.fromkeys(mutant.area.package for mutant in to_try):
        mutants = [mutant for mutant in to_try if mutant.area.package == package]
        for mutant, verdict, by, seconds in trials(mutants[0].area, mutants, arguments.seeds):
            number += 1
            tried = Tried(mutant.key, mutant.title, verdict, by, round(seconds, 1), commit, state)
            kept.setdefault(mutant.key, []).append(tried)
            with VERDICTS.open("a") as verdicts:
                verdicts.write(json.dumps(asdict(tried)) + "\n")
            print(f"{number}/{len(to_try)} {tried.seconds} s {verdict} {by}: {mutant.name}", flush=True)
            REPORT.write_text(report(sample, kept, totals, seed, arguments.seeds))
    REPORT.write_text(report(sample, kept, totals, seed, arguments.seeds))


if __name__ == "__main__":
    main()
