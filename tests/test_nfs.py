"""A share over NFS, through ganesha and our module for it."""

import contextlib
import errno
import random
import re
import stat
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from conftest import SEED, GatewayFactory, s3_settings
from harness.exerciser import Exerciser
from harness.fault_proxy import FaultProxy
from harness.front_ends import Kind, refusals
from harness.ganesha import Ganesha
from harness.gateway import Gateway
from harness.mount import Mount
from harness.nfs import NfsError, NfsFrontEnd
from harness.nfs_exclusive import create_exclusively, root_handle
from harness.object_store import S3Server
from harness.tools import wait_for

MIB = 1 << 20


@pytest.fixture
def nfs(ganesha: Ganesha, closing: ExitStack) -> NfsFrontEnd:
    front_end = ganesha.front_end()
    closing.callback(front_end.close)
    return front_end


ServerFactory = Callable[..., Ganesha]


@pytest.fixture
def make_ganesha(gateway: Gateway, share: str, folder: Path, closing: ExitStack) -> ServerFactory:
    """Running servers of the share with options of `tombolo export nfs`, which win over those for the tests."""

    def make(*options: str) -> Ganesha:
        server = Ganesha(folder / f"ganesha{len(list(folder.glob('ganesha*')))}")
        closing.callback(server.close)
        server.serve_share(gateway, share, *options)
        server.start()
        return server

    return make


@pytest.mark.parametrize("seed", [SEED, SEED + 1])
def test_random_operations_agree_with_the_model(nfs: NfsFrontEnd, seed: int) -> None:
    Exerciser(seed, [nfs]).run(600)


def test_large_file_is_read_back(nfs: NfsFrontEnd, gateway: Gateway) -> None:
    data = random.Random(SEED).randbytes(24 * MIB)
    nfs.create("file")
    nfs.write("file", 1, data)
    nfs.sync("file")
    assert nfs.read("file", 1, len(data) + 1) == data
    gateway.drain()
    assert nfs.read("file", 0, 100) == b"\0" + data[:99]


def test_version_4_shows_the_same_files(nfs: NfsFrontEnd, ganesha: Ganesha) -> None:
    nfs.create("file")
    nfs.write("file", 0, b"content")
    nfs.mkdir("folder")
    with contextlib.closing(ganesha.front_end(version=4)) as second:
        assert sorted(second.names("")) == ["file", "folder"]
        assert second.read("file", 0, 100) == b"content"
        assert second.status("file") == nfs.status("file")


def test_long_directory_is_listed_once_and_whole(nfs: NfsFrontEnd) -> None:
    names = [f"{number:04}-{'x' * (number % 200)}" for number in range(3000)]
    for name in names:
        nfs.create(name)
    assert sorted(nfs.names("")) == names


def test_all_kinds_of_files_can_be_made(nfs: NfsFrontEnd, mount: Mount) -> None:
    for name, kind in (("pipe", stat.S_IFIFO), ("socket", stat.S_IFSOCK)):
        nfs.mknod(name, kind | 0o640)
        assert stat.S_IFMT((mount.folder / name).lstat().st_mode) == kind
    nfs.create("file", 0o604)
    nfs.chown("file", 1234, 5678)
    nfs.chmod("file", 0o6755)
    nfs.symlink("file", "soft")
    nfs.link("file", "hard")
    found = (mount.folder / "hard").stat()
    assert (found.st_uid, found.st_gid, found.st_nlink, found.st_mode & 0o7777) == (1234, 5678, 2, 0o6755)
    assert (mount.folder / "soft").readlink() == Path("file")
    assert nfs.status("soft").kind is Kind.SYMLINK


