"""The comparison with peers: what fails or hangs costs its own figures and nobody's time; what is worse is shown."""

import signal
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from bench.peers import READ, SECOND, UNITS, WRITE, Contest, better, one_round, section
from bench.report import Section, table
from bench.rotation import rotate
from bench.rounds import Comparison
from bench.systems import Place, Rclone, Tombolo
from harness.mount import mounted_type
from harness.object_store import S3Server
from harness.process import ProcessFailed

MIB = 1 << 20


class Broken(Rclone):
    """Needs no program."""

    def mount(self) -> None:
        raise ProcessFailed("does not mount\nand says more")

    @classmethod
    def version(cls) -> str:
        return "broken 1"


def test_rows_in_which_a_peer_is_better_are_gathered_by_what_is_better_in_them() -> None:
    rows = [Comparison(WRITE, "MiB/s", [2.0], [1.0]), Comparison(READ, "MiB/s", [1.0], [2.0])]
    rows += [Comparison(SECOND, "KiB", [1.0], [64.0])]
    gathered = better([Section("20 ms, beside X", ("ours", "X"), rows)])
    assert [row.name for row in gathered.comparisons] == [f"20 ms, beside X: {READ}"]
    rows[2].ours[0] = 65.0
    assert len(better([Section("x", ("ours", "X"), rows)]).comparisons) == 2


def test_a_peer_that_fails_loses_its_figures_only(s3: S3Server, folder: Path) -> None:
    contest = Contest(s3, s3.endpoint, folder, MIB)
    ours = {WRITE: 1.0, READ: 1.0, SECOND: 1.0}
    measured = rotate({Tombolo.name: lambda: ours, Broken.name: contest.contender(Broken)}, 2, lambda: None)
    shown = section("0 ms", Broken, measured, contest.failures)
    assert shown.comparisons == []
    assert "does not mount" in shown.remark and "says more" not in shown.remark
    assert shown.remark in table(shown)
    assert [path.name for path in folder.iterdir() if path.name.startswith("peers-")] == []


def test_a_system_that_hangs_is_given_up_and_ended(s3: S3Server, folder: Path) -> None:
    s3.create_bucket("hangs")
    system = Tombolo(Place(folder / "hangs", s3, s3.endpoint, "hangs", 64 * MIB))
    try:
        system.prepare()
        system.mount()
        system.gateway.process.signal(signal.SIGSTOP)
        begun = time.monotonic()
        with pytest.raises(ProcessFailed, match="did not end within"):
            system.act(["ls", system.folder], 1.0)
    finally:
        system.close()
    assert time.monotonic() - begun < 30
    assert mounted_type(system.folder) is None
    assert not any(child.running for child in system.children)


def test_a_round_of_ours_gives_all_figures(s3: S3Server, folder: Path) -> None:
    s3.create_bucket("round")
    place = Place(folder / "round", s3, s3.endpoint, "round", 16 * MIB)
    with ExitStack() as stack:
        figures = one_round(Tombolo, place, 8 * MIB, stack)
    assert figures.keys() == UNITS.keys()
    assert figures[WRITE] > 0 and figures[READ] > 0
    assert figures[SECOND] < 1024, "a second copy of 8 MiB is known already"
