"""A DLedger log that grows as the member of a group writes it, from the same messages as ``store_builder``'s.

Entry: magic i32 (1), size i32, index i64, term i64, pos i64, channel i32, chainCrc i32, bodyCrc i32, bodyLen i32, body.
A blank, magic -1 and the size of the rest, closes a file.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from support.store_builder import FREE_BEHIND, LogBuilder, Message, Placed, encode_record

HEAD = struct.Struct(">iiqqqiiii")
SIZE = 4096
"""Bytes of a segment of ``a_log``."""


def encode_entry(record: bytes, index: int, term: int, position: int) -> bytes:
    return HEAD.pack(1, HEAD.size + len(record), index, term, position, 0, 0, 0, len(record)) + record


class EntryLogBuilder(LogBuilder):
    """``records`` are where the records lie, 48 bytes after their entries; ``term`` is that of the next entry."""

    def __init__(self, segment_size: int = 65536, base: int = 0, *, first_index: int = 0, term: int = 0) -> None:
        super().__init__(segment_size, base)
        self.first_index = first_index
        self.term = term

    @property
    def next_index(self) -> int:
        return self.first_index + len(self.records)

    def batch(self, messages: Sequence[Message]) -> list[Placed]:
        """Appends a producer's batch: an entry each, which may lie in two files."""
        return [self._entry(self._stamped(message)) for message in messages]

    def _entry(self, message: Message) -> Placed:
        needed = HEAD.size + len(encode_record(message, self.end_offset + HEAD.size))
        if needed + FREE_BEHIND > self.remaining:
            self.blank()
        position = self.end_offset
        record = encode_record(message, position + HEAD.size)
        placed = Placed(position + HEAD.size, len(record), message)
        self.raw(encode_entry(record, self.next_index, self.term, position))
        self.records.append(placed)
        return placed

    def blank(self, size: int | None = None) -> int:
        """Closes the file and returns where its blank lies."""
        offset, remaining = self.end_offset, self.remaining
        rest = struct.pack(">ii", -1, remaining if size is None else size)
        self.raw(rest + bytes(remaining - len(rest)))
        self._segment(self.end_offset)
        return offset

    def write(self, root: Path, committed: int | None = None) -> Path:
        """Writes the files of member ``n0``; ``committed`` is the last index that its checkpoint calls committed."""
        group = root / "dledger-n0"
        (group / "data").mkdir(parents=True)
        for base, data in self.segments.items():
            (group / "data" / f"{base:020d}").write_bytes(data)
        if committed is not None:
            (group / "checkpoint").write_text(f"committedIndex={committed}\nendIndex={self.next_index - 1}\n")
        return root


def a_log(count: int = 60, **more: Any) -> EntryLogBuilder:
    """A log in segments of ``SIZE`` bytes, with messages of many lengths in three queues of one topic."""
    log = EntryLogBuilder(SIZE, **more)
    for number in range(count):
        log.message(topic="T", queue_id=number % 3, body=b"%d " % number + bytes(number % 40), keys=f"k{number}")
    return log
