"""Lost messages, as proven by the queues: queue offsets are dense, so a gap between two survivors names them.

Damaged bytes in between explain a gap if they could have held it: brokers of 5.0.0 left gaps of their own, and a
corrupt queue offset must not ask for billions of fillers. A salvage counts other gaps, too, because no survivor may
move; but none of light queues: from 5.0.0 on a broker also counts up for a record whose queue has no light name, and
then dispatches it to none (MultiDispatchUtils, CommitLogDispatcherBuildConsumeQueue).

A record may stand in the wrong place of a queue: its queue id, topic or queue offset is damaged, which nothing checks.

===========================  ==========================================================================================
its queue goes on            as if the record had the next queue offset: its queue offset is damaged
its queue goes on            as if the record was not there: it came from another queue
it is alone in its queue     and another queue misses just this message between the same neighbours
===========================  ==========================================================================================

It is put back if exactly one place is free for it and no other record claims that place; one that is alone, or the last
of its queue, only if no damaged bytes explain the gap. One without a place is left out of all queues.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from jobs.log.queue_runs import DamagedBytes, DenseBlocks, QueueRuns, SharedRoom
from storeformat import message as m
from storeformat.arrays import Bools, Int64s
from storeformat.limits import LISTED
from storeformat.log.record_ref import RecordRef
from storeformat.record.dispatch import topic_names
from udfs.log.scan import SplitScan

DAMAGE = "damaged bytes of the log"
NO_DAMAGE = "no damaged bytes: flags, the topic or the queue id of a record in between may be damaged"
_Queue = tuple[str, int]
_LEAST_LIGHT = 9
"""Bytes in a record for one light queue, at least: name, queue offset and separators."""

_MOST_PLACES = 64
"""Largest gap, in queue offsets, searched for stray records: damage explains larger ones."""


@dataclass(frozen=True)
class Loss:
    """``messages`` of a queue missing from ``first_queue_offset`` on (None: unknown); they were in [begin, end)."""

    topic: str
    queue_id: int
    first_queue_offset: int | None
    messages: int
    begin: int
    end: int
    cause: str = DAMAGE


@dataclass(frozen=True)
class Losses:
    """All losses and stray records."""

    rows: list[Loss] = field(default_factory=list)
    unexplained: tuple[tuple[int, int], ...] = ()
    """Damaged ranges [begin, end) that each held at least one record of an unknown queue."""
    strays: list[StrayRecord] = field(default_factory=list)
    least: int = 0
    """At least this many messages are lost, as the index proves."""
    light: frozenset[_Queue] = frozenset()
    """Queues of ``rows`` whose messages are in a queue of their own topic, too."""

    @property
    def messages(self) -> int:
        return sum(row.messages for row in self.rows if (row.topic, row.queue_id) not in self.light)

    @property
    def at_least(self) -> int:
        places: Counter[_Queue] = Counter()
        for row in self.rows:
            places[row.topic, row.queue_id] += row.messages
        return max([self.messages + len(self.unexplained), self.least, *(places[queue] for queue in self.light)])

    def facts(self) -> dict[str, object]:
        return {
            "lost_messages": self.messages,
            "lost_messages_at_least": self.at_least,
            "losses": [dict(vars(row)) for row in self.rows[:LISTED]],
            "stray_records": [stray.as_row() for stray in self.strays[:LISTED]],
        }


def account_for_queues(
    scans: Sequence[SplitScan],
    table: QueueRuns,
    damaged: DamagedBytes,
    lost_records: Sequence[RecordRef],
    *,
    whole: bool,
    salvaging: bool = False,
    behind: Collection[int] = (),
) -> tuple[QueueRuns, Losses]:
    """Runs (``table``, in log order) as the queues are made of them, and the losses. A salvage moves no survivor:
    strays are put back and all gaps filled; otherwise only gaps that damage explains are, and the rest is appended as
    by a broker. A foreign record with its queue's next offset is a message with a damaged PHYSICALOFFSET. ``whole``:
    every queue begins at 0.
    """
    table = table.with_lost_counters(damaged, behind)
    seen, origin, strays = place_strays(table, damaged, whole=whole)
    if not (salvaging or len(damaged.begins)):
        return table, Losses(strays=strays)
    blocks = DenseBlocks.of(seen)
    stops = zip(blocks.keys.tolist(), (blocks.firsts + blocks.counts).tolist(), strict=True)
    ends = {seen.queue_of(key): stop for key, stop in stops}  # of the last block of each queue
    rows: list[Loss] = []
    after_loss, begins_anew = np.zeros(len(seen.keys), bool), np.zeros(len(seen.keys), bool)
    explained = np.zeros(len(damaged.begins), bool)
    met = _met(_gaps(seen, blocks, damaged, ends, whole=whole), damaged, blocks, salvaging=salvaging)
    light = frozenset(seen.queue_at(int(blocks.starts[gap.block])) for gap in met if blocks.light[gap.block])
    for gap in met:
        row = int(blocks.starts[gap.block])
        after_loss[row] = True
        begins_anew[row] = gap.begins_anew
        explained[gap.ranges] = True
        rows.append(_loss(seen, row, gap, damaged))
    named = [*lost_records, *_last_of_their_queues(scans, ends)]
    rows += _named_losses(named, rows, ends, damaged, explained)
    left = damaged.held_records & ~explained
    unexplained = tuple(zip(damaged.begins[left].tolist(), damaged.ends[left].tolist(), strict=True))
    losses = Losses(rows, unexplained, strays, light=light)
    if salvaging:
        return replace(seen, after_loss=after_loss, begins_anew=begins_anew), losses
    marks = np.zeros((2, len(table.keys)), bool)  # the runs as they are in the log, with the marks where their rows are
    marks[:, origin] = after_loss, begins_anew
    return replace(table, after_loss=marks[0], begins_anew=marks[1]), losses


@dataclass(frozen=True)
class _Gap:
    """``count`` missing queue offsets before a block, after log offset ``after``; ``ranges``: the damage in between."""

    block: int
    first: int
    count: int
    after: int
    ranges: slice
    begins_anew: bool = False
    is_confirmed: bool = True
    """What follows in the queue agrees with the block's queue offsets."""


