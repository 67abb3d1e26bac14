"""The table that tells which objects of nodes are needed."""

from dataclasses import dataclass

from harness.store_reader.fields import Cursor


@dataclass(frozen=True)
class Usage:
    """Of an object of nodes."""

    written: int
    """Sequence of the first root that has a node of it."""
    live: int
    died: int | None
    """Sequence of the first root that has none any more."""


def read_usage(fields: Cursor, itself: int) -> dict[int, Usage]:
    """By the object's number. `itself` is the object that the table lies in, which the table does not count."""
    is_complete, root, count = fields.u8(), fields.varint(), fields.varint()
    fields.require(is_complete <= 1, f"a completeness of {is_complete}")
    table: dict[int, Usage] = {}
    number = 0
    for index in range(count):
        higher = fields.varint()
        fields.require(index == 0 or higher > 0, "objects that do not ascend")
        number += higher
        written, live = fields.varint(), fields.varint(32)
        table[number] = Usage(written, live, None if live else fields.varint())
    fields.end()
    known = table.get(itself, Usage(root, 0, None))
    table[itself] = Usage(known.written, known.live + 1, None)
    return table
