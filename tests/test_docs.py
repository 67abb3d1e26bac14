"""The documents keep to what there is."""

import re

from harness.smbtorture import baseline
from harness.tools import REPOSITORY

README_WORDS_MAX = 900


def test_every_promise_names_tests_that_exist() -> None:
    text = (REPOSITORY / "docs/SEMANTICS.md").read_text()
    sources = "".join(path.read_text() for path in (REPOSITORY / "tests").glob("test_*.py"))
    named = set(re.findall(r"\btest_[a-z0-9_]+(?!\w|\.py)", text))
    missing = sorted(name for name in named if f"def {name}(" not in sources)
    assert named and not missing


def test_links_lead_somewhere() -> None:
    documents = [REPOSITORY / "README.md", *(REPOSITORY / "docs").glob("**/*.md")]
    broken = [
        f"{document.name}: {target}"
        for document in documents
        for target in re.findall(r"\]\(([^)#]+)\)", document.read_text())
        if not target.startswith("http") and not (document.parent / target).exists()
    ]
    assert not broken


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
