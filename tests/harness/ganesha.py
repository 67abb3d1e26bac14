"""A private ganesha.nfsd: own ports, own folder, own port mapper.

Debian's ganesha serves NFSv3 only if it can register with a port mapper. It does so over the Unix socket
/run/rpcbind.sock, so each server starts in a mount namespace with an empty /run of its own, made by an rpcbind that has
a network of its own and is ended once ganesha is ready. Clients name the ports. So no port mapper of the machine is
needed, disturbed or seen.

The folder that ganesha loads modules from is compiled into it; there the mount namespace has the plugin's build folder.
"""

import platform
from pathlib import Path

from harness.gateway import Gateway
from harness.nfs import NfsFrontEnd
from harness.nfs_locker import NfsLock
from harness.process import Process
from harness.tools import REPOSITORY, free_port

READY = "NFS SERVER INITIALIZED"
READY_LIMIT_S = 30.0
MODULE_FOLDER = Path(f"/usr/lib/{platform.machine()}-linux-gnu/ganesha")
MODULE = "libfsaltombolo.so"
PORT_MAPPER = "mount -t tmpfs tmpfs /run && ip link set lo up && exec rpcbind -f -w"
PORT_MAPPER_AND_PLUGIN = f'mount --bind "$0" {MODULE_FOLDER} && {PORT_MAPPER}'
GRACE_S = 4
"""Within it, clients may only take back what they had; the ninety seconds of the product are for real networks."""


def plugin_folder() -> Path:
    """The folder that holds the built FSAL module."""
    folder = REPOSITORY / "build/fsal_plugin/release"
    if not (folder / MODULE).exists():
        raise FileNotFoundError("the FSAL is not built: run `make -C fsal_plugin all`")
    return folder


class Ganesha:
    """Serves one tree at `pseudo`. With `namespace`, it runs in that network namespace and listens on `address`
    there."""

    def __init__(
        self, folder: Path, namespace: str | None = None, address: str = "127.0.0.1", grace_s: int = GRACE_S
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.address = address
        self.port = free_port()
        self.mount_port = free_port()
        self.pseudo = ""
        self._grace_s = grace_s
        self.process = Process("ganesha", folder / "ganesha.log")
        self._plugins: Path | None = None
        self._network = ["ip", "netns", "exec", namespace] if namespace else []

    @property
    def configuration(self) -> Path:
        return self.folder / "ganesha.conf"

    def serve_folder(self, tree: Path) -> None:
        """A plain folder, through ganesha's own module: what ours is compared with.

        Nothing tells ganesha of changes behind its back there, so it must not keep attributes.
        """
        self.pseudo = f"/{tree.name}"
        recovery = self.folder / "recovery"
        recovery.mkdir(exist_ok=True)
        self.configuration.write_text(
            f"NFS_CORE_PARAM {{ Bind_addr = {self.address}; NFS_Port = {self.port}; MNT_Port = {self.mount_port};\n"
            "    Protocols = 3, 4; Mount_Path_Pseudo = true;\n"
            "    Enable_NLM = false; Enable_RQUOTA = false; Enable_UDP = false; }\n"
            f"NFSV4 {{ Graceless = true; RecoveryRoot = {recovery}; Only_Numeric_Owners = true; }}\n"
            f"EXPORT {{ Export_Id = 1; Path = {tree}; Pseudo = {self.pseudo}; Protocols = 3, 4; Access_Type = RW;\n"
            "    Squash = No_Root_Squash; SecType = sys; Attr_Expiration_Time = 0; FSAL { Name = VFS; } }\n"
        )

    def serve_share(self, gateway: Gateway, share: str, *options: str) -> None:
        """A share, as `tombolo export nfs` configures it, but for shorter waits after a restart."""
        self.pseudo = f"/{share}"
        self._plugins = plugin_folder()
        ports = ["--port", str(self.port), "--v3", "--mount-port", str(self.mount_port), "--bind", self.address]
        rights = ["--client", "*", "--no-root-squash", *options]
        files = ["--directory", str(self.folder), "--pid-file", str(self.folder / "ganesha.pid")]
        gateway.cli("export", "nfs", share, *ports, *rights, *files)
        text = self.configuration.read_text()
        shorter = text.replace("Grace_Period = 90;", f"Grace_Period = {self._grace_s};")
        shorter = shorter.replace("Lease_Lifetime = 60;", f"Lease_Lifetime = {self._grace_s};")
        if shorter == text:
            raise AssertionError(f"no grace period and lease to shorten in\n{text}")
        self.configuration.write_text(shorter)

    def start(self) -> None:
        before = self._starts()
        words = ["-F", "-L", "/dev/stdout", "-f", str(self.configuration), "-p", str(self.folder / "ganesha.pid")]
        port_mapper = Process("rpcbind", self.folder / "rpcbind.log")
        try:
            self._start_port_mapper(port_mapper)
            inside = ["nsenter", f"--mount=/proc/{port_mapper.pid}/ns/mnt"]
            self.process.start([*self._network, *inside, "ganesha.nfsd", *words])
            self.process.wait_until(lambda: self._starts() > before, READY_LIMIT_S, "line of readiness")
        finally:
            port_mapper.kill9()

    def _start_port_mapper(self, port_mapper: Process) -> None:
        script = PORT_MAPPER_AND_PLUGIN if self._plugins else PORT_MAPPER
        port_mapper.start(["unshare", "--mount", "--net", "sh", "-c", script, self._plugins or "sh"])
        # Seen through the namespace; before the process is in there it would be the machine's own.
        namespace, socket = (Path(f"/proc/{port_mapper.pid}") / below for below in ("ns/mnt", "root/run/rpcbind.sock"))
        own = Path("/proc/self/ns/mnt").readlink()
        port_mapper.wait_until(lambda: namespace.readlink() != own and socket.exists(), 10, "socket")

    def _starts(self) -> int:
        log = self.process.log_path
        return log.read_text(errors="replace").count(READY) if log.exists() else 0

    def kill9(self) -> None:
        self.process.kill9()

    def stop(self) -> None:
        code = self.process.stop(60)
        if code != 0:
            raise AssertionError(f"ganesha ended with {code} after SIGTERM\n{self.process.log_tail()}")

    def close(self) -> None:
        self.process.kill9()

    def lock(self, path: str, start: int, length: int, exclusive: bool = True) -> NfsLock:
        """A client of its own that asks for a lock over NFSv4 and keeps it until it is released."""
        return NfsLock(self.folder, self.port, self.pseudo, path, (start, length), exclusive)

    def front_end(self, version: int = 3, reconnects: int = -1, uid: int = 0, gid: int = 0) -> NfsFrontEnd:
        """A client in this process."""
        return NfsFrontEnd(self.port, self.mount_port, self.pseudo, version, reconnects, uid, gid)
