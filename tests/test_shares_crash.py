"""Promise 1, flushed is kept, for shares: daemon, ganesha and smbd are killed with SIGKILL under load, again and again.

The mount and ganesha live on when the daemon dies, and ask again what was not answered, so their clients see a pause
and nothing else: every acknowledged change is there, and none is made twice. When ganesha dies, NFS clients ask again
by themselves; when smbd dies, its clients lose their session, and what they had been told stays true.
"""

import random
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from conftest import SEED, MountFactory
from harness import suites
from harness.file_verifier import FileWriters, Survived
from harness.front_ends import FrontEnd
from harness.ganesha import Ganesha
from harness.gateway import Gateway
from harness.mount import Mount
from harness.postgres import Postgres
from harness.smbd import Smbd
from harness.tools import wait_for

THREADS = 3
LOAD_S = (0.2, 1.2)


def wait_for_changes(writers: FileWriters) -> None:
    before = writers.changes
    wait_for(lambda: writers.changes > before + 20, 90, "20 more changes")


def restart_rounds(
    writers: FileWriters, rounds: int, connect: Callable[[], FrontEnd], killed: Gateway | Ganesha, seed: int = SEED
) -> None:
    """The writers never stop and never see an error."""
    generator = random.Random(seed)
    writers.start(connect)
    for _ in range(rounds):
        wait_for_changes(writers)
        time.sleep(generator.uniform(*LOAD_S))
        killed.kill9()
        killed.start()
    wait_for_changes(writers)
    writers.stop()


def broken_rounds(
    writers: FileWriters, rounds: int, connect: Callable[[], FrontEnd], killed: Smbd, survives: Survived
) -> None:
    """The writers lose their connections, and begin anew."""
    for _ in range(rounds):
        writers.start(connect, survives)
        wait_for_changes(writers)
        killed.kill9()
        writers.stop()
        killed.start()


def kill_rounds_under_mount(gateway: Gateway, mount: Mount, again: Mount, rounds: int) -> None:
    writers = FileWriters(SEED, THREADS)
    restart_rounds(writers, rounds, mount.front_end, gateway)
    writers.verify(mount.front_end())
    gateway.check()
    # As somebody sees it who has nothing in memory.
    again.start()
    writers.verify(again.front_end())


def kill_rounds_under_nfs(gateway: Gateway, ganesha: Ganesha, mount: Mount, rounds: int) -> None:
    writers = FileWriters(SEED, THREADS)
    restart_rounds(writers, rounds, ganesha.front_end, gateway)
    writers.verify(mount.front_end())
    gateway.check()


def kill_rounds_of_ganesha(ganesha: Ganesha, mount: Mount, rounds: int) -> None:
    writers = FileWriters(SEED, THREADS, exactly_once=False)
    restart_rounds(writers, rounds, ganesha.front_end, ganesha)
    writers.verify(mount.front_end())


def kill_rounds_of_smbd(smbd: Smbd, mount: Mount, rounds: int) -> None:
    writers = FileWriters(SEED, THREADS)
    broken_rounds(writers, rounds, smbd.front_end, smbd, ConnectionError)
    writers.verify(mount.front_end())


def kill_rounds_under_postgres(gateway: Gateway, mount: Mount, folder: Path, rounds: int) -> None:
    folder.chmod(0o755)
    mount.folder.chmod(0o755)
    generator = random.Random(SEED)
    base = Postgres(mount.folder / "data", folder / "postgres")
    with ExitStack() as closing:
        closing.callback(base.close)
        base.start()
        base.prepare()
        for _ in range(rounds):
            before, load = base.transactions(), base.load(seconds=5)
            time.sleep(generator.uniform(1, 3))
            gateway.kill9()
            gateway.start()
            assert load.wait(120) == 0, load.log_tail()
            base.check_books()
            assert base.transactions() > before
            if generator.random() < 0.5:
                base.kill9()
                (mount.folder / "data/postmaster.pid").unlink()
                base.start()
                base.check_books()
        base.stop()
        base.check_files()


def test_mount_sees_only_a_pause_when_the_daemon_is_killed(
    gateway: Gateway, mount: Mount, make_mount: MountFactory
) -> None:
    kill_rounds_under_mount(gateway, mount, make_mount(), rounds=4)


def test_nfs_client_sees_only_a_pause_when_the_daemon_is_killed(
    gateway: Gateway, ganesha: Ganesha, mount: Mount
) -> None:
    kill_rounds_under_nfs(gateway, ganesha, mount, rounds=4)


def test_killed_ganesha_loses_nothing(ganesha: Ganesha, mount: Mount) -> None:
    kill_rounds_of_ganesha(ganesha, mount, rounds=2)


def test_killed_smbd_loses_nothing(smbd: Smbd, mount: Mount) -> None:
    kill_rounds_of_smbd(smbd, mount, rounds=2)


def test_postgres_keeps_its_books_when_the_daemon_is_killed(gateway: Gateway, mount: Mount, folder: Path) -> None:
    kill_rounds_under_postgres(gateway, mount, folder, rounds=1)


def test_sqlite_keeps_its_transactions_when_the_daemon_is_killed(gateway: Gateway, mount: Mount) -> None:
    kills: list[int] = []

    def kill_now_and_then(committed: int) -> bool:
        if committed % 40 == 39:
            kills.append(committed)
            gateway.kill9()
            gateway.start()
        return committed >= 130

    suites.sqlite(mount.folder / "base", kill_now_and_then)
    assert len(kills) == 3


def test_files_survive_a_kill_and_reach_the_store_afterwards(
    gateway: Gateway, mount: Mount, make_mount: MountFactory
) -> None:
    data = random.Random(SEED).randbytes(8 << 20)
    (mount.folder / "file").write_bytes(data)
    mount.front_end().sync("file")
    mount.stop()
    gateway.kill9()
    gateway.start().drain()
    gateway.stop()
    gateway.cache_file.unlink()
    gateway.start()
    assert (make_mount().start().folder / "file").read_bytes() == data


# Long runs


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_mount_sees_only_pauses_over_fifty_kills(gateway: Gateway, mount: Mount, make_mount: MountFactory) -> None:
    kill_rounds_under_mount(gateway, mount, make_mount(), rounds=50)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_nfs_client_sees_only_pauses_over_fifty_kills(gateway: Gateway, ganesha: Ganesha, mount: Mount) -> None:
    kill_rounds_under_nfs(gateway, ganesha, mount, rounds=50)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_ganesha_killed_thirty_times_loses_nothing(ganesha: Ganesha, mount: Mount) -> None:
    kill_rounds_of_ganesha(ganesha, mount, rounds=30)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_smbd_killed_thirty_times_loses_nothing(smbd: Smbd, mount: Mount) -> None:
    kill_rounds_of_smbd(smbd, mount, rounds=30)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_postgres_keeps_its_books_over_fifteen_kills(gateway: Gateway, mount: Mount, folder: Path) -> None:
    kill_rounds_under_postgres(gateway, mount, folder, rounds=15)
