"""Promise 1, flushed is kept: the daemon is killed with SIGKILL under load, again and again.

Over NBD the client sees the connection break, so only what it flushed is promised. Over iSCSI tgtd lives on
and re-issues what was not answered, so the initiator sees a pause and nothing else: every acknowledged write must
be there, for nobody told it that a cache was lost.
"""

import random
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from conftest import SEED, GatewayFactory
from harness.gateway import Gateway
from harness.nbd import NbdError
from harness.process import Process
from harness.target import Tgtd
from harness.tools import built_tool, run, wait_for
from harness.verifier import Writers

THREADS = 4
BLOCKS_EACH = 2048
LOAD_S = (0.2, 1.5)
FIO_VERIFY = [
    "--name=verify",
    "--thread",
    "--ioengine=libiscsi",
    "--rw=randwrite",
    "--bs=4k",
    "--iodepth=16",
    "--size=64M",
    "--io_size=192M",
    "--rate_iops=4000",
    "--fsync=64",
    "--verify=crc32c",
    "--verify_fatal=1",
    "--verify_state_save=0",
    f"--randseed={SEED}",
]


def wait_for_writes(writers: Writers) -> None:
    before = writers.writes
    wait_for(lambda: writers.writes > before + 50, 60, "50 more writes")


def kill_rounds_over_nbd(gateway: Gateway, rounds: int) -> None:
    generator = random.Random(SEED)
    gateway.create_volume("vol", "64MiB")
    writers = Writers(SEED, THREADS, BLOCKS_EACH)
    for _ in range(rounds):
        writers.start(lambda: gateway.disk("vol"), survives=(ConnectionError, NbdError))
        wait_for_writes(writers)
        time.sleep(generator.uniform(*LOAD_S))
        gateway.kill9()
        writers.stop()
        gateway.start()
        writers.verify(lambda: gateway.disk("vol"))
    assert writers.flushes > rounds * THREADS
    gateway.drain()
    writers.verify(lambda: gateway.disk("vol"), keeps_acknowledged=True)


def iscsi_lun(gateway: Gateway, tgtd: Tgtd, size: str = "64MiB") -> str:
    gateway.create_volume("vol", size)
    iqn = tgtd.create_target(1, "crash")
    tgtd.add_lun(1, 1, gateway.nbd_socket, "vol")
    return iqn


def kill_rounds_over_iscsi(gateway: Gateway, tgtd: Tgtd, rounds: int) -> None:
    """The writers never stop and never see an error."""
    generator = random.Random(SEED)
    iqn = iscsi_lun(gateway, tgtd)
    writers = Writers(SEED, THREADS, BLOCKS_EACH)
    writers.start(lambda: tgtd.disk(iqn))
    for _ in range(rounds):
        wait_for_writes(writers)
        time.sleep(generator.uniform(*LOAD_S))
        gateway.kill9()
        gateway.start()
    wait_for_writes(writers)
    writers.stop()
    writers.verify(lambda: tgtd.disk(iqn), keeps_acknowledged=True)


def kill_rounds_of_tgtd(gateway: Gateway, tgtd: Tgtd, rounds: int) -> None:
    iqn = iscsi_lun(gateway, tgtd)
    writers = Writers(SEED, THREADS, BLOCKS_EACH)
    for _ in range(rounds):
        writers.start(lambda: tgtd.disk(iqn), survives=(ConnectionError, OSError))
        wait_for_writes(writers)
        tgtd.kill9()
        tgtd.start()
        tgtd.create_target(1, "crash")
        tgtd.add_lun(1, 1, gateway.nbd_socket, "vol")
        writers.stop()
        writers.verify(lambda: tgtd.disk(iqn), keeps_acknowledged=True)


def test_flushed_is_kept_when_the_daemon_is_killed_under_nbd_load(gateway: Gateway) -> None:
    kill_rounds_over_nbd(gateway, rounds=5)


def test_initiator_sees_only_a_pause_when_the_daemon_is_killed(gateway: Gateway, tgtd: Tgtd) -> None:
    kill_rounds_over_iscsi(gateway, tgtd, rounds=5)


def test_killed_tgtd_loses_nothing(gateway: Gateway, tgtd: Tgtd) -> None:
    kill_rounds_of_tgtd(gateway, tgtd, rounds=2)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_flushed_is_kept_over_fifty_kills_under_nbd_load(gateway: Gateway) -> None:
    kill_rounds_over_nbd(gateway, rounds=50)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_initiator_sees_only_pauses_over_fifty_kills(gateway: Gateway, tgtd: Tgtd) -> None:
    kill_rounds_over_iscsi(gateway, tgtd, rounds=50)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_tgtd_killed_ten_times_loses_nothing(gateway: Gateway, tgtd: Tgtd) -> None:
    kill_rounds_of_tgtd(gateway, tgtd, rounds=10)


@pytest.mark.timeout(180)
def test_fio_verifies_its_data_through_a_kill_and_restart(
    gateway: Gateway, tgtd: Tgtd, folder: Path, closing: ExitStack
) -> None:
    iqn = iscsi_lun(gateway, tgtd)
    url = tgtd.url(iqn).replace(":", "\\:")
    job = Process("fio", folder / "fio.log")
    closing.callback(job.kill9)
    job.start([built_tool("fio"), *FIO_VERIFY, f"--filename={url}"])
    time.sleep(3)
    assert job.running, job.log_tail()
    gateway.kill9()
    gateway.start()
    assert job.wait(120) == 0, job.log_tail()
    assert "err= 0" in job.log_tail(200)


def test_dirty_data_survives_a_kill_and_reaches_the_store_afterwards(make_gateway: GatewayFactory) -> None:
    gateway = make_gateway().start()
    gateway.create_volume("vol", "64MiB")
    data = random.Random(SEED).randbytes(8 << 20)
    with gateway.disk("vol") as disk:
        disk.write(0, data)
        disk.flush()
    gateway.kill9()
    gateway.start().drain()
    gateway.stop()
    gateway.cache_file.unlink()
    gateway.start()
    with gateway.disk("vol") as disk:
        assert disk.read(0, len(data)) == data


def test_fio_finds_altered_data(folder: Path) -> None:
    """The tool above can fail: it is shown a file with one altered byte."""
    file = folder / "data"
    words: list[str | Path] = [
        built_tool("fio"),
        "--name=v",
        "--ioengine=psync",
        f"--filename={file}",
        "--size=1M",
        "--bs=4k",
        "--rw=write",
    ]
    run([*words, "--verify=crc32c", "--do_verify=0", "--verify_state_save=0"])
    with file.open("r+b") as opened:
        opened.seek(300_000)
        byte = opened.read(1)
        opened.seek(300_000)
        opened.write(bytes([byte[0] ^ 1]))
    checked = run([*words, "--verify=crc32c", "--verify_only", "--verify_state_save=0"], expected_codes=(1,))
    assert "verify" in checked.stderr + checked.stdout
