"""Fixtures shared by the tests."""

import signal
from pathlib import Path

import pytest
from typer.testing import CliRunner

from samples import made_up


def pytest_configure() -> None:
    """A shell that runs the tests in the background has them ignore it, and what they start and interrupt would too."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_up(tmp_path_factory.mktemp("traces") / "made-up.blocks.txt")


@pytest.fixture
def runner() -> CliRunner:
    return CliRunner()
