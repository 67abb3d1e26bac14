"""The documents keep to what there is."""

import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from harness import documents
from harness.smbtorture import baseline
from harness.tools import REPOSITORY, run, tombolo_binary

README_WORDS_MAX = 900
DOCS = REPOSITORY / "docs"
SIMULATOR = DOCS / "SIMULATOR.md"
# For whoever runs a gateway: a key's name without its section is a setting here.
FOR_OPERATORS = ("README.md", "docs/ARCHITECTURE.md", "docs/OPERATIONS.md", "docs/SEMANTICS.md", "deploy/README.md")
TEXTS = {".c", ".conf", ".h", ".json", ".md", ".py", ".rs", ".service", ".sh", ".toml", ".yml"}


@cache
def texts() -> dict[Path, str]:
    """Every source and document."""
    kept = (path for path in documents.sources(REPOSITORY) if path.suffix in TEXTS or path.name == "Makefile")
    return {path: path.read_text() for path in kept}


def markdown() -> dict[Path, str]:
    return {path: text for path, text in texts().items() if path.suffix == ".md"}


def documents_and_deploy() -> dict[Path, str]:
    return {path: text for path, text in texts().items() if path.suffix == ".md" or "deploy" in path.parts}


def found(faults: Mapping[Path, Sequence[object]]) -> list[str]:
    return [f"{path.relative_to(REPOSITORY)}: {fault}" for path, those in faults.items() for fault in those]


@cache
def settings() -> documents.Settings:
    return documents.settings_in((DOCS / "CONFIGURATION.md").read_text())


@cache
def metrics() -> set[str]:
    return set(run([tombolo_binary(), "metrics", "--names"]).stdout.split())


@cache
def asked_for_help(*words: str) -> tuple[int, str]:
    done = run([tombolo_binary(), *words, "--help"], expected_codes=(0, 2))
    return done.returncode, done.stdout or done.stderr


def ask_help(words: documents.Words) -> tuple[int, str]:
    return asked_for_help(*words)


def test_every_promise_names_tests_that_exist() -> None:
    text = (DOCS / "SEMANTICS.md").read_text()
    sources = "".join(path.read_text() for path in (REPOSITORY / "tests").glob("test_*.py"))
    named = set(re.findall(r"\btest_[a-z0-9_]+(?!\w|\.py)", text))
    missing = sorted(name for name in named if f"def {name}(" not in sources)
    assert named and not missing


def test_links_lead_somewhere() -> None:
    assert not found({path: documents.broken_links(path) for path in markdown()})


def test_linked_functions_are_where_links_lead() -> None:
    linked = documents.missing_functions(REPOSITORY / "docs" / "ARCHITECTURE.md")
    assert linked == []


def test_named_files_exist() -> None:
    assert not found(
        {path: documents.missing_paths(text, REPOSITORY, path.parent) for path, text in markdown().items()}
    )
    assert not found(
        {path: documents.missing_documents(text, REPOSITORY, path.parent) for path, text in texts().items()}
    )


def test_crates_are_drawn_as_they_are() -> None:
    command = ["cargo", "metadata", "--no-deps", "--locked", "--offline", "--format-version", "1"]
    real = documents.real_arrows(json.loads(run(command, cwd=REPOSITORY).stdout))
    drawn = documents.drawn_arrows((DOCS / "ARCHITECTURE.md").read_text())
    assert not documents.arrow_faults(drawn, real)


def test_named_metrics_exist() -> None:
    assert not found(
        {path: documents.unknown_metrics(text, metrics()) for path, text in documents_and_deploy().items()}
    )


def test_named_settings_exist() -> None:
    faults = {path: documents.unknown_settings(text, settings()) for path, text in documents_and_deploy().items()}
    assert not found(faults)
    operators = {path: path.read_text() for path in (REPOSITORY / name for name in FOR_OPERATORS)}
    assert not found({path: documents.unknown_keys(text, settings(), metrics()) for path, text in operators.items()})


def test_command_lines_are_taken() -> None:
    assert not found({path: documents.command_faults(text, ask_help) for path, text in documents_and_deploy().items()})


def test_exit_codes_exist() -> None:
    codes = documents.exit_codes_of_help(ask_help([])[1])
    simulator = (REPOSITORY / "simulator/python/tombolo_sim/cli/__init__.py").read_text()
    codes_of_simulator = {0, *map(int, re.findall(r"^EXIT_\w+ = (\d+)$", simulator, re.MULTILINE))}
    faults = {
        path: documents.unknown_exit_codes(text, codes_of_simulator if path == SIMULATOR else codes)
        for path, text in documents_and_deploy().items()
    }
    assert not found(faults)


def test_decisions_are_numbered_dated_and_listed() -> None:
    assert not documents.decision_faults(DOCS / "decisions")


def test_readme_stays_short() -> None:
    assert len((REPOSITORY / "README.md").read_text().split()) < README_WORDS_MAX


def test_smbtorture_is_compared_as_it_was_measured_and_each_difference_explained() -> None:
    text = (REPOSITORY / "docs/results/smbtorture.md").read_text()
    rows = re.findall(r"^\| `(smb2\.\S+)` \| (\d+) \| (\d+) \| (\d+) \| (.*) \|$", text, re.MULTILINE)
    listed = {suite: (int(best), int(coherent), int(durable)) for suite, best, coherent, durable, _ in rows}
    best, coherent, durable = (baseline(kind) for kind in ("permissive", "coherent", "durable"))
    assert listed == {suite: (best[suite].passed, coherent[suite].passed, durable[suite].passed) for suite in best}, (
        "the table has other figures than tests/suites"
    )
    fewer = {suite for suite, (most, *ours) in listed.items() if min(ours) < most}
    assert fewer == {suite for suite, *_, why in rows if why.strip()}, "a reason where there are fewer, and only there"
