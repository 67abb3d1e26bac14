"""A share mounted by the kernel: it is a POSIX file system, keeps its bounds, and outlives its daemon."""

import contextlib
import errno
import fcntl
import mmap
import os
import random
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from conftest import SEED, GatewayFactory, MountFactory
from harness import suites
from harness.exerciser import Exerciser
from harness.gateway import Gateway
from harness.mount import Mount, mounted_type
from harness.tools import run, wait_for

MIB = 1 << 20


@pytest.fixture
def source(folder: Path) -> Path:
    """A folder elsewhere, for what a suite reads or leaves behind."""
    path = folder / "source"
    path.mkdir()
    return path


@contextlib.contextmanager
def paused(gateway: Gateway, seconds: float) -> Iterator[None]:
    """The daemon is killed now, and started again by another thread after a while; waited for at the end."""
    gateway.kill9()
    faults: list[BaseException] = []

    def start() -> None:
        time.sleep(seconds)
        try:
            gateway.start()
        except BaseException as fault:  # Raised by the thread that waits.
            faults.append(fault)

    starter = threading.Thread(target=start)
    starter.start()
    try:
        yield
    finally:
        starter.join()
    if faults:
        raise faults[0]


# A POSIX file system


def test_pjdfstest_finds_no_fault(mount: Mount) -> None:
    verdicts = suites.pjdfstest(mount.folder)
    assert [name for name, verdict in verdicts.items() if verdict not in ("ok", "skipped")] == []
    # One fewer than on ext4: libc knows no limit on links of FUSE file systems, so that the test of it is skipped.
    assert suites.summary(verdicts)["ok"] >= 384


@pytest.mark.parametrize("seed", [SEED, SEED + 1])
def test_fsx_finds_no_fault(mount: Mount, source: Path, seed: int) -> None:
    suites.fsx(mount.folder / "file", source, 2000, seed)


@pytest.mark.parametrize("seed", [SEED, SEED + 1])
def test_random_operations_agree_with_the_model(mount: Mount, seed: int) -> None:
    Exerciser(seed, [mount.front_end()]).run(1000)


def test_git_works_in_a_share(mount: Mount, source: Path) -> None:
    suites.git(mount.folder, source, 4 * MIB)


def test_archive_of_many_files_unpacks(mount: Mount, source: Path) -> None:
    assert suites.tar(mount.folder, source, 8 * MIB) > 500


def test_rsync_copies_all_attributes(mount: Mount, source: Path) -> None:
    suites.rsync(mount.folder, source)


def test_project_is_built_in_a_share(mount: Mount) -> None:
    suites.build_c(mount.folder)


def test_sqlite_keeps_its_transactions(mount: Mount) -> None:
    suites.sqlite(mount.folder / "base", lambda committed: committed >= 200)


def test_directory_is_listed_whole_while_it_changes(mount: Mount) -> None:
    """What is there from the first to the last is listed once, whatever else comes and goes."""
    stable = {f"stable{number}" for number in range(1500)}
    for name in stable:
        (mount.folder / name).touch()
    generator, seen = random.Random(SEED), []
    with os.scandir(mount.folder) as entries:
        for number, entry in enumerate(entries):
            seen.append(entry.name)
            # What is new may be listed as well, so there has to be an end to it.
            if number < 1000:
                (mount.folder / f"new{number}").touch()
            if generator.random() < 0.5:
                (mount.folder / f"new{generator.randrange(1000)}").unlink(missing_ok=True)
    listed = [name for name in seen if name in stable]
    assert len(listed) == len(set(listed)) == len(stable)


def test_directory_is_listed_whole_while_its_entries_are_renamed(mount: Mount) -> None:
    """What is renamed stays: it is listed once, by the old name or the new one, and the listing ends."""
    generator, generations = random.Random(SEED), [0] * 3000
    for number in range(len(generations)):
        (mount.folder / f"{number}.0").touch()

    def rename(number: int) -> None:
        generations[number] += 1
        new = mount.folder / f"{number}.{generations[number]}"
        (mount.folder / f"{number}.{generations[number] - 1}").rename(new)

    seen = []
    with os.scandir(mount.folder) as entries:
        for entry in entries:
            seen.append(int(entry.name.split(".")[0]))
            assert len(seen) <= len(generations), "listed again"
            rename(seen[-1])
            rename(generator.randrange(len(generations)))
    assert sorted(seen) == list(range(len(generations)))


