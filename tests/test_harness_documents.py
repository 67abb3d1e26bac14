"""The checks of documents, shown faults that they must find and texts in which there are none."""

from pathlib import Path

import pytest

from harness import documents
from test_docs import ask_help, settings

DRAWING = """# Architecture

## Crates

```
base    ->
core    -> base, cache
cache   -> base
gateway -> base, cache,
           core
```
"""


def package(name: str, *uses: tuple[str, str | None]) -> dict[str, object]:
    used = [{"name": f"tombolo-{name}", "kind": kind} for name, kind in uses]
    return {"name": f"tombolo-{name}", "manifest_path": f"/source/{name}/Cargo.toml", "dependencies": used}


WORKSPACE = {
    "workspace_root": "/source",
    "packages": [
        package("base"),
        package("cache", ("base", None), ("elsewhere", None)),
        package("core", ("base", None), ("cache", None), ("gateway", "dev")),
        package("gateway", ("base", None), ("cache", None), ("core", None)),
    ],
}


def arrow_faults(drawing: str) -> list[str]:
    return documents.arrow_faults(documents.drawn_arrows(drawing), documents.real_arrows(WORKSPACE))


def test_drawing_that_is_true_is_believed() -> None:
    assert arrow_faults(DRAWING) == []


@pytest.mark.parametrize(
    ("false", "fault"),
    [
        (DRAWING.replace("core    -> base, cache", "core    -> base"), "core -> cache: not drawn"),
        (DRAWING.replace("base    ->", "base    -> cache"), "base -> cache: not in its manifest"),
        (DRAWING.replace("           core\n", "           core, disk\n"), "gateway -> disk: not in its manifest"),
        (DRAWING.replace("cache   -> base\n", ""), "cache: not in the drawing"),
        (DRAWING.replace("base    ->", "base    ->\ndisk    ->"), "disk: not in the workspace"),
    ],
)
def test_false_arrows_are_found(false: str, fault: str) -> None:
    assert arrow_faults(false) == [fault]


def test_false_metrics_are_found() -> None:
    text = """`tombolo_dirty_bytes` and `tombolo_store_failures_total{kind="x"}`, `_max`; rate(tombolo_dirty_byte[5m]).
    No metrics: `tombolo_sim/models.py`, `tombolo_sim.stores`, `tombolo_engine::Job`, `x/tombolo_sim`,
    tombolo_prefetch_*.

    Counters end in `_total`."""
    unknown = ["_max", "tombolo_dirty_byte", "tombolo_store_failures_total"]
    assert documents.unknown_metrics(text, {"tombolo_dirty_bytes"}) == unknown


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("`[cache] sise`", "[cache] sise"),
        ("`[cache]` `sise`", "[cache] sise"),
        ("`[cach] size`", "[cach] size"),
        ("After [files] session_grace_s its locks", "[files] session_grace_s"),
        ("`flush.dirty_bytes`", "[flush] dirty_bytes"),
        ('```toml\nstate_folder = "/x"\n```', "[] state_folder"),
        ("```toml\n[cache]\nsequential_flor = true\n```", "[cache] sequential_flor"),
        ("`tombolo policy set replacement=arc treshold=3`", "[prefetch] treshold"),
    ],
)
def test_false_settings_are_found(text: str, fault: str) -> None:
    assert documents.unknown_settings(text, settings()) == [fault]


def test_settings_that_exist_are_believed() -> None:
    text = """`[cache] size`, [files] session_grace_ms, `flush.dirty_bytes_max`, `store.rs`, [link](to) some_where.
```toml
state_directory = "/x"
[store]
url = "dir:/y"
```
`tombolo policy set replacement=arc combination=lru_amp`
"""
    assert documents.unknown_settings(text, settings()) == []


def test_false_keys_without_a_section_are_found() -> None:
    text = "`stall_timeout_ms`, `stall_time_ms`, `retries_max`, `tombolo_dirty_bytes`, `no_std`"
    assert documents.unknown_keys(text, settings(), {"tombolo_dirty_bytes"}) == ["retries_max", "stall_time_ms"]


def block(line: str) -> str:
    return f"Do this:\n\n```\n{line}\n```\n"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (block("tombolo volume creat disk1 --size 10GiB"), "unrecognized subcommand 'creat'"),
        (block("tombolo volume create disk1 --sise 10GiB"), "unexpected argument '--sise'"),
        (block("tombolo volume create disk1 --size 10GB"), "invalid value '10GB'"),
        (block("tombolo export iscsi disk1 --write /etc/disk1.conf"), "unexpected argument '/etc/disk1.conf'"),
        (block("make build && tombolo volume create disk1   # no size"), "--size is missing"),
        (block("tombolo share quota docs --json"), "<SIZE|none> is missing"),
        (block("tombolo volume"), "a subcommand is missing"),
        ("So `tombolo\n  drian --wait` it is.", "unrecognized subcommand 'drian'"),
        ("[Service]\nExecStart=/usr/bin/tombolo serve --confg x\n", "unexpected argument '--confg'"),
    ],
)
def test_false_command_lines_are_found(text: str, reason: str) -> None:
    (fault,) = documents.command_faults(text, ask_help)
    assert reason in fault


