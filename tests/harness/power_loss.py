"""What a power cut may leave of a folder, made from the records of all that was done to it.

`Recorder` has a process write down its changes and syncs (`disk_recorder.c`, preloaded) and cuts its power after a
number of them. `Disk` takes the records in; `Disk.after_power_cut` is a folder as it may be found when power is back:

| change | what is left of it |
|---|---|
| covered by a sync of its file or folder that was complete | all of it |
| other writes | all, nothing, or some of their sectors, whatever became of earlier ones |
| other changes of a length | all or nothing |
| other names | of each folder the first few, in their order |

A name is its folder's: that a new file was synced does not make its name durable, as POSIX has it.
"""

import os
import random
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path, PurePosixPath

from harness.tools import preloaded_library

SECTOR_BYTES = 512
PIECE_BYTES = 64 << 10
RECORD = struct.Struct("<IIQQQ")
SOURCE = Path(__file__).with_name("disk_recorder.c")


class Kind(IntEnum):
    KNOWN = 1
    CREATE = 2
    MKDIR = 3
    WRITE = 4
    TRUNCATE = 5
    ALLOCATE = 6
    RENAME = 7
    UNLINK = 8
    LINK = 9
    SYNC = 10
    THROUGH = 11
    FAILED = 12


def recorded(folder: Path, log: Path, cut_after: int = 0, ignored: str = "") -> dict[str, str]:
    """The environment of a process whose changes below `folder` are to be recorded in `log`, and which dies by SIGKILL
    after `cut_after` of them, if that is not 0. Syncs of files with `ignored` in their path do nothing."""
    named = {"DISK_RECORDER_IGNORED": ignored} if ignored else {}
    return named | {
        "LD_PRELOAD": str(preloaded_library(SOURCE)),
        "DISK_RECORDER_FOLDER": str(folder),
        "DISK_RECORDER_LOG": str(log),
        "DISK_RECORDER_CUT": str(cut_after),
    }


@dataclass(frozen=True)
class Record:
    number: int
    kind: Kind
    inode: int
    offset: int
    names: tuple[str, ...]
    data: bytes


def records_of(log: Path) -> Iterator[Record]:
    held = memoryview(log.read_bytes())
    at, number = 0, 0
    while at + RECORD.size <= len(held):
        kind, name_bytes, data_bytes, inode, offset = RECORD.unpack_from(held, at)
        end = at + RECORD.size + name_bytes + data_bytes
        if end > len(held):
            return
        names = bytes(held[at + RECORD.size : at + RECORD.size + name_bytes]).decode()
        number += 1
        yield Record(number, Kind(kind), inode, offset, tuple(names.split("\0")), bytes(held[end - data_bytes : end]))
        at = end


@dataclass
class Change:
    record: Record
    is_certain: bool = False
    """It was on the disk when it was answered, though nothing before it need be."""


@dataclass
class File:
    content: bytearray = field(default_factory=bytearray)
    """What is durable."""
    pending: list[Change] = field(default_factory=list)

    def settle(self, covered: int) -> None:
        while self.pending and self.pending[0].record.number <= covered:
            apply(self.content, self.pending.pop(0).record)

    def left(self, keeps: Callable[[Record], Record | None]) -> bytearray:
        content = bytearray(self.content)
        for change in self.pending:
            kept = change.record if change.is_certain else keeps(change.record)
            if kept is not None:
                apply(content, kept)
        return content


def apply(content: bytearray, record: Record) -> None:
    end = record.offset + (len(record.data) if record.kind is Kind.WRITE else 0)
    if len(content) < end:
        content.extend(bytes(end - len(content)))
    if record.kind is Kind.WRITE:
        content[record.offset : end] = record.data
    elif record.kind is Kind.TRUNCATE:
        del content[end:]


Node = File | None
"""A file, or a folder."""


