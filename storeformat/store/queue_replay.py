"""Queues in files against the end of the log: records at their place, and the effect of a start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from storeformat.arrays import Bools, Int64s
from storeformat.log.log_tail import LogTail
from storeformat.queues.consume_queue import UNIT_SIZE
from storeformat.record.light_queues import LIGHT_PREFIX
from storeformat.store import queue_ends
from storeformat.store.queue_ends import QueueEnd
from storeformat.store.recovery import NEVER

_NO_ROWS = np.zeros(0, np.int64)


@dataclass(frozen=True)
class Replayed:
    """End of a queue after a start, and the dispatched rows of the tail that are not at their place."""

    end: int
    misplaced: Int64s = field(default_factory=lambda: _NO_ROWS)


def replayed(
    queue: QueueEnd | None, key: tuple[str, int], tail: LogTail, covered: Bools, *, cut: bool, batch: bool
) -> Replayed:
    """A queue after a start that cuts it at the log's end (ConsumeQueue#truncateDirtyLogicFiles) and appends the
    ``covered`` rows of the tail. ``batch``: type of a queue without files.
    """
    end, reached = (0, -1) if queue is None else (queue.end, queue.end_offset)
    if queue is not None and cut and reached > tail.end and not queue.ends_in_pre_blank:
        end, reached = min(end, queue_ends.offset_at(queue, tail.end)), tail.end
    rows = tail.rows_of.get(key, _NO_ROWS)
    again = rows[covered[rows] & (tail.ends[rows] > reached)]
    if not again.size:
        return Replayed(end)
    if queue is None or not queue.files:
        end = int(tail.queue_offsets[again[0]])
    if queue.batch if queue is not None else batch:
        return Replayed(max(end, int(tail.queue_offsets[again[-1]]) + 1))
    last = rows[tail.ends[rows] == reached]  # after a gap, units of 5.0.0 are before their places
    before = int(tail.queue_offsets[last[0]]) + 1 - end if last.size else 0
    put, places, end = _appended(tail, again, end)
    if put is again or key[0].startswith(LIGHT_PREFIX):  # for light queues only the order counts
        return Replayed(end)
    return Replayed(end, np.setdiff1d(again, put[tail.queue_offsets[put] - before == places]))


def _appended(tail: LogTail, rows: Int64s, end: int) -> tuple[Int64s, Int64s, int]:
    """Rows appended to a queue that ends at ``end``, their places, and the new end. A unit is appended unless its
    offset is already in the queue; offset 0 never is (ConsumeQueue#putMessagePositionInfo, 4.9.8 to 5.5.1).
    """
    offsets = tail.queue_offsets[rows]
    if not rows.size:
        return rows, rows, end
    if offsets[0] == end and offsets[-1] - end == len(rows) - 1 and (np.diff(offsets) == 1).all():
        return rows, offsets, end + len(rows)
    put, first = np.zeros(len(rows), np.bool_), end
    for number, offset in enumerate(offsets.tolist()):
        put[number] = offset >= end or offset == 0
        end += bool(put[number])
    return rows[put], np.arange(first, end), end


def misplaced(tail: LogTail, rows: Int64s, queue: QueueEnd) -> Int64s:
    """Records of an ordinary queue whose unit is missing or wrong at their queue offset."""
    if queue.topic.startswith(LIGHT_PREFIX):  # some releases put more records there, none puts one after its place
        first = queue_ends.offset_at(queue, int(tail.offsets[rows[0]]))
        put, _, _ = _appended(tail, rows[tail.ends[rows] <= queue.end_offset], first)
        units = queue_ends.units_at(queue, np.arange(first, min(queue.end, first + _held(queue))))
        places = {unit[:2]: place for place, unit in enumerate(units.tolist(), first)}
        pairs = zip(tail.offsets[put].tolist(), (tail.ends[put] - tail.offsets[put]).tolist(), strict=True)
        found = np.array([places.get(pair, NEVER) for pair in pairs], np.int64)
        return put[(found > tail.queue_offsets[put]) & ((found == NEVER) | (tail.queue_offsets[put] > 0))]
    rows = rows[tail.queue_offsets[rows] < queue.end]
    ours, numbers = points_to(tail, rows, queue), tail.queue_offsets[rows]
    if ours.all():
        return rows[:0]
    kept = np.where(ours, numbers, queue.end)
    least = np.minimum.accumulate(kept[::-1])[::-1]  # of correct ones from here on
    older = np.flatnonzero(~ours & (least <= numbers))  # a later life has their place and those before
    first = older[-1] + 1 if older.size else 0
    rows, ours = rows[first:], ours[first:]
    later = np.minimum.accumulate(tail.queue_offsets[rows][::-1])[::-1]
    last_life = np.append(tail.queue_offsets[rows][:-1] < later[1:], True)[: len(rows)]  # excludes deleted topics
    rows = rows[last_life & ~ours]
    return rows[~_lies_before_its_place(tail, rows, queue)] if rows.size else rows


def points_to(tail: LogTail, rows: Int64s, queue: QueueEnd) -> Bools:
    """Which records have their unit at their queue offset in an ordinary queue."""
    units, begins = queue_ends.units_at(queue, tail.queue_offsets[rows]), tail.offsets[rows]
    return np.asarray((units["phy_offset"] == begins) & (units["size"] == tail.ends[rows] - begins))


def without_own_unit(tail: LogTail, queues: Mapping[tuple[str, int], QueueEnd]) -> list[tuple[str, int]]:
    """Keys of ``queues`` with a record whose unit is not in ``QueueEnd.held`` at its place: those to look at one by
    one.
    """
    none = QueueEnd("", 0, ())
    own = [queues.get(key, none) for key in tail.keys]
    counts, ends = (np.array(column, np.int64) for column in ([len(one.held) for one in own], [one.end for one in own]))
    units = np.concatenate([*(one.held for one in own), np.zeros(1, none.held.dtype)])
    places = tail.queue_offsets - (ends - counts)[tail.key_of]
    inside = (places >= 0) & (places < counts[tail.key_of])
    units = units[np.where(inside, places + (np.cumsum(counts) - counts)[tail.key_of], -1)]
    ours = (units["phy_offset"] == tail.offsets) & (units["size"] == tail.ends - tail.offsets)
    return [key for number in np.unique(tail.key_of[~ours]).tolist() if (key := tail.keys[number]) in queues]


def _held(queue: QueueEnd) -> int:
    """Units that the files can hold: their names may be far apart."""
    return sum(file.size for file in queue.files) // UNIT_SIZE


def _lies_before_its_place(tail: LogTail, rows: Int64s, queue: QueueEnd) -> Bools:
    """Brokers of 5.0.0 left gaps in queue offsets, but not in queues: units are at earlier places, in order."""
    first, last = (queue_ends.offset_at(queue, int(tail.offsets[row])) for row in rows[[0, -1]])
    stop = min(last + 1, queue.end, first + _held(queue))
    begins = queue_ends.units_at(queue, np.arange(first, stop))["phy_offset"].astype(np.int64)
    if not begins.size or (np.diff(begins) <= 0).any():
        return np.zeros(len(rows), np.bool_)
    at = np.minimum(np.searchsorted(begins, tail.offsets[rows]), len(begins) - 1)
    return np.asarray((begins[at] == tail.offsets[rows]) & (first + at < tail.queue_offsets[rows]))


def given_twice(tail: LogTail, rows: Int64s, wrong: Int64s, queue: QueueEnd) -> Bools:
    """Which ``wrong`` rows came too late: an earlier record has their place, perhaps after a counter restarted."""
    units = queue_ends.units_at(queue, tail.queue_offsets[wrong])["phy_offset"].astype(np.int64)
    other = rows[np.minimum(np.searchsorted(tail.offsets[rows], units), len(rows) - 1)]
    anew = (tail.queue_offsets[other] == 0) & np.isin(other, wrong)
    has_it = (tail.queue_offsets[other] == tail.queue_offsets[wrong]) | anew
    return np.asarray((tail.offsets[other] == units) & has_it & (other < wrong))
