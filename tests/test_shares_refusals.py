"""Promise 8, nothing is free text, for shares: wrong requests get one exact error and do no harm."""

import contextlib
import errno
import os
import random
import socket
import struct
from contextlib import ExitStack
from pathlib import Path

import pytest

from conftest import SEED, MountFactory
from harness.gateway import Gateway
from harness.mount import Mount, mounted_type
from harness.tools import run, tombolo_binary, wait_for

WRONG_USAGE, NOT_FOUND, TAKEN, BUSY = 2, 4, 5, 6
ATTACH = 0x54420001
FUSE_GETATTR = 3
IN_HEADER = struct.Struct("<IIQQIIIHH")
OUT_HEADER = struct.Struct("<IiQ")


# Command line


@pytest.mark.parametrize(
    ("words", "code", "named"),
    [
        (["create", "share"], TAKEN, ["share"]),
        (["create", "a/b"], WRONG_USAGE, ["a/b"]),
        (["create", ""], WRONG_USAGE, []),
        (["create", "x" * 300], WRONG_USAGE, []),
        (["create", "new", "--quota", "5000"], WRONG_USAGE, ["quota"]),
        (["create", "new", "--quota", "lots"], WRONG_USAGE, ["lots"]),
        (["quota", "absent", "1GiB"], NOT_FOUND, ["absent"]),
        (["quota", "share", "-1"], WRONG_USAGE, []),
        (["delete", "absent", "--yes"], NOT_FOUND, ["absent"]),
    ],
    ids=lambda value: "-".join(map(str, value))[:40] if isinstance(value, list) else str(value),
)
def test_wrong_request_is_refused_by_name(
    gateway: Gateway, share: str, words: list[str], code: int, named: list[str]
) -> None:
    done = gateway.try_cli("share", *words)
    assert done.returncode == code, done.stderr
    for word in named:
        assert word in done.stderr
    assert list(gateway.shares()) == [share]


def test_share_in_use_is_not_deleted_without_force(gateway: Gateway, share: str, mount: Mount) -> None:
    (mount.folder / "file").write_bytes(b"x")
    done = gateway.try_cli("share", "delete", share, "--yes")
    assert done.returncode == BUSY
    assert (mount.folder / "file").read_bytes() == b"x"
    mount.stop()
    wait_for(lambda: gateway.try_cli("share", "delete", share, "--yes").returncode == 0, 20, "deletion")
    wait_for(lambda: gateway.shares() == {}, 60, "end of the deletion")
    gateway.create_share(share)
    mount.start()
    assert list(mount.folder.iterdir()) == []


def test_deletion_by_force_ends_the_clients(gateway: Gateway, share: str, mount: Mount) -> None:
    file = os.open(mount.folder / "file", os.O_CREAT | os.O_RDWR)
    os.write(file, b"x")
    gateway.cli("share", "delete", share, "--yes", "--force")
    with pytest.raises(OSError) as refused:
        os.write(file, b"y")
    assert refused.value.errno in (errno.ESTALE, errno.EIO, errno.ENOTCONN, errno.ECONNABORTED)
    with contextlib.suppress(OSError):  # The end of a file that is gone may be an error, too.
        os.close(file)
    wait_for(lambda: gateway.shares() == {}, 60, "end of the deletion")


def test_deleted_share_gives_its_space_back(gateway: Gateway, mount: Mount, closing: ExitStack) -> None:
    assert mounted_type(mount.folder) is not None
    other = Mount(gateway, gateway.create_share("other"))
    closing.callback(other.close)
    other.start()
    (other.folder / "file").write_bytes(random.Random(SEED).randbytes(8 << 20))
    other.stop()
    gateway.cli("share", "delete", "other", "--yes", "--force")
    wait_for(lambda: "other" not in gateway.shares(), 60, "end of the deletion")
    gateway.drain()


def test_unknown_share_is_not_mounted(gateway: Gateway, closing: ExitStack) -> None:
    mount = Mount(gateway, "absent")
    closing.callback(mount.close)
    mount.launch()
    assert mount.process.wait(30) == NOT_FOUND
    assert "absent" in mount.process.log_tail()
    assert mounted_type(mount.folder) is None


def test_share_is_not_mounted_on_what_is_no_directory(gateway: Gateway, share: str, folder: Path) -> None:
    file = folder / "file"
    file.touch()
    for place in (file, folder / "absent"):
        done = gateway.try_cli("share", "mount", share, str(place))
        assert done.returncode not in (0, 101)
        assert str(place) in done.stderr


def test_mounting_needs_the_right_to(gateway: Gateway, share: str, make_mount: MountFactory) -> None:
    mount = make_mount()
    program = ["--socket", str(gateway.admin_socket), "share", "mount", share, str(mount.folder)]
    without = ["setpriv", "--bounding-set=-sys_admin"]
    done = run([*without, tombolo_binary(), *program], 30, expected_codes=range(1, 100))
    assert str(mount.folder) in done.stderr
    assert "Operation not permitted" in done.stderr


