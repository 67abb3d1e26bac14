"""Foreign judges of shares: pjdfstest over NFS, Samba's suite, Linux's NFS and SMB clients in user-mode Linux."""

import shutil
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from harness import suites
from harness.ganesha import Ganesha
from harness.gateway import Gateway
from harness.guest import ADDRESS, Guest
from harness.mount import Mount
from harness.smbd import PASSWORD, Smbd
from harness.smbtorture import smbtorture, worse_than_baseline
from harness.tools import REPOSITORY, built_tool

CLIENTS = ["nfs3", "nfs4.0", "nfs4.1", "nfs4.2", "cifs"]
FAULTS_OF_THE_CLIENT = {"unlink::open_file_not_freed", "utimensat::follow_symlink"}
"""What Linux's NFS client of kernel 6.1 fails over ganesha's own module on ext4, too."""
OF_USER = "daemon"
GRACE_S = 20
"""A guest may stand still for seconds while this machine is busy; a client whose lease runs out again and again while
it is renewed answers EIO."""


@pytest.fixture
def ganesha_of_guest(gateway: Gateway, share: str, folder: Path, guest: Guest, closing: ExitStack) -> Ganesha:
    server = Ganesha(folder / "ganesha", guest.namespace, ADDRESS, GRACE_S)
    closing.callback(server.close)
    server.serve_share(gateway, share)
    server.start()
    return server


@pytest.fixture
def smbd_of_guest(gateway: Gateway, share: str, mount: Mount, folder: Path, guest: Guest, closing: ExitStack) -> Smbd:
    server = Smbd(folder / "smbd", guest.namespace, ADDRESS)
    closing.callback(server.close)
    server.serve_share(gateway, share, mount.folder)
    server.start()
    return server


@pytest.fixture
def tools(folder: Path) -> Path:
    """What guests run, with settings."""
    place = folder / "tools"
    place.mkdir()
    for name in ("fsx", "pjdfstest"):
        shutil.copy(built_tool(name), place)
    for name in ("fsx-network.toml", "pjdfstest.toml"):
        shutil.copy(suites.SETTINGS / name, place)
    return place


@pytest.mark.conformance
@pytest.mark.timeout(900)
def test_linux_clients_find_no_fault(
    guest: Guest, ganesha_of_guest: Ganesha, smbd_of_guest: Smbd, mount: Mount, tools: Path
) -> None:
    nfs, smb = ganesha_of_guest, smbd_of_guest
    ports = [ADDRESS, nfs.port, nfs.mount_port, nfs.pseudo, smb.port, smb.share]
    guest.start("files.sh", tools, *ports, "root", PASSWORD, *CLIENTS)
    guest.wait_clean(600)
    assert not guest.said("no attributes")
    assert sorted(path.name for path in mount.folder.iterdir()) == sorted(CLIENTS)


def keeps_records(
    guest: Guest, nfs: Ganesha, smb: Smbd, client: str, changes_names: bool, killed: Sequence[Gateway | Ganesha | Smbd]
) -> None:
    """The client appends records and syncs each, while servers are killed and started."""
    ports = [ADDRESS, nfs.port, nfs.mount_port, nfs.pseudo, smb.port, smb.share]
    names = "names" if changes_names else "no-names"
    guest.start("records.sh", 40, client, names, *ports, "root", PASSWORD)
    guest.wait_to_say("loading", 120)
    for server in killed:
        time.sleep(6)
        server.kill9()
        server.start()
    guest.wait_clean(300)


@pytest.mark.conformance
@pytest.mark.timeout(900)
@pytest.mark.parametrize("client", ["nfs3", "nfs4.0", "nfs4.1", "nfs4.2"])
def test_linux_nfs_client_keeps_its_records_through_kills(
    gateway: Gateway, guest: Guest, ganesha_of_guest: Ganesha, smbd_of_guest: Smbd, client: str
) -> None:
    nfs = ganesha_of_guest
    keeps_records(guest, nfs, smbd_of_guest, client, True, (gateway, gateway, nfs, gateway))


