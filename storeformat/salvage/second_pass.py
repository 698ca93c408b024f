"""Judge the chains that a survey rejected again, with the survivors on both sides known.

Nothing checks a queue offset: one damaged claim contradicts sound records around it. After the segment's end, a record
is a survivor if it fits its place:

==============  =============================================================================================
on either side  of the nearest two survivors of its queue, one leaves room for it: between the two places in the
                queue there is none that the lost bytes between the two records could not have held
its time        is between those of the survivors around it, of which one may be off by more than a clock jumps
==============  =============================================================================================

The farther of the two counts if the nearer contradicts it: then the nearer is a survivor with a damaged claim and takes
one of the places between. Most records of a chain must fit: a copy in a lost body may hit a free place, but damage
changes the claims of few records.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from storeformat import message as m
from storeformat.log.record_ref import RecordRef, record_ref
from storeformat.record.decode import RecordBlock
from storeformat.salvage.evidence import CLOCK_SLACK, Neighbours, foreign_bytes
from storeformat.salvage.queue_offsets import Queue, claims_of

OffsetRange = tuple[int, int]
Chain = list[tuple[RecordRef, int]]  # records and their ends
Reader = Callable[[int, int], Iterable[RecordBlock]]  # reads the chain between two offsets

MOST_ROWS = 20_000  # records judged again in a segment: damage leaves few in doubt, an older log many
_NEAREST = 2
_TIMES = 3


@dataclass(frozen=True)
class _SurvivingPiece:
    """A surviving piece of chain: first and last queue offsets of some queues, times, and bytes of foreign records."""

    begin: int
    end: int
    firsts: dict[Queue, list[int]]
    lasts: dict[Queue, list[int]]
    first_times: list[int]
    last_times: list[int]
    foreign: int


def find_survivors(
    read: Reader,
    near: Neighbours,
    begin: int,
    limit: int,
    pieces: Sequence[OffsetRange],
    rejected: Sequence[OffsetRange],
) -> list[OffsetRange]:
    """Survivors in rejected chains of [begin, limit) in a segment; a rejected chain ends at a proven one."""
    chains = list(_chains(read, pieces, rejected))
    queues = {queue for rows in chains for row, _ in rows if (queue := _queue(row)) is not None}
    if not queues:
        return []
    survivors = [_surviving_piece(read, piece, queues) for piece in pieces]
    found: list[OffsetRange] = []
    for rows in chains:
        fitting = _Surroundings(near, begin, limit, survivors, rows[0][0].offset, rows[-1][1]).fitting(rows)
        if 2 * sum(fitting) <= len(fitting):
            continue
        runs = _joined([(row.offset, end) for (row, end), fits in zip(rows, fitting, strict=True) if fits])
        found += runs
        survivors += [_surviving_piece(read, run, queues) for run in runs]
        survivors.sort(key=lambda item: item.begin)
    return found


def _joined(ranges: Sequence[OffsetRange]) -> list[OffsetRange]:
    joined: list[OffsetRange] = []
    for begin, end in ranges:
        if joined and joined[-1][1] == begin:
            joined[-1] = joined[-1][0], end
        else:
            joined.append((begin, end))
    return joined


def _chains(read: Reader, pieces: Sequence[OffsetRange], rejected: Sequence[OffsetRange]) -> Iterator[Chain]:
    """Records and ends of each rejected chain, without chains that overlap survivors."""
    starts = [begin for begin, _ in pieces]
    room = MOST_ROWS
    for begin, end in rejected:
        stop = min([end, *starts[bisect_right(starts, begin) :][:1]])
        rows = list(islice(_rows(read, begin, stop), room + 1))
        room -= len(rows)
        if room < 0:
            return
        if rows and rows[-1][1] <= stop:
            yield rows


def _rows(read: Reader, begin: int, end: int) -> Iterator[tuple[RecordRef, int]]:
    for block in read(begin, end):
        for row in np.flatnonzero(~block.foreign).tolist():
            yield record_ref(block, row), int(block.offsets[row] + block.heads.total_size[row])


def _queue(row: RecordRef) -> Queue | None:
    return (row.topic, row.queue_id) if row.queued else None


def _surviving_piece(read: Reader, piece: OffsetRange, queues: set[Queue]) -> _SurvivingPiece:
    firsts: dict[Queue, list[int]] = {}
    lasts: dict[Queue, list[int]] = {}
    first_times: list[int] = []
    last_times: list[int] = []
    foreign = 0
    for block in read(*piece):
        foreign += foreign_bytes(block)
        times = block.heads.store_timestamp[~block.foreign]
        first_times += times[: _TIMES - len(first_times)].tolist()
        last_times = [*last_times, *times[-_TIMES:].tolist()][-_TIMES:]
        claims = claims_of(block)
        numbers, begins, sizes = claims.numbers.tolist(), claims.begins.tolist(), claims.sizes.tolist()
        for queue, begin, size in zip(claims.queues, begins, sizes, strict=True):
            if queue in queues:
                known, end = firsts.setdefault(queue, []), begin + size
                known += numbers[begin:end][: _NEAREST - len(known)]
                recent = [] if size >= _NEAREST else lasts.get(queue, [])
                lasts[queue] = [*recent, *numbers[max(begin, end - _NEAREST) : end]][-_NEAREST:]
    return _SurvivingPiece(*piece, firsts, lasts, first_times, last_times, foreign)


class _Surroundings:
    """Survivors on both sides of a rejected chain [begin, end)."""

    def __init__(
        self, near: Neighbours, start: int, limit: int, survivors: Sequence[_SurvivingPiece], begin: int, end: int
    ) -> None:
        self._near, self._start, self._limit = near, start, limit
        self._begin, self._end = begin, end
        self._left = [item for item in survivors if item.end <= begin][::-1]
        self._right = [item for item in survivors if item.begin >= end]
        before = [time for item in self._left[:_TIMES] for time in item.last_times[::-1]]
        after = [time for item in self._right[:_TIMES] for time in item.first_times]
        self._earliest = min(_without_jumps(before[:_TIMES] or [near.before.time]), default=None)
        self._latest = max(_without_jumps(after[:_TIMES] or [near.after.time]), default=None)
        self._before: dict[Queue, list[tuple[int, int]]] = {}
        self._after: dict[Queue, list[tuple[int, int]]] = {}

    def fitting(self, rows: Sequence[tuple[RecordRef, int]]) -> list[bool]:
        """Which records of the chain fit; one without a queue follows the one before it."""
        fitting: list[bool] = []
        lost = 0
        for row, end in rows:
            queue = _queue(row)
            fits = self._is_in_time(row.store_timestamp)
            if queue is None:
                fits = fits and fitting[-1:] == [True]
            else:
                fits = fits and self._keeps(queue, row.queue_offset, lost, self._end - end)
                if fits:
                    self._before[queue] = [(row.queue_offset, -lost), *self._before[queue]][:_NEAREST]
            lost += 0 if fits else end - row.offset
            fitting.append(fits)
        return fitting

    def _is_in_time(self, time: int) -> bool:
        not_too_early = self._earliest is None or time >= self._earliest
        return not_too_early and (self._latest is None or time <= self._latest)

    def _keeps(self, queue: Queue, number: int, lost_before: int, lost_after: int) -> bool:
        """True if a queue has a place for a record, given the lost bytes of its chain on either side."""
        if queue not in self._before:
            self._before[queue] = list(islice(self._numbers_before(queue), _NEAREST))
            self._after[queue] = list(islice(self._numbers_after(queue), _NEAREST))
        before = [(other, room + lost_before) for other, room in self._before[queue]]
        after = [(other, room + lost_after) for other, room in self._after[queue]]
        believed = enumerate(_believed(before, backwards=True)), enumerate(_believed(after))
        goes_on = any(_is_room(other, number, room, skipped) for skipped, (other, room) in believed[0])
        leads_on = any(_is_room(number, other, room, skipped) for skipped, (other, room) in believed[1])
        return (goes_on or leads_on) and (goes_on or not before) and (leads_on or not after)

    def _numbers_before(self, queue: Queue) -> Iterator[tuple[int, int]]:
        """Queue offsets before this place, nearest first, and the bytes lost since."""
        room, at = 0, self._begin
        for item in self._left:
            room, at = room + at - item.end + item.foreign, item.begin
            for number in reversed(item.lasts.get(queue, [])):
                yield number, room
        before = self._near.before
        if queue in before.edges or self._near.whole:
            room += at - self._start + before.room
            yield before.edges.get(queue, 0) - 1, room
            if queue in before.others:
                yield before.others[queue] - 1, room

    def _numbers_after(self, queue: Queue) -> Iterator[tuple[int, int]]:
        """Queue offsets after this place, nearest first, and the bytes lost before them."""
        room, at = 0, self._end
        for item in self._right:
            room, at = room + item.begin - at + item.foreign, item.end
            for number in item.firsts.get(queue, []):
                yield number, room
        after = self._near.after
        if queue in after.edges:
            room += self._limit - at + after.room
            yield after.edges[queue], room
            if queue in after.others:
                yield after.others[queue], room


def _is_room(one: int, other: int, room: int, skipped: int = 0) -> bool:
    """True if lost bytes could hold the messages between two places in a queue."""
    return 0 <= other - one - 1 <= room // m.MIN_RECORD_SIZE + skipped


def _believed(neighbours: Sequence[tuple[int, int]], *, backwards: bool = False) -> Sequence[tuple[int, int]]:
    """The nearest of two neighbours, and the other one if they contradict each other."""
    if len(neighbours) < _NEAREST:
        return neighbours
    (one, near), (other, far) = neighbours
    agree = _is_room(other, one, far - near) if backwards else _is_room(one, other, far - near)
    return neighbours[:1] if agree else neighbours


def _without_jumps(times: Sequence[int | None]) -> list[int]:
    known = sorted(time for time in times if time is not None)
    return [time for time in known if abs(time - known[len(known) // 2]) <= CLOCK_SLACK]