@pytest.mark.parametrize("protocol", ["nfs", "smb"])
def test_unknown_share_is_not_exported(gateway: Gateway, share: str, folder: Path, protocol: str) -> None:
    assert share == "share"
    done = gateway.try_cli("export", protocol, "absent", "--directory", str(folder / "etc"))
    assert done.returncode == NOT_FOUND
    assert not (folder / "etc").exists()


# Names and sizes


def test_names_have_their_bounds(mount: Mount) -> None:
    (mount.folder / ("x" * 255)).touch()
    with pytest.raises(OSError) as refused:
        (mount.folder / ("x" * 256)).touch()
    assert refused.value.errno == errno.ENAMETOOLONG
    odd = mount.folder / "\udcff\udc81 \n*?"
    odd.write_bytes(b"any bytes but two")
    assert odd.name in [path.name for path in mount.folder.iterdir()]


def test_file_ends_at_its_largest_size(mount: Mount) -> None:
    with (mount.folder / "file").open("wb", buffering=0) as file:
        file.truncate(1 << 47)
        with pytest.raises(OSError) as refused:
            file.truncate((1 << 48) + 1)
        assert refused.value.errno == errno.EFBIG
    assert (mount.folder / "file").stat().st_size == 1 << 47


# The socket of the file service


class FilesClient:
    """Speaks the socket's protocol byte by byte, also wrongly."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(20)
        self._socket.connect(str(path))

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def request(self, opcode: int, body: bytes, node: int = 1, unique: int = 2) -> tuple[int, bytes]:
        """The error number (0 or positive) and the body of the reply."""
        length = IN_HEADER.size + len(body)
        self.send(IN_HEADER.pack(length, opcode, unique, node, 0, 0, 0, 0, 0) + body)
        length, error, answered = OUT_HEADER.unpack(self._receive(OUT_HEADER.size))
        assert answered == unique
        return -error, self._receive(length - OUT_HEADER.size)

    def attach(self, share: bytes, version: int = 1, name: bytes = b"test") -> tuple[int, bytes]:
        head = struct.pack("<IIQIIIIQ", version, 0, 1, len(name), len(share), 39, 0, 0)
        return self.request(ATTACH, head + name + share)

    def is_closed(self) -> bool:
        try:
            return self._socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def close(self) -> None:
        self._socket.close()

    def _receive(self, length: int) -> bytes:
        data = b""
        while len(data) < length:
            part = self._socket.recv(length - len(data))
            if not part:
                raise ConnectionError("the file service closed the connection")
            data += part
        return data


@pytest.fixture
def client(gateway: Gateway, share: str, closing: ExitStack) -> FilesClient:
    assert share == "share"
    opened = FilesClient(gateway.files_socket)
    closing.callback(opened.close)
    return opened


def test_attaching_works_and_wrong_attaching_is_refused(gateway: Gateway, client: FilesClient) -> None:
    error, reply = client.attach(b"share")
    assert error == 0
    assert struct.unpack_from("<I", reply)[0] == 1
    for share, version, refusal in ((b"absent", 1, errno.ENOENT), (b"share", 99, errno.EPROTO), (b"", 1, None)):
        second = FilesClient(gateway.files_socket)
        error, _ = second.attach(share, version)
        assert error == (refusal or error) != 0
        second.close()
    assert client.request(FUSE_GETATTR, bytes(16))[0] == 0


def test_request_before_attaching_is_refused(gateway: Gateway, client: FilesClient) -> None:
    try:
        error, _ = client.request(FUSE_GETATTR, bytes(16))
        assert error != 0
    except ConnectionError:
        pass  # The connection may be closed instead.
    gateway.status()


def test_unknown_request_and_stale_node_have_their_errors(client: FilesClient) -> None:
    client.attach(b"share")
    assert client.request(9999, b"")[0] == errno.ENOSYS
    assert client.request(FUSE_GETATTR, bytes(16), node=1 << 40)[0] == errno.ESTALE
    assert client.request(FUSE_GETATTR, bytes(3))[0] == errno.EINVAL
    assert client.request(FUSE_GETATTR, bytes(16))[0] == 0


@pytest.mark.parametrize("length", [0, 1, 39, 0xFFFFFFFF, 1 << 30])
def test_impossible_length_closes_the_connection(gateway: Gateway, client: FilesClient, length: int) -> None:
    client.attach(b"share")
    client.send(IN_HEADER.pack(length, FUSE_GETATTR, 4, 1, 0, 0, 0, 0, 0))
    assert client.is_closed()
    gateway.check()


def test_noise_does_no_harm(gateway: Gateway, share: str, mount: Mount) -> None:
    (mount.folder / "file").write_bytes(b"x")
    generator = random.Random(SEED)
    for number in range(60):
        client = FilesClient(gateway.files_socket)
        try:
            if number % 2:
                client.attach(share.encode())
            for _ in range(20):
                body = generator.randbytes(generator.randrange(200))
                header = (IN_HEADER.size + len(body), generator.randrange(60), generator.randrange(1 << 60) * 2 + 2)
                client.send(IN_HEADER.pack(*header, generator.randrange(5), 0, 0, 0, 0, 0) + body)
        except (ConnectionError, TimeoutError):
            pass
        finally:
            client.close()
    gateway.check()
    assert mount.folder.exists()
    assert "panicked" not in gateway.process.log_path.read_text(errors="replace")
