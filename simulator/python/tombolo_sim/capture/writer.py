"""The text format of captures, and what both ways of recording share."""

import gzip
import io
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self, TextIO

BLOCK_BYTES = 4096


class CaptureError(Exception):
    """A capture cannot begin, or would not be worth anything."""


@dataclass(frozen=True)
class Request:
    """`operation` is R, W, D (discard) or F (flush)."""

    time_us: int
    operation: str
    offset_bytes: int
    count_bytes: int
    zeroes: bool = False


class Writer:
    """Counts time from the first request on. A time that goes back, which merging CPUs can bring about, is raised to
    that of the request before."""

    def __init__(self, path: Path) -> None:
        try:
            # Closed by __exit__.
            self._file: TextIO = gzip.open(path, "xt") if path.suffix == ".gz" else path.open("x")  # noqa: SIM115
        except FileExistsError:
            raise CaptureError(f"{path} is there already") from None
        except OSError as error:
            raise CaptureError(f"{path}: {error.strerror}") from error
        self._origin: int | None = None
        self._last = 0
        self.records = 0

    def write(self, request: Request) -> None:
        if self._origin is None:
            self._origin = request.time_us
        self._last = max(self._last, request.time_us - self._origin)
        self._file.write(line(request, self._last))
        self.records += 1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._file.close()


def line(request: Request, time_us: int) -> str:
    """All blocks that the request touches."""
    if request.count_bytes == 0:
        return f"{time_us} {request.operation} 0 0\n"
    first = request.offset_bytes // BLOCK_BYTES
    past = -(-(request.offset_bytes + request.count_bytes) // BLOCK_BYTES)
    contents = f" 0*{past - first}" if request.zeroes else ""
    return f"{time_us} {request.operation} {first} {past - first}{contents}\n"


def lines_of(buffer: io.BytesIO, more: bytes) -> list[str]:
    """The whole lines that have come; the rest stays in the buffer."""
    buffer.write(more)
    *whole, rest = buffer.getvalue().split(b"\n")
    buffer.seek(0)
    buffer.truncate()
    buffer.write(rest)
    return [text.decode(errors="replace") for text in whole]