def test_listing_ends_while_entries_are_made(mount: Mount) -> None:
    for number in range(3000):
        (mount.folder / f"old{number}").touch()
    with os.scandir(mount.folder) as entries:
        for number, entry in enumerate(entries):
            assert number < 3000, "what is made for each entry is listed in turn"
            (mount.folder / f"{entry.name}.new").touch()


def test_rewound_directory_shows_what_was_made(mount: Mount) -> None:
    """As opendir(3) would: rewinddir(3) begins anew."""
    (mount.folder / "first").touch()
    descriptor = os.open(mount.folder, os.O_RDONLY | os.O_DIRECTORY)

    def listed() -> list[str]:
        # At the end the descriptor is rewound.
        with os.scandir(descriptor) as entries:
            return [entry.name for entry in entries]

    assert listed() == ["first"]
    (mount.folder / "second").touch()
    assert listed() == ["first", "second"]
    os.close(descriptor)


def test_default_access_lists_are_inherited(mount: Mount) -> None:
    folder = mount.folder / "folder"
    folder.mkdir()
    run(["setfacl", "-d", "-m", "u:daemon:rwx,g::r-x,o::---", folder])
    (folder / "file").touch(0o666)
    (folder / "below").mkdir()
    assert "user:daemon:rwx\t" in run(["getfacl", "-p", folder / "file"]).stdout
    assert "default:user:daemon:rwx" in run(["getfacl", "-p", folder / "below"]).stdout
    as_user = ["setpriv", "--reuid=daemon", "--regid=daemon", "--clear-groups"]
    run([*as_user, "sh", "-c", "echo written > file"], cwd=folder)
    run(["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", "cat", folder / "file"], expected_codes=(1,))


def as_user(group: str, *words: str | Path) -> None:
    run(["setpriv", "--reuid=nobody", f"--regid={group}", "--clear-groups", *words])


def shown_mode(path: Path) -> int:
    """The tool asks the kernel for the mode alone, which it may have in mind when all else is asked for anew."""
    return int(run(["stat", "-c", "%a", path]).stdout, 8)


@pytest.mark.parametrize("tool", ["write", "allocate", "truncate"])
@pytest.mark.parametrize(
    ("before", "group", "after"),
    [
        (0o6777, "nogroup", 0o777),
        (0o6777, "root", 0o777),
        (0o4666, "nogroup", 0o666),
        # Without the right to execute it is the mark of mandatory locking, which the file's group leaves.
        (0o6666, "nogroup", 0o666),
        (0o6666, "root", 0o2666),
    ],
)
def test_setuid_and_setgid_are_gone_once_a_user_has_written(
    mount: Mount, folder: Path, tool: str, before: int, group: str, after: int
) -> None:
    """At once, and as on the machine's own file system."""
    folder.chmod(0o755)
    for path in (folder / "file", mount.folder / "file"):
        path.write_bytes(b"content")
        path.chmod(before)
        assert shown_mode(path) == before
        commands: dict[str, list[str | Path]] = {
            "write": ["dd", "if=/dev/zero", f"of={path}", "bs=1", "count=1", "conv=notrunc", "status=none"],
            "allocate": ["fallocate", "-l", "8192", path],
            "truncate": ["truncate", "-s", "3", path],
        }
        as_user(group, *commands[tool])
        assert shown_mode(path) == after, path


def test_unlinked_file_stays_while_it_is_open(mount: Mount) -> None:
    with (mount.folder / "file").open("w+b") as file:
        file.write(b"still here")
        file.flush()
        (mount.folder / "file").unlink()
        assert os.fstat(file.fileno()).st_nlink == 0
        file.seek(0)
        assert file.read() == b"still here"
    assert list(mount.folder.iterdir()) == []


def test_unnamed_file_gets_a_name(mount: Mount) -> None:
    file = os.open(mount.folder, os.O_TMPFILE | os.O_RDWR, 0o600)
    os.write(file, b"content")
    # Python follows the link of /proc only if it is told of some folder.
    os.link(f"/proc/self/fd/{file}", mount.folder / "name", src_dir_fd=file, follow_symlinks=True)
    os.close(file)
    assert (mount.folder / "name").read_bytes() == b"content"


