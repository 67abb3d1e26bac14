# SPDX-License-Identifier: GPL-2.0-only
"""Private servers for the tests: a tgtd that loads only our plugin, and NBD servers.

tgtd has its plugin directory compiled in, so it runs in a mount namespace of its own
in which the build directory is mounted there.  Nothing on the machine is changed
except that the empty directory is created if it is missing.
"""

import contextlib
import os
import pathlib
import shutil
import socket
import subprocess
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
SANITIZE = os.environ.get("TOMBOLO_TGT_SANITIZE") == "1"
OUT = HERE.parent.parent / "build" / "tgt_plugin" / ("asan" if SANITIZE else "release")
BACKING_STORE_DIR = pathlib.Path("/usr/lib/tgt/backing-store")
IQN = "iqn.2026-01.test.tombolo:target"

TOOLS = ("tgtd", "tgtadm", "nbdkit", "unshare")


def missing_requirement():
    """Why the tests cannot run here, or None."""
    for tool in TOOLS:
        if not shutil.which(tool):
            return f"{tool} is not installed"
    if os.geteuid() != 0:
        return "tgtd and mount namespaces need root"
    if not (OUT / "bs_tombolo.so").exists():
        return f"{OUT}/bs_tombolo.so is not built"
    return None


def wait_until(condition, what, timeout_s=20.0):
    until = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > until:
            raise TimeoutError(f"{what} did not happen within {timeout_s} s")
        time.sleep(0.02)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class NbdServer:
    """nbdkit over files of a directory: the file name is the export name."""

    def __init__(self, directory, *filters_and_parameters, plugin=None):
        self.directory = pathlib.Path(directory)
        self.socket_path = self.directory / "nbd.sock"
        self.exports = self.directory / "exports"
        self.exports.mkdir(exist_ok=True)
        self.arguments = list(filters_and_parameters)
        self.plugin = plugin or ["file", f"dir={self.exports}"]
        self.process = None

    def create(self, name, size_bytes):
        path = self.exports / name
        with open(path, "ab") as file:
            file.truncate(size_bytes)
        return path

    def start(self):
        with contextlib.suppress(FileNotFoundError):
            self.socket_path.unlink()
        filters = [a for a in self.arguments if a.startswith("--")]
        parameters = [a for a in self.arguments if not a.startswith("--")]
        command = ["nbdkit", "-f", "--exit-with-parent", "-U", str(self.socket_path), *filters, *self.plugin, *parameters]
        with open(self.directory / "nbdkit.log", "ab") as log:
            self.process = subprocess.Popen(command, stderr=log)
        wait_until(lambda: self.socket_path.exists() or self.process.poll() is not None, "start of nbdkit")
        if self.process.poll() is not None:
            raise RuntimeError(f"nbdkit did not start: {(self.directory / 'nbdkit.log').read_text()[-2000:]}")

    def kill(self):
        """kill -9; the next start() is the restart."""
        if self.process:
            self.process.kill()
            self.process.wait()
            self.process = None

    def address(self, name):
        return f"{self.socket_path}:{name}"


class Tgtd:
    def __init__(self, directory):
        self.directory = pathlib.Path(directory)
        self.port = free_port()
        self.control = str(1 + self.port % 30000)
        self.environment = {**os.environ, "TGT_IPC_SOCKET": str(self.directory / "tgt.ipc")}
        self.log_path = self.directory / "tgtd.log"
        self.process = None

    def start(self):
        BACKING_STORE_DIR.mkdir(parents=True, exist_ok=True)
        script = f"mount --bind {OUT} {BACKING_STORE_DIR} && exec tgtd -f -C {self.control} --iscsi portal=127.0.0.1:{self.port}"
        environment = dict(self.environment)
        if SANITIZE:
            library = subprocess.run(["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True)
            # tgtd itself leaks; only the plugin's memory errors are of interest.  libnbd is
            # loaded early because its GnuTLS hangs if it is initialised by tgtd's dlopen().
            preload = f"{library.stdout.strip()}:libnbd.so.0"
            script = script.replace("exec tgtd", f"exec env LD_PRELOAD={preload} tgtd")
            environment["ASAN_OPTIONS"] = "detect_leaks=0:abort_on_error=1"
        command = ["unshare", "-m", "sh", "-c", script]
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=log)
        wait_until(lambda: self.admin("--op", "show", "--mode", "sys", check=False).returncode == 0, "start of tgtd")

    def stop(self):
        if self.process:
            self.process.kill()
            self.process.wait()
            self.process = None

    def is_alive(self):
        return self.process.poll() is None

    def log(self):
        return self.log_path.read_text(errors="replace")

    def admin(self, *arguments, check=True):
        return subprocess.run(
            ["tgtadm", "-C", self.control, "--lld", "iscsi", *arguments],
            env=self.environment, capture_output=True, text=True, check=check, timeout=30,
        )

    def add_target(self, tid=1, iqn=IQN):
        self.admin("--op", "new", "--mode", "target", "--tid", str(tid), "-T", iqn)
        self.admin("--op", "bind", "--mode", "target", "--tid", str(tid), "-I", "ALL")

    def add_lun(self, lun, address, *more, tid=1, check=True):
        return self.admin(
            "--op", "new", "--mode", "logicalunit", "--tid", str(tid), "--lun", str(lun),
            "--bstype", "tombolo", "-b", address, *more, check=check,
        )

    def remove_lun(self, lun, tid=1, check=True):
        return self.admin("--op", "delete", "--mode", "logicalunit", "--tid", str(tid), "--lun", str(lun), check=check)

    def url(self, lun=1, iqn=IQN):
        return f"iscsi://127.0.0.1:{self.port}/{iqn}/{lun}"


@contextlib.contextmanager
def temporary_directory():
    with tempfile.TemporaryDirectory(prefix="tombolo-tgt-") as directory:
        yield pathlib.Path(directory)
