"""One gateway daemon: its settings file, its life and its command line."""

import json
import shutil
import signal
import socket
import subprocess
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from harness.nbd import NbdDisk
from harness.process import Process
from harness.tools import free_port, run, tombolo_binary, wait_for

READY_LIMIT_S = 60.0
DRAIN_LIMIT_S = 300.0
CHECK_LIMIT_S = 300.0
Settings = dict[str, Any]


def to_toml(settings: Mapping[str, Any], table: str = "") -> str:
    """Plain values first, then one table per nested mapping."""
    plain = [f"{key} = {json.dumps(value)}" for key, value in settings.items() if not isinstance(value, Mapping)]
    head = [f"[{table}]"] if table and plain else []
    prefix = f"{table}." if table else ""
    nested = {f"{prefix}{key}": value for key, value in settings.items() if isinstance(value, Mapping)}
    return "\n".join([*head, *plain]) + "\n" + "".join(f"\n{to_toml(value, name)}" for name, value in nested.items())


def merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> Settings:
    result: Settings = dict(base)
    for key, value in changes.items():
        old = result.get(key)
        result[key] = merged(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return result


class Gateway:
    """`tombolo serve` in a folder of its own. `settings` may be changed between a stop and a start."""

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, Any] | None = None,
        environment: Mapping[str, str] | None = None,
        binary: Path | None = None,
    ) -> None:
        """`binary` is another build than the tests' own."""
        self.binary = binary or tombolo_binary()
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.state_directory = folder / "state"
        self.runtime_directory = folder / "runtime"
        self.store_directory = folder / "store"
        self.metrics_port = free_port()
        self.environment = dict(environment or {})
        self.daemon_environment: dict[str, str] = {}
        """What the daemon has beside that, and the command line has not."""
        for path in (self.state_directory, self.runtime_directory, self.store_directory):
            path.mkdir(exist_ok=True)
        defaults: Settings = {
            "state_directory": str(self.state_directory),
            "runtime_directory": str(self.runtime_directory),
            "store": {"url": f"dir:{self.store_directory}"},
            "cache": {"size": "512MiB"},
            "flush": {"dirty_bytes_max": "256MiB"},
            "metrics": {"listen": f"127.0.0.1:{self.metrics_port}"},
        }
        self.settings = merged(defaults, settings or {})
        self.process = Process("tombolo", folder / "tombolo.log")

    @property
    def nbd_socket(self) -> Path:
        return self.runtime_directory / "nbd.sock"

    @property
    def admin_socket(self) -> Path:
        return self.runtime_directory / "admin.sock"

    @property
    def config_path(self) -> Path:
        return self.folder / "tombolo.toml"

    @property
    def cache_file(self) -> Path:
        return self.state_directory / "cache"

    @property
    def writer_name(self) -> str:
        """As the root in the store names this gateway."""
        return f"{socket.gethostname()}:{self.state_directory}"

    @property
    def dirty_bytes_max(self) -> int:
        return parse_size(str(self.settings["flush"]["dirty_bytes_max"]))

    def start(self, *words: str) -> Self:
        """`words` are further words of the command line."""
        self.launch(*words)
        self.process.wait_until(self.answers, READY_LIMIT_S, "answer to status")
        return self

    def write_config(self) -> None:
        self.config_path.write_text(to_toml(self.settings))

    def launch(self, *words: str) -> None:
        """Starts the daemon without waiting for it: for starts that must fail."""
        self.write_config()
        environment = self.environment | self.daemon_environment
        self.process.start([self.binary, "serve", "--config", self.config_path, *words], environment)

    def refused_start(self, limit_s: float = 60.0, words: Sequence[str] = ()) -> tuple[int, str]:
        """Starts a daemon that must refuse to run: its exit code and what it said."""
        before = self.process.log_path.stat().st_size if self.process.log_path.exists() else 0
        self.launch(*words)
        code = self.process.wait(limit_s)
        with self.process.log_path.open("rb") as log:
            log.seek(before)
            return code, log.read().decode(errors="replace")

    def answers(self) -> bool:
        return self.admin_socket.exists() and self.try_cli("status", "--json").returncode == 0

    def stop(self) -> None:
        """SIGTERM; the daemon must end by itself with exit code 0."""
        code = self.process.stop(60)
        if code != 0:
            raise AssertionError(f"tombolo ended with {code} after SIGTERM\n{self.process.log_tail()}")

    def kill9(self) -> None:
        self.process.kill9()

    def restart(self) -> Self:
        self.stop()
        return self.start()

    def close(self) -> None:
        """The end of a test: whatever runs is ended, unconditionally."""
        self.process.signal(signal.SIGCONT)
        self.process.kill9()

    def try_cli(self, *words: str, limit_s: float = 60.0) -> "subprocess.CompletedProcess[str]":
        """Runs the command line against this daemon; any exit code is fine."""
        command: Sequence[str | Path] = [self.binary, "--socket", self.admin_socket, *words]
        return run(command, limit_s, expected_codes=range(-64, 256), environment=self.environment)

    def cli(self, *words: str, limit_s: float = 60.0) -> str:
        done = self.try_cli(*words, limit_s=limit_s)
        if done.returncode != 0:
            raise AssertionError(
                f"tombolo {' '.join(words)}: exit code {done.returncode}\n{done.stdout}{done.stderr}"
                f"\n{self.process.log_tail()}"
            )
        return done.stdout

    def try_offline(self, *words: str, limit_s: float = 120.0) -> "subprocess.CompletedProcess[str]":
        """Runs the command line on the state directory, not against the daemon; any exit code is fine."""
        self.write_config()
        command: Sequence[str | Path] = [self.binary, *words, "--config", self.config_path]
        environment = self.environment | self.daemon_environment
        return run(command, limit_s, expected_codes=range(-64, 256), environment=environment)

    def offline_json(self, *words: str) -> dict[str, Any]:
        done = self.try_offline(*words, "--json")
        if done.returncode != 0:
            raise AssertionError(f"tombolo {' '.join(words)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def try_recover(self, *words: str, limit_s: float = 120.0) -> "subprocess.CompletedProcess[str]":
        """`tombolo recover` into the state directory; any exit code is fine."""
        return self.try_offline("recover", *words, limit_s=limit_s)

    def recover(self, *words: str, limit_s: float = 120.0) -> str:
        done = self.try_recover(*words, limit_s=limit_s)
        if done.returncode != 0:
            raise AssertionError(f"tombolo recover: exit code {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    def lose_state(self) -> None:
        """The daemon is killed and its local disk is gone. The copy of the master key, kept elsewhere, is not."""
        if self.process.running:
            self.kill9()
        own_key = self.state_directory / "master.key"
        kept_key = self.folder / "kept.key"
        if own_key.exists():
            own_key.rename(kept_key)
            self.settings = merged(self.settings, {"store": {"master_key_file": str(kept_key)}})
        shutil.rmtree(self.state_directory)

    def status(self) -> dict[str, Any]:
        parsed: dict[str, Any] = json.loads(self.cli("status", "--json"))
        return parsed

    def volumes(self) -> list[dict[str, Any]]:
        listed = json.loads(self.cli("volume", "list", "--json"))
        entries: list[dict[str, Any]] = listed if isinstance(listed, list) else listed["volumes"]
        return entries

    def create_volume(self, name: str, size: str) -> str:
        self.cli("volume", "create", name, "--size", size)
        return name

    @property
    def files_socket(self) -> Path:
        return self.runtime_directory / "files.sock"

    def create_share(self, name: str, *options: str) -> str:
        self.cli("share", "create", name, *options)
        return name

    def shares(self) -> dict[str, dict[str, Any]]:
        """What `share list` says of each share, by name."""
        listed: list[dict[str, Any]] = json.loads(self.cli("share", "list", "--json"))
        return {entry["name"]: entry for entry in listed}

    def check(self) -> None:
        """`tombolo check` finds no contradiction in any share."""
        self.cli("check", limit_s=CHECK_LIMIT_S)

    def drain(self, limit_s: float = DRAIN_LIMIT_S) -> None:
        """Waits until the store holds everything."""
        self.cli("drain", "--wait", limit_s=limit_s)
        dirty = self.status()["dirty_bytes"]
        if dirty != 0:
            raise AssertionError(f"{dirty} bytes are dirty after drain --wait")

    def wait_clean(self, limit_s: float = DRAIN_LIMIT_S) -> None:
        """Waits for the daemon to flush by itself."""
        wait_for(lambda: self.status()["dirty_bytes"] == 0, limit_s, "dirty_bytes at 0")

    def disk(self, volume: str, limit_s: float = 60.0) -> NbdDisk:
        return NbdDisk(self.nbd_socket, volume, limit_s)

    def nbd_uri(self, volume: str) -> str:
        return f"nbd+unix:///{volume}?socket={self.nbd_socket}"

    def metrics(self) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}/metrics", timeout=10) as reply:
            text: bytes = reply.read()
        return text.decode()


def parse_size(text: str) -> int:
    """Bytes of a size such as `256MiB`."""
    units = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
    for unit, factor in units.items():
        if text.endswith(unit):
            return int(text.removesuffix(unit)) * factor
    return int(text)
