"""What every store does alike: it makes up contents, counts requests, and verifies what comes back."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from random import Random
from types import TracebackType
from typing import Self

BLOCK_BYTES = 4096
_TEXT = b"a gateway keeps what is read again near to those who read it, and the rest where it is cheap. "
_SHARED_BLOCKS = 64
_ONE_SHARED_IN = 8
PRELOADED_BYTES_MAX = 64 << 20


class StoreError(Exception):
    """A store cannot be reached, or gave back what was not put there."""


@dataclass
class Requests:
    gets: int = 0
    puts: int = 0
    bytes_down: int = 0
    bytes_up: int = 0


def payload(object_number: int, offset_bytes: int, count_bytes: int) -> bytes:
    """A part of an object's contents, which its number determines: blocks that shrink by some half, every eighth of
    which other objects have, too."""
    first, past = offset_bytes // BLOCK_BYTES, -(-(offset_bytes + count_bytes) // BLOCK_BYTES)
    blocks = b"".join(_block(object_number, number) for number in range(first, past))
    skipped = offset_bytes - first * BLOCK_BYTES
    return blocks[skipped : skipped + count_bytes]


def _block(object_number: int, number: int) -> bytes:
    generator = Random(object_number << 32 | number)
    if generator.randrange(_ONE_SHARED_IN) == 0:
        generator = Random(generator.randrange(_SHARED_BLOCKS))
    half = BLOCK_BYTES // 2
    return generator.randbytes(half) + (_TEXT * (half // len(_TEXT) + 1))[:half]


class Store(ABC):
    """An object store behind a replay. Objects that the replay takes to be in the cloud before the trace begins are put
    when first asked for, as far as they are asked for."""

    def __init__(self) -> None:
        self.requests = Requests()
        self._lengths: dict[int, int] = {}
        self._preloaded: set[int] = set()

    def put(self, object_number: int, count_bytes: int) -> float | None:
        contents = payload(object_number, 0, count_bytes)
        self._lengths[object_number] = count_bytes
        self._preloaded.discard(object_number)
        self.requests.puts += 1
        self.requests.bytes_up += count_bytes
        return self._put(object_number, contents)

    def get(self, object_number: int, offset_bytes: int, count_bytes: int, demand: bool) -> float | None:  # noqa: ARG002
        self._preload(object_number, offset_bytes + count_bytes)
        found, milliseconds = self._get(object_number, offset_bytes, count_bytes)
        if found != payload(object_number, offset_bytes, count_bytes):
            raise StoreError(f"object {object_number}: bytes {offset_bytes}+{count_bytes} are not what was put")
        self.requests.gets += 1
        self.requests.bytes_down += count_bytes
        return milliseconds

    def _preload(self, object_number: int, length_bytes: int) -> None:
        found_bytes = self._lengths.get(object_number)
        if found_bytes is not None and found_bytes >= length_bytes:
            return
        if found_bytes is not None and object_number not in self._preloaded:
            raise StoreError(f"object {object_number} was put with {found_bytes} bytes, {length_bytes} are asked for")
        if length_bytes > PRELOADED_BYTES_MAX:
            raise StoreError(f"object {object_number} is to have {length_bytes} bytes, more than {PRELOADED_BYTES_MAX}")
        self._lengths[object_number] = length_bytes
        self._preloaded.add(object_number)
        self._put(object_number, payload(object_number, 0, length_bytes))

    @abstractmethod
    def _put(self, object_number: int, contents: bytes) -> float | None: ...

    @abstractmethod
    def _get(self, object_number: int, offset_bytes: int, count_bytes: int) -> tuple[bytes, float | None]: ...

    @abstractmethod
    def delete_all(self) -> None:
        """Removes what this store has put."""

    @abstractmethod
    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
