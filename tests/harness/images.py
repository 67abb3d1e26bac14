"""Real ext4 images made from real folders, and ways to copy and compare them."""

import os
import shutil
from pathlib import Path

from harness.tools import run, sha256_of

COPY_LIMIT_S = 900.0
SOURCES = (Path("/usr/share"), Path("/usr/lib"), Path("/usr/include"))


def gather_files(folder: Path, bytes_wanted: int) -> int:
    """Fills a folder with regular files of this machine until it holds that many bytes; returns their count.

    Files above 8 MiB are left out, so that the tree is one of many files, as a real one is.
    """
    gathered, count = 0, 0
    for source in SOURCES:
        for parent, names, files in os.walk(source):
            names.sort()
            for name in sorted(files):
                path = Path(parent) / name
                if path.is_symlink() or not path.is_file() or path.stat().st_size > 8 << 20:
                    continue
                copy = folder / path.relative_to("/")
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, copy)
                gathered, count = gathered + path.stat().st_size, count + 1
                if gathered >= bytes_wanted:
                    return count
    raise FileNotFoundError(f"this machine holds only {gathered} of {bytes_wanted} bytes in {SOURCES}")


def build_ext4_image(image: Path, size: int, content_bytes: int) -> int:
    """An ext4 image filled by mke2fs from a real tree; returns the count of files in it."""
    tree = image.with_suffix(".tree")
    tree.mkdir()
    try:
        count = gather_files(tree, content_bytes)
        with image.open("wb") as file:
            file.truncate(size)
        run(["mkfs.ext4", "-q", "-F", "-b", "4096", "-N", str(max(4096, 3 * count)), "-d", tree, image], COPY_LIMIT_S)
    finally:
        shutil.rmtree(tree)
    check_ext4(image)
    return count


def check_ext4(image: Path) -> None:
    """A full forced check that changes nothing and must find nothing."""
    run(["e2fsck", "-fn", image], COPY_LIMIT_S)


def write_image(image: Path, url: str) -> None:
    run(["qemu-img", "convert", "-n", "-f", "raw", "-O", "raw", image, url], COPY_LIMIT_S)


def read_image(url: str, image: Path) -> None:
    run(["qemu-img", "convert", "-f", "raw", "-O", "raw", url, image], COPY_LIMIT_S)


def assert_same(image: Path, url: str, scratch: Path) -> None:
    """Byte-for-byte equality, judged by qemu's comparison and by the digest of a copy read back."""
    run(["qemu-img", "compare", "-f", "raw", "-F", "raw", image, url], COPY_LIMIT_S)
    copy = scratch / "read-back.img"
    try:
        read_image(url, copy)
        if copy.stat().st_size > image.stat().st_size:
            os.truncate(copy, image.stat().st_size)
        check_ext4(copy)
        assert sha256_of(copy) == sha256_of(image)
    finally:
        copy.unlink(missing_ok=True)
