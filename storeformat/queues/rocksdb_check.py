"""Pairs of one queue in a database against those of its log, with the differences that are allowed.

==============  ========================================================  ========================================
found           what it is                                                what a broker does
==============  ========================================================  ========================================
``before_log``  a pair whose record is before the log                     removes it when it compacts
``beyond``      a pair above the queue's ``max``: of a log that was cut   never reads it, writes over it
``unread``      a pair of a record that was not read: in damage, or
                after what was read of the log
``lagging``     a unit that is missing, or still has an older pair, at    puts it when it starts (truncateDirty
                or after the checkpoint                                   leaves pairs where they are)
==============  ========================================================  ========================================
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from storeformat.arrays import Bools, Int64s, Structs


class Pairs(NamedTuple):
    """Pairs of one queue, ascending by queue offset, each offset once."""

    queue_offsets: Int64s
    values: Structs


@dataclass(frozen=True)
class FirstDifference:
    """The first pair of a queue that differs."""

    cause: str
    queue_offset: int
    expected: tuple[int, ...] | None
    found: tuple[int, ...] | None


@dataclass(frozen=True)
class PairsComparison:
    """Result of comparing a queue or a part of it; ``counts`` by cause."""

    compared: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    first: FirstDifference | None = None
    before_log: int = 0
    beyond: int = 0
    lagging: int = 0

    def plus(self, other: PairsComparison) -> PairsComparison:
        """Merge with a later part of the queue."""
        return PairsComparison(
            self.compared + other.compared,
            self.counts + other.counts,
            self.first or other.first,
            self.before_log + other.before_log,
            self.beyond + other.beyond,
            self.lagging + other.lagging,
        )


@dataclass(frozen=True)
class Limits:
    """What a queue may lack or have more: records up to ``dispatched`` must have units (None: all), the broker reads no
    pair after queue offset ``last`` (None: no end), and records in ``unread`` [begin, end) are unknown.
    """

    log_begin: int
    dispatched: int | None = None
    last: int | None = None
    unread: tuple[tuple[int, int], ...] = ()


def compare_pairs(expected: Pairs, found: Pairs, limits: Limits) -> PairsComparison:
    """Compare the pairs that the log makes with those of a database."""
    count = len(expected.queue_offsets)
    theirs = np.searchsorted(found.queue_offsets, expected.queue_offsets)
    inside = theirs < len(found.queue_offsets)
    there = np.zeros(count, bool)
    there[inside] = found.queue_offsets[theirs[inside]] == expected.queue_offsets[inside]
    theirs[~there] = -1
    extra = np.ones(len(found.queue_offsets), bool)
    extra[theirs[there]] = False
    dispatched = np.iinfo(np.int64).max if limits.dispatched is None else limits.dispatched
    open_yet = expected.values["phy_offset"].astype(np.int64) >= dispatched
    wrong = np.zeros(count, bool)
    wrong[there] = expected.values[there] != found.values[theirs[there]]
    differs = ~there | wrong
    offsets = found.values["phy_offset"].astype(np.int64)
    old = offsets < limits.log_begin
    last = np.iinfo(np.int64).max if limits.last is None else limits.last
    beyond = extra & ~old & (found.queue_offsets > last)
    surplus = extra & ~old & ~beyond & (offsets < dispatched)
    for begin, end in limits.unread:
        surplus &= (offsets < begin) | (offsets >= end)
    counts = Counter(
        missing_unit=int((~there & ~open_yet).sum()),
        wrong_unit=int((wrong & ~open_yet).sum()),
        extra_unit=int(surplus.sum()),
    )
    return PairsComparison(
        count,
        +counts,
        _first_wrong(expected, found, theirs, differs & ~open_yet, surplus),
        int((extra & old).sum()),
        int(beyond.sum()),
        int((differs & open_yet).sum()),
    )


def _first_wrong(
    expected: Pairs, found: Pairs, theirs: Int64s, differs: Bools, surplus: Bools
) -> FirstDifference | None:
    own = int(differs.argmax()) if differs.any() else None
    other = int(surplus.argmax()) if surplus.any() else None
    if own is not None and (other is None or expected.queue_offsets[own] <= found.queue_offsets[other]):
        cause = "wrong_unit" if theirs[own] >= 0 else "missing_unit"
        pair = tuple(found.values[theirs[own]].tolist()) if theirs[own] >= 0 else None
        return FirstDifference(cause, int(expected.queue_offsets[own]), tuple(expected.values[own].tolist()), pair)
    if other is not None:
        return FirstDifference("extra_unit", int(found.queue_offsets[other]), None, tuple(found.values[other].tolist()))
    return None
