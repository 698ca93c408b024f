"""Index files and the entries that a log makes, side by side: both as lists of (key hash, offset, store time)."""

from __future__ import annotations

import numpy as np

from storeformat.arrays import LogExtent
from storeformat.index import index_file
from storeformat.index.entries import ROW, Rows
from storeformat.index.index_check import FileContext, IndexComparison, compare_index_file

SLOTS, CAPACITY = 7, 4_000
ENTRIES_AT = 40 + 4 * SLOTS + 20
"""Of entry 1: number 0 is never used, and nobody looks at it."""

Entry = tuple[int, int, int]
"""Key hash, commit-log offset, store timestamp."""


def rows_of(entries: list[Entry]) -> Rows:
    table = np.array(entries, ROW)
    return Rows(
        len(table),
        lambda begin, end: table[begin : begin + (end - begin)],
        lambda offset: int(np.searchsorted(table["offset"], offset)),
    )


def file_of(entries: list[Entry]) -> bytearray:
    """The file that a broker makes of these entries; the first timestamp of all files is its own."""
    content = bytearray(index_file.index_file_size(SLOTS, CAPACITY))

    def write(position: int, data: memoryview) -> None:
        content[position : position + len(data)] = data

    hashes, offsets, times = (np.array(column, np.int64) for column in zip(*entries, strict=True))
    chunk = ((hashes & 0x7FFFFFFF).astype(np.int32), offsets, times)
    index_file.build_index_file([chunk], SLOTS, CAPACITY, write)
    return content


def compare(
    content: bytearray,
    log: list[Entry],
    *,
    begin: int = 0,
    end: int = 1 << 40,
    lost: tuple[tuple[int, int], ...] = (),
    previous_end: int | None = None,
    growing: bool = False,
) -> IndexComparison:
    context = FileContext(LogExtent(begin, end, lost), previous_end, growing)
    return compare_index_file(lambda at, size: bytes(content[at : at + size]), SLOTS, CAPACITY, rows_of(log), context)
