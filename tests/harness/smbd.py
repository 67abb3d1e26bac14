"""A private smbd over any folder: own port, own folders, own list of users."""

from pathlib import Path

from harness.gateway import Gateway
from harness.process import Process
from harness.smb import SmbFrontEnd
from harness.tools import free_port, run

PASSWORD = "tombolo-test"
FOLDERS = ("private", "lock", "state", "cache", "pid", "ncalrpc", "log")
PLAIN_SHARE = """
    read only = no
    create mask = 0777
    directory mask = 0777
    posix locking = yes
    strict locking = yes
    oplocks = no
    kernel oplocks = no
    kernel share modes = no
    strict sync = yes
"""
"""Locks are taken in the file system too, so that other front ends see them; oplocks would let clients keep what
others change."""


class Smbd:
    """Serves one tree as `share`; with `namespace`, in that network namespace, on `address` there. `root` and the users
    added later log in with `PASSWORD`."""

    def __init__(self, folder: Path, namespace: str | None = None, address: str = "127.0.0.1") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.address = address
        self.share = ""
        self.port = free_port()
        self.process = Process("smbd", folder / "smbd.log")
        self._network = ["ip", "netns", "exec", namespace] if namespace else []

    @property
    def configuration(self) -> Path:
        return self.folder / "smb.conf"

    def serve_folder(self, tree: Path, lines: str = PLAIN_SHARE) -> None:
        """A plain folder: what a share is compared with."""
        self.share = tree.name
        for name in FOLDERS:
            (self.folder / name).mkdir(exist_ok=True)
        self.configuration.write_text(f"{self._global()}[{self.share}]\n    path = {tree}\n{lines}")
        self.add_user("root")

    def serve_share(self, gateway: Gateway, share: str, mounted_at: Path, *options: str) -> None:
        """A mounted share, as `tombolo export smb` configures it."""
        self.share = share
        place = ["--mount-dir", str(mounted_at), "--directory", str(self.folder)]
        place += ["--bind", self.address, "--port", str(self.port)]
        gateway.cli("export", "smb", share, *place, *options)
        self.add_user("root")

    def _global(self) -> str:
        own = self.folder
        return f"""[global]
    workgroup = TOMBOLO
    netbios name = TOMBOLO
    server role = standalone server
    smb ports = {self.port}
    interfaces = {self.address}
    bind interfaces only = yes
    disable netbios = yes
    private dir = {own}/private
    lock directory = {own}/lock
    state directory = {own}/state
    cache directory = {own}/cache
    pid directory = {own}/pid
    ncalrpc dir = {own}/ncalrpc
    log file = {own}/log/log.%m
    log level = 1
    passdb backend = tdbsam:{own}/private/passdb.tdb
    server min protocol = SMB2_10
    load printers = no
    printing = bsd
    printcap name = /dev/null
    disable spoolss = yes
    map to guest = never
    smb2 leases = no
    unix extensions = no
"""

    def add_user(self, name: str) -> None:
        """A user of the machine gets access."""
        words = ["smbpasswd", "-c", str(self.configuration), "-s", "-a", name]
        run(["sh", "-c", f'printf "%s\\n%s\\n" {PASSWORD} {PASSWORD} | "$@"', "sh", *words])

    def start(self) -> None:
        smbd = ["smbd", "-s", str(self.configuration), "-F", "--no-process-group", "--debug-stdout"]
        self.process.start([*self._network, *smbd])
        self.process.wait_until(self._listens, 20, "listening socket")

    def _listens(self) -> bool:
        probe = f"exec 3<>/dev/tcp/{self.address}/{self.port}"
        return run([*self._network, "bash", "-c", probe], expected_codes=range(256)).returncode == 0

    def kill9(self) -> None:
        """The parent and the children that serve the sessions."""
        self.process.kill9_family()

    def close(self) -> None:
        self.process.kill9_family()

    def front_end(self, user: str = "root") -> SmbFrontEnd:
        return SmbFrontEnd(self.port, self.share, user, PASSWORD)

    def smbclient(self, command: str, user: str = "root") -> str:
        """Runs commands of smbclient in the share; returns what it said."""
        words = ["smbclient", "-s", str(self.configuration), "-p", str(self.port), "-U", f"{user}%{PASSWORD}"]
        done = run([*words, f"//127.0.0.1/{self.share}", "-c", command])
        return done.stdout + done.stderr
