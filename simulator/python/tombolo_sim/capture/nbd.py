"""NBD exports, by a proxy: nbdkit's `nbd` plugin with its `log` filter."""

import io
import os
import re
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from tombolo_sim.capture.writer import CaptureError, Request, Writer, lines_of

_POLL_S = 0.2
_CHUNK_BYTES = 1 << 20
_STOP_S = 10
_OPERATIONS = {"Read": "R", "Write": "W", "Zero": "W", "Trim": "D", "Flush": "F"}

# `2026-01-02 03:04:05.678901 connection=1 Write id=7 offset=0x1000 count=0x2000 fua=0 ...`
_LINE = re.compile(
    r"^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6}) connection=\d+ (Read|Write|Zero|Trim|Flush) id=\d+"
    r"(?: offset=0x([0-9a-f]+) count=0x([0-9a-f]+))?"
)


def parse(text: str) -> Request | None:
    """One line of the log; none for answers and what is no request."""
    match = _LINE.search(text)
    if match is None:
        return None
    when, name, offset, count = match.groups()
    if (offset is None) != (name == "Flush"):
        return None
    moment = datetime.fromisoformat(when).astimezone()
    time_us = int(moment.timestamp()) * 1_000_000 + moment.microsecond
    return Request(time_us, _OPERATIONS[name], int(offset or "0", 16), int(count or "0", 16), name == "Zero")


def record_nbd(
    uri: str, socket: Path, target: Path, seconds: float | None, progress: Callable[[int, int], object]
) -> int:
    """Serves the export on `socket` and records until the time is over or Ctrl-C; returns the number of requests."""
    nbdkit = shutil.which("nbdkit")
    if nbdkit is None:
        raise CaptureError("nbdkit is missing: apt-get install nbdkit")
    with tempfile.TemporaryDirectory(prefix="tombolo-capture-") as folder:
        log = Path(folder) / "log"
        os.mkfifo(log)
        # Opened for writing too, so that it does not end when nbdkit closes it between connections.
        pipe = os.open(log, os.O_RDWR | os.O_NONBLOCK)
        command = [nbdkit, "-f", "-U", str(socket), "--filter=log", "nbd", f"uri={uri}", f"logfile={log}"]
        proxy = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, process_group=0)
        try:
            with Writer(target) as writer:
                _record(proxy, pipe, writer, seconds, progress)
        finally:
            proxy.terminate()
            _, complaint = proxy.communicate(timeout=_STOP_S)
            os.close(pipe)
    if proxy.returncode not in (0, -15):
        raise CaptureError(f"nbdkit: {complaint.strip() or proxy.returncode}")
    return writer.records


def _record(
    proxy: "subprocess.Popen[str]",
    pipe: int,
    writer: Writer,
    seconds: float | None,
    progress: Callable[[int, int], object],
) -> None:
    end = None if seconds is None else time.monotonic() + seconds
    buffer = io.BytesIO()
    try:
        while proxy.poll() is None and (end is None or time.monotonic() < end):
            select.select([pipe], [], [], _POLL_S)
            _take(pipe, buffer, writer)
            progress(writer.records, 0)
    except KeyboardInterrupt:
        pass
    _take(pipe, buffer, writer)


def _take(pipe: int, buffer: io.BytesIO, writer: Writer) -> None:
    while True:
        try:
            more = os.read(pipe, _CHUNK_BYTES)
        except BlockingIOError:
            return
        for text in lines_of(buffer, more):
            if (request := parse(text)) is not None:
                writer.write(request)
