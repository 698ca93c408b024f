"""Pairs of one queue that a database holds against those that its log makes: what differs, and what is as it may be.

==============  ========================================================  ========================================
found           what it is                                                what a broker does
==============  ========================================================  ========================================
``before_log``  a pair whose record is in front of the log                removes it when it compacts
``beyond``      a pair above the queue's ``max``: of a log that was cut   never reads it, writes over it
``unread``      a pair of a record that was not read: in damage, or
                after what was read of the log
``lagging``     a unit that is missing, or still has an older pair, at    puts it when it starts (truncateDirty
                or after the checkpoint                                   leaves pairs where they are)
==============  ========================================================  ========================================

Everything else that differs contradicts the log.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from storeformat.arrays import Bools, Int64s, Structs

CAUSES = {
    "phy_offset": "wrong_offset",
    "size": "wrong_size",
    "tags_code": "wrong_tags_code",
    "store_timestamp": "wrong_store_time",
}


@dataclass(frozen=True)
class FirstDifference:
    """The first pair of a queue that differs: its queue offset, and what both sides have there."""

    cause: str
    queue_offset: int
    expected: tuple[int, ...] | None
    found: tuple[int, ...] | None


@dataclass(frozen=True)
class PairsComparison:
    """What was found of a queue, or a part of it; ``counts`` by cause."""

    compared: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    first: FirstDifference | None = None
    before_log: int = 0
    beyond: int = 0
    lagging: int = 0

    def plus(self, other: PairsComparison) -> PairsComparison:
        """Returns both together; ``other`` comes later in the queue."""
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
    """What a queue may lack or still have: the log begins at ``log_begin``, its records up to ``dispatched`` must have
    their units (None: all), the broker reads no pair after queue offset ``last`` (None: it has no end), and nothing is
    known of the records in the ranges ``unread`` [begin, end).
    """

    log_begin: int
    dispatched: int | None = None
    last: int | None = None
    unread: tuple[tuple[int, int], ...] = ()


def compare_pairs(
    expected_offsets: Int64s, expected: Structs, found_offsets: Int64s, found: Structs, limits: Limits
) -> PairsComparison:
    """Returns the comparison of pairs in order of queue offset, each offset once a side."""
    theirs = np.searchsorted(found_offsets, expected_offsets)
    there = np.zeros(len(expected_offsets), bool)
    inside = theirs < len(found_offsets)
    there[inside] = found_offsets[theirs[inside]] == expected_offsets[inside]
    extra = np.ones(len(found_offsets), bool)
    extra[theirs[there]] = False
    dispatched = np.iinfo(np.int64).max if limits.dispatched is None else limits.dispatched
    open_yet = expected["phy_offset"].astype(np.int64) >= dispatched
    wrong = {cause: _differ(expected, found, name, there, theirs) for name, cause in CAUSES.items()}
    differs = np.logical_or.reduce([~there, *wrong.values()])
    old = found["phy_offset"].astype(np.int64) < limits.log_begin
    beyond = extra & ~old & (found_offsets > (limits.last if limits.last is not None else np.iinfo(np.int64).max))
    surplus = extra & ~old & ~beyond & (found["phy_offset"].astype(np.int64) < dispatched)
    for begin, end in limits.unread:
        surplus &= (found["phy_offset"] < begin) | (found["phy_offset"] >= end)
    counts = Counter({"missing_unit": int((~there & ~open_yet).sum()), "extra_unit": int(surplus.sum())})
    taken = np.zeros(len(expected_offsets), bool)
    for cause, rows in wrong.items():  # a pair of another record is one difference
        counts[cause] += int((rows & ~taken & ~open_yet).sum())
        taken |= rows
    return PairsComparison(
        len(expected_offsets),
        +counts,
        _first(expected_offsets, expected, found_offsets, found, differs & ~open_yet, there, theirs, surplus, wrong),
        int((extra & old).sum()),
        int(beyond.sum()),
        int((differs & open_yet).sum()),
    )


def _differ(expected: Structs, found: Structs, name: str, there: Bools, theirs: Int64s) -> Bools:
    wrong = np.zeros(len(expected), bool)
    wrong[there] = expected[name][there] != found[name][theirs[there]]
    return wrong


def _first(
    expected_offsets: Int64s,
    expected: Structs,
    found_offsets: Int64s,
    found: Structs,
    differs: Bools,
    there: Bools,
    theirs: Int64s,
    surplus: Bools,
    wrong: dict[str, Bools],
) -> FirstDifference | None:
    own = int(differs.argmax()) if differs.any() else None
    other = int(surplus.argmax()) if surplus.any() else None
    if own is not None and (other is None or expected_offsets[own] <= found_offsets[other]):
        cause = next((cause for cause, rows in wrong.items() if rows[own]), "missing_unit")
        pair = tuple(found[theirs[own]].tolist()) if there[own] else None
        return FirstDifference(cause, int(expected_offsets[own]), tuple(expected[own].tolist()), pair)
    if other is not None:
        return FirstDifference("extra_unit", int(found_offsets[other]), None, tuple(found[other].tolist()))
    return None