def test_rights_are_those_of_the_user(nfs: NfsFrontEnd, ganesha: Ganesha) -> None:
    nfs.chmod("", 0o755)
    nfs.mkdir("private", 0o700)
    nfs.create("private/file")
    nfs.create("readable", 0o644)
    nfs.mkdir("open")
    nfs.chmod("open", 0o1777)
    with contextlib.closing(ganesha.front_end(uid=1000, gid=1000)) as user:
        assert refusals(
            lambda: user.status("private/file"),
            lambda: user.write("readable", 0, b"x"),
            lambda: user.create("file"),
            lambda: user.chown("readable", 1000, 1000),
        ) <= {errno.EACCES, errno.EPERM}
        user.create("open/mine")
        user.write("open/mine", 0, b"x")
        nfs.create("open/roots")
        with pytest.raises(NfsError):
            user.unlink("open/roots")


def test_root_is_nobody_unless_told_otherwise(gateway: Gateway, share: str, ganesha: Ganesha, nfs: NfsFrontEnd) -> None:
    shown = gateway.cli("export", "nfs", share, "--show")
    assert "root_squash" in shown
    assert "no_root_squash" not in shown
    nfs.create("secret", 0o600)
    own = ganesha.folder / "shares/share.conf"
    own.write_text(own.read_text().replace("no_root_squash", "root_squash"))
    ganesha.stop()
    ganesha.start()
    with contextlib.closing(ganesha.front_end()) as squashed, pytest.raises(NfsError):
        squashed.read("secret", 0, 1)


def test_read_only_export_permits_no_change(make_ganesha: ServerFactory, mount: Mount) -> None:
    (mount.folder / "file").write_bytes(b"x")
    with contextlib.closing(make_ganesha("--read-only").front_end()) as front_end:
        assert front_end.read("file", 0, 10) == b"x"
        changes = [
            lambda: front_end.create("new"),
            lambda: front_end.write("file", 0, b"y"),
            lambda: front_end.unlink("file"),
        ]
        assert refusals(*changes) <= {errno.EROFS, errno.EACCES}


def test_clients_that_are_not_named_are_refused(ganesha: Ganesha) -> None:
    ganesha.stop()
    own = ganesha.folder / "shares/share.conf"
    own.write_text(own.read_text().replace("Clients = *", "Clients = 192.0.2.1"))
    ganesha.start()
    with pytest.raises(NfsError):
        ganesha.front_end()


def test_removed_file_is_stale_for_who_had_it_open(nfs: NfsFrontEnd, mount: Mount) -> None:
    nfs.create("file")
    nfs.write("file", 0, b"old")
    write = nfs.open_to_write("file")
    (mount.folder / "file").unlink()
    (mount.folder / "file").write_bytes(b"new")
    with pytest.raises(NfsError):
        write(0, b"bad")
    assert (mount.folder / "file").read_bytes() == b"new"


def test_change_through_the_mount_is_seen_soon(nfs: NfsFrontEnd, mount: Mount) -> None:
    """Ganesha keeps attributes and names for a second; it is told at once."""

    def soon(seen: Callable[[], bool]) -> None:
        wait_for(seen, 0.5, "news of a change")

    def is_there(name: str) -> bool:
        try:
            return nfs.status(name).kind is Kind.FILE
        except NfsError as gone:
            # Stale: by a name that ganesha still had in mind.
            assert gone.errno in (errno.ENOENT, errno.ESTALE)
            return False

    (mount.folder / "file").write_bytes(b"1")
    for number in range(50):
        (mount.folder / "file").write_bytes(b"x" * number)
        soon(lambda size=number: nfs.status("file").size == size)  # type: ignore[misc]
        (mount.folder / f"name{number}").touch()
        soon(lambda name=f"name{number}": is_there(name))  # type: ignore[misc]
        (mount.folder / f"name{number}").unlink()
        soon(lambda name=f"name{number}": not is_there(name))  # type: ignore[misc]


def test_client_sees_only_a_pause_when_the_daemon_is_restarted(gateway: Gateway, nfs: NfsFrontEnd) -> None:
    nfs.create("file")
    gateway.kill9()
    gateway.start()
    nfs.write("file", 0, b"after")
    gateway.restart()
    assert nfs.read("file", 0, 10) == b"after"
    nfs.mkdir("folder")
    assert sorted(nfs.names("")) == ["file", "folder"]