@pytest.mark.conformance
@pytest.mark.timeout(900)
def test_linux_smb_client_keeps_its_records_through_kills_of_the_daemon(
    gateway: Gateway, guest: Guest, ganesha_of_guest: Ganesha, smbd_of_guest: Smbd
) -> None:
    keeps_records(guest, ganesha_of_guest, smbd_of_guest, "cifs", True, (gateway, gateway, gateway))


@pytest.mark.conformance
@pytest.mark.timeout(900)
def test_linux_smb_client_keeps_its_records_through_kills_of_the_server(
    gateway: Gateway, guest: Guest, ganesha_of_guest: Ganesha, smbd_of_guest: Smbd
) -> None:
    """Without changes of names: the client sends them again when it has a new session, which nobody recognizes."""
    smb = smbd_of_guest
    keeps_records(guest, ganesha_of_guest, smb, "cifs", False, (smb, gateway, smb))


def start_work(guest: Guest, server: Ganesha, source: Path, version: str, limit_s: int, *works: str) -> None:
    source.mkdir()
    tests = REPOSITORY / "tests"
    ports = [ADDRESS, server.port, server.mount_port, server.pseudo]
    guest.start("work.sh", sys.executable, tests, source, *ports, version, *works, limit_s=limit_s)


@pytest.mark.conformance
@pytest.mark.timeout(2400)
@pytest.mark.parametrize("version", ["3", "4.2"])
def test_everyday_programs_work_over_nfs(guest: Guest, ganesha_of_guest: Ganesha, folder: Path, version: str) -> None:
    works = ["git", "tar", "build", "sqlite"]
    works += ["rsync", "tar-large"] if version == "4.2" else []
    start_work(guest, ganesha_of_guest, folder / "source", version, 2000, *works)
    guest.wait_clean(2000)


@pytest.mark.conformance
@pytest.mark.timeout(900)
def test_postgres_keeps_its_books_over_nfs_through_kills(
    gateway: Gateway, guest: Guest, ganesha_of_guest: Ganesha, folder: Path
) -> None:
    folder.chmod(0o755)
    start_work(guest, ganesha_of_guest, folder / "source", "4.2", 600, "postgres")
    guest.wait_to_say("loading", 300)
    for killed in (gateway, ganesha_of_guest, gateway):
        time.sleep(12)
        killed.kill9()
        killed.start()
    guest.wait_clean(600)


@pytest.mark.conformance
@pytest.mark.timeout(900)
def test_pjdfstest_finds_no_fault_of_ours_over_nfs(guest: Guest, ganesha_of_guest: Ganesha, tools: Path) -> None:
    nfs = ganesha_of_guest
    guest.start("pjdfstest.sh", tools, ADDRESS, nfs.port, nfs.pseudo)
    guest.wait_clean(800)
    verdicts = suites.pjdfstest_verdicts(guest.process.log_path.read_text(errors="replace"))
    bad = {name for name, verdict in verdicts.items() if verdict not in ("ok", "skipped")}
    assert bad <= FAULTS_OF_THE_CLIENT
    assert suites.summary(verdicts)["ok"] >= 380


@pytest.mark.conformance
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("kind", "options"), [("coherent", []), ("durable", ["--durable-handles"])])
def test_smbtorture_finds_no_fault_beyond_those_over_ext4(
    gateway: Gateway, share: str, mount: Mount, folder: Path, closing: ExitStack, kind: str, options: list[str]
) -> None:
    mount.folder.chmod(0o777)
    # Where smbd keeps its state it must get to as a user, too.
    folder.chmod(0o755)
    server = Smbd(folder / "smbd")
    closing.callback(server.close)
    server.serve_share(gateway, share, mount.folder, *options)
    server.add_user(OF_USER)
    server.start()
    worse = worse_than_baseline(kind, lambda suite: smbtorture(server, suite, OF_USER))
    assert not worse, "\n".join(worse)
