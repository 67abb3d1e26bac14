"""Child processes with a log file, a readiness wait and a bounded end."""

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from harness.launching import launching

END_WAIT_S = 30.0


class ProcessFailed(Exception):
    """A process ended or stayed silent where it should not; the message carries the end of its log."""


def descendants(pid: int) -> list[int]:
    """The ids of all processes below one."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(folder.name))
    found: list[int] = []
    waiting = [pid]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


class Process:
    """One child process. Its output goes to `log_path`, appended over restarts."""

    def __init__(self, name: str, log_path: Path) -> None:
        self.name = name
        self.log_path = log_path
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        if self._child is None:
            raise ProcessFailed(f"{self.name} was never started")
        return self._child.pid

    @property
    def running(self) -> bool:
        return self._child is not None and self._child.poll() is None

    def start(self, command: Sequence[str | Path], environment: Mapping[str, str] | None = None) -> None:
        """Starts the command. The kernel ends it should the test process die first."""
        if self.running:
            raise ProcessFailed(f"{self.name} is running already")
        words = ["setpriv", "--pdeathsig", "KILL", *map(str, command)]
        everything = {**os.environ, **(environment or {})}

        def launch() -> subprocess.Popen[bytes]:
            with self.log_path.open("ab") as log:
                return subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=everything)

        self._child = launching(launch)

    def wait_until(self, ready: Callable[[], bool], limit_s: float, what: str) -> None:
        """Polls `ready`; fails at once when the process ends."""
        deadline = time.monotonic() + limit_s
        while not ready():
            if not self.running:
                raise ProcessFailed(f"{self.name} ended with {self.exit_code} before {what}\n{self.log_tail()}")
            if time.monotonic() > deadline:
                raise ProcessFailed(f"{self.name}: no {what} within {limit_s} s\n{self.log_tail()}")
            time.sleep(0.02)

    @property
    def exit_code(self) -> int | None:
        return None if self._child is None else self._child.poll()

    def wait(self, limit_s: float = END_WAIT_S) -> int:
        if self._child is None:
            raise ProcessFailed(f"{self.name} was never started")
        try:
            return self._child.wait(limit_s)
        except subprocess.TimeoutExpired:
            raise ProcessFailed(f"{self.name} did not end within {limit_s} s\n{self.log_tail()}") from None

    def stop(self, limit_s: float = END_WAIT_S) -> int:
        """SIGTERM, and the exit code. A process that ignores it is killed and reported."""
        if self._child is None:
            return 0
        self.signal(signal.SIGTERM)
        try:
            return self.wait(limit_s)
        except ProcessFailed:
            self.kill9()
            raise

    def kill9(self) -> None:
        self.signal(signal.SIGKILL)
        if self._child is not None:
            self._child.wait(END_WAIT_S)

    def kill9_family(self) -> None:
        """Kills the process and all that descend from it, as they are now."""
        family = descendants(self.pid) if self.running else []
        self.kill9()
        for pid in family:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def signal(self, number: signal.Signals) -> None:
        if self._child is not None and self._child.poll() is None:
            self._child.send_signal(number)

    def resident_bytes(self, peak: bool = False) -> int:
        """Resident memory now, or its highest value so far."""
        field = "VmHWM:" if peak else "VmRSS:"
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(field):
                return int(line.split()[1]) * 1024
        raise ProcessFailed(f"{self.name}: /proc shows no {field}")

    def processor_seconds(self) -> float:
        """What all of its threads have used so far."""
        after_name = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(after_name[11]) + int(after_name[12])) / os.sysconf("SC_CLK_TCK")

    def anonymous_bytes(self) -> int:
        """Resident memory that is no file's: what the process itself holds."""
        found = re.search(r"^RssAnon:\s+(\d+) kB$", Path(f"/proc/{self.pid}/status").read_text(), re.MULTILINE)
        if found is None:
            raise ProcessFailed(f"{self.name}: /proc shows no RssAnon")
        return int(found[1]) * 1024

    def cpu_s(self) -> float:
        """User and system time used so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def log_tail(self, lines: int = 40) -> str:
        if not self.log_path.exists():
            return ""
        text = self.log_path.read_text(errors="replace").splitlines()
        return "\n".join(text[-lines:])