def test_shared_map_is_written_back(mount: Mount) -> None:
    path = mount.folder / "file"
    path.write_bytes(bytes(3 * MIB))
    data = random.Random(SEED).randbytes(MIB)
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        mapped[MIB : 2 * MIB] = data
        mapped.flush()
        os.fsync(file.fileno())
    assert path.read_bytes() == bytes(MIB) + data + bytes(MIB)


def test_direct_io_reads_what_was_written(mount: Mount) -> None:
    file = os.open(mount.folder / "file", os.O_CREAT | os.O_RDWR | os.O_DIRECT)
    with mmap.mmap(-1, MIB) as buffer:
        buffer[:] = random.Random(SEED).randbytes(MIB)
        assert os.pwritev(file, [buffer], 4096) == MIB
        written = bytes(buffer)
        buffer[:] = bytes(MIB)
        assert os.preadv(file, [buffer], 4096) == MIB
        assert bytes(buffer) == written
    os.close(file)


def test_holes_are_found_and_take_no_space(gateway: Gateway, share: str, mount: Mount) -> None:
    path = mount.folder / "sparse"
    with path.open("wb") as file:
        file.write(b"x" * 8192)
        file.seek(1 << 30)
        file.write(b"y")
    assert gateway.shares()[share]["used_bytes"] == 3 * 4096
    descriptor = os.open(path, os.O_RDWR)
    assert os.lseek(descriptor, 0, os.SEEK_HOLE) == 8192
    assert os.lseek(descriptor, 8192, os.SEEK_DATA) == 1 << 30
    run(["fallocate", "--punch-hole", "-o", "0", "-l", "4096", path])
    assert os.lseek(descriptor, 0, os.SEEK_DATA) == 4096
    os.close(descriptor)
    assert path.stat().st_blocks == 2 * 8
    assert path.read_bytes()[:8192] == bytes(4096) + b"x" * 4096


def test_copies_within_a_share_take_no_new_data(gateway: Gateway, mount: Mount) -> None:
    data = random.Random(SEED).randbytes(16 * MIB)
    (mount.folder / "first").write_bytes(data)
    gateway.drain()
    with (mount.folder / "first").open("rb") as source, (mount.folder / "second").open("wb") as target:
        copied = 0
        while copied < len(data):
            copied += os.copy_file_range(source.fileno(), target.fileno(), len(data) - copied, copied, copied)
    gateway.drain()
    assert (mount.folder / "second").read_bytes() == data
    stored = sum(path.stat().st_size for path in gateway.store_directory.rglob("*") if path.is_file())
    assert stored < 24 * MIB


# Bounds


def test_quota_is_kept_and_shown(gateway: Gateway, share: str, mount: Mount) -> None:
    gateway.cli("share", "quota", share, "8MiB")
    shown = os.statvfs(mount.folder)
    assert shown.f_blocks * shown.f_frsize == 8 * MIB
    data = random.Random(SEED).randbytes(MIB)
    with pytest.raises(OSError) as refused, (mount.folder / "file").open("wb", buffering=0) as file:
        for _ in range(16):
            file.write(data)
    assert refused.value.errno == errno.EDQUOT
    shown = os.statvfs(mount.folder)
    assert shown.f_bavail * shown.f_frsize < MIB
    (mount.folder / "file").unlink()
    (mount.folder / "next").write_bytes(data * 6)
    assert gateway.shares()[share]["used_bytes"] == 6 * MIB


def test_files_larger_than_the_cache_come_back_from_the_store(make_gateway: GatewayFactory, closing: ExitStack) -> None:
    gateway = make_gateway({"cache": {"size": "64MiB"}, "flush": {"dirty_bytes_max": "32MiB"}}).start()
    mount = Mount(gateway, gateway.create_share("share"))
    closing.callback(mount.close)
    mount.start()
    data = {f"file{number}": random.Random(SEED + number).randbytes(24 * MIB) for number in range(6)}
    for name, content in data.items():
        (mount.folder / name).write_bytes(content)
    gateway.drain()
    Path("/proc/sys/vm/drop_caches").write_text("3")
    for name, content in data.items():
        assert (mount.folder / name).read_bytes() == content


