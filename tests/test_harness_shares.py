"""The clients, servers and verifiers of the tests for shares, tried on plain folders and foreign servers, and shown
faults that they must find."""

import errno
import fcntl
import random
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from conftest import SEED
from harness.exerciser import Divergence, Exerciser
from harness.file_verifier import FileWorker, FileWriters, LostFile
from harness.front_ends import Kind, LocalFrontEnd, Status
from harness.ganesha import Ganesha
from harness.nfs import NfsError
from harness.smb import SmbError
from harness.smbd import Smbd
from harness.smbtorture import Verdict, baseline, verdict, worse_than, worse_than_baseline
from harness.suites import pjdfstest_verdicts
from harness.tools import ToolFailed, wait_for
from harness.tree_model import TreeModel


@pytest.fixture
def tree(folder: Path) -> Path:
    path = folder / "tree"
    path.mkdir()
    path.chmod(0o777)
    return path


@pytest.fixture
def plain_ganesha(folder: Path, tree: Path, closing: ExitStack) -> Ganesha:
    server = Ganesha(folder / "ganesha")
    closing.callback(server.close)
    server.serve_folder(tree)
    server.start()
    return server


@pytest.fixture
def plain_smbd(folder: Path, tree: Path, closing: ExitStack) -> Smbd:
    server = Smbd(folder / "smbd")
    closing.callback(server.close)
    server.serve_folder(tree)
    server.start()
    return server


# Exerciser


@pytest.mark.parametrize("seed", range(SEED, SEED + 5))
def test_model_agrees_with_the_local_file_system(tree: Path, seed: int) -> None:
    exerciser = Exerciser(seed, [LocalFrontEnd(tree)])
    exerciser.run(600)
    assert 0.1 < exerciser.refusals / exerciser.steps < 0.4


def test_same_seed_does_the_same(tree: Path, folder: Path) -> None:
    second = folder / "second"
    second.mkdir()
    models = []
    for place in (tree, second):
        exerciser = Exerciser(SEED, [LocalFrontEnd(place)])
        exerciser.run(300)
        models.append({path: getattr(node, "content", None) for path, node in exerciser.model.walk()})
    assert models[0] == models[1]


def test_front_ends_of_plain_servers_see_each_other_at_once(
    tree: Path, plain_ganesha: Ganesha, plain_smbd: Smbd
) -> None:
    with closing(plain_ganesha.front_end()) as nfs, closing(plain_smbd.front_end()) as smb:
        Exerciser(SEED, [LocalFrontEnd(tree), nfs, smb]).run(400)


class StaleSize(LocalFrontEnd):
    def status(self, path: str) -> Status:
        found = super().status(path)
        return Status(found.kind, found.size & ~1, found.links, found.inode) if found.kind is Kind.FILE else found


class FlippedBit(LocalFrontEnd):
    def read(self, path: str, offset: int, length: int) -> bytes:
        data = bytearray(super().read(path, offset, length))
        if len(data) > 5000:
            data[5000] ^= 1
        return bytes(data)


class ForgottenName(LocalFrontEnd):
    def names(self, path: str) -> list[str]:
        return super().names(path)[:5]


class GarbageBeyondTheEnd(LocalFrontEnd):
    """Growing a file brings back what was cut off before."""

    def truncate(self, path: str, size: int) -> None:
        before = self.status(path).size
        super().truncate(path, size)
        if size > before:
            super().write(path, size - 1, b"x")


class RenameThatCopies(LocalFrontEnd):
    def rename(self, source: str, target: str) -> None:
        if self.status(source).kind is Kind.SYMLINK:
            super().rename(source, target)
            return
        super().rename(source, target)
        self.link(target, source) if self.status(target).kind is Kind.FILE else None


class OneInode(LocalFrontEnd):
    def status(self, path: str) -> Status:
        found = super().status(path)
        return Status(found.kind, found.size, found.links, 1)


class WrongRefusal(LocalFrontEnd):
    def rmdir(self, path: str) -> None:
        try:
            super().rmdir(path)
        except OSError as refused:
            raise OSError(errno.EIO, "wrong") from refused


@pytest.mark.parametrize(
    "front_end", [StaleSize, FlippedBit, ForgottenName, GarbageBeyondTheEnd, RenameThatCopies, OneInode, WrongRefusal]
)
def test_exerciser_sees_a_fault(tree: Path, front_end: type[LocalFrontEnd]) -> None:
    with pytest.raises((Divergence, OSError)) as fault:
        Exerciser(SEED, [front_end(tree)]).run(2000)
    assert f"seed {SEED}, step" in str(fault.value)


