"""Tell survivors after damage from leftovers of an older log and copies in bodies.

After a record of unknown length a reader can only search the next certificate: of the next record, of a record that a
truncation left, or of a copy in a producer's body. Neighbours decide, because queue offsets are dense in each queue
and store timestamps hardly ever run backwards:

============  ==============================================================================================
STRONG        its queue offset is missing between proven records of its queue on both sides
FAIR          it is just the next one of its queue
WEAK          nothing contradicts it: its queue goes on with it, its time lies between the proven ones
NONE          its queue offset was used before or is used later, its queue cannot have come so far, or it is
              older than what is proven before it
============  ==============================================================================================

If one record of a chain is real, so is every later one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np

from storeformat import message as m
from storeformat.record.decode import RecordBlock
from storeformat.record.dispatch import dispatched
from storeformat.salvage.queue_offsets import Comparison, Queue, claims_of, compare, is_taken

CLOCK_SLACK = 24 * 3600 * 1000  # milliseconds a corrected clock may jump; more means another life of the log


class Strength(IntEnum):
    NONE = 0
    WEAK = 1
    FAIR = 2
    STRONG = 3


@dataclass(frozen=True)
class Side:
    """What is proven on one side of a damaged place.

    ``edges``: next free queue offset of each queue before the place, or first queue offset of each queue after it;
    ``time``: nearest store timestamp. ``room``: bytes before the place (damage, foreign records) that may hold lost
    messages, or in later segments. ``others``: the neighbour's value, for queues whose record next to the place
    contradicts its neighbour although nothing is lost between the two.
    """

    edges: Mapping[Queue, int] = field(default_factory=dict)
    time: int | None = None
    room: int = 0
    others: Mapping[Queue, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Neighbours:
    """Both sides of a damaged place. ``whole``: the log is complete from offset 0, so that every queue begins at 0."""

    before: Side = field(default_factory=Side)
    after: Side = field(default_factory=Side)
    whole: bool = False


def latest_time(times: Sequence[int], after: int | None) -> int:
    """The latest of a few timestamps before a place, without those later than ``after`` or than a clock jump."""
    middle = sorted(times)[(len(times) - 1) // 2]
    bound = middle + CLOCK_SLACK if after is None else max(middle, after)
    return max(time for time in times if time <= bound)


class SurvivorJudge:
    """Judges records by what is proven so far; learns from each accepted piece of chain."""

    def __init__(self, near: Neighbours) -> None:
        self._ends, self._firsts = dict(near.before.edges), near.after.edges
        self._before, self._after = near.before.time, near.after.time
        self._whole = near.whole
        self.room = near.before.room
        self.is_in_doubt = bool(near.before.others or near.after.others)
        self._learned = Comparison()

    def copy(self) -> SurvivorJudge:
        """Copy that can learn what may have to be forgotten."""
        before, after = Side(self._ends, self._before, self.room), Side(self._firsts, self._after)
        return SurvivorJudge(Neighbours(before, after, self._whole))

    def is_older(self, block: RecordBlock) -> bool:
        """True if every record of a block is older than what is proven before, or claims a used place."""
        older = block.heads.store_timestamp < (-math.inf if self._before is None else self._before)
        claims = claims_of(block)
        older[claims.rows] |= is_taken(claims, self._ends)
        return bool(older.all())

    def first_survivor(self, block: RecordBlock, strict_below: int) -> int | None:
        """Row of the first survivor in a block. Weak evidence does not count below ``strict_below``."""
        candidates = self._candidates(block)
        if not candidates:
            return None
        rows = _Rows(block)
        for row in candidates:
            evidence = self._judge(rows, row)
            if evidence > Strength.WEAK or (evidence and rows.offsets[row] >= strict_below):
                return self._reach_back(rows, row)
        return None

    def _candidates(self, block: RecordBlock) -> list[int]:
        """Rows within a clock jump whose place is not taken."""
        low, high = self._times(CLOCK_SLACK)
        times = block.heads.store_timestamp
        may_be = (times >= low) & (times <= high)
        claims = claims_of(block)
        may_be[claims.rows[is_taken(claims, self._ends) & (claims.numbers != 0)]] = False
        return np.flatnonzero(may_be).tolist()

    def _judge(self, rows: _Rows, row: int) -> Strength:
        queue, number, time = rows.queues[row], rows.queue_offsets[row], rows.timestamps[row]
        in_time = self._is_in_time(time) and not self._is_ahead(time, rows.latest_after(row))
        if queue is None:
            return Strength.WEAK if in_time else Strength.NONE
        end, following = self._end(queue), self._firsts.get(queue)
        is_missing = end is not None and following is not None and end <= number < following
        if (number < (end or 0) and number != 0) or not self._is_in_time(time, CLOCK_SLACK if is_missing else 0):
            return Strength.NONE
        later = rows.lowest_later(row, following, end or 0)
        if later is not None and later != 0 and number >= later:
            return Strength.NONE
        room = self.room + rows.offsets[row] - rows.offsets[0]  # those before it in its chain may be none
        in_reach = end is None or number <= end + room // m.MIN_RECORD_SIZE
        if is_missing and in_reach:
            return Strength.STRONG
        if not in_time:
            return Strength.NONE
        if number == 0:  # the queue begins, or begins again: then what follows is small too
            return Strength.NONE if end and (later is None or later >= end) else Strength.WEAK
        if number == end:
            return Strength.FAIR
        return Strength.WEAK if in_reach else Strength.NONE

    def _end(self, queue: Queue) -> int | None:
        return self._ends.get(queue, 0 if self._whole else None)

    def may_be_of_this_life(self, block: RecordBlock) -> bool:
        """True if the first record of a block is within a clock jump."""
        return self._is_in_time(int(block.heads.store_timestamp[0]), CLOCK_SLACK)

    def is_of_an_older_life(self, time: int) -> bool:
        """True if a time is before the proven ones by more than a clock jump."""
        return self._before is not None and time < self._before - CLOCK_SLACK

    def _is_in_time(self, time: int, slack: int = 0) -> bool:
        low, high = self._times(slack)
        return low <= time <= high

    def _times(self, slack: int) -> tuple[float, float]:
        before, after = self._before, self._after
        if before is None or after is None:
            return -math.inf if before is None else before - slack, math.inf if after is None else after + slack
        return min(before, after) - slack, max(before, after) + slack

    def _is_ahead(self, time: int, latest_after: int | None) -> bool:
        """Without a later record, a time is in the future if the chain falls back by a clock jump."""
        if self._after is not None or self._before is None or latest_after is None:
            return False
        return time - CLOCK_SLACK > max(self._before, latest_after)

    def _reach_back(self, rows: _Rows, row: int) -> int:
        """First of the records before ``row`` that their queues prove without a break: from both sides, or by the next
        one where the topic was created again in the lost part.
        """
        while row > 0:
            queue, number = rows.queues[row - 1], rows.queue_offsets[row - 1]
            end = None if queue is None else self._end(queue)
            if queue is None or end is None or not self._is_in_time(rows.timestamps[row - 1], CLOCK_SLACK):
                break
            following = self._firsts.get(queue)
            if number < end:
                is_proven = rows.lowest_later(row - 1, following, 0) == number + 1 < end
            else:
                later = rows.lowest_later(row - 1, following, end)
                is_proven = later is not None and number < later
            if not is_proven:
                break
            row -= 1
        return row

    def learn(self, block: RecordBlock) -> None:
        """Accept the records of a block as proven."""
        self.room += foreign_bytes(block)
        claims = claims_of(block)
        self._learned = compare(claims, self._ends, self._firsts, self._learned, whole=self._whole)
        self._ends.update(claims.ends())
        times = block.heads.store_timestamp[~block.foreign][-3:].tolist()
        self._before = latest_time(times, self._after) if times else self._before

    @property
    def contradicts(self) -> bool:
        return self._learned.contradicts

    @property
    def fits(self) -> bool:
        """True if the learned records continue what was proven before, place by place."""
        learned = self._learned
        few_missing = learned.missing <= self.room // m.MIN_RECORD_SIZE
        return not self.contradicts and (learned.successions > 0 or (learned.claims > 1 and few_missing))


def foreign_bytes(block: RecordBlock) -> int:
    """Bytes of foreign records in a chain: they may have overwritten messages."""
    return int(block.heads.total_size[block.foreign].sum())


class _Rows:
    def __init__(self, block: RecordBlock) -> None:
        heads, self._block, self._queued = block.heads, block, dispatched(block)
        topics = [block.topics[code] for code in block.topic_codes.tolist()]
        self.offsets: list[int] = block.offsets.tolist()
        self.timestamps: list[int] = heads.store_timestamp.tolist()
        self.queue_offsets: list[int] = heads.queue_offset.tolist()
        self.queues: list[Queue | None] = [
            (topic, queue_id) if wanted else None
            for topic, queue_id, wanted in zip(topics, heads.queue_id.tolist(), self._queued.tolist(), strict=True)
        ]
        self._latest: list[int] = np.maximum.accumulate(heads.store_timestamp[::-1])[::-1].tolist()

    def latest_after(self, row: int) -> int | None:
        return self._latest[row + 1] if row + 1 < len(self._latest) else None

    def lowest_later(self, row: int, following: int | None, end: int) -> int | None:
        """Lowest queue offset that follows a row in its queue, up to where the queue begins again (0 if that is next);
        ``following`` is that after this block. Offsets below ``end`` are ignored: they are taken, so they are corrupt.
        """
        after, codes, heads = slice(row + 1, None), self._block.topic_codes, self._block.heads
        same = self._queued[after] & (codes[after] == codes[row]) & (heads.queue_id[after] == heads.queue_id[row])
        numbers = heads.queue_offset[after][same]
        numbers = numbers[(numbers >= end) | (numbers == 0)]
        births = np.flatnonzero(numbers == 0)
        if births.size:
            return int(numbers[: births[0]].min()) if births[0] else 0
        known = [*numbers.tolist(), *([following] if following else [])]
        return min(known, default=following)