def test_client_sees_only_a_pause_when_ganesha_is_killed(ganesha: Ganesha, nfs: NfsFrontEnd) -> None:
    nfs.create("file")
    nfs.write("file", 0, b"before")
    ganesha.kill9()
    ganesha.start()
    assert nfs.read("file", 0, 10) == b"before"
    nfs.rename("file", "renamed")
    assert nfs.names("") == ["renamed"]


def test_second_server_of_one_name_is_turned_away(gateway: Gateway, share: str, nfs: NfsFrontEnd, folder: Path) -> None:
    """It would end the locks and open files of the first, which would come back and do the same to it."""
    nfs.create("file")
    attached = gateway.process.log_path.read_text().count("a client is attached")
    second = Ganesha(folder / "second")
    second.serve_share(gateway, share)
    with ThreadPoolExecutor() as pool:
        starting = pool.submit(second.start)
        try:
            wait_for(lambda: "another has its name and is alive" in gateway.process.log_path.read_text(), 30, "refusal")
            nfs.write("file", 0, b"still here")
            assert nfs.read("file", 0, 10) == b"still here"
            assert gateway.process.log_path.read_text().count("a client is attached") == attached
        finally:
            second.close()
        assert starting.exception() is not None


def attributes_set(gateway: Gateway) -> int:
    """How many requests to set attributes the gateway has had."""
    count = r'^tombolo_file_request_duration_seconds_count{operation="setattr"} (\d+)'
    counts = re.findall(count, gateway.metrics(), re.MULTILINE)
    assert len(counts) == 1
    return int(counts[0])


def test_exclusive_creation_is_one_step(gateway: Gateway, ganesha: Ganesha) -> None:
    """Were the verifier set by a second request, a client whose server dies in between would take its own file for
    another's: its next attempt would be EEXIST."""
    root = root_handle(ganesha.mount_port, ganesha.pseudo)
    before = attributes_set(gateway)
    handle = create_exclusively(ganesha.port, root, "file", b"verifier")
    assert attributes_set(gateway) == before
    ganesha.kill9()
    gateway.kill9()
    gateway.start()
    ganesha.start()
    assert create_exclusively(ganesha.port, root, "file", b"verifier") == handle
    with pytest.raises(FileExistsError):
        create_exclusively(ganesha.port, root, "file", b"another!")


def test_quota_reaches_the_client(gateway: Gateway, share: str, nfs: NfsFrontEnd) -> None:
    gateway.cli("share", "quota", share, "4MiB")
    nfs.create("file")
    with pytest.raises(NfsError):  # libnfs does not say why.
        nfs.write("file", 0, random.Random(SEED).randbytes(8 * MIB))
    assert 3 * MIB < gateway.shares()[share]["used_bytes"] <= 4 * MIB


def test_writer_waits_while_the_store_is_away(
    make_gateway: GatewayFactory, s3: S3Server, proxy: FaultProxy, folder: Path, closing: ExitStack
) -> None:
    """The cap on dirty bytes is reached; the client is told to come again, and gets through when the store is back."""
    settings = s3_settings(proxy.endpoint) | {"flush": {"dirty_bytes_max": "16MiB"}}
    gateway = make_gateway(settings, s3.environment).start()
    server = Ganesha(folder / "ganesha")
    closing.callback(server.close)
    server.serve_share(gateway, gateway.create_share("share"))
    server.start()
    data = random.Random(SEED).randbytes(48 * MIB)
    proxy.refuse()
    with ThreadPoolExecutor(1) as pool, contextlib.closing(server.front_end()) as front_end:
        front_end.create("file")
        writing = pool.submit(front_end.write, "file", 0, data)
        time.sleep(8)
        assert not writing.done(), "more was taken than the cap permits"
        assert gateway.status()["dirty_bytes"] <= gateway.dirty_bytes_max
        proxy.listen()
        writing.result(120)
        assert front_end.read("file", 0, len(data)) == data
    gateway.check()


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(SEED, SEED + 20))
def test_long_random_operations_agree_with_the_model(nfs: NfsFrontEnd, seed: int) -> None:
    Exerciser(seed, [nfs]).run(4000)
