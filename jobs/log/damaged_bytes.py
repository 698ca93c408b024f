"""Damaged ranges of a log, and how many lost messages they may have held."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from storeformat import message as m
from storeformat.arrays import Bools, Int64s

_MOST = 1 << 62
"""Bytes: more than any log has."""


@dataclass(frozen=True)
class DamagedBytes:
    """Sorted damaged ranges [begin, end); ``held_records`` marks those that certainly held a record."""

    begins: Int64s
    ends: Int64s
    held_records: Bools

    @staticmethod
    def of(ranges: Sequence[tuple[int, int, bool]]) -> DamagedBytes:
        table = sorted(ranges)
        return DamagedBytes(
            np.array([begin for begin, _, _ in table], np.int64),
            np.array([end for _, end, _ in table], np.int64),
            np.array([held for _, _, held in table], bool),
        )

    def between(self, after: int, before: int) -> slice:
        """Slice of the ranges that begin in the open interval (after, before); ``slice(0)`` for none."""
        low, high = np.searchsorted(self.begins, [after + 1, before])
        return slice(int(low), int(high)) if low < high else slice(0)

    def room(self, ranges: slice) -> int:
        """Messages that these ranges can have held at most."""
        return int((self.ends[ranges] - self.begins[ranges]).sum()) // m.MIN_RECORD_SIZE


class SharedRoom:
    """Room in damaged ranges, shared by all queues. Claims in order of their upper bound are all met if possible."""

    def __init__(self, damaged: DamagedBytes, size: int = m.MIN_RECORD_SIZE) -> None:
        self._size, self._left = size, damaged.ends - damaged.begins

    def claim(self, ranges: slice, messages: int) -> bool:
        """Take room for messages of one queue; takes none and returns False if there is too little."""
        wanted = min(messages * self._size, _MOST)
        taken = np.minimum(np.cumsum(self._left[ranges]), wanted)
        if taken[-1:].sum() < wanted:
            return False
        self._left[ranges] -= np.diff(taken, prepend=0)
        return True