def _gaps(
    table: QueueRuns, blocks: DenseBlocks, damaged: DamagedBytes, ends: dict[_Queue, int], *, whole: bool
) -> Iterator[_Gap]:
    """Gaps of all queues; updates ``ends``, the next queue offset of each queue."""
    begins, stops = blocks.queues()
    irregular = (stops - begins > 1) | ((blocks.firsts[begins] > 0) & whole)
    for queue in np.flatnonzero(irregular).tolist():
        begin, stop = int(begins[queue]), int(stops[queue])
        firsts, counts = blocks.firsts[begin:stop].tolist(), blocks.counts[begin:stop].tolist()
        expected = 0 if whole or firsts[0] == 0 else firsts[0]
        after = -1
        for at, (first, count) in enumerate(zip(firsts, counts, strict=True)):
            block = begin + at
            following = firsts[at + 1] if block + 1 < stop else None
            place = int(blocks.first_offsets[block])
            ranges = slice(0) if first == expected else damaged.between(after, place)
            anew = 0 < first <= min(damaged.room(ranges), expected - 1)
            anew = anew and (count > 1 or (following is not None and first + count < following < expected))
            if anew:
                yield _Gap(block, 0, first, after, ranges, begins_anew=True)
            elif first > expected:
                is_confirmed = following is None or following >= first + count
                yield _Gap(block, expected, first - expected, after, ranges, is_confirmed=is_confirmed)
            expected = first + count if anew or first == 0 else max(expected, first + count)
            after = int(blocks.last_offsets[block])
        ends[table.queue_of(int(blocks.keys[begin]))] = expected


