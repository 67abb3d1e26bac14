"""The folder that results go to."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile

_PROBE_BYTES = 4096


class OutputError(Exception):
    """Results cannot be written; the message says where and why."""


@contextmanager
def writing_to(folder: Path) -> Iterator[None]:
    """Makes the folder and tries it at once, not after the work; tells too of what cannot be written later."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder) as probe:
            probe.write(bytes(_PROBE_BYTES))
        yield
    except OSError as error:
        # Without a number it is no file's: a scheduler that does not answer.
        if error.errno is None:
            raise
        raise OutputError(f"{error.filename or folder}: {error.strerror}") from error
