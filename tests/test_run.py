"""`make run`: what it prints can be typed as it stands, and what it waits for in vain it names."""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from harness.guest import ADDRESS, Guest
from harness.tools import REPOSITORY, ToolFailed, run, tombolo_binary

START_LIMIT_S = 200.0
COMMAND_LIMIT_S = 200.0
BARE_PATH = "/usr/local/bin:/usr/bin:/bin"
"""A plain `su` to root keeps the search path of the user, without the folders of servers."""
OF_THE_KERNEL = "With Linux's"


class Trial:
    """What `make run` starts, in a folder of its own."""

    def __init__(self, folder: Path, namespace: str | None = None, **environment: str) -> None:
        self.folder = folder / "run"
        self._environment = {
            "RUN_FOLDER": str(self.folder),
            "TOMBOLO_BINARY": str(tombolo_binary()),
            "PATH": BARE_PATH,
            **environment,
        }
        self._network = ["ip", "netns", "exec", namespace] if namespace else []

    def start(self) -> None:
        self._run("--detach")

    def stop(self) -> None:
        self._run("--stop")

    def _run(self, option: str) -> None:
        script = REPOSITORY / "scripts/run.sh"
        run(
            ["env", f"PATH={BARE_PATH}:/usr/sbin", *self._network, script, option],
            START_LIMIT_S,
            (0,),
            self._environment,
        )

    def commands(self) -> dict[str, list[str]]:
        """The printed commands below each heading."""
        found: dict[str, list[str]] = {}
        heading = ""
        for line in (self.folder / "commands.txt").read_text().splitlines():
            if line and not line.startswith(" "):
                heading = line
            elif line:
                found.setdefault(heading, []).append(line.strip())
        return {heading: lines for heading, lines in found.items() if not heading.startswith("Tombolo serves")}


@pytest.fixture
def make_trial(folder: Path, closing: ExitStack) -> Callable[..., Trial]:
    def make(namespace: str | None = None, **environment: str) -> Trial:
        trial = Trial(folder, namespace, **environment)
        closing.callback(trial.stop)
        return trial

    return make


@pytest.mark.timeout(900)
@pytest.mark.parametrize("store", ["dir", "s3"])
def test_printed_commands_work(make_trial: Callable[..., Trial], store: str) -> None:
    trial = make_trial(STORE=store)
    trial.start()
    said: list[str] = []
    for heading, commands in trial.commands().items():
        if not heading.startswith(OF_THE_KERNEL):
            said += [run(["bash", "-c", command], COMMAND_LIMIT_S).stdout for command in commands]
    everything = "\n".join(said)
    for expected in ("lun0", "export-size: 10737418240", "Images are identical.", "the store has everything"):
        assert expected in everything
    # Over NFS and over SMB.
    assert all("copyright" in listing for listing in said[-2:]), said[-2:]


@pytest.mark.conformance
@pytest.mark.timeout(900)
def test_printed_commands_for_linux_clients_work(make_trial: Callable[..., Trial], guest: Guest) -> None:
    trial = make_trial(guest.namespace, ADDRESS=ADDRESS)
    trial.start()
    commands = [command for heading, below in trial.commands().items() if OF_THE_KERNEL in heading for command in below]
    (trial.folder / "share/hello").write_text("hello")
    guest.start("commands.sh", *commands)
    guest.wait_clean(300)
    assert len(commands) == 3


def test_wait_in_vain_names_the_log_and_its_last_line(folder: Path, make_trial: Callable[..., Trial]) -> None:
    broken = folder / "broken"
    broken.write_text("#!/bin/sh\necho looking around\necho there is no disk >&2\nexit 1\n")
    broken.chmod(0o755)
    trial = make_trial(TOMBOLO_BINARY=str(broken))
    with pytest.raises(ToolFailed, match=rf"no gateway.*{trial.folder}/tombolo.log ends with: there is no disk"):
        trial.start()
