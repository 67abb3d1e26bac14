"""Fixtures shared by the tests."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from samples import made_up


@pytest.fixture(scope="session")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_up(tmp_path_factory.mktemp("traces") / "made-up.blocks.txt")


@pytest.fixture
def runner() -> CliRunner:
    return CliRunner()
