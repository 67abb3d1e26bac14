"""A private tgtd: own control socket, own portal, own view of the folder it loads modules from.

That folder is compiled into tgtd, so tgtd runs in a mount namespace in which the plugin's build folder is mounted
there. The machine keeps what it has installed.
"""

from collections.abc import Sequence
from pathlib import Path

from harness.iscsi import IscsiDisk
from harness.process import Process
from harness.tools import REPOSITORY, free_port, run

MODULE_FOLDER = Path("/usr/lib/tgt/backing-store")
IQN_PREFIX = "iqn.2026-01.test.tombolo"
BACKING_STORE = "tombolo"
WITH_PLUGIN = f'mount --bind "$0" {MODULE_FOLDER} && exec "$@"'


def plugin_folder() -> Path:
    """The folder that holds the built plugin and nothing else."""
    folder = REPOSITORY / "build/tgt_plugin/release"
    if not (folder / "bs_tombolo.so").exists():
        raise FileNotFoundError("the tgt plugin is not built: run `make -C tgt_plugin all`")
    return folder


class Tgtd:
    """With `namespace`, tgtd runs in that network namespace and listens on `address` there."""

    def __init__(self, folder: Path, namespace: str | None = None, address: str = "127.0.0.1") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.address = address
        self._network = ["ip", "netns", "exec", namespace] if namespace else []
        self.port = free_port()
        self.process = Process("tgtd", folder / "tgtd.log")
        self.environment = {"TGT_IPC_SOCKET": str(folder / "tgtd.ipc")}

    @property
    def portal(self) -> str:
        return f"{self.address}:{self.port}"

    def start(self) -> None:
        for stale in self.folder.glob("tgtd.ipc*"):
            stale.unlink()
        MODULE_FOLDER.mkdir(parents=True, exist_ok=True)
        mounts: list[str | Path] = ["unshare", "--mount", "sh", "-c", WITH_PLUGIN, plugin_folder()]
        tgtd = ["tgtd", "-f", "-C", "0", "--iscsi", f"portal={self.portal}"]
        self.process.start([*self._network, *mounts, *tgtd], self.environment)
        self.process.wait_until(self._answers, 20, "answer to tgtadm")

    def _answers(self) -> bool:
        show = ["tgtadm", "-C", "0", "--lld", "iscsi", "--op", "show", "--mode", "target"]
        return run(show, expected_codes=range(256), environment=self.environment).returncode == 0

    def kill9(self) -> None:
        self.process.kill9()

    def close(self) -> None:
        """tgtd ignores SIGTERM while targets are bound, so it is killed."""
        self.process.kill9()

    def admin(self, *words: str) -> str:
        return run(["tgtadm", "-C", "0", "--lld", "iscsi", *words], environment=self.environment).stdout

    def create_target(self, tid: int, name: str) -> str:
        """A target open to everyone; returns its IQN."""
        iqn = f"{IQN_PREFIX}:{name}"
        self.admin("--op", "new", "--mode", "target", "--tid", str(tid), "-T", iqn)
        self.admin("--op", "bind", "--mode", "target", "--tid", str(tid), "-I", "ALL")
        return iqn

    def add_lun(
        self, tid: int, lun: int, nbd_socket: Path, volume: str, parameters: Sequence[str] = ("thin_provisioning=1",)
    ) -> None:
        """A LUN on one of the gateway's volumes."""
        path = f"{nbd_socket}:{volume}"
        new = ["--op", "new", "--mode", "logicalunit", "--tid", str(tid), "--lun", str(lun)]
        self.admin(*new, "--bstype", BACKING_STORE, "-b", path)
        for parameter in parameters:
            update = ["--op", "update", "--mode", "logicalunit", "--tid", str(tid), "--lun", str(lun)]
            self.admin(*update, "--params", parameter)

    def add_file_lun(self, tid: int, lun: int, file: Path) -> None:
        """A LUN on a plain file through tgtd's own rdwr store."""
        new = ["--op", "new", "--mode", "logicalunit", "--tid", str(tid), "--lun", str(lun)]
        self.admin(*new, "--bstype", "rdwr", "-b", str(file))

    def require_chap(self, tid: int, user: str, password: str) -> None:
        self.admin("--op", "new", "--mode", "account", "--user", user, "--password", password)
        self.admin("--op", "bind", "--mode", "account", "--tid", str(tid), "--user", user)

    def url(self, iqn: str, lun: int = 1) -> str:
        return f"iscsi://{self.portal}/{iqn}/{lun}"

    def disk(self, iqn: str, lun: int = 1, limit_s: int = 60, credentials: tuple[str, str] | None = None) -> IscsiDisk:
        return IscsiDisk(self.portal, iqn, lun, limit_s, credentials)
