"""Foreign command-line tools, free ports and small measurements."""

import contextlib
import hashlib
import json
import os
import random
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path

from harness.launching import launching

REPOSITORY = Path(__file__).resolve().parents[2]
RUN_LIMIT_S = 120.0


class ToolFailed(Exception):
    """A tool exited with a code other than the expected one."""


def run(
    command: Sequence[str | Path],
    limit_s: float = RUN_LIMIT_S,
    expected_codes: Sequence[int] = (0,),
    environment: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """Runs a tool to its end; raises with the whole output unless the exit code is an expected one."""
    words = [str(word) for word in command]

    def launch() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=limit_s,
            env={**os.environ, **(environment or {})},
            cwd=cwd,
            check=False,
        )

    try:
        done = launching(launch)
    except subprocess.TimeoutExpired as late:
        raise ToolFailed(f"{' '.join(words)}: not done within {limit_s} s\n{late.stdout!r}\n{late.stderr!r}") from None
    if done.returncode not in expected_codes:
        raise ToolFailed(f"{' '.join(words)}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done


def free_port() -> int:
    """A TCP port of the loopback interface that nothing listens on now. It is below those that connections are given:
    one of them might have it before it is used."""
    of_connections = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = random.SystemRandom().randrange(10_000, of_connections)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def can_connect(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def wait_for(condition: Callable[[], bool], limit_s: float, what: str) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {limit_s} s: {what}")
        time.sleep(0.05)


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def folder_bytes(folder: Path) -> int:
    """Sum of the sizes of all files below a folder; files that vanish meanwhile count nothing."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                total += (Path(parent) / name).lstat().st_size
            except FileNotFoundError:
                continue
    return total


@cache
def build_folder() -> Path:
    """Where cargo puts its output, whatever the environment says."""
    listed = run(["cargo", "metadata", "--no-deps", "--format-version", "1"], cwd=REPOSITORY)
    return Path(json.loads(listed.stdout)["target_directory"])


@cache
def tombolo_binary() -> Path:
    """The daemon under test: $TOMBOLO_BINARY, else the newest one built."""
    return built_binary("tombolo", "tombolo", "TOMBOLO_BINARY")


@cache
def replay_binary() -> Path:
    """The simulator's engine: $TOMBOLO_REPLAY, else the newest one built."""
    return built_binary("replay", "tombolo-engine", "TOMBOLO_REPLAY")


def built_binary(name: str, package: str, variable: str) -> Path:
    named = os.environ.get(variable)
    if named:
        return Path(named)
    built = [path for profile in ("debug", "release") if (path := build_folder() / profile / name).exists()]
    if not built:
        raise FileNotFoundError(f"no {name} binary: run `cargo build -p {package}`, or set {variable}")
    return max(built, key=lambda path: path.stat().st_mtime)


def built_tool(name: str) -> Path:
    """A program that scripts/setup.sh has built, in $TOMBOLO_TOOLS or build/bin; not one in the search path:
    Debian's fio lacks libiscsi."""
    path = Path(os.environ.get("TOMBOLO_TOOLS", REPOSITORY / "build/bin")) / name
    if not path.exists():
        raise FileNotFoundError(f"{path} is missing: run `scripts/setup.sh test`")
    return path


@cache
def preloaded_library(source: Path) -> Path:
    """Built of one file of C. It is put in place whole, as another run of tests may be starting programs with it: the
    linker goes on without what it cannot load."""
    built = REPOSITORY / "build/tests" / f"{source.stem}.so"
    built.parent.mkdir(parents=True, exist_ok=True)
    new = built.with_suffix(f".{os.getpid()}")
    run(["gcc", "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", source, "-o", new])
    return new.replace(built)
