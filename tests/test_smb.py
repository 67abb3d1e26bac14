"""A share over SMB: smbd over the kernel's mount, configured by `tombolo export smb`."""

import contextlib
import errno
import os
import random
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from conftest import SEED
from harness.exerciser import Exerciser
from harness.front_ends import refusals
from harness.gateway import Gateway
from harness.mount import Mount
from harness.smb import SmbError, SmbFrontEnd
from harness.smbd import Smbd
from harness.tools import run

MIB = 1 << 20


@pytest.fixture
def smb(smbd: Smbd, closing: ExitStack) -> SmbFrontEnd:
    front_end = smbd.front_end()
    closing.callback(front_end.close)
    return front_end


ServerFactory = Callable[..., Smbd]


@pytest.fixture
def make_smbd(gateway: Gateway, share: str, mount: Mount, folder: Path, closing: ExitStack) -> ServerFactory:
    """Running servers of the share with options of `tombolo export smb`."""

    def make(*options: str) -> Smbd:
        server = Smbd(folder / f"smbd{len(list(folder.glob('smbd*')))}")
        closing.callback(server.close)
        server.serve_share(gateway, share, mount.folder, *options)
        server.start()
        return server

    return make


def test_random_operations_agree_with_the_model(smb: SmbFrontEnd) -> None:
    Exerciser(SEED, [smb]).run(400)


def test_large_file_is_read_back(smb: SmbFrontEnd, mount: Mount) -> None:
    data = random.Random(SEED).randbytes(16 * MIB)
    smb.create("file")
    smb.write("file", 1, data)
    smb.sync("file")
    assert smb.read("file", 1, len(data) + 1) == data
    assert (mount.folder / "file").read_bytes() == b"\0" + data


def test_smbclient_puts_lists_and_gets(smbd: Smbd, folder: Path) -> None:
    local, back = folder / "local", folder / "back"
    local.write_bytes(random.Random(SEED).randbytes(3 * MIB))
    said = smbd.smbclient(f'put {local} "Ein großer Name.bin"; ls; get "Ein großer Name.bin" {back}')
    assert "Ein großer Name.bin" in said
    assert back.read_bytes() == local.read_bytes()


def test_names_are_found_whatever_their_case(smb: SmbFrontEnd) -> None:
    smb.create("Name")
    smb.write("NAME", 0, b"x")
    assert smb.read("name", 0, 10) == b"x"
    with pytest.raises(SmbError) as refused:
        smb.create("nAME")
    assert refused.value.errno == errno.EEXIST
    assert smb.names("") == ["Name"]


def test_windows_attributes_and_streams_are_kept(smbd: Smbd, mount: Mount, folder: Path, gateway: Gateway) -> None:
    stream = folder / "stream"
    stream.write_bytes(b"in the stream")
    smbd.smbclient(f"put {stream} file; put {stream} file:second; setmode file +hs; mkdir folder")
    gateway.restart()
    assert "HS" in smbd.smbclient("allinfo file").replace("\t", " ") or "HS" in smbd.smbclient("ls")
    back = folder / "back"
    smbd.smbclient(f"get file:second {back}")
    assert back.read_bytes() == b"in the stream"
    attributes = os.listxattr(mount.folder / "file")
    assert "user.DOSATTRIB" in attributes
    assert any(name.startswith("user.DosStream") for name in attributes)
    assert sorted(path.name for path in mount.folder.iterdir()) == ["file", "folder"]


def test_files_belong_to_the_user_who_makes_them(smbd: Smbd, mount: Mount) -> None:
    mount.folder.chmod(0o1777)
    smbd.add_user("daemon")
    with contextlib.closing(smbd.front_end("daemon")) as user, contextlib.closing(smbd.front_end()) as root:
        user.create("mine")
        root.create("roots")
        assert (mount.folder / "mine").owner() == "daemon"
        refusals(lambda: user.unlink("roots"), lambda: user.write("roots", 0, b"x"))


def test_wrong_password_and_unlisted_user_are_refused(make_smbd: ServerFactory) -> None:
    server = make_smbd("--user", "root")
    server.add_user("daemon")
    with pytest.raises(OSError):
        SmbFrontEnd(server.port, server.share, "root", "wrong")
    with pytest.raises(OSError), contextlib.closing(server.front_end("daemon")) as user:
        user.names("")
    with contextlib.closing(server.front_end()) as root:
        assert root.names("") == []


def test_read_only_share_permits_no_change(make_smbd: ServerFactory, mount: Mount) -> None:
    (mount.folder / "file").write_bytes(b"x")
    with contextlib.closing(make_smbd("--read-only").front_end()) as front_end:
        assert front_end.read("file", 0, 10) == b"x"
        refusals(lambda: front_end.create("new"), lambda: front_end.unlink("file"), lambda: front_end.mkdir("folder"))


def test_nobody_gets_in_while_the_share_is_not_mounted(smbd: Smbd, mount: Mount) -> None:
    """Files would end up on the disk below."""
    mount.stop()
    with pytest.raises(OSError), contextlib.closing(smbd.front_end()) as front_end:
        front_end.create("astray")
    assert list(mount.folder.iterdir()) == []
    mount.start()
    with contextlib.closing(smbd.front_end()) as front_end:
        front_end.create("file")


def test_encryption_can_be_required(make_smbd: ServerFactory) -> None:
    """Version 2 knows none."""
    server = make_smbd("--require-encryption")
    words = ["smbclient", "-s", str(server.configuration), "-p", str(server.port), "-U", "root%tombolo-test"]
    address = f"//127.0.0.1/{server.share}"
    assert run([*words, "-m", "SMB3_11", address, "-c", "ls"], expected_codes=range(256)).returncode == 0
    assert run([*words, "-m", "SMB2_10", address, "-c", "ls"], expected_codes=range(256)).returncode != 0


def test_client_sees_only_a_pause_when_the_daemon_is_killed(gateway: Gateway, smb: SmbFrontEnd) -> None:
    smb.create("file")
    gateway.kill9()
    gateway.start()
    smb.write("file", 0, b"after")
    assert smb.read("file", 0, 10) == b"after"


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(SEED, SEED + 10))
def test_long_random_operations_agree_with_the_model(smb: SmbFrontEnd, seed: int) -> None:
    Exerciser(seed, [smb]).run(3000)
