"""Column types, and helpers for columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Bools = npt.NDArray[np.bool_]
Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
Structs = npt.NDArray[np.void]  # rows of a structured dtype: units, entries, heads
Table = np.recarray[Any, np.dtype[np.void]]  # rows whose columns are attributes

_SHORT_GROUPS = 1 << 16


def table_of(rows: np.dtype[Any], **columns: npt.ArrayLike) -> Table:
    """A table from its columns; those not given are zero."""
    table = np.zeros(len(np.asarray(next(iter(columns.values())))), rows).view(np.recarray)
    for name, column in columns.items():
        table[name] = column
    return table


def narrow(numbers: npt.NDArray[np.integer]) -> Int32s:
    """Numbers as int32. Raises OverflowError where one does not fit."""
    made = numbers.astype(np.int32)
    if not np.array_equal(made, numbers):
        raise OverflowError("a number does not fit 32 bits")
    return made


def stable_order(groups: Int64s, count: int) -> Int64s:
    """Stable order of rows by group in [0, count). Few groups fit 16 bits, which numpy sorts in linear time."""
    return np.argsort(groups.astype(np.uint16) if count <= _SHORT_GROUPS else groups, kind="stable")


def leading(flags: Bools) -> int:
    """Number of set flags before the first unset one."""
    return len(flags) if flags.all() else int(flags.argmin())


def sum_of_offsets(offsets: npt.NDArray[np.integer]) -> int:
    """Sum of commit-log offsets modulo 2**64, to check that all rows read were written."""
    return int(offsets.sum(dtype=np.int64)) % (1 << 64)


@dataclass(frozen=True)
class LogExtent:
    """The part [begin, end) of a commit log that was read, and its unreadable ``damaged`` ranges [begin, end)."""

    begin: int
    end: int
    damaged: tuple[tuple[int, int], ...] = ()

    def lost(self, offsets: npt.NDArray[np.integer]) -> Bools:
        """Which offsets are in a damaged range."""
        found = np.zeros(len(offsets), bool)
        for begin, end in self.damaged:
            found |= (offsets >= begin) & (offsets < end)
        return found


def cut_ranges(begins: Int64s, ends: Int64s, every: int) -> tuple[Int64s, Int64s, Int64s, Int64s]:
    """Cut non-empty ranges [begin, end) at the multiples of ``every``. Columns, a row for each piece in order: row of
    its range, number n of its interval [n * every, (n + 1) * every), start, end.
    """
    first, last = begins // every, (ends - 1) // every
    pieces = last - first + 1
    rows = np.repeat(np.arange(len(begins)), pieces)
    numbers = first[rows] + np.arange(len(rows)) - (np.cumsum(pieces) - pieces)[rows]
    return rows, numbers, np.maximum(begins[rows], numbers * every), np.minimum(ends[rows], (numbers + 1) * every)


def as_fields(row: Any) -> dict[str, int] | None:
    """A row of a structured array as a dict; None for None."""
    return None if row is None else {name: int(row[name]) for name in row.dtype.names}