def _met(gaps: Iterator[_Gap], damaged: DamagedBytes, blocks: DenseBlocks, *, salvaging: bool) -> list[_Gap]:
    """Gaps for which there is room: those that damage explains and, if salvaging, others between two survivors."""
    shared = SharedRoom(damaged), SharedRoom(damaged, _LEAST_LIGHT)
    budget = int(blocks.last_offsets.max(initial=0)) // m.MIN_RECORD_SIZE
    met: list[_Gap] = []
    for gap in sorted(gaps, key=lambda gap: (int(blocks.first_offsets[gap.block]), gap.after)):
        is_light = bool(blocks.light[gap.block])
        if gap.count <= damaged.room(gap.ranges) and shared[is_light].claim(gap.ranges, gap.count):
            met.append(gap)
            continue
        between = (int(blocks.first_offsets[gap.block]) - gap.after) // m.MIN_RECORD_SIZE
        is_inside = gap.is_confirmed and gap.after >= 0 and not gap.begins_anew
        if salvaging and is_inside and not is_light and gap.count <= min(between, budget):
            budget -= gap.count
            met.append(replace(gap, ranges=slice(0)))
    return sorted(met, key=lambda gap: gap.block)


def _loss(table: QueueRuns, row: int, gap: _Gap, damaged: DamagedBytes) -> Loss:
    queue = table.queue_at(row)
    if gap.ranges.stop:
        begin, end = int(damaged.begins[gap.ranges][0]), int(damaged.ends[gap.ranges][-1])
        return Loss(*queue, gap.first, gap.count, begin, end)
    return Loss(*queue, gap.first, gap.count, gap.after, int(table.runs.first_offsets[row]), NO_DAMAGE)


def _named_losses(
    records: Sequence[RecordRef],
    gaps: Sequence[Loss],
    ends: Mapping[_Queue, int],
    damaged: DamagedBytes,
    explained: Bools,
) -> list[Loss]:
    """Lost records with a sound head that no gap counts: after the last survivor of their queue, or without a place."""
    of_queue: dict[_Queue, list[Loss]] = defaultdict(list)
    for gap in gaps:
        of_queue[gap.topic, gap.queue_id].append(gap)
    missing = {queue: _Intervals(own) for queue, own in of_queue.items()}
    found: list[Loss] = []
    for record in records:
        (topic,) = topic_names([record.topic])
        number = damaged.between(record.offset - 1, record.offset + 1).start
        own_gaps = missing.get((topic, record.queue_id))
        if own_gaps is not None and record.queue_offset in own_gaps:
            continue
        end = ends.get((topic, record.queue_id), 0)
        if record.queued and record.queue_offset < end and explained[number]:
            continue  # its queue offset is damaged too, and it is one of those that a queue misses
        explained[number] = True
        place = record.queue_offset if record.queued and record.queue_offset >= end else None
        found.append(Loss(topic, record.queue_id, place, 1, record.offset, int(damaged.ends[number])))
    return found


class _Intervals:
    """Queue offsets covered by losses of one queue."""

    def __init__(self, losses: Sequence[Loss]) -> None:
        spans = sorted((loss.first_queue_offset or 0, loss.messages) for loss in losses)
        self._begins = np.array([begin for begin, _ in spans], np.int64)
        self._ends = np.maximum.accumulate(np.array([begin + count for begin, count in spans], np.int64))

    def __contains__(self, number: int) -> bool:
        at = int(np.searchsorted(self._begins, number, "right")) - 1
        return at >= 0 and number < int(self._ends[at])


def _last_of_their_queues(scans: Sequence[SplitScan], ends: Mapping[_Queue, int]) -> Iterator[RecordRef]:
    following = dict(ends)
    for record in (record for scan in scans for record in scan.foreign_refs if record.queued):
        (topic,) = topic_names([record.topic])
        if following.get((topic, record.queue_id)) == record.queue_offset:
            following[topic, record.queue_id] = record.queue_offset + 1
            yield record


@dataclass(frozen=True)
class StrayRecord:
    """A record that wrongly claims its place; ``home`` is the right one, shown by the record at ``next_offset``."""

    offset: int
    topic: str
    queue_id: int
    queue_offset: int
    next_offset: int
    home: tuple[str, int, int] | None = None

    @property
    def moves_others(self) -> bool:
        """True if a broker that appends it as it is puts other messages into wrong places."""
        if self.home is None:
            return False
        if self.home[:2] != (self.topic, self.queue_id):
            return True
        return self.home[2] > self.queue_offset and self.next_offset > self.offset

    def as_row(self) -> dict[str, object]:
        home = None if self.home is None else dict(zip(("topic", "queue_id", "queue_offset"), self.home, strict=True))
        return {
            "offset": self.offset,
            "topic": self.topic,
            "queue_id": self.queue_id,
            "queue_offset": self.queue_offset,
            "belongs_to": home,
        }