def test_two_shares_are_two_file_systems(gateway: Gateway, mount: Mount, closing: ExitStack) -> None:
    gateway.create_share("other")
    other = Mount(gateway, "other")
    closing.callback(other.close)
    other.start()
    (mount.folder / "file").write_bytes(b"x")
    assert list(other.folder.iterdir()) == []
    for action in (os.link, os.rename):
        with pytest.raises(OSError) as refused:
            action(mount.folder / "file", other.folder / "file")
        assert refused.value.errno == errno.EXDEV


def test_program_that_runs_is_not_truncated(mount: Mount) -> None:
    program = mount.folder / "program"
    shutil.copy("/usr/bin/sleep", program)
    size = program.stat().st_size
    with subprocess.Popen([program, "60"]) as child:
        for flags in (os.O_WRONLY, os.O_RDWR, os.O_RDONLY | os.O_TRUNC, os.O_WRONLY | os.O_TRUNC):
            with pytest.raises(OSError, match="Text file busy"):
                os.open(program, flags)
        assert program.stat().st_size == size
        assert child.poll() is None
        child.kill()


# The life of a mount


def test_mount_is_held_until_sigterm(mount: Mount) -> None:
    assert mounted_type(mount.folder) == "fuse.tombolo"
    (mount.folder / "file").write_bytes(b"x")
    mount.stop()
    assert list(mount.folder.iterdir()) == []
    mount.start()
    assert (mount.folder / "file").read_bytes() == b"x"


def test_mount_that_was_unmounted_ends_without_a_warning(gateway: Gateway, mount: Mount) -> None:
    before = gateway.process.log_path.read_text()
    (mount.folder / "file").write_bytes(b"x")
    run(["umount", mount.folder])
    assert mount.process.wait(20) == 0
    assert "WARN" not in mount.process.log_path.read_text()
    assert "WARN" not in gateway.process.log_path.read_text().removeprefix(before)


def test_nothing_is_changed_through_a_read_only_mount(mount: Mount, make_mount: MountFactory) -> None:
    (mount.folder / "file").write_bytes(b"x")
    viewer = make_mount().start("--read-only")
    assert (viewer.folder / "file").read_bytes() == b"x"
    changes: list[Callable[[], object]] = [
        lambda: (viewer.folder / "new").touch(),
        lambda: (viewer.folder / "file").write_bytes(b"y"),
        lambda: (viewer.folder / "file").unlink(),
        lambda: (viewer.folder / "file").chmod(0o600),
    ]
    for change in changes:
        with pytest.raises(OSError) as refused:
            change()
        assert refused.value.errno == errno.EROFS
    (mount.folder / "file").write_bytes(b"changed")
    assert (viewer.folder / "file").read_bytes() == b"changed"


def test_two_mounts_of_a_share_see_each_other_at_once(mount: Mount, make_mount: MountFactory) -> None:
    Exerciser(SEED, [mount.front_end(), make_mount().start().front_end()]).run(600)


def test_mount_outlives_its_daemon(gateway: Gateway, mount: Mount) -> None:
    (mount.folder / "file").write_bytes(b"before")
    with (mount.folder / "file").open("r+b", buffering=0) as file:
        with paused(gateway, 1.0):
            began = time.monotonic()
            file.write(b"during")
            assert time.monotonic() - began > 0.9
        assert (mount.folder / "file").read_bytes() == b"during"
    (mount.folder / "after").write_bytes(b"after")


def test_mount_outlives_a_restart_of_its_daemon_with_an_unlinked_file(gateway: Gateway, mount: Mount) -> None:
    with (mount.folder / "file").open("w+b") as file:
        file.write(b"still here")
        file.flush()
        (mount.folder / "file").unlink()
        gateway.restart()
        gateway.check()
        file.seek(0)
        assert file.read() == b"still here"
    wait_for(lambda: next(iter(gateway.shares().values()))["inodes"] == 1, 20, "end of the unlinked file")


def test_locks_are_kept_over_a_restart_of_the_daemon(gateway: Gateway, mount: Mount, make_mount: MountFactory) -> None:
    (mount.folder / "file").write_bytes(bytes(100))
    other = make_mount().start()
    with (mount.folder / "file").open("r+b") as file, (other.folder / "file").open("r+b") as second:
        fcntl.lockf(file, fcntl.LOCK_EX, 10, 0)
        with paused(gateway, 0.2), pytest.raises(BlockingIOError):
            fcntl.lockf(second, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 5)
        fcntl.lockf(second, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 10)
        fcntl.lockf(file, fcntl.LOCK_UN, 10, 0)
        fcntl.lockf(second, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 0)


