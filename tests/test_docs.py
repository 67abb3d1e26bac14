"""The documents keep to what there is."""

import re

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
