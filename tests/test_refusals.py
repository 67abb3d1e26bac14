"""Promise 8, nothing is free text: wrong settings, requests and surroundings get one exact error and do no harm."""

import contextlib
import errno
import random
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from conftest import SEED, GatewayFactory, s3_settings
from harness.gateway import Gateway
from harness.nbd import NbdError, UnknownExport
from harness.object_store import S3Server
from harness.tools import run, wait_for

MIB = 1 << 20


# Settings

WRONG_SETTINGS: list[tuple[str, dict[str, Any], list[str]]] = [
    ("unknown key at the top", {"sate_directory": "/x"}, ["sate_directory"]),
    ("unknown key in a table", {"flush": {"dirty_bytes_maximum": "1GiB"}}, ["dirty_bytes_maximum"]),
    ("unknown table", {"caches": {"size": "1GiB"}}, ["caches"]),
    ("a number that is no size", {"cache": {"size": "much"}}, ["size", "much"]),
    ("a cap above the cache", {"cache": {"size": "64MiB"}, "flush": {"dirty_bytes_max": "1GiB"}}, ["dirty_bytes_max"]),
    ("an unknown scheme", {"store": {"url": "ftp://host/path"}}, ["ftp://host/path"]),
    ("plain HTTP unasked", {"store": {"url": "s3://b", "endpoint": "http://127.0.0.1:1"}}, ["allow_http"]),
    ("metrics without a port", {"metrics": {"listen": "127.0.0.1"}}, ["listen", "127.0.0.1"]),
    ("metrics to the world", {"metrics": {"listen": "0.0.0.0:9464"}}, ["listen", "0.0.0.0:9464"]),
]


@pytest.mark.parametrize(
    ("changes", "named"), [case[1:] for case in WRONG_SETTINGS], ids=[c[0] for c in WRONG_SETTINGS]
)
def test_wrong_setting_is_refused_by_name(
    make_gateway: GatewayFactory, changes: dict[str, Any], named: list[str]
) -> None:
    gateway = make_gateway(changes)
    code, said = gateway.refused_start()
    assert code == 2
    for word in named:
        assert word in said
    assert "panicked" not in said
    assert not gateway.cache_file.exists(), "a refused start must not touch the state directory"


def test_all_wrong_settings_are_reported_at_once(make_gateway: GatewayFactory) -> None:
    changes = {"cache": {"size": "64MiB"}, "flush": {"dirty_bytes_max": "1GiB"}, "store": {"url": "ftp://host"}}
    _, said = make_gateway(changes).refused_start()
    assert "dirty_bytes_max" in said
    assert "ftp://host" in said


def test_missing_settings_file_is_named(gateway: Gateway) -> None:
    done = gateway.try_cli("--config", "/nonexistent/tombolo.toml", "serve")
    assert done.returncode in (1, 2)
    assert "/nonexistent/tombolo.toml" in done.stderr


# Surroundings


def test_wrong_credentials_are_refused_at_start(make_gateway: GatewayFactory, s3: S3Server) -> None:
    environment = s3.environment | {"AWS_SECRET_ACCESS_KEY": "not-the-secret"}
    code, said = make_gateway(s3_settings(s3.endpoint), environment).refused_start()
    assert code not in (0, 101)
    assert "denied" in said
    assert "credentials" in said
    assert "not-the-secret" not in said, "a secret must never reach a log"


def test_missing_bucket_is_refused_at_start(make_gateway: GatewayFactory, s3: S3Server) -> None:
    settings = s3_settings(s3.endpoint)
    settings["store"]["url"] = "s3://no-such-bucket/gateway"
    code, said = make_gateway(settings, s3.environment).refused_start()
    assert code not in (0, 101)
    assert "the bucket or directory does not exist" in said
    assert "no-such-bucket" in said


def test_second_daemon_on_one_state_directory_is_refused(gateway: Gateway, make_gateway: GatewayFactory) -> None:
    second = make_gateway({"state_directory": str(gateway.state_directory)})
    code, said = second.refused_start()
    assert code not in (0, 101)
    assert f"{gateway.state_directory} is in use by another gateway (process {gateway.process.pid})" in said
    gateway.status()


@pytest.fixture
def small_disk(folder: Path, closing: ExitStack) -> Iterator[Path]:
    """A file system of 160 MiB to hold a state directory."""
    path = folder / "disk"
    path.mkdir()
    run(["mount", "-t", "tmpfs", "-o", "size=160m", "tmpfs", path])
    closing.callback(run, ["umount", "-l", path])
    yield path