def test_command_lines_that_are_taken_are_believed() -> None:
    text = """`tombolo share create`, `tombolo settings --markdown`, "tombolo does so", `tombolod x`
```
tombolo --socket /x volume create disk1 --size=10GiB && tombolo drain --wait --timeout-s 5   # tombolo x
+--- tombolo of another kind
```
"""
    assert documents.command_faults(text, ask_help) == []
    assert len(list(documents.command_lines(text))) == 4


def test_false_exit_codes_are_found() -> None:
    known = documents.exit_codes_of_help(ask_help([])[1])
    assert known == set(range(8))
    text = "It exits with 7, else with exit code 9; exit status 3. Exited 12 times. Exits with code 8."
    assert documents.unknown_exit_codes(text, known) == [8, 9, 12]


def test_functions_that_are_elsewhere_are_found(folder: Path) -> None:
    (folder / "a.rs").write_text("    pub(crate) fn there<T>(&self) {\n        gone();\n")
    (folder / "b.c").write_text("static int *there(void)\n{\n\tgone();\n}\n")
    document = folder / "a.md"
    document.write_text("[`there`](a.rs) [`gone`](a.rs) [`there`](b.c) [`gone`](b.c) [`gone`](a.md) [text](a.rs)")
    assert documents.missing_functions(document) == ["gone in a.rs", "gone in b.c"]


def test_broken_links_are_found(folder: Path) -> None:
    (folder / "other.md").write_text("# The `tombolo` *daemon*, and more\n## Twice\n## Twice\n```\n# no heading\n```\n")
    document = folder / "document.md"
    good = (
        "[a](other.md) [b](other.md#the-tombolo-daemon-and-more) [c](other.md#twice-1) [d](#here) [e](https://x.org/y)"
    )
    bad = "[f](othr.md) [g](other.md#the-daemon) [h](other.md#twice-2) [i](#there) [j](other.md#no-heading)"
    document.write_text(f"# Here\n{good} {bad}\n")
    assert documents.broken_links(document) == [
        "othr.md",
        "other.md#the-daemon",
        "other.md#twice-2",
        "#there",
        "other.md#no-heading",
    ]


def test_missing_files_are_found(folder: Path) -> None:
    (folder / "core/src").mkdir(parents=True)
    (folder / "core/src/read.rs").touch()
    (folder / "docs/decisions").mkdir(parents=True)
    (folder / "docs/decisions" / "0001-s3.md").touch()
    text = """`core/src/read.rs`, `core/src`, `core/src/read.rs:12`, `core/src/read.rs::test`, `core/{a,b}`, `NBD/x`;
    `core/src/raed.rs`, `core/src/write.rs:3`"""
    assert documents.missing_paths(text, folder, folder) == ["core/src/raed.rs", "core/src/write.rs"]
    named = [f"{docs}/{name}.md" for docs in ("decisions", "docs/decisions") for name in ("0001-s3", "s3")]
    assert documents.missing_documents(" ".join(named), folder, folder) == [named[1], named[3]]


def record(number: int, date: str = "2026-11-22", status: str = "accepted") -> str:
    return f"# {number}. What\n\n* Date: {date}\n* Status: {status}\n"


def test_decisions_out_of_order_are_found(folder: Path) -> None:
    index = "| record | decision |\n|---|---|\n| [0001](0001-a.md) | a |\n| [0002](0002-b.md) | b |\n"
    (folder / "README.md").write_text(index)
    (folder / "template.md").write_text("# N.")
    (folder / "0001-a.md").write_text(record(1, status="superseded by [0002](0002-b.md)"))
    (folder / "0002-b.md").write_text(record(2))
    assert documents.decision_faults(folder) == []
    for wrong in (record(3), record(2, date="soon"), record(2, status="good"), "# 2. What\n"):
        (folder / "0002-b.md").write_text(wrong)
        assert documents.decision_faults(folder) == ["0002-b.md: wants number 2, a date and a status"]
    (folder / "0002-b.md").rename(folder / "0003-b.md")
    assert documents.decision_faults(folder) == [
        "README.md does not list the records in order",
        "0003-b.md: wants number 2, a date and a status",
    ]
