"""A second look at the chains that a survey rejected, when the survivors on both sides of them are known.

A survey judges in log order, so it knows little of what follows, and believes each survivor before: so it needs no
more memory than one block, where a judge of all chains at once would keep the records of a whole segment. But nothing
checks a queue offset: one damaged claim contradicts sound records around it. Once the segment is read to its end, a
record is a survivor that fits exactly where it lies:

==============  =============================================================================================
on either side  of the nearest two survivors of its queue, one leaves room for it: between the two places in the
                queue there is none that the lost bytes between the two records could not have held
its time        is between those of the survivors around it, of which one may be off by more than a clock jumps
==============  =============================================================================================

The farther of the two counts where the nearer contradicts it: then the nearer is a survivor with a damaged claim, and
takes one of the places between. Most records of a chain must fit: one copy in a lost body may hit upon a free place,
but damage changes the claims of few records.
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
Chain = list[tuple[RecordRef, int]]
"""Records, and where each ends."""
Reader = Callable[[int, int], Iterable[RecordBlock]]
"""Reads the chain from an offset up to another one."""

MOST_ROWS = 20_000
"""Records that are looked at twice in one segment: damage leaves few in doubt; a whole older log does not belong here.
"""
_NEAREST = 2
_TIMES = 3


@dataclass(frozen=True)
class _SurvivingPiece:
    """A piece of chain that survived: of some queues the first and the last two queue offsets, its times, and how many
    bytes in it are foreign records, under which messages may be lost.
    """

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
    """Returns the survivors in rejected chains of a segment of which [begin, limit) was surveyed, its BLANK aside.

    ``pieces`` survived in order; a rejected chain reaches up to where it met a proven one.
    """
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
        survivors = sorted(
            [*survivors, *(_surviving_piece(read, run, queues) for run in runs)], key=lambda item: item.begin
        )
    return found


def _joined(ranges: Sequence[OffsetRange]) -> list[OffsetRange]:
    """Returns ranges that are in order, those that touch made one."""
    joined: list[OffsetRange] = []
    for begin, end in ranges:
        if joined and joined[-1][1] == begin:
            joined[-1] = joined[-1][0], end
        else:
            joined.append((begin, end))
    return joined


def _chains(read: Reader, pieces: Sequence[OffsetRange], rejected: Sequence[OffsetRange]) -> Iterator[Chain]:
    """Yields the records of each rejected chain and where they end; not of one that reaches into what survived."""
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
    """What survived on both sides of the bytes [begin, end), where a rejected chain lies."""

    def __init__(
        self, near: Neighbours, start: int, limit: int, survivors: Sequence[_SurvivingPiece], begin: int, end: int
    ) -> None:
        self._near, self._start, self._limit = near, start, limit
        self._begin, self._end = begin, end
        self._left = [item for item in survivors if item.end <= begin][::-1]
        self._right = [item for item in survivors if item.begin >= end]
        before = [time for item in self._left[:_TIMES] for time in item.last_times[::-1]]
        after = [time for item in self._right[:_TIMES] for time in item.first_times]
        self._earliest = min(_without_jumps(before[:_TIMES] or [near.before]), default=None)
        self._latest = max(_without_jumps(after[:_TIMES] or [near.after]), default=None)
        self._before: dict[Queue, list[tuple[int, int]]] = {}
        self._after: dict[Queue, list[tuple[int, int]]] = {}

    def fitting(self, rows: Sequence[tuple[RecordRef, int]]) -> list[bool]:
        """Returns of each record of the chain whether it fits in where it lies; one that has no place in a queue goes
        with the one before it.
        """
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
        """Returns whether a queue keeps a place for a record, with so many lost bytes of its chain on either side."""
        if queue not in self._before:
            self._before[queue] = list(islice(self._numbers_before(queue), _NEAREST))
            self._after[queue] = list(islice(self._numbers_after(queue), _NEAREST))
        before = [(other, room + lost_before) for other, room in self._before[queue]]
        after = [(other, room + lost_after) for other, room in self._after[queue]]
        goes_on = [
            _is_room(other, number, room, skipped)
            for skipped, (other, room) in enumerate(_believed(before, backwards=True))
        ]
        leads_on = [_is_room(number, other, room, skipped) for skipped, (other, room) in enumerate(_believed(after))]
        return any(goes_on + leads_on) and (any(goes_on) or not before) and (any(leads_on) or not after)

    def _numbers_before(self, queue: Queue) -> Iterator[tuple[int, int]]:
        """Yields the queue offsets before this place, the nearest first, and how many bytes were lost since."""
        room, at = 0, self._begin
        for item in self._left:
            room, at = room + at - item.end + item.foreign, item.begin
            for number in reversed(item.lasts.get(queue, [])):
                yield number, room
        if queue in self._near.ends or self._near.whole:
            room += at - self._start + self._near.room
            yield self._near.ends.get(queue, 0) - 1, room
            if queue in self._near.other_ends:
                yield self._near.other_ends[queue] - 1, room

    def _numbers_after(self, queue: Queue) -> Iterator[tuple[int, int]]:
        """Yields the queue offsets after this place, and how many bytes are lost before them."""
        room, at = 0, self._end
        for item in self._right:
            room, at = room + item.begin - at + item.foreign, item.end
            for number in item.firsts.get(queue, []):
                yield number, room
        if queue in self._near.firsts:
            room += self._limit - at + self._near.room_after
            yield self._near.firsts[queue], room
            if queue in self._near.other_firsts:
                yield self._near.other_firsts[queue], room


def _is_room(one: int, other: int, room: int, skipped: int = 0) -> bool:
    """Returns whether there is room in lost bytes for the messages between two places in a queue."""
    return 0 <= other - one - 1 <= room // m.MIN_RECORD_SIZE + skipped


def _believed(neighbours: Sequence[tuple[int, int]], *, backwards: bool = False) -> Sequence[tuple[int, int]]:
    """Returns the nearest of two neighbours, and the other one if they contradict each other."""
    if len(neighbours) < _NEAREST:
        return neighbours
    (one, near), (other, far) = neighbours
    agree = _is_room(other, one, far - near) if backwards else _is_room(one, other, far - near)
    return neighbours[:1] if agree else neighbours


def _without_jumps(times: Sequence[int | None]) -> list[int]:
    """Returns a few times of records side by side, but none that is off by more than a clock jumps."""
    known = sorted(time for time in times if time is not None)
    return [time for time in known if abs(time - known[len(known) // 2]) <= CLOCK_SLACK]