def test_read_only_state_directory_is_refused(make_gateway: GatewayFactory, small_disk: Path) -> None:
    run(["mount", "-o", "remount,ro", small_disk])
    code, said = make_gateway({"state_directory": str(small_disk)}).refused_start()
    assert code not in (0, 101)
    assert str(small_disk) in said
    assert "Read-only file system" in said


def test_disk_too_small_for_the_cache_is_refused(make_gateway: GatewayFactory, small_disk: Path) -> None:
    code, said = make_gateway({"state_directory": str(small_disk), "cache": {"size": "512MiB"}}).refused_start()
    assert code not in (0, 101)
    assert "[cache] size" in said
    assert "No space left on device" in said


def test_full_local_disk_is_a_pause_and_no_reason_not_to_start(
    make_gateway: GatewayFactory, small_disk: Path, closing: ExitStack
) -> None:
    changes = {
        "state_directory": str(small_disk),
        "cache": {"size": "64MiB"},
        "flush": {"dirty_bytes_max": "32MiB"},
        "journal": {"segment_bytes": "1MiB", "checkpoint_journal_bytes": "4MiB"},
    }
    gateway = make_gateway(changes).start()
    gateway.create_volume("vol", "1GiB")
    filler = small_disk / "filler"
    written: list[int] = []
    is_over = threading.Event()

    def content(number: int) -> bytes:
        return random.Random(number).randbytes(4096)

    def work() -> None:
        with contextlib.suppress(ConnectionError), gateway.disk("vol", limit_s=300) as disk:
            while not is_over.is_set():
                number = len(written)
                if number % 16 == 0:
                    disk.write(number * 8192, content(number))
                else:
                    disk.write_zeroes(number * 8192, 4096)
                if number % 64 == 0:
                    disk.flush()
                written.append(number)

    def is_waiting() -> bool:
        return gateway.process.log_tail(2000).count("no room for the journal") > waits

    def is_paused() -> bool:
        return "no room" in (gateway.status()["pause"] or "")

    def has_written(count: int) -> bool:
        return len(written) > count

    def writer() -> threading.Thread:
        thread = threading.Thread(target=work)
        thread.start()
        closing.callback(thread.join)
        closing.callback(is_over.set)
        return thread

    for waits in range(2):
        fill(filler)
        thread = writer()
        wait_for(is_waiting, 240, "the journal to find no room")
        wait_for(is_paused, 60, "status to say so")
        assert gateway.status()["failure"] is None, "it goes on by itself"
        if waits == 1:
            gateway.kill9()
            thread.join()
            gateway.start()
            with gateway.disk("vol") as disk:
                for number in written[::16]:
                    assert disk.read(number * 8192, 4096) == content(number), "it starts and reads on a full disk"
            thread = writer()
        filler.unlink()
        wait_for(partial(has_written, len(written) + 100), 60, "the writer to go on by itself")
        is_over.set()
        thread.join()
        is_over.clear()
    wait_for(lambda: gateway.status()["pause"] is None, 30, "status to say that it goes on")
    with gateway.disk("vol") as disk:
        disk.flush()
        for number in written[::16]:
            assert disk.read(number * 8192, 4096) == content(number)


def fill(file: Path) -> None:
    """Takes all the room that is left."""
    with file.open("wb", buffering=0) as opened:
        for piece in (MIB, 4096):
            try:
                while True:
                    opened.write(bytes(piece))
            except OSError as full:
                assert full.errno == errno.ENOSPC


# Commands


INVALID, NO_GATEWAY, NOT_FOUND, EXISTS, BUSY = 2, 3, 4, 5, 6
"""Exit codes, as `tombolo --help` lists them."""


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["volume", "delete", "absent", "--yes"], NOT_FOUND, 'volume "absent" does not exist'),
        (["volume", "resize", "absent", "--size", "1GiB"], NOT_FOUND, 'volume "absent" does not exist'),
        (["volume", "create", "there", "--size", "1GiB"], EXISTS, 'a volume named "there" exists already'),
        (["volume", "create", "new", "--size", "0"], INVALID, "not a valid size for a volume"),
        (["volume", "create", "new", "--size", "4097"], INVALID, "not a valid size for a volume"),
        (["volume", "create", "new", "--size", "lots"], INVALID, '"lots" is not a size'),
        (["volume", "create", "a/b", "--size", "1GiB"], INVALID, '"a/b" is not a valid name for a volume'),
        (["volume", "create", "n" * 300, "--size", "1GiB"], INVALID, "is not a valid name for a volume"),
        (["volume", "resize", "there", "--size", "8MiB"], INVALID, "would lose what lies beyond"),
        (["export", "iscsi", "absent", "--apply"], NOT_FOUND, 'volume "absent" does not exist'),
        (["frobnicate"], INVALID, "frobnicate"),
    ],
)
def test_wrong_command_is_refused_exactly(gateway: Gateway, words: list[str], code: int, said: str) -> None:
    gateway.create_volume("there", "16MiB")
    done = gateway.try_cli(*words)
    assert said in done.stderr
    assert done.returncode == code
    assert [volume["name"] for volume in gateway.volumes()] == ["there"]


