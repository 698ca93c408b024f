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
        """Returns the ranges (begin, end, held a record) in order."""
        table = sorted(ranges)
        return DamagedBytes(
            np.array([begin for begin, _, _ in table], np.int64),
            np.array([end for _, end, _ in table], np.int64),
            np.array([held for _, _, held in table], bool),
        )

    def between(self, after: int, before: int) -> slice:
        """Returns which ranges begin in the open interval (after, before); ``slice(0)`` where none does."""
        low, high = np.searchsorted(self.begins, [after + 1, before])
        return slice(int(low), int(high)) if low < high else slice(0)

    def room(self, ranges: slice) -> int:
        """Returns how many messages some of the ranges may have held."""
        return int((self.ends[ranges] - self.begins[ranges]).sum()) // m.MIN_RECORD_SIZE


class SharedRoom:
    """The room of damaged ranges as the queues take it up: what one has claimed, no other can claim as well.

    Claims come in order of the place up to which they reach, and each takes the first room that is left for it. So all
    of them are met wherever there is a way to meet them all. ``size`` is what a message takes at least, in bytes.
    """

    def __init__(self, damaged: DamagedBytes, size: int = m.MIN_RECORD_SIZE) -> None:
        self._size, self._left = size, damaged.ends - damaged.begins

    def claim(self, ranges: slice, messages: int) -> bool:
        """Takes room for some messages of one queue; returns False, and takes none, where too little is left."""
        wanted = min(messages * self._size, _MOST)
        taken = np.minimum(np.cumsum(self._left[ranges]), wanted)
        if taken[-1:].sum() < wanted:
            return False
        self._left[ranges] -= np.diff(taken, prepend=0)
        return True
