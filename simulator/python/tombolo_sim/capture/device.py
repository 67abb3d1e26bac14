"""Block devices, by tracefs."""

import io
import os
import re
import select
import stat
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tombolo_sim.capture.writer import CaptureError, Request, Writer, lines_of

_TRACEFS = Path("/sys/kernel/tracing")
_EVENT = "events/block/block_bio_queue"
_SECTOR_BYTES = 512
_BUFFER_KIB = 16_384
_POLL_S = 0.2
_CHUNK_BYTES = 1 << 20

# `dd-817 [000] ..... 1234.567890: block_bio_queue: 7,0 WS 2048 + 8 [dd]`
_LINE = re.compile(r"\s(\d+)\.(\d{6}): block_bio_queue: \d+,\d+ (\S*) (\d+) \+ (\d+) \[")
_LOST = re.compile(r"LOST (\d+) EVENTS")


def device_number(path: Path) -> int:
    """Of a block device, or of the one that a file lies on."""
    try:
        status = path.stat()
    except OSError as error:
        raise CaptureError(f"{path}: {error.strerror}") from error
    number = status.st_rdev if stat.S_ISBLK(status.st_mode) else status.st_dev
    if os.major(number) == 0:
        raise CaptureError(
            f"{path} does not lie on a block device (FUSE, network, overlay or memory): record the device beneath it, "
            "or let the gateway record"
        )
    return number


def parse(text: str) -> Request | None:
    """One line of the trace pipe; none for what is not a request."""
    match = _LINE.search(text)
    if match is None:
        return None
    seconds, microseconds, flags, sector, sectors = match.groups()
    operation = _operation(flags)
    if operation is None:
        return None
    time_us = int(seconds) * 1_000_000 + int(microseconds)
    return Request(time_us, operation, int(sector) * _SECTOR_BYTES, int(sectors) * _SECTOR_BYTES)


def _operation(flags: str) -> str | None:
    """`FWS` is a write after a flush; `FF`, or any F without data, is a flush; `RA` is read-ahead."""
    body = flags.removeprefix("F") or "F"
    return {"R": "R", "W": "W", "D": "D", "F": "F"}.get(body[0])


def lost(text: str) -> int:
    match = _LOST.search(text)
    return int(match[1]) if match else 0


@contextmanager
def _instance(number: int) -> Iterator[Path]:
    """A tracing buffer of our own, so that nobody else's tracing is disturbed."""
    _mount()
    folder = _TRACEFS / "instances" / f"tombolo-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError as error:
        raise CaptureError(f"{folder}: {error.strerror}; recording a device needs root and tracefs") from error
    try:
        # The kernel's own numbering: 12 bits of major, 20 of minor.
        kernel_number = os.major(number) << 20 | os.minor(number)
        (folder / "buffer_size_kb").write_text(str(_BUFFER_KIB))
        (folder / "trace_clock").write_text("global")
        (folder / _EVENT / "filter").write_text(f"dev == {kernel_number}")
        (folder / _EVENT / "enable").write_text("1")
        yield folder
    except OSError as error:
        raise CaptureError(f"{error.filename or folder}: {error.strerror}") from error
    finally:
        folder.rmdir()


def _mount() -> None:
    if (_TRACEFS / "instances").is_dir():
        return
    done = subprocess.run(["mount", "-t", "tracefs", "tracefs", _TRACEFS], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CaptureError(f"tracefs cannot be mounted: {done.stderr.strip()}")


def record_device(path: Path, target: Path, seconds: float | None, progress: Callable[[int, int], object]) -> int:
    """Records until the time is over or Ctrl-C; returns the number of requests. Requests that the kernel lost for want
    of room make the trace worthless, which is an error."""
    number = device_number(path)
    with _instance(number) as folder, Writer(target) as writer:
        missing = _record(folder, writer, seconds, progress)
    if missing:
        raise CaptureError(f"{target}: the kernel lost {missing} requests; the trace is incomplete")
    return writer.records


def _record(folder: Path, writer: Writer, seconds: float | None, progress: Callable[[int, int], object]) -> int:
    end = None if seconds is None else time.monotonic() + seconds
    missing, buffer = 0, io.BytesIO()
    pipe = os.open(folder / "trace_pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        try:
            while end is None or time.monotonic() < end:
                select.select([pipe], [], [], _POLL_S)
                missing += _take(pipe, buffer, writer)
                progress(writer.records, 0)
        except KeyboardInterrupt:
            pass
        (folder / _EVENT / "enable").write_text("0")
        missing += _take(pipe, buffer, writer)
    finally:
        os.close(pipe)
    return missing


def _take(pipe: int, buffer: io.BytesIO, writer: Writer) -> int:
    """Writes all that has come; returns how many requests were lost."""
    missing = 0
    while True:
        try:
            more = os.read(pipe, _CHUNK_BYTES)
        except BlockingIOError:
            return missing
        if not more:
            return missing
        for text in lines_of(buffer, more):
            missing += lost(text)
            if (request := parse(text)) is not None:
                writer.write(request)
