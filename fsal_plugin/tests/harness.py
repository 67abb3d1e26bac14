# SPDX-License-Identifier: LGPL-3.0-or-later
"""Private servers for the tests: a ganesha that loads only our plugin, and the fake file service.

Ganesha has its module directory compiled in, so it runs in a mount namespace of its own in which the build directory
is mounted there. NFSv3 wants rpcbind on its fixed port, so a network namespace goes with it; clients are run inside.
Nothing on the machine is changed except that the empty directory is created if it is missing.
"""

import contextlib
import ctypes
import os
import pathlib
import select
import shutil
import signal
import subprocess
import tempfile
import time
import unittest
from collections.abc import Callable, Iterator

from fake_daemon import ALL_CAPABILITIES, FakeDaemon

HERE = pathlib.Path(__file__).resolve().parent
SANITIZE = os.environ.get("TOMBOLO_FSAL_SANITIZE") == "1"
OUT = HERE.parent.parent / "build" / "fsal_plugin"
BUILT = OUT / ("sanitized" if SANITIZE else "release")
TOOLS = ("ganesha.nfsd", "rpcbind", "nfs-ls", "nfs-cat", "unshare", "ip", "dpkg-architecture")
CLONE_NEWNET = 0x40000000

NFS_PORT = 2049
MOUNT_PORT = 20048

CONFIGURATION = """
NFS_CORE_PARAM {{
    NFS_Port = {nfs_port}; MNT_Port = {mount_port}; Protocols = 3, 4;
    Enable_NLM = false; Enable_RQUOTA = false; Enable_UDP = false;
}}
NFS_KRB5 {{ Active_krb5 = false; }}
NFSV4 {{ Graceless = true; RecoveryRoot = "{directory}/recovery"; Only_Numeric_Owners = true; }}
{exports}
"""

EXPORT = """
EXPORT {{
    Export_Id = {export_id}; Path = "/{name}"; Pseudo = "/{name}";
    Access_Type = RW; Squash = No_Root_Squash; SecType = sys; Protocols = 3, 4;
    {options}
    FSAL {{ Name = TOMBOLO; Share = "{share}"; Socket = "{socket}"; Connections = {connections}; Instance = "test"; }}
}}
"""


def missing_requirement() -> str | None:
    """Why the tests cannot run here, or None."""
    for tool in TOOLS:
        if not shutil.which(tool):
            return f"{tool} is not installed"
    if os.geteuid() != 0:
        return "ganesha and namespaces need root"
    if not (BUILT / "libfsaltombolo.so").exists():
        return f"{BUILT}/libfsaltombolo.so is not built"
    return None


def wait_until(condition: Callable[[], object], what: str, timeout_s: float = 30.0) -> None:
    until = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > until:
            raise TimeoutError(f"{what} did not happen within {timeout_s} s")
        time.sleep(0.02)


def module_directory() -> pathlib.Path:
    triplet = subprocess.run(["dpkg-architecture", "-qDEB_HOST_MULTIARCH"], capture_output=True, text=True, check=True)
    return pathlib.Path("/usr/lib") / triplet.stdout.strip() / "ganesha"


