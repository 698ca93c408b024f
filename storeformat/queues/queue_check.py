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
(none)          a pair of a record that was not read: in damage, or
                after what was read of the log
``lagging``     a unit that is missing, or still has an older pair, at    puts it when it starts (truncateDirty
                or after the checkpoint                                   leaves pairs where they are)
==============  ========================================================  ========================================
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from storeformat.arrays import Bools, Int64s, LogExtent, Structs, as_fields
from storeformat.errors import LISTED
from storeformat.queues import batch_consume_queue, consume_queue

_ENDLESS = (1 << 63) - 1


@dataclass(frozen=True)
class Finding:
    """Faults of one cause: their number; byte (in a database queue offset) and fields of the first, None: not there."""

    cause: str
    count: int = 1
    position: int | None = None
    expected: object = None
    found: object = None


class Findings(dict[str, Finding]):
    """One finding for each cause: the first is shown, all are counted."""

    def add(self, *more: Finding) -> None:
        for one in more:
            before = self.setdefault(one.cause, replace(one, count=0))
            self[one.cause] = replace(before, count=before.count + one.count)


@dataclass(frozen=True)
class UnitComparison:
    """Units that differ, by cause. ``counts``: of a file ``equal``, ``lagging`` (not yet dispatched), ``old`` (of
    messages before the log) and ``unproven`` (of damaged messages); of a database ``compared`` and the table's above.
    """

    differences: tuple[Finding, ...] = ()
    hazards: tuple[Finding, ...] = ()
    counts: Counter[str] = field(default_factory=Counter)
    reach: int = -1  # commit-log offset of the last equal unit, -1 for none


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
    zero, is_batch = found == np.zeros_like(found), found.dtype == batch_consume_queue.UNIT
    valid = batch_consume_queue.is_valid(found) if is_batch else consume_queue.is_valid(found)
    pre_blank = np.zeros(len(found), bool) if is_batch else consume_queue.is_pre_blank(found)
    head, own_units = places < own.start, (places >= own.start) & (places < own.stop)
    equal = own_units & ~fillers & (found == expected)
    until = _ENDLESS if dispatched is None else dispatched
    lagging = own_units & ~equal & np.logical_or.accumulate(own_units & (expected["phy_offset"] >= until))
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

    at = places * found.dtype.itemsize
    return UnitComparison(
        differences=(
            *first_of("missing_unit", missing, at, expected, found),
            *first_of("wrong_unit", wrong, at, expected, found),
            *first_of("extra_unit", extra, at, None, found),
        ),
        hazards=(
            *first_of("old_units", remains, at, None, found),
            *first_of("units_beyond_log", after & message & beyond, at, None, found),
        ),
        counts=Counter(
            equal=int(equal.sum()),
            lagging=int(lagging.sum()),
            old=int(old.sum()),
            unproven=int((required & fillers | after & message & lost).sum()),
        ),
        reach=int(offsets[equal][-1]) if equal.any() else -1,
    )


def first_of(
    cause: str, flags: Bools, positions: Int64s, expected: Structs | None, found: Structs | None
) -> Iterator[Finding]:
    """The finding of flagged rows, if there is one, with the first of them."""
    if flags.any():
        at = int(flags.argmax())
        shown = (as_fields(units[at]) if units is not None and any(units[at]) else None for units in (expected, found))
        yield Finding(cause, int(flags.sum()), int(positions[at]), *shown)


class Pairs(NamedTuple):
    """Pairs of one queue, ascending by queue offset, each offset once."""

    queue_offsets: Int64s
    values: Structs


def compare_pairs(
    expected: Pairs, found: Pairs, log: LogExtent, dispatched: int | None = None, last: int | None = None
) -> UnitComparison:
    """Compare the pairs that the log makes with those of a database. ``dispatched``: log offset up to which pairs must
    exist (None: all), ``last``: queue offset of the last pair that the broker reads (None: no end).
    """
    there = np.isin(expected.queue_offsets, found.queue_offsets, assume_unique=True, kind="sort")
    extra = ~np.isin(found.queue_offsets, expected.queue_offsets, assume_unique=True, kind="sort")
    values = np.zeros_like(expected.values)
    values[there] = found.values[~extra]  # both ascend
    until = _ENDLESS if dispatched is None else dispatched
    required = expected.values["phy_offset"].astype(np.int64) < until
    differs = ~there | (values != expected.values)
    offsets = found.values["phy_offset"].astype(np.int64)
    old = offsets < log.begin
    beyond = extra & ~old & (found.queue_offsets > (_ENDLESS if last is None else last))
    surplus = extra & ~old & ~beyond & (offsets < until) & ~log.lost(offsets)
    return UnitComparison(
        differences=(
            *first_of("missing_unit", required & ~there, expected.queue_offsets, expected.values, None),
            *first_of("wrong_unit", required & there & differs, expected.queue_offsets, expected.values, values),
            *first_of("extra_unit", surplus, found.queue_offsets, None, found.values),
        ),
        counts=Counter(
            compared=len(expected.values),
            before_log=int((extra & old).sum()),
            beyond=int(beyond.sum()),
            lagging=int((differs & ~required).sum()),
        ),
    )