class FrontEndWithMemory(LocalFrontEnd):
    """Remembers sizes, as a cache without invalidation does."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "memory")
        self._seen: dict[str, Status] = {}

    def status(self, path: str) -> Status:
        return self._seen.setdefault(path, super().status(path))


def test_exerciser_sees_a_front_end_that_is_late(tree: Path) -> None:
    with pytest.raises(Divergence, match="memory:"):
        Exerciser(SEED, [LocalFrontEnd(tree), FrontEndWithMemory(tree)]).run(2000)


class FrontEndThatIsLate(LocalFrontEnd):
    """Says three times more what it said before."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "late")
        self._seen: dict[str, Status] = {}
        self._left = 3

    def status(self, path: str) -> Status:
        found = super().status(path)
        before = self._seen.get(path, found)
        if before != found and self._left:
            self._left -= 1
            return before
        self._left, self._seen[path] = 3, found
        return found


def test_exerciser_waits_only_for_front_ends_that_may_be_late(tree: Path) -> None:
    with pytest.raises(Divergence, match="late:"):
        Exerciser(SEED, [LocalFrontEnd(tree), FrontEndThatIsLate(tree)], may_be_late=["local"], settle_s=10).run(2000)


def test_exerciser_counts_what_was_late(tree: Path) -> None:
    front_end = FrontEndThatIsLate(tree)
    exerciser = Exerciser(SEED, [LocalFrontEnd(tree), front_end], may_be_late=["late"], settle_s=10)
    with pytest.raises(Divergence, match="late:"):  # In the end it is late with a change of its own.
        exerciser.run(2000)
    assert 0 < exerciser.late_looks < exerciser.looks


@pytest.mark.parametrize(
    ("operation", "arguments", "refusal"),
    [
        ("create", ("a/b",), errno.ENOENT),
        ("create", ("file/b",), errno.ENOTDIR),
        ("mkdir", ("file",), errno.EEXIST),
        ("unlink", ("folder",), errno.EISDIR),
        ("rmdir", ("file",), errno.ENOTDIR),
        ("rmdir", ("folder",), errno.ENOTEMPTY),
        ("rename", ("folder", "folder/below"), errno.EINVAL),
        ("rename", ("file", "folder"), errno.EISDIR),
        ("rename", ("folder", "file"), errno.ENOTDIR),
        ("link", ("folder", "second"), errno.EPERM),
    ],
)
def test_model_refuses_as_linux_does(tree: Path, operation: str, arguments: tuple[str, ...], refusal: int) -> None:
    for place in (TreeModel(), LocalFrontEnd(tree)):
        place.create("file")
        place.mkdir("folder")
        place.create("folder/inside")
        with pytest.raises(OSError) as refused:
            getattr(place, operation)(*arguments)
        assert refused.value.errno == refusal


# Clients and servers


def test_nfs_client_speaks_with_a_foreign_server(tree: Path, plain_ganesha: Ganesha) -> None:
    data = random.Random(SEED).randbytes(3 << 20)
    with closing(plain_ganesha.front_end()) as front_end:
        front_end.create("file", 0o600)
        front_end.write("file", 5, data)
        front_end.sync("file")
        front_end.chown("file", 7, 8)
        assert (tree / "file").read_bytes() == bytes(5) + data
        assert front_end.read("file", 5, 4 << 20) == data
        assert front_end.status("file") == Status(Kind.FILE, len(data) + 5, 1, (tree / "file").stat().st_ino)
        assert ((tree / "file").stat().st_uid, (tree / "file").stat().st_mode & 0o777) == (7, 0o600)
        with pytest.raises(NfsError) as refused:
            front_end.create("file")
        assert refused.value.errno == errno.EEXIST
    with closing(plain_ganesha.front_end(version=4)) as front_end:
        assert front_end.read("file", 5, 100) == data[:100]
    with pytest.raises(NfsError, match="ACCES"), closing(plain_ganesha.front_end(uid=1000, gid=1000)) as front_end:
        front_end.read("file", 0, 1)


def test_nfs_client_waits_for_a_server_that_comes_back(plain_ganesha: Ganesha) -> None:
    with closing(plain_ganesha.front_end()) as front_end:
        front_end.create("file")
        plain_ganesha.kill9()
        plain_ganesha.start()
        front_end.write("file", 0, b"after")
        assert front_end.read("file", 0, 10) == b"after"


def test_smb_client_speaks_with_a_foreign_server(tree: Path, plain_smbd: Smbd) -> None:
    data = random.Random(SEED).randbytes(1 << 20)
    with closing(plain_smbd.front_end()) as front_end:
        front_end.create("file")
        front_end.write("file", 5, data)
        front_end.sync("file")
        assert (tree / "file").read_bytes() == bytes(5) + data
        assert front_end.read("file", 5, 4 << 20) == data
        assert front_end.status("file") == Status(Kind.FILE, len(data) + 5, 1, (tree / "file").stat().st_ino)
        with pytest.raises(SmbError) as refused:
            front_end.truncate("absent", 5)
        assert refused.value.errno == errno.ENOENT
        plain_smbd.kill9()
        with pytest.raises(ConnectionError):
            front_end.create("second")
    plain_smbd.start()
    assert "file" in plain_smbd.smbclient("ls")


