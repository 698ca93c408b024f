"""One consume-queue file against the log's units. A healthy file has up to three parts, in this order.

=======================  =====================================================================================
places                   allowed content
=======================  =====================================================================================
before the queue's       pre-blank units, and units of messages that retention took from the log
first unit in the log
between first and last   exactly the units that follow from the log; where dispatch lags after a kill, zeros;
                         in the place of a damaged message any valid unit
after the last unit      zeros; old units that a truncation or a deleted topic left; or units of
                         records after the part of the log that was read
=======================  =====================================================================================

Pairs of one queue in a database against those of its log, with the differences that are allowed.

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
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from storeformat.arrays import Bools, Int64s, LogExtent, Structs, as_fields
from storeformat.errors import LISTED
from storeformat.queues import batch_consume_queue, consume_queue


@dataclass(frozen=True)
class Finding:
    """Faults of one cause in a file: their number, byte and fields of the first (None: not there)."""

    cause: str
    count: int = 1
    position: int | None = None
    expected: object = None
    found: object = None


@dataclass(frozen=True)
class UnitComparison:
    """Result of checking one file. ``counts``: units that are ``equal``, ``lagging`` (not yet dispatched), ``old`` (of
    messages before the log), and ``unproven`` (of damaged messages).
    """

    differences: tuple[Finding, ...]
    hazards: tuple[Finding, ...]
    counts: Counter[str]
    reach: int  # commit-log offset of the last equal unit, -1 for none


def compare_units(
    expected: Structs,
    found: Structs,
    own: range,
    fillers: Bools,
    log: LogExtent,
    are_records: Callable[[Structs], Bools],
    dispatched: int | None = None,
) -> UnitComparison:
    """Compare a file's units with the log's; both have one unit a place. ``own``: places of the queue's units,
    ``fillers``: those of damaged messages. ``are_records``: which units match a record of the log. ``dispatched``: log
    offset up to which units must exist (None: all).
    """
    offsets, places = found["phy_offset"].astype(np.int64), np.arange(len(found))
    zero, valid, pre_blank = found == np.zeros_like(found), _is_valid(found), _is_pre_blank(found)
    head, own_units = places < own.start, (places >= own.start) & (places < own.stop)
    equal = own_units & ~fillers & (found == expected)
    lagging = own_units & ~equal
    if dispatched is None:
        lagging[:] = False
    else:
        lagging &= np.logical_or.accumulate(own_units & (expected["phy_offset"] >= dispatched))
    required = head | (own_units & ~lagging)
    after = ~required & ~equal
    message = valid & ~pre_blank
    lost, below, beyond = log.lost(offsets), offsets < log.begin, offsets >= log.end

    missing = required & np.where(fillers, ~valid, zero)
    wrong = required & ~missing & ~equal & ~fillers & (own_units | ~valid)
    old = message & (below | (head & lost)) & (head | (after & (not own)))
    extra = head & message & ~old
    remains = after & message & ~lost & ~beyond & ~old
    oldest = int(expected["phy_offset"][own.start]) if own else log.begin
    in_log = np.flatnonzero(remains & (offsets >= oldest))[:LISTED]  # units of an earlier life of the topic are older
    in_log = in_log[are_records(found[in_log])]
    extra[in_log], remains[in_log] = True, False

    def finding(cause: str, units: Bools, *, want: bool = False) -> Iterator[Finding]:
        if units.any():
            at = int(units.argmax())
            yield Finding(
                cause,
                int(units.sum()),
                at * found.dtype.itemsize,
                as_fields(expected[at]) if want else None,
                None if zero[at] else as_fields(found[at]),
            )

    ends_with_pre_blank = pre_blank & (np.cumsum(valid[::-1])[::-1] == 1)
    return UnitComparison(
        differences=(
            *finding("missing_unit", missing, want=True),
            *finding("wrong_unit", wrong, want=True),
            *finding("extra_unit", extra),
        ),
        hazards=(
            *finding("old_units", remains),
            *finding("units_beyond_log", after & message & beyond),
            *finding("pre_blank_end", ends_with_pre_blank),
            *finding("zero_file", zero & zero.all()),
        ),
        counts=Counter(
            equal=int(equal.sum()),
            lagging=int(lagging.sum()),
            old=int(old.sum()),
            unproven=int((required & fillers | after & message & lost).sum()),
        ),
        reach=int(offsets[equal][-1]) if equal.any() else -1,
    )


def _is_valid(units: Structs) -> Bools:
    return (
        batch_consume_queue.is_valid(units)
        if units.dtype == batch_consume_queue.UNIT
        else consume_queue.is_valid(units)
    )


def _is_pre_blank(units: Structs) -> Bools:
    has_pre_blanks = units.dtype == consume_queue.UNIT
    return consume_queue.is_pre_blank(units) if has_pre_blanks else np.zeros(len(units), bool)


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