def test_command_without_a_daemon_says_so(make_gateway: GatewayFactory) -> None:
    gateway = make_gateway()
    done = gateway.try_cli("status")
    assert str(gateway.admin_socket) in done.stderr
    assert done.returncode == NO_GATEWAY


# Requests


def test_unknown_export_is_refused(gateway: Gateway) -> None:
    with pytest.raises(UnknownExport, match='no export is named "absent"'):
        gateway.disk("absent")
    said = run(["nbdinfo", gateway.nbd_uri("absent")], expected_codes=(1,)).stderr
    assert "No such file or directory for export: absent" in said


@pytest.mark.parametrize(
    ("command", "offset", "length", "expected"),
    [
        ("read", 16 * MIB, 4096, errno.EINVAL),
        ("read", 16 * MIB - 4096, 8192, errno.EINVAL),
        ("read", (1 << 64) - 4096, 4096, errno.EINVAL),
        ("write", 16 * MIB, 4096, errno.ENOSPC),
        ("write", 16 * MIB - 4096, 8192, errno.ENOSPC),
        ("trim", 16 * MIB, 4096, errno.EINVAL),
        ("write_zeroes", 16 * MIB, 4096, errno.ENOSPC),
    ],
)
def test_request_out_of_range_gets_its_exact_error(
    gateway: Gateway, command: str, offset: int, length: int, expected: int
) -> None:
    gateway.create_volume("vol", "16MiB")
    with gateway.disk("vol") as disk:
        disk.write(16 * MIB - 4096, b"\x5a" * 4096)
        with pytest.raises(NbdError) as failure:
            if command == "write":
                disk.write(offset, bytes(length))
            else:
                getattr(disk, command)(offset, length)
        assert failure.value.errno == expected
        assert disk.read(16 * MIB - 4096, 4096) == b"\x5a" * 4096, "the connection and the data must be unharmed"


def test_partial_blocks_are_written_exactly(gateway: Gateway) -> None:
    gateway.create_volume("vol", "16MiB")
    model = bytearray(1 * MIB)
    generator = random.Random(SEED)
    with gateway.disk("vol") as disk:
        for _ in range(300):
            length = generator.randrange(1, 20_000)
            offset = generator.randrange(len(model) - length)
            if generator.random() < 0.3:
                data = bytes(length)
                disk.write_zeroes(offset, length)
            else:
                data = generator.randbytes(length)
                disk.write(offset, data)
            model[offset : offset + length] = data
        assert disk.read(0, len(model)) == model


def test_garbage_on_the_socket_harms_nobody(gateway: Gateway) -> None:
    gateway.create_volume("vol", "16MiB")
    generator = random.Random(SEED)
    with gateway.disk("vol") as disk:
        disk.write(0, b"\x11" * 4096)
        for length in (1, 17, 18, 1000, 100_000):
            with socket.socket(socket.AF_UNIX) as noise:
                noise.settimeout(5)
                noise.connect(str(gateway.nbd_socket))
                try:
                    noise.sendall(generator.randbytes(length))
                    noise.shutdown(socket.SHUT_WR)
                    while noise.recv(65536):
                        pass
                except ConnectionError:
                    continue  # Hanging up on noise is right.
        assert disk.read(0, 4096) == b"\x11" * 4096


def test_volume_in_use_is_not_deleted(gateway: Gateway) -> None:
    gateway.create_volume("vol", "16MiB")
    with gateway.disk("vol") as disk:
        disk.write(0, b"\x66" * 4096)
        refused = gateway.try_cli("volume", "delete", "vol", "--yes")
        assert refused.returncode == BUSY
        assert 'volume "vol" is in use by 1 connections' in refused.stderr
        assert disk.read(0, 4096) == b"\x66" * 4096
    wait_for(lambda: gateway.volumes()[0]["connections"] == 0, 10, "the connection to be gone")
    gateway.cli("volume", "delete", "vol", "--yes")
    assert gateway.volumes() == []
