"""Captures: what lines of the kernel and of nbdkit mean, and both ways for real where the machine lets us."""

import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tombolo_sim import engine
from tombolo_sim.capture import CaptureError, device, nbd, record_device, record_nbd
from tombolo_sim.capture.writer import Request, Writer, line


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "   dd-81  [000] ..... 12.000345: block_bio_queue: 7,0 R 2048 + 8 [dd]",
            Request(12_000_345, "R", 1 << 20, 4096),
        ),
        (
            "   dd-81  [001] d..1. 12.000345: block_bio_queue: 7,0 RA 8 + 256 [dd]",
            Request(12_000_345, "R", 4096, 131_072),
        ),
        (
            "   kw-81  [001] ..... 12.000345: block_bio_queue: 7,0 WFS 16 + 8 [a b]",
            Request(12_000_345, "W", 8192, 4096),
        ),
        ("   kw-81  [001] ..... 12.000345: block_bio_queue: 7,0 FWS 16 + 8 [kw]", Request(12_000_345, "W", 8192, 4096)),
        ("   kw-81  [001] ..... 12.000345: block_bio_queue: 7,0 FF 0 + 0 [kw]", Request(12_000_345, "F", 0, 0)),
        (
            "   fs-81  [001] ..... 12.000345: block_bio_queue: 7,0 DS 16 + 8 [fstrim]",
            Request(12_000_345, "D", 8192, 4096),
        ),
        ("   dd-81  [000] ..... 12.000345: block_rq_issue: 7,0 R 4096 () 2048 + 8 [dd]", None),
        ("CPU:1 [LOST 17 EVENTS]", None),
    ],
)
def test_lines_of_the_kernel(text: str, expected: Request | None) -> None:
    assert device.parse(text) == expected


def test_lost_events_are_counted() -> None:
    assert device.lost("CPU:1 [LOST 17 EVENTS]") == 17
    assert device.lost("dd-81 [000] ..... 12.000345: block_bio_queue: 7,0 R 0 + 8 [dd]") == 0


def test_lines_of_nbdkit() -> None:
    when = "2026-01-02 03:04:05.678901 connection=1 "
    write = nbd.parse(f"{when}Write id=7 offset=0x1000 count=0x2000 fua=0 ...")
    later = nbd.parse(f"{when.replace(':05.', ':06.')}Zero id=8 offset=0x0 count=0x200 trim=1 ...")
    assert write is not None
    assert later is not None
    assert (write.operation, write.offset_bytes, write.count_bytes, write.zeroes) == ("W", 4096, 8192, False)
    assert (later.operation, later.zeroes, later.time_us - write.time_us) == ("W", True, 1_000_000)
    flush = nbd.parse(f"{when}Flush id=9 ...")
    assert flush is not None
    assert flush.operation == "F"
    assert nbd.parse(f"{when}...Write id=7 return=0") is None


def test_requests_are_the_blocks_that_they_touch(tmp_path: Path) -> None:
    assert line(Request(0, "R", 4095, 2), 7) == "7 R 0 2\n"
    assert line(Request(0, "W", 8192, 8192, zeroes=True), 7) == "7 W 2 2 0*2\n"
    assert line(Request(0, "F", 0, 0), 7) == "7 F 0 0\n"
    target = tmp_path / "trace.txt.gz"
    with Writer(target) as writer:
        for time_us in (1000, 1005, 1003):
            writer.write(Request(time_us, "R", 0, 4096))
    found = engine.info({"path": str(target)})
    assert (found["records"], found["duration_us"]) == (3, 5)
    with pytest.raises(CaptureError, match="is there already"):
        Writer(target)


def test_what_lies_on_no_device_is_told() -> None:
    with pytest.raises(CaptureError, match="does not lie on a block device"):
        device.device_number(Path("/proc/self/status"))


@pytest.fixture
def loop(tmp_path: Path) -> Iterator[Path]:
    image = tmp_path / "disk.img"
    image.write_bytes(bytes(1 << 20))
    done = subprocess.run(["losetup", "-f", "--show", image], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"no loop device: {done.stderr.strip()}")
    path = Path(done.stdout.strip())
    yield path
    subprocess.run(["losetup", "-d", path], check=True)


def test_a_device_is_recorded(loop: Path, tmp_path: Path) -> None:
    target = tmp_path / "trace.txt"
    begun = threading.Event()

    def load() -> None:
        begun.wait(10)
        subprocess.run(
            ["dd", f"if={loop}", "of=/dev/null", "bs=8k", "count=5", "skip=3", "iflag=direct", "status=none"],
            check=True,
        )

    reader = threading.Thread(target=load)
    reader.start()
    try:
        records = record_device(loop, target, 2, lambda *_: begun.set())
    except CaptureError as error:
        begun.set()
        pytest.skip(f"the kernel's tracing is not to be had: {error}")
    finally:
        reader.join()
    reads = [words.split()[1:] for words in target.read_text().splitlines() if " R " in words]
    assert reads == [["R", str(first), "2"] for first in (6, 8, 10, 12, 14)]
    assert records >= 5
    assert not list(Path("/sys/kernel/tracing/instances").glob(f"tombolo-{os.getpid()}"))


def test_an_nbd_export_is_recorded(tmp_path: Path) -> None:
    if shutil.which("nbdkit") is None or shutil.which("qemu-io") is None:
        pytest.skip("nbdkit or qemu-io is missing")
    origin, proxy, target = tmp_path / "origin", tmp_path / "proxy", tmp_path / "trace.txt"
    server = subprocess.Popen(["nbdkit", "-f", "-U", origin, "memory", "1M"], process_group=0)
    used = threading.Event()

    def load() -> None:
        commands = ["-c", "write -P 7 8192 12288", "-c", "read 4096 4096", "-c", "write -z 65536 8192", "-c", "flush"]
        while not proxy.exists() and not used.is_set():
            used.wait(0.05)
        subprocess.run(
            ["qemu-io", "-f", "raw", *commands, f"nbd+unix:///?socket={proxy}"], check=True, capture_output=True
        )

    writer = threading.Thread(target=load)
    writer.start()
    try:
        while not origin.exists():
            used.wait(0.05)
        record_nbd(f"nbd+unix:///?socket={origin}", proxy, target, 3, lambda *_: None)
    finally:
        used.set()
        writer.join()
        server.terminate()
        server.wait()
    found = [" ".join(words.split()[1:]) for words in target.read_text().splitlines()]
    assert [words for words in found if words[0] == "W"] == ["W 2 3", "W 16 2 0*2"]
    assert "R 1 1" in found
    assert "F 0 0" in found
