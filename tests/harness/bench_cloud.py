"""`tombolo bench cloud` with this process as the one that mounts: its commands ask by a file, and wait for another."""

import json
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.process import Process
from harness.tools import tombolo_binary

POLL_S = 0.05


class BenchCloud:
    def __init__(self, folder: Path, binary: Path | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._binary = binary or tombolo_binary()
        self._output = folder / "bench.json"
        self.process = Process("bench cloud", folder / "bench.log")

    def run(
        self,
        listen: str,
        store: str,
        mounted: Path,
        actions: Mapping[str, Callable[[], None]],
        words: Sequence[str | Path],
        limit_s: float,
    ) -> dict[str, Any]:
        """The report. `actions` are what its `--start` and `--remount` do."""
        said: list[str | Path] = [self._binary, "bench", "cloud", "--json", "--listen", listen, "--store", store]
        said += ["--folder", mounted, *words]
        for name in actions:
            asked, done = self._files(name)
            wait = f"touch {shlex.quote(str(asked))}; while [ ! -e {shlex.quote(str(done))} ]; do sleep 0.05; done"
            said += [f"--{name}", f"{wait}; rm {shlex.quote(str(done))}"]
        script = f"exec {shlex.join(map(str, said))} > {shlex.quote(str(self._output))}"
        self.process.start(["sh", "-c", script])
        deadline = time.monotonic() + limit_s
        while self.process.running:
            for name, action in actions.items():
                asked, done = self._files(name)
                if asked.exists():
                    asked.unlink()
                    action()
                    done.touch()
            if time.monotonic() > deadline:
                raise TimeoutError(f"tombolo bench cloud did not end within {limit_s} s\n{self.process.log_tail()}")
            time.sleep(POLL_S)
        if self.process.exit_code != 0:
            raise RuntimeError(f"tombolo bench cloud ended with {self.process.exit_code}\n{self.process.log_tail()}")
        report: dict[str, Any] = json.loads(self._output.read_text())
        return report

    def _files(self, name: str) -> tuple[Path, Path]:
        return self._folder / f"{name}.asked", self._folder / f"{name}.done"

    def close(self) -> None:
        self.process.kill9_family()