def place_strays(
    table: QueueRuns, damaged: DamagedBytes, *, whole: bool
) -> tuple[QueueRuns, Int64s, list[StrayRecord]]:
    """The runs with stray records put back or left out, their old row numbers, and the stray records."""
    blocks = DenseBlocks.of(table)
    begins, ends = blocks.queues()
    if len(begins) == len(blocks.keys):
        return table, np.arange(len(table.keys)), []  # no queue has a gap that a stray record could have left
    search = _StraySearch(table, blocks, damaged, whole)
    for queue in np.flatnonzero(ends - begins > 1).tolist():
        search.walk(int(begins[queue]), int(ends[queue]))
    search.lonely(begins[(ends - begins == 1)])
    return search.placed()


@dataclass(frozen=True)
class _FreePlaces:
    """Queue offsets [first, end) of a queue that are missing between two log offsets."""

    key: int
    first: int
    end: int
    after: int
    before: int


@dataclass(frozen=True)
class _Suspect:
    """A possible stray: message ``number`` of queue ``key`` at log offset ``place``, unit ``unit`` of run ``row``."""

    key: int
    number: int
    place: int
    row: int
    unit: int
    following: int
    is_stray: bool = False
    right_number: int | None = None
    """Its queue offset, if only that is damaged."""


class _StraySearch:
    """Search the queues for records that do not belong there, and for free places."""

    def __init__(self, table: QueueRuns, blocks: DenseBlocks, damaged: DamagedBytes, whole: bool) -> None:
        self._table, self._blocks, self._damaged, self._whole = table, blocks, damaged, whole
        self._in_topic = np.bincount(table.keys >> 32, weights=table.runs.counts)
        self._gaps: list[_FreePlaces] = []
        self._suspects: list[_Suspect] = []

    def walk(self, begin: int, end: int) -> None:
        blocks = self._blocks
        firsts, counts = blocks.firsts[begin:end].tolist(), blocks.counts[begin:end].tolist()
        expected = 0 if self._whole else None
        after, last = -1, -1
        for block, (first, count) in enumerate(zip(firsts, counts, strict=True), begin):
            following = firsts[block + 1 - begin] if block + 1 < end else None
            is_single = count == 1 and not blocks.light[block]
            if expected is None:
                if is_single and following is not None and 0 < following <= first:
                    self._suspect(block, is_stray=True)
                    continue
                expected = first
            anew = first == 0 < expected and self._is_created_anew(block)
            if first != expected and following is not None and not blocks.light[block] and not anew:
                if is_single and following == expected + 1:
                    self._suspect(block, right_number=expected)
                    expected, after, last = expected + 1, int(blocks.last_offsets[block]), -1
                    continue
                if is_single and expected > 0 and (following == expected or expected <= following <= first):
                    self._suspect(block, is_stray=True)
                    continue
            is_twin = first == expected - 1 and last >= 0 and first > 0
            if is_twin:  # two records claim one place: either may be stray
                self._suspect(last, from_end=True)
            if first != expected and following is None and is_single and expected > 0:
                if first == 0 and not anew:
                    self._suspect(block, right_number=expected)
                    continue
                self._suspect(block)
            elif is_twin:
                self._suspect(block)
            if first > expected:
                before = int(blocks.first_offsets[block])
                self._gaps.append(_FreePlaces(int(blocks.keys[block]), expected, first, after, before))
            expected = first + count if first == 0 else max(expected, first + count)
            after, last = int(blocks.last_offsets[block]), block

    def lonely(self, alone: Int64s) -> None:
        blocks = self._blocks
        single = (blocks.counts[alone] == 1) & (blocks.firsts[alone] > 0) & ~blocks.light[alone]
        for block in alone[single].tolist():
            self._suspect(block)

    def _suspect(
        self, block: int, *, from_end: bool = False, is_stray: bool = False, right_number: int | None = None
    ) -> None:
        blocks, runs = self._blocks, self._table.runs
        if blocks.light[block]:
            return
        is_last = block + 1 == len(blocks.keys) or blocks.keys[block + 1] != blocks.keys[block]
        following = int(blocks.first_offsets[block if is_last else block + 1])
        key, first = int(blocks.keys[block]), int(blocks.firsts[block])
        row, unit, number, place = int(blocks.starts[block]), 0, first, int(blocks.first_offsets[block])
        if from_end:
            row = int(blocks.stops[block]) - 1
            unit, number = int(runs.counts[row]) - 1, first + int(blocks.counts[block]) - 1
            place = int(blocks.last_offsets[block])
        self._suspects.append(_Suspect(key, number, place, row, unit, following, is_stray, right_number))

    def _is_created_anew(self, block: int) -> bool:
        """True if another queue of the topic starts over, too, as all do when a topic is deleted."""
        blocks, topic = self._blocks, int(self._blocks.keys[block]) >> 32
        own = np.arange(*np.searchsorted(blocks.keys, [topic << 32, topic + 1 << 32]))[1:]
        again = own[(blocks.keys[own] == blocks.keys[own - 1]) & (blocks.firsts[own] == 0) & (own != block)]
        last, first = blocks.last_offsets, blocks.first_offsets
        return bool(((last[again - 1] < first[block]) & (last[block - 1] < first[again])).any())

    def placed(self) -> tuple[QueueRuns, Int64s, list[StrayRecord]]:
        homes = self._homes()
        found = [one for one in self._suspects if one in homes or one.is_stray or one.right_number is not None]
        if not found:
            return self._table, np.arange(len(self._table.keys)), []
        cuts = {one.row: max(one.unit, 1) for one in found if self._table.runs.counts[one.row] > 1}
        table, origin = self._table.cut(cuts)
        rows = np.array([one.row for one in found])
        rows += np.searchsorted(np.sort(list(cuts)), rows) + np.array([one.unit > 0 for one in found])
        keys, firsts = table.keys.copy(), table.runs.first_queue_offsets.copy()
        kept: Bools = np.ones(len(keys), bool)
        strays: list[StrayRecord] = []
        for row, one in zip(rows.tolist(), found, strict=True):
            topic, queue_id = self._table.queue_of(one.key)
            gap, home, following = homes.get(one), None, one.following
            if gap is not None:
                keys[row], home, following = gap.key, (*self._table.queue_of(gap.key), one.number), gap.before
            elif one.right_number is not None:
                firsts[row], home = one.right_number, (topic, queue_id, one.right_number)
            else:
                kept[row] = False
            strays.append(StrayRecord(one.place, topic, queue_id, one.number, following, home))
        moved, order = table.moved(keys, firsts, kept)
        return moved, origin[order], sorted(strays, key=lambda stray: stray.offset)

    def _homes(self) -> dict[_Suspect, _FreePlaces]:
        """Suspects for which exactly one gap has a place that no other suspect claims."""
        places: dict[int, list[_FreePlaces]] = defaultdict(list)
        for gap in self._gaps:
            if gap.end - gap.first <= _MOST_PLACES:
                for number in range(gap.first, gap.end):
                    places[number].append(gap)
        claims: dict[tuple[int, int], list[tuple[_Suspect, _FreePlaces]]] = defaultdict(list)
        for one in self._suspects:
            fitting = [gap for gap in places.get(one.number, ()) if self._fits(one, gap)]
            if len(fitting) == 1 and one.right_number is None:
                claims[fitting[0].key, one.number].append((one, fitting[0]))
        return dict(claimants[0] for claimants in claims.values() if len(claimants) == 1)

    def _fits(self, one: _Suspect, gap: _FreePlaces) -> bool:
        if one.key == gap.key or not gap.after < one.place < gap.before:
            return False
        if not one.is_stray and self._damaged.between(gap.after, gap.before).stop:
            return False  # both may be what damage left
        if one.key >> 32 == gap.key >> 32:
            return True
        same_id = one.key & 0xFFFFFFFF == gap.key & 0xFFFFFFFF
        return same_id and (one.is_stray or self._in_topic[one.key >> 32] == 1)