def test_killed_mount_can_be_mounted_again(mount: Mount, make_mount: MountFactory) -> None:
    (mount.folder / "file").write_bytes(b"x")
    with contextlib.suppress(OSError), (mount.folder / "file").open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        mount.kill9()
        mount.detach()
        # Closing the file is an error now, as the file system is gone.
    again = make_mount().start()
    assert (again.folder / "file").read_bytes() == b"x"


def assert_both_serve(first: Path, second: Path) -> None:
    """Two live mounts of a share at one place: neither takes the other's session away."""
    with (first / "file").open("w+b", buffering=0) as file, (second / "file").open("r+b", buffering=0) as other:
        fcntl.lockf(file, fcntl.LOCK_EX)
        (first / "removed").touch()
        with (first / "removed").open("w+b", buffering=0) as removed:
            (first / "removed").unlink()
            for number in range(10):
                removed.write(b"x")
                with pytest.raises(BlockingIOError):
                    fcntl.lockf(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
                (second / f"{number}").touch(exist_ok=False)
                (first / f"{number}").unlink()
            assert os.fstat(removed.fileno()).st_size == 10


def test_mount_outlives_another_one_at_its_place(mount: Mount, make_mount: MountFactory) -> None:
    """A mount that is in use when it is unmounted lazily is held on, out of sight, while another takes its place."""
    folder = os.open(mount.folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        mount.detach()
        again = make_mount(mount.folder).start()
        assert_both_serve(Path(f"/proc/self/fd/{folder}"), again.folder)
        # The first one goes its way, and the second is none the worse for it.
        os.close(folder)
        folder = -1
        assert mount.process.wait(20) == 0
        (again.folder / "file").write_bytes(b"still here")
    finally:
        if folder >= 0:
            os.close(folder)


def test_mounts_in_two_namespaces_at_one_place_stand_side_by_side(mount: Mount, make_mount: MountFactory) -> None:
    elsewhere = make_mount(mount.folder)
    elsewhere.launch("unshare", "--mount", "--propagation", "private")
    folder = Path(f"/proc/{elsewhere.process.pid}/root{mount.folder}")
    own = mount.folder.stat().st_dev
    elsewhere.process.wait_until(lambda: folder.stat().st_dev != own, 20, "mount in its namespace")
    assert_both_serve(mount.folder, folder)


def connected_sessions(gateway: Gateway, share: str) -> list[str]:
    return [session["client"] for session in gateway.shares()[share]["sessions"] if session["connected"]]


def test_locks_of_a_killed_mount_go_when_it_is_mounted_again(
    gateway: Gateway, share: str, mount: Mount, make_mount: MountFactory
) -> None:
    """The next holder is known as the one that it follows: nobody waits for a grace period."""
    (mount.folder / "file").touch()
    witness = make_mount().start()
    with contextlib.suppress(OSError), (mount.folder / "file").open("rb+") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        mount.kill9()
        # Until then it could still hear of the lock's end.
        wait_for(lambda: len(connected_sessions(gateway, share)) == 1, 30, "the mount is away")
        mount.detach()
    with (witness.folder / "file").open("rb+") as file:
        with pytest.raises(BlockingIOError):
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Once it answers it is attached.
        (make_mount(mount.folder).start().folder / "file").stat()
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


# Long runs


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("settings", ["fsx.toml", "fsx-no-maps.toml"])
def test_fsx_finds_no_fault_in_a_million_operations(mount: Mount, source: Path, settings: str) -> None:
    # In ten processes: fsx never unmaps what it has read through, and a process may have 65,530 maps.
    for seed in range(SEED, SEED + 10):
        suites.fsx(mount.folder / "file", source, 100_000, seed, settings)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_large_repository(mount: Mount, source: Path) -> None:
    suites.git(mount.folder, source, 400 * MIB)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_archive_of_fifty_thousand_files_unpacks(mount: Mount, source: Path) -> None:
    suites.tar_of_small_files(mount.folder, source, 50_000)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_projects_are_built_in_a_share(mount: Mount) -> None:
    suites.build_c(mount.folder)
    suites.build_rust(mount.folder)
