"""A guest in user-mode Linux with a network of its own: real kernel clients of NFS, SMB and iSCSI.

Servers for it listen on `ADDRESS` in the guest's network namespace. The guest sees this machine's files and reports
with lines that begin with GUEST.
"""

import os
from contextlib import ExitStack
from pathlib import Path

from harness.process import Process
from harness.tools import REPOSITORY, run

UML_RUN = REPOSITORY / "scripts/uml-run.sh"
SCRIPTS = REPOSITORY / "tests/guest"
ADDRESS = "10.99.0.1"
WIDE_REGISTERS = REPOSITORY / "build/uml/wide_registers.so"
"""Lets it run on processors newer than it knows; made when the first guest starts."""


def make_network(closing: ExitStack) -> str:
    """A network namespace for one guest and its servers; taken away with `closing`."""
    name = f"tombolo-{os.getpid()}"
    run([UML_RUN, "network", name])
    closing.callback(run, [UML_RUN, "remove", name])
    return name


class Guest:
    def __init__(self, folder: Path, namespace: str) -> None:
        self.process = Process("guest", folder / "guest.log")
        self.namespace = namespace

    def start(self, script: str, *words: object, limit_s: int = 600, preload: str = "") -> None:
        """Boots and runs a script of tests/guest; `preload` replaces what is preloaded as a rule."""
        command = [str(UML_RUN), "run", self.namespace, str(SCRIPTS / script), *map(str, words)]
        self.process.start(command, {"GUEST_LIMIT_S": str(limit_s), "GUEST_PRELOAD": preload})

    def said(self, line: str) -> bool:
        return f"GUEST {line}" in self.process.log_path.read_text(errors="replace")

    def wait_to_say(self, line: str, limit_s: float) -> None:
        self.process.wait_until(lambda: self.said(line), limit_s, f"line {line!r} of the guest")

    def wait_clean(self, limit_s: float) -> None:
        """The script has come to its end and found no fault."""
        code = self.process.wait(limit_s)
        if code != 0 or not self.said("clean"):
            raise AssertionError(f"the guest ended with {code}\n{self.process.log_tail()}")

    def close(self) -> None:
        self.process.kill9_family()
