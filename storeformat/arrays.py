"""Columns: how the arrays that this package takes and returns are called, and what several modules do with them."""

from __future__ import annotations

from collections.abc import Iterable

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


def sum_of_offsets(offsets: npt.NDArray[np.integer]) -> int:
    """Returns the sum of commit-log offsets modulo 2**64: the check that the rows written are those that were read."""
    return int(offsets.sum(dtype=np.int64)) % (1 << 64)


def inside(values: npt.NDArray[np.integer], ranges: Iterable[tuple[int, int]]) -> Bools:
    """Returns which values lie in one of the ranges [begin, end)."""
    found = np.zeros(len(values), bool)
    for begin, end in ranges:
        found |= (values >= begin) & (values < end)
    return found
