"""The guest itself, through which other tests look at real kernels."""

from pathlib import Path

import pytest

from harness.guest import SCRIPTS, WIDE_REGISTERS, Guest
from harness.tools import run


@pytest.mark.conformance
@pytest.mark.timeout(600)
def test_guest_runs_on_a_processor_with_wider_registers_than_it_knows(guest: Guest, folder: Path) -> None:
    host = folder / "amx_host.so"
    run(["cc", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", host, SCRIPTS / "amx_host.c"])
    guest.start("registers.sh", preload=str(host))
    assert guest.process.wait(200) != 0, "the pretended host has no effect"
    guest.start("registers.sh", preload=f"{WIDE_REGISTERS}:{host}")
    guest.wait_clean(300)
