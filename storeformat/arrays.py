"""Types of columns by name, and what several modules do with columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Bools = npt.NDArray[np.bool_]
Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
Structs = npt.NDArray[np.void]
"""Rows of a structured dtype: units, entries, heads."""

_SHORT_GROUPS = 1 << 16


def narrow(numbers: npt.NDArray[np.integer]) -> Int32s:
    """Returns numbers as 32-bit ones; raises OverflowError where one does not fit."""
    made = numbers.astype(np.int32)
    if not np.array_equal(made, numbers):
        raise OverflowError("a number does not fit 32 bits")
    return made


def stable_order(groups: Int64s, count: int) -> Int64s:
    """Returns the order of the rows by group, otherwise as they are; ``groups`` holds numbers in [0, count).

    Few groups fit 16 bits, which numpy sorts in linear time.
    """
    return np.argsort(groups.astype(np.uint16) if count <= _SHORT_GROUPS else groups, kind="stable")


def leading(flags: Bools) -> int:
    """Returns how many are set before the first that is not."""
    return len(flags) if flags.all() else int(flags.argmin())


def sum_of_offsets(offsets: npt.NDArray[np.integer]) -> int:
    """Returns the sum of commit-log offsets modulo 2**64: the check that the rows written are those that were read."""
    return int(offsets.sum(dtype=np.int64)) % (1 << 64)


@dataclass(frozen=True)
class LogExtent:
    """What was read of a commit log: offsets [begin, end), less the ``damaged`` ranges [begin, end), whose records
    nobody can read.
    """

    begin: int
    end: int
    damaged: tuple[tuple[int, int], ...] = ()

    def lost(self, offsets: npt.NDArray[np.integer]) -> Bools:
        """Returns which offsets lie in a damaged range."""
        found = np.zeros(len(offsets), bool)
        for begin, end in self.damaged:
            found |= (offsets >= begin) & (offsets < end)
        return found


def cut_ranges(begins: Int64s, ends: Int64s, every: int) -> tuple[Int64s, Int64s, Int64s, Int64s]:
    """Cuts ranges [begin, end), none of them empty, at the multiples of ``every``.

    Returns four columns with a row for each piece, in order: the row of its range, the number of the interval
    [number * every, (number + 1) * every) that it lies in, its start and its end.
    """
    first, last = begins // every, (ends - 1) // every
    pieces = last - first + 1
    rows = np.repeat(np.arange(len(begins)), pieces)
    numbers = first[rows] + np.arange(len(rows)) - (np.cumsum(pieces) - pieces)[rows]
    return rows, numbers, np.maximum(begins[rows], numbers * every), np.minimum(ends[rows], (numbers + 1) * every)


def as_fields(row: Any) -> dict[str, int] | None:
    """Returns a row of a structured array as a dict of its fields, None for None."""
    return None if row is None else {name: int(row[name]) for name in row.dtype.names}