def test_locks_of_plain_servers_exclude_each_other(tree: Path, plain_ganesha: Ganesha, plain_smbd: Smbd) -> None:
    (tree / "file").write_bytes(bytes(100))
    first, second = plain_ganesha.lock("file", 0, 10), plain_ganesha.lock("file", 5, 10)
    assert first.held
    assert not second.held
    with closing(plain_smbd.front_end()) as front_end, (tree / "file").open("r+b") as local:
        locks = front_end.open_to_lock("file")
        with pytest.raises(BlockingIOError):
            fcntl.lockf(local, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 9)
        assert not locks.try_lock(9, 1)
        assert locks.try_lock(50, 10)
        with pytest.raises(BlockingIOError):
            fcntl.lockf(local, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 59)
        first.release()
        assert locks.try_lock(9, 1)
        locks.unlock(9, 1)
        fcntl.lockf(local, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 9)
        locks.close()
    second.release()


# Verifier of files


@pytest.mark.parametrize("server", ["ganesha", "smbd"])
def test_files_of_a_killed_plain_server_are_kept(
    tree: Path, plain_ganesha: Ganesha, plain_smbd: Smbd, server: str
) -> None:
    writers = FileWriters(SEED, threads=3, exactly_once=False)
    for _ in range(2):
        if server == "ganesha":
            writers.start(plain_ganesha.front_end)
        else:
            writers.start(plain_smbd.front_end, survives=ConnectionError)
        before = writers.changes
        wait_for(lambda limit=before + 60: writers.changes > limit, 60, "60 more changes")  # type: ignore[misc]
        for killed in (plain_ganesha, plain_smbd):
            killed.kill9()
            killed.start()
        writers.stop()
        writers.verify(LocalFrontEnd(tree))


def damage_by_cutting(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1])


def damage_by_altering(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


def damage_by_removing(file: Path) -> None:
    file.unlink()


def damage_by_swapping(file: Path) -> None:
    other = next(path for path in sorted(file.parent.iterdir()) if path != file)
    file.write_bytes(other.read_bytes())


def damage_by_adding(file: Path) -> None:
    file.with_name("stranger").touch()


@pytest.mark.parametrize(
    "damage",
    [damage_by_cutting, damage_by_altering, damage_by_removing, damage_by_swapping, damage_by_adding],
)
def test_verifier_of_files_sees_damage(tree: Path, damage: Callable[[Path], None]) -> None:
    worker, front_end = FileWorker(SEED, "worker"), LocalFrontEnd(tree)
    worker.prepare(front_end)
    worker.change_until(front_end, lambda: worker.changes > 100)
    worker.verify(front_end)
    damage(sorted((tree / "worker").glob("file*"))[0])
    with pytest.raises(LostFile):
        worker.verify(front_end)


# Readers of what suites say


def test_verdicts_are_read_from_smbtorture_as_it_speaks() -> None:
    said = "test: a\nsuccess: a\ntest: b\nfailure: b [\nwhy\n]\nskip: c [\nno\n]\nerror: d (x)\n"
    assert verdict(said) == Verdict(1, ("b", "d"), 1)


def test_smbtorture_is_judged_by_its_baseline() -> None:
    expected = Verdict(5, ("a",), 0)
    assert not worse_than(expected, Verdict(6, (), 0))
    assert "['b']" in worse_than(expected, Verdict(5, ("a", "b"), 0))
    assert "4 passed of 5" in worse_than(expected, Verdict(4, ("a",), 1))
    assert worse_than_baseline("coherent", lambda suite: baseline("coherent")[suite]) == []


def test_a_suite_of_smbtorture_that_is_worse_once_is_worse() -> None:
    verdicts = {suite: [found, found] for suite, found in baseline("durable").items()}
    verdicts["smb2.lock"][0] = Verdict(0, (), 0)
    (said,) = worse_than_baseline("durable", lambda suite: verdicts[suite].pop(0))
    assert said.startswith("smb2.lock: 0 passed of")


def test_verdicts_are_read_from_pjdfstest_as_it_speaks() -> None:
    said = (
        "\x1b[34mchown::a::block    \x1b[0m ok\r\nopen::b    FAILED\n\n"
        "open::c  skipped\n\twhy\nSummary: 1 failed, 1 skipped\n"
    )
    assert pjdfstest_verdicts(said) == {"chown::a::block": "ok", "open::b": "failed", "open::c": "skipped"}
    with pytest.raises(ToolFailed):
        pjdfstest_verdicts("chown::a::block    ok\nthread panicked")
