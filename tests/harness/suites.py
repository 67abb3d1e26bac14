"""Foreign programs that judge a folder: suites for file systems, and everyday users of one.

Each takes a folder on the file system to be judged and raises when it finds a fault. What a suite needs beside it
(sources, sockets, logs) lies in a folder elsewhere.
"""

import random
import re
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from harness.images import gather_files
from harness.tools import REPOSITORY, ToolFailed, built_tool, run

SETTINGS = REPOSITORY / "tests/suites"
GIT = ["git", "-c", "user.name=test", "-c", "user.email=test@example.org", "-c", "commit.gpgsign=false"]


def pjdfstest(folder: Path, *names: str) -> dict[str, str]:
    """POSIX's rules for names, owners, modes and times, as root and as others: each test's verdict (`ok`, `failed`,
    `skipped`). With `names` only those tests."""
    folder.chmod(0o755)
    words: list[str | Path] = [built_tool("pjdfstest"), "-c", SETTINGS / "pjdfstest.toml", "-p", folder, *names]
    return pjdfstest_verdicts(run(words, 600, expected_codes=(0, 1), cwd=folder).stdout)


def pjdfstest_verdicts(said: str) -> dict[str, str]:
    said = re.sub(r"\x1b\[[0-9;]*m|\r", "", said)  # It colours a console.
    verdicts = dict(re.findall(r"^(\w+(?:::\w+)+)\s+(\w+)", said, re.MULTILINE))
    if "Summary:" not in said or not verdicts:
        raise ToolFailed(f"pjdfstest did not reach its summary\n{said[-2000:]}")
    return {name: verdict.lower() for name, verdict in verdicts.items()}


def fsx(file: Path, artifacts: Path, operations: int, seed: int, settings: str = "fsx.toml") -> None:
    """Reads, writes, maps, holes, copies and truncations of one file, each compared with a copy in memory."""
    words: list[str | Path] = [built_tool("fsx"), "-f", SETTINGS / settings, "-q", "-P", artifacts, "-S", str(seed)]
    run([*words, "-N", str(operations), file], 300 + operations / 200)


def git(folder: Path, source: Path, files_bytes: int) -> None:
    """Clones a repository onto the file system, works in the clone, collects its garbage and checks every object."""
    original = source / "original"
    original.mkdir()
    gather_files(original, files_bytes)
    run([*GIT, "init", "-q", "-b", "main"], cwd=original)
    run([*GIT, "add", "."], cwd=original)
    run([*GIT, "commit", "-q", "-m", "all"], cwd=original)
    clone = folder / "clone"
    run(["git", "clone", "-q", "--no-local", original, clone], 300)
    run([*GIT, "rm", "-r", "-q", "usr/share"], cwd=clone)
    run([*GIT, "commit", "-q", "-m", "less"], cwd=clone)
    run([*GIT, "reset", "-q", "--hard", "HEAD~1"], cwd=clone)
    run(["git", "gc", "-q", "--aggressive", "--prune=now"], 300, cwd=clone)
    run(["git", "fsck", "--full", "--strict"], 300, cwd=clone)
    if status := run(["git", "status", "--porcelain"], cwd=clone).stdout:
        raise AssertionError(f"git sees changes that nobody made: {status}")
    run(["diff", "-r", "--no-dereference", "--exclude=.git", original, clone], 300)


def tar(folder: Path, source: Path, files_bytes: int) -> int:
    """Unpacks an archive of this machine's files and compares; returns their count."""
    tree = source / "tree"
    tree.mkdir()
    count = gather_files(tree, files_bytes)
    unpack(folder, source, tree)
    return count


def tar_of_small_files(folder: Path, source: Path, count: int) -> None:
    """The same with files of up to 8 KiB, a hundred to a folder."""
    tree, prng = source / "tree", random.Random(count)
    for number in range(count):
        file = tree / f"folder{number // 100}" / f"file{number}"
        if number % 100 == 0:
            file.parent.mkdir(parents=True)
        file.write_bytes(prng.randbytes(prng.randrange(8192)))
    unpack(folder, source, tree)


def unpack(folder: Path, source: Path, tree: Path) -> None:
    """Packs a tree, unpacks it in `folder`, compares byte by byte, packs that and compares again, removes it."""
    archive, copy = source / "tree.tar", folder / "tree"
    copy.mkdir()
    sorted_names = ["--sort=name", "--numeric-owner"]
    run(["tar", "-C", tree, *sorted_names, "-cf", archive, "."], 600)
    run(["tar", "-C", copy, "-xf", archive], 1200)
    run(["tar", "-C", copy, "--compare", "-f", archive], 600)
    run(["diff", "-r", tree, copy], 600)
    again = source / "again.tar"
    run(["tar", "-C", copy, *sorted_names, "-cf", again, "."], 600)
    run(["cmp", archive, again], 600)
    run(["rm", "-rf", copy], 600)
    if copy.exists():
        raise AssertionError(f"{copy} is still there")