class Disk:
    """A folder's files and names: what is durable, and what is not yet."""

    def __init__(self) -> None:
        self.names: dict[str, Node] = {}
        """The durable names, folders before what is in them."""
        self.records = 0
        self._pending_names: list[tuple[Record, Node]] = []
        self._files: dict[int, File] = {}
        self._folders: dict[int, str] = {}

    @classmethod
    def of(cls, folder: Path) -> "Disk":
        """All that is there is durable."""
        disk = cls()
        for path in sorted(folder.rglob("*")):
            disk.names[str(path.relative_to(folder))] = None if path.is_dir() else File(bytearray(path.read_bytes()))
        return disk

    def take_in(self, log: Path) -> None:
        """The records of one process that began with this disk."""
        self._files, self._folders = {}, {}
        for record in records_of(log):
            self.records += 1
            self._take(record)

    def _take(self, record: Record) -> None:
        file = self._files.get(record.inode)
        match record.kind:
            case Kind.KNOWN:
                self._know(record)
            case Kind.CREATE:
                self._files[record.inode] = file = File()
                self._folders.pop(record.inode, None)
                self._pending_names.append((record, file))
            case Kind.MKDIR:
                self._folders[record.inode] = record.names[0]
                self._files.pop(record.inode, None)
                self._pending_names.append((record, None))
            case Kind.RENAME | Kind.LINK:
                self._pending_names.append((record, self._node(record)))
            case Kind.UNLINK:
                self._pending_names.append((record, None))
            case Kind.WRITE | Kind.TRUNCATE | Kind.ALLOCATE:
                if file is not None:
                    file.pending.append(Change(record))
            case Kind.SYNC if file is not None:
                file.settle(record.offset)
            case Kind.SYNC if record.inode in self._folders:
                self._settle_names(self._folders[record.inode], record.offset)
            case Kind.THROUGH:
                for change in file.pending if file else []:
                    change.is_certain |= change.record.number == record.offset
            case Kind.FAILED:
                self._withdraw(record.offset)

    def _know(self, record: Record) -> None:
        node = self._now()[record.names[0]]
        if node is None:
            self._folders[record.inode] = record.names[0]
        else:
            self._files[record.inode] = node

    def _node(self, record: Record) -> Node:
        """What a name that is moved or doubled belongs to; it need not have been opened."""
        if record.inode in self._folders:
            raise ValueError(f"a folder is moved: {record.names}")
        return self._files.setdefault(record.inode, self._now()[record.names[0]] or File())

    def _withdraw(self, number: int) -> None:
        self._pending_names = [pair for pair in self._pending_names if pair[0].number != number]
        for file in self._files.values():
            file.pending = [change for change in file.pending if change.record.number != number]

    def _settle_names(self, folder: str, covered: int) -> None:
        waiting: list[tuple[Record, Node]] = []
        for record, node in self._pending_names:
            if record.number <= covered and folder_of(record) == folder:
                apply_name(self.names, record, node)
                if record.kind in (Kind.RENAME, Kind.UNLINK):  # What gave that name before has been overtaken.
                    waiting = [pair for pair in waiting if pair[0].names[-1] != record.names[0]]
            else:
                waiting.append((record, node))
        self._pending_names = waiting

    def _now(self) -> dict[str, Node]:
        """All names as the process sees them."""
        names = dict(self.names)
        for record, node in self._pending_names:
            apply_name(names, record, node)
        return names

    def as_it_is(self) -> dict[str, bytes | None]:
        """Every file's bytes as the process sees them; None is a folder."""
        return {name: None if node is None else bytes(node.left(lambda r: r)) for name, node in self._now().items()}

    def after_power_cut(self, chance: random.Random) -> dict[str, bytes | None]:
        """Something that the disk may hold when power is back."""
        names = dict(self.names)
        folders = {folder_of(record) for record, _ in self._pending_names}
        ends = {folder: self._some_number(folder, chance) for folder in sorted(folders)}
        for record, node in self._pending_names:
            if record.number <= ends[folder_of(record)]:
                apply_name(names, record, node)
        found: dict[str, bytes | None] = {}
        for name, node in sorted(names.items()):
            folder = str(PurePosixPath(name).parent)
            if folder == "." or folder in found:
                found[name] = None if node is None else bytes(node.left(loss(chance)))
        return found

    def _some_number(self, folder: str, chance: random.Random) -> int:
        numbers = [record.number for record, _ in self._pending_names if folder_of(record) == folder]
        return chance.choice([0, chance.choice(numbers), numbers[-1]])


def folder_of(record: Record) -> str:
    """Whose sync makes a change of names durable."""
    return str(PurePosixPath(record.names[-1]).parent)


def apply_name(names: dict[str, Node], record: Record, node: Node) -> None:
    if record.kind in (Kind.RENAME, Kind.UNLINK):
        names.pop(record.names[0], None)
    if record.kind is not Kind.UNLINK:
        names[record.names[-1]] = node


def loss(chance: random.Random) -> Callable[[Record], Record | None]:
    """What becomes of a file's changes that are not durable. Each file has luck of its own."""
    kept, torn = chance.choice([(0.0, 0.0), (1.0, 0.0), (0.5, 0.2), (0.9, 0.1), (0.2, 0.6)])

    def keeps(record: Record) -> Record | None:
        drawn = chance.random()
        if drawn < kept:
            return record
        return part_of(record, chance) if drawn < kept + torn and record.kind is Kind.WRITE else None

    return keeps


def part_of(record: Record, chance: random.Random) -> Record:
    """A piece of a write: it begins or ends at a boundary of sectors."""
    start, end = record.offset, record.offset + len(record.data)
    boundaries = range(start - start % SECTOR_BYTES + SECTOR_BYTES, end, SECTOR_BYTES)
    if not boundaries:
        return record
    first, last = sorted([chance.choice([start, *boundaries]), chance.choice([*boundaries, end])])
    return Record(
        record.number, record.kind, record.inode, first, record.names, record.data[first - start : last - start]
    )


def write_out(found: Mapping[str, bytes | None], folder: Path) -> None:
    """Makes the files; zeroes become holes, as in a file whose space was allocated and not written."""
    for name, content in found.items():
        path = folder / name
        if content is None:
            path.mkdir(mode=0o700)
            continue
        with os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb", buffering=0) as file:
            file.truncate(len(content))
            for start in range(0, len(content), PIECE_BYTES):
                piece = content[start : start + PIECE_BYTES]
                if piece.count(0) != len(piece):
                    file.seek(start)
                    file.write(piece)
