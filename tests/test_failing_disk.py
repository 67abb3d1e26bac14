"""A local disk that fails for a while, or for ever: what clients and administrators hear of it."""

import json
import os
import random
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from conftest import SEED, GatewayFactory, s3_settings
from harness.failing_disk import FailingDisk
from harness.fault_proxy import FaultProxy
from harness.gateway import Gateway, Settings
from harness.nbd import NbdError
from harness.object_store import S3Server
from harness.tools import wait_for

MIB = 1 << 20
BLOCK_BYTES = 4096
HELD: Settings = {"flush": {"flush_delay_ms": 3_600_000, "stall_timeout_ms": 1_000}}


@pytest.fixture
def gateway(make_gateway: GatewayFactory) -> Gateway:
    return make_gateway(HELD)


@pytest.fixture
def disk(gateway: Gateway) -> FailingDisk:
    made = FailingDisk(gateway)
    gateway.start().create_volume("vol", "64MiB")
    return made


def write(gateway: Gateway, length: int) -> bytes:
    data = random.Random(SEED).randbytes(length)
    with gateway.disk("vol") as disk:
        disk.write(0, data)
        disk.flush()
    return data


def test_a_journal_without_room_is_a_pause_and_changes_are_refused(gateway: Gateway, disk: FailingDisk) -> None:
    disk.begin("journal-writes")
    with gateway.disk("vol") as first, gateway.disk("vol") as second, ThreadPoolExecutor() as threads:
        waiting = threads.submit(first.write, 0, bytes(BLOCK_BYTES - 1) + b"x")
        wait_for(lambda: gateway.status()["pause"] is not None, 10.0, "a pause")
        assert "tombolo_paused 1" in gateway.metrics()
        with pytest.raises(NbdError):
            second.write(MIB, b"x" * BLOCK_BYTES)
        checkpoint = gateway.try_cli("checkpoint")
        assert checkpoint.returncode == 6 and "no room" in checkpoint.stderr
        disk.end("journal-writes")
        waiting.result(timeout=20)
    wait_for(lambda: gateway.status()["pause"] is None, 10.0, "the end of the pause")
    write(gateway, BLOCK_BYTES)


def test_reads_that_fail_now_and_then_are_none_of_the_clients_business(gateway: Gateway, disk: FailingDisk) -> None:
    data = write(gateway, MIB)
    for state in ("dirty", "clean"):
        disk.begin("cache-reads")
        with gateway.disk("vol") as reader:
            assert reader.read(0, MIB) == data, state
        disk.end("cache-reads")
        gateway.drain()


def test_a_cache_file_that_gives_nothing_back_costs_few_fetches(gateway: Gateway, disk: FailingDisk) -> None:
    write(gateway, BLOCK_BYTES)
    gateway.drain()
    disk.begin("cache-contents")
    with gateway.disk("vol") as reader, pytest.raises(NbdError):
        reader.read(0, BLOCK_BYTES)
    disk.end("cache-contents")
    assert gateway.status()["cache"]["slots_corrupt"] < 10
    assert gateway.status()["lost"]["blocks"] == 0


def test_what_fails_says_so_to_the_command_line(gateway: Gateway, disk: FailingDisk) -> None:
    write(gateway, BLOCK_BYTES)
    disk.begin("syncs")
    with gateway.disk("vol") as writer, pytest.raises(NbdError):
        writer.write(0, b"x" * BLOCK_BYTES)
        writer.flush()
    for words in (["checkpoint"], ["drain"], ["drain", "--wait"]):
        done = gateway.try_cli(*words)
        assert done.returncode == 1 and "sync" in done.stderr, (words, done)


def test_a_drain_in_which_a_block_is_lost_does_not_succeed(gateway: Gateway) -> None:
    gateway.start().create_volume("vol", "64MiB")
    data = write(gateway, 64 * BLOCK_BYTES)
    at = gateway.cache_file.read_bytes().index(data[:BLOCK_BYTES])
    with gateway.cache_file.open("r+b") as opened:
        opened.seek(at)
        opened.write(bytes(16))
    done = gateway.try_cli("drain", "--wait", "--json")
    assert done.returncode == 7 and "1 lost block" in done.stderr, done
    assert json.loads(done.stdout.splitlines()[-1])["lost_blocks"] == 1
    assert gateway.try_cli("drain", "--wait").returncode == 0, "nothing more was lost"


def test_a_drain_that_sleeps_through_a_restart_goes_on(
    make_gateway: GatewayFactory, s3: S3Server, proxy: FaultProxy
) -> None:
    gateway = make_gateway(s3_settings(proxy.endpoint) | HELD, s3.environment).start()
    gateway.create_volume("vol", "64MiB")
    proxy.refuse()
    write(gateway, MIB)
    command: list[str | Path] = [gateway.binary, "--socket", gateway.admin_socket, "drain", "--wait"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | gateway.environment) as waiting:
        wait_for(lambda: gateway.status()["upload"]["draining"], 20.0, "a drain")
        time.sleep(1)
        waiting.send_signal(signal.SIGSTOP)
        gateway.kill9()
        gateway.start()
        proxy.listen()
        waiting.send_signal(signal.SIGCONT)
        said = waiting.communicate(timeout=60)[0]
    assert waiting.returncode == 0 and "the store has everything" in said
    assert gateway.status()["dirty_bytes"] == 0