def build_c(folder: Path) -> None:
    """Builds a plugin of this project from sources in the folder, twice: the second time there is nothing to do."""
    project = folder / "project"
    shutil.copytree(REPOSITORY / "tgt_plugin", project / "tgt_plugin")
    headers = next((REPOSITORY / "build").glob("tgt-*"))
    words: list[str | Path] = ["make", "-C", project / "tgt_plugin", f"TGT={headers}", "-j2", "all"]
    run(words, 600)
    library = project / "build/tgt_plugin/release/bs_tombolo.so"
    if "register_bs_module" not in run(["nm", "-D", "--defined-only", library]).stdout:
        raise AssertionError(f"{library} is not what was to be built")
    if "gcc" in (said := run(words).stdout):
        raise AssertionError(f"built again without a reason:\n{said}")


def build_rust(folder: Path) -> None:
    """Builds a crate of this project and runs its tests, with the sources and all results in the folder."""
    project = folder / "crates"
    shutil.copytree(REPOSITORY, project, ignore=shutil.ignore_patterns(".*", "build", "target", "run", "__pycache__"))
    manifest: list[str | Path] = ["--manifest-path", project / "Cargo.toml", "--target-dir", project / "target"]
    said = run(["cargo", "test", "--locked", "--offline", "-q", "-p", "tombolo-base", *manifest], 1800).stdout
    if "test result: ok" not in said:
        raise AssertionError(f"the tests of a crate that was built in the folder did not pass:\n{said}")


def make_tree_of_all_kinds(tree: Path, has_lists_of_rights: bool) -> None:
    """Everything that rsync -aHAX can carry: owners, modes, times, links, devices, attributes, lists of rights,
    holes."""
    (tree / "d/e").mkdir(parents=True)
    for number in range(20):
        (tree / f"d/file{number}").write_bytes(bytes([number]) * (number * 1000))
    (tree / "d/hard").hardlink_to(tree / "d/file3")
    (tree / "d/e/soft").symlink_to("../file4")
    (tree / "d/dangling").symlink_to("/nowhere/" + "x" * 200)
    with (tree / "sparse").open("wb") as sparse:
        sparse.seek(50 << 20)
        sparse.write(b"end")
    shell = (
        "mkfifo fifo; mknod device c 1 3; chmod 1777 d; chmod 6755 d/file1; chown 12345:54321 d/file2 d/e/soft -h;"
        " touch -d '1999-12-31 23:59:59.123456789' d/file5; touch -d '2100-01-01' d/file6;"
        " setfattr -n user.note -v hello d/file7"
    )
    if has_lists_of_rights:
        shell += (
            "; setfattr -n trusted.note -v deep d; setfacl -m u:daemon:rwx,g:nogroup:r d/file8;"
            " setfacl -d -m u:nobody:rx d/e"
        )
    run(["sh", "-ec", shell], cwd=tree)


def rsync(folder: Path, source: Path, has_lists_of_rights: bool = True) -> None:
    """Copies a tree with all its attributes, and finds nothing left to copy afterwards. NFS carries neither POSIX's
    lists of rights nor attributes of the system."""
    tree, copy = source / "all-kinds", folder / "all-kinds"
    tree.mkdir()
    make_tree_of_all_kinds(tree, has_lists_of_rights)
    words = ["rsync", "-aHAXS", "--numeric-ids", "--checksum", "--delete"]
    run([*words, f"{tree}/", f"{copy}/"], 300)
    if left := run([*words, "--dry-run", "--itemize-changes", f"{tree}/", f"{copy}/"], 300).stdout:
        raise AssertionError(f"not the same after the copy:\n{left}")
    if (copy / "sparse").stat().st_blocks * 512 > 1 << 20:
        raise AssertionError("the hole of a sparse file takes up space")


def sqlite(file: Path, stop: Callable[[int], bool]) -> None:
    """Transactions in SQLite's write-ahead mode with full syncing, until `stop(count)`; then checks the database."""
    committed = 0
    base = sqlite3.connect(file, isolation_level=None, timeout=60)
    base.execute("PRAGMA journal_mode=WAL").fetchall()
    base.execute("PRAGMA synchronous=FULL").fetchall()
    base.execute("CREATE TABLE entry (id INTEGER PRIMARY KEY, note TEXT, payload BLOB)")
    while not stop(committed):
        base.execute("BEGIN IMMEDIATE")
        base.executemany(
            "INSERT INTO entry (note, payload) VALUES (?, randomblob(500))", [(f"{committed}/{n}",) for n in range(10)]
        )
        base.execute("COMMIT")
        committed += 1
        if committed % 50 == 0:
            base.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    base.close()
    base = sqlite3.connect(file)
    found = base.execute("PRAGMA integrity_check").fetchall()
    count = base.execute("SELECT count(*) FROM entry").fetchone()[0]
    base.close()
    if found != [("ok",)] or count != committed * 10:
        raise AssertionError(f"{found}; {count} rows after {committed} transactions of 10")


def summary(verdicts: dict[str, str]) -> dict[str, int]:
    return dict(sorted(Counter(verdicts.values()).items()))