class Ganesha:
    """ganesha.nfsd and rpcbind in namespaces of their own."""

    def __init__(
        self, directory: pathlib.Path, socket: pathlib.Path, *, connections: int = 4, options: str = ""
    ) -> None:
        self.directory = directory
        self.log_path = directory / "ganesha.log"
        self.process: subprocess.Popen[bytes] | None = None
        (directory / "recovery").mkdir(exist_ok=True)
        export = EXPORT.format(
            export_id=7, name="test", share="test", socket=socket, connections=connections, options=options
        )
        self.configuration = CONFIGURATION.format(
            nfs_port=NFS_PORT, mount_port=MOUNT_PORT, directory=directory, exports=export
        )

    def start(self, *, wait: bool = True) -> None:
        modules = module_directory()
        modules.mkdir(parents=True, exist_ok=True)
        (self.directory / "ganesha.conf").write_text(self.configuration)
        self.log_path.unlink(missing_ok=True)
        environment = ""
        if SANITIZE:
            # UBSan is in the module. Memory that is fresh or freed is filled, so that using it shows; a library that
            # checks more cannot be preloaded, because ganesha's modules would not use it (RTLD_DEEPBIND).
            environment = "env GLIBC_TUNABLES=glibc.malloc.perturb=165 "
        # rpcbind is needed only while ganesha registers. Its files of state are private, too.
        script = f"""
            set -e
            ip link set lo up
            mount --bind {BUILT} {modules}
            mount -t tmpfs none /run
            rpcbind -w -f & rpcbind=$!
            trap 'kill $rpcbind' EXIT
            until [ -S /run/rpcbind.sock ]; do sleep 0.02; done
            {environment}ganesha.nfsd -F -N EVENT -L {self.log_path} \\
                -f {self.directory}/ganesha.conf -p {self.directory}/pid
        """
        command = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", script]
        with (self.directory / "ganesha.err").open("ab") as errors:
            self.process = subprocess.Popen(command, stdout=errors, stderr=errors)
        if wait:
            wait_until(lambda: self.is_ready() or not self.is_alive(), "start of ganesha", 60)
            if not self.is_alive():
                raise RuntimeError("ganesha ended:\n" + self.log() + (self.directory / "ganesha.err").read_text())

    def is_ready(self) -> bool:
        return "NFS SERVER INITIALIZED" in self.log()

    def is_alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def log(self) -> str:
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def inner_pid(self) -> int:
        """Of ganesha itself, as seen from outside its namespace."""
        assert self.process
        shells = children_of(self.process.pid)
        for pid in children_of(shells[0]):
            if pathlib.Path(f"/proc/{pid}/comm").read_text().startswith("ganesha"):
                return pid
        raise RuntimeError("ganesha is not running")

    def terminate(self, timeout_s: float = 60) -> None:
        """As systemd would: SIGTERM to ganesha, and wait."""
        assert self.process
        os.kill(self.inner_pid(), signal.SIGTERM)
        self.process.wait(timeout_s)

    def kill(self) -> None:
        """Ends everything in the namespace, and returns when it has ended: nothing writes to the directory any more."""
        if self.process:
            with watching(children_of(self.process.pid) if self.is_alive() else []) as first_processes:
                self.process.kill()
                self.process.wait()
                for process in first_processes:
                    # One that has just been started does not yet end with its parent.
                    with contextlib.suppress(ProcessLookupError):
                        signal.pidfd_send_signal(process, signal.SIGKILL)
                    select.select([process], [], [])
            self.process = None

    def network(self) -> int:
        """A descriptor of ganesha's network namespace."""
        assert self.process
        return os.open(f"/proc/{children_of(self.process.pid)[0]}/ns/net", os.O_RDONLY)

    @staticmethod
    def url(path: str = "", *, version: int = 4) -> str:
        return f"nfs://127.0.0.1/test/{path}?version={version}&uid=0&gid=0"


def children_of(pid: int) -> list[int]:
    return [int(child) for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@contextlib.contextmanager
def watching(pids: list[int]) -> Iterator[list[int]]:
    """Descriptors that become readable when the processes have ended; the first of a namespace ends last."""
    with contextlib.ExitStack() as opened:
        descriptors = [os.pidfd_open(pid) for pid in pids]
        for descriptor in descriptors:
            opened.callback(os.close, descriptor)
        yield descriptors


@contextlib.contextmanager
def temporary_directory() -> Iterator[pathlib.Path]:
    with tempfile.TemporaryDirectory(prefix="tombolo-fsal-") as directory:
        yield pathlib.Path(directory)


@contextlib.contextmanager
def inside(network: int) -> Iterator[None]:
    """Moves this thread, and the processes that it starts, to another network namespace for a while."""
    libc = ctypes.CDLL(None, use_errno=True)
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        if libc.setns(network, CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "setns")
        yield
    finally:
        libc.setns(before, CLONE_NEWNET)
        os.close(before)
        os.close(network)


class Served(unittest.TestCase):
    """Tests that share one ganesha with its fake file service."""

    ganesha: Ganesha
    daemon: FakeDaemon

    @classmethod
    def setUpClass(cls) -> None:
        reason = missing_requirement()
        if reason:
            raise unittest.SkipTest(reason)
        cls.ganesha, cls.daemon = cls.enterClassContext(serving())


@contextlib.contextmanager
def serving(
    *, connections: int = 4, options: str = "", capabilities: int = ALL_CAPABILITIES
) -> Iterator[tuple[Ganesha, FakeDaemon]]:
    """A ganesha with one export, and its fake file service. The caller is on ganesha's network meanwhile."""
    with temporary_directory() as directory:
        daemon = FakeDaemon(directory / "files.sock", capabilities=capabilities)
        daemon.start()
        ganesha = Ganesha(directory, daemon.path, connections=connections, options=options)
        try:
            ganesha.start()
            with inside(ganesha.network()):
                yield ganesha, daemon
        finally:
            ganesha.kill()
            daemon.stop()
