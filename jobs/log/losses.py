"""Lost messages, as proven by the queues: queue offsets are dense, so a gap between two survivors names them.

Damaged bytes in between explain a gap if they could have held it: brokers of 5.0.0 left gaps of their own, and a
corrupt queue offset must not ask for billions of fillers. A salvage counts other gaps, too, because no survivor may
move; but none of light queues: from 5.0.0 on a broker also counts up for a record whose queue has no light name, and
then dispatches it to none (MultiDispatchUtils, CommitLogDispatcherBuildConsumeQueue). Gaps of light queues are filled
and not counted: their messages are in a queue of their own topic, too.

A stray record is one that its queue cannot hold at its offset: its queue id, topic or queue offset is damaged, which
nothing checks. A salvage leaves it out of all queues, and the gap that it leaves counts as lost.

===========================  ==========================================================================================
its queue goes on            as if the record had the next queue offset: its queue offset is damaged
its queue goes on            as if the record was not there: it came from another queue
it is alone or the last      and exactly one gap of another queue, without damaged bytes, misses just this message there
===========================  ==========================================================================================
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from storeformat import message as m
from storeformat.arrays import Int64s
from storeformat.errors import LISTED
from storeformat.queues.queue_runs import DamagedBytes, DenseBlocks, QueueRuns
from storeformat.record.dispatch import topic_names
from udfs.log.scan import SplitScan

DAMAGE = "damaged bytes of the log"
NO_DAMAGE = "no damaged bytes: flags, the topic or the queue id of a record in between may be damaged"
_Queue = tuple[str, int]
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
class StrayRecord:
    """A record that its queue cannot hold at its offset. ``moves_others``: a broker that appends it moves messages."""

    offset: int
    topic: str
    queue_id: int
    queue_offset: int
    moves_others: bool


@dataclass(frozen=True)
class Losses:
    """All losses and stray records."""

    rows: list[Loss] = field(default_factory=list)
    unexplained: tuple[tuple[int, int], ...] = ()
    """Ranges [begin, end) that each held at least one more record."""
    strays: list[StrayRecord] = field(default_factory=list)
    explaining: frozenset[int] = frozenset()
    """Begins of the damaged ranges that may have held the messages that queues miss."""

    @property
    def messages(self) -> int:
        return sum(row.messages for row in self.rows)

    @property
    def at_least(self) -> int:
        return self.messages + len(self.unexplained)

    def facts(self) -> dict[str, object]:
        return {
            "lost_messages": self.messages,
            "lost_messages_at_least": self.at_least,
            "losses": [dict(vars(row)) for row in self.rows[:LISTED]],
            "stray_records": [
                {name: value for name, value in vars(stray).items() if name != "moves_others"}
                for stray in self.strays[:LISTED]
            ],
        }


@dataclass(frozen=True)
class QueueRules:
    """How runs are taken for queues. ``whole``: the log begins at offset 0 and every queue was seen, so each begins at
    0. ``salvaged``: every survivor keeps its queue offset. ``behind``: log offsets of messages with queue offset 0 that
    follow others in the store's own queue.
    """

    whole: bool = False
    salvaged: bool = False
    behind: frozenset[int] = frozenset()


def account_for_queues(
    scans: Sequence[SplitScan], table: QueueRuns, damaged: DamagedBytes, rules: QueueRules
) -> tuple[QueueRuns, Losses]:
    """Runs (``table``, in log order) as the queues are made of them, and the losses. A salvage moves no survivor:
    strays are left out and all gaps filled; otherwise only gaps that damage explains are, and the rest is appended as
    by a broker. A foreign record with its queue's next offset is a message with a damaged PHYSICALOFFSET.
    """
    whole, salvaging = rules.whole, rules.salvaged
    table = table.with_lost_counters(damaged, rules.behind)
    seen, origin, strays = without_strays(table, damaged, whole=whole)
    if not (salvaging or len(damaged.begins)):
        return table, Losses(strays=strays)
    blocks = DenseBlocks.of(seen)
    stops = zip(blocks.keys.tolist(), (blocks.firsts + blocks.counts).tolist(), strict=True)
    ends = {seen.queue_of(key): stop for key, stop in stops}  # of the last block of each queue
    rows: list[Loss] = []
    after_loss, begins_anew = np.zeros(len(seen.keys), bool), np.zeros(len(seen.keys), bool)
    explained, counted = np.zeros((2, len(damaged.begins)), bool)
    for gap in _met(_gaps(seen, blocks, damaged, ends, whole=whole), damaged, blocks, salvaging=salvaging):
        row = int(blocks.starts[gap.block])
        after_loss[row] = True
        begins_anew[row] = gap.begins_anew
        explained[gap.ranges] = True
        if not blocks.light[gap.block]:
            counted[gap.ranges] = True
            begin, end, cause = gap.after, int(seen.runs.first_offsets[row]), NO_DAMAGE
            if gap.ranges.stop:
                begin, end = int(damaged.begins[gap.ranges][0]), int(damaged.ends[gap.ranges][-1])
                cause = DAMAGE
            rows.append(Loss(*seen.queue_at(row), gap.first, gap.count, begin, end, cause))
    for loss, number in _last_of_their_queues(scans, ends, damaged):
        explained[number] = counted[number] = True
        rows.append(loss)
    left = damaged.held_records & ~counted
    unexplained = tuple(zip(damaged.begins[left].tolist(), damaged.ends[left].tolist(), strict=True))
    losses = Losses(rows, unexplained, strays, frozenset(damaged.begins[explained].tolist()))
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
    left = damaged.ends - damaged.begins  # bytes, shared by all queues
    budget = int(blocks.last_offsets.max(initial=0)) // m.MIN_RECORD_SIZE
    met: list[_Gap] = []
    for gap in sorted(gaps, key=lambda gap: (int(blocks.first_offsets[gap.block]), gap.after)):
        is_light = bool(blocks.light[gap.block])
        if gap.count <= damaged.room(gap.ranges) and (is_light or _claim(left[gap.ranges], gap.count)):
            met.append(gap)
            continue
        between = (int(blocks.first_offsets[gap.block]) - gap.after) // m.MIN_RECORD_SIZE
        is_inside = gap.is_confirmed and gap.after >= 0 and not gap.begins_anew
        if salvaging and is_inside and not is_light and gap.count <= min(between, budget):
            budget -= gap.count
            met.append(replace(gap, ranges=slice(0)))
    return sorted(met, key=lambda gap: gap.block)


def _claim(left: Int64s, messages: int) -> bool:
    """Take room for messages of one queue, if there is enough. Claims in order of their upper bound are all met."""
    wanted = messages * m.MIN_RECORD_SIZE
    taken = np.minimum(np.cumsum(left), wanted)
    if taken[-1] < wanted:
        return False
    left -= np.diff(taken, prepend=0)
    return True


def _last_of_their_queues(
    scans: Sequence[SplitScan], ends: Mapping[_Queue, int], damaged: DamagedBytes
) -> Iterator[tuple[Loss, int]]:
    """Foreign records that continue their queue after its last message, and the number of their damaged range."""
    following = dict(ends)
    for record in (record for scan in scans for record in scan.special.foreign_refs if record.queued):
        queue = topic_names([record.topic])[0], record.queue_id
        if following.get(queue) == record.queue_offset:
            following[queue] = record.queue_offset + 1
            number = damaged.between(record.offset - 1, record.offset + 1).start
            yield Loss(*queue, record.queue_offset, 1, record.offset, int(damaged.ends[number])), number


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
    is_stray: bool
    moves_others: bool


def without_strays(
    table: QueueRuns, damaged: DamagedBytes, *, whole: bool
) -> tuple[QueueRuns, Int64s, list[StrayRecord]]:
    """The runs without stray records, their old row numbers, and the stray records."""
    blocks = DenseBlocks.of(table)
    begins, ends = blocks.queues()
    if len(begins) == len(blocks.keys):
        return table, np.arange(len(table.keys)), []  # no queue has a gap that a stray record could have left
    search = _StraySearch(table, blocks, damaged)
    for queue in np.flatnonzero(ends - begins > 1).tolist():
        search.walk(int(begins[queue]), int(ends[queue]), 0 if whole else None)
    alone = begins[ends - begins == 1]
    for block in alone[(blocks.counts[alone] == 1) & (blocks.firsts[alone] > 0)].tolist():
        search.suspect(block)
    found = search.strays()
    cuts = {one.row: max(one.unit, 1) for one in found if table.runs.counts[one.row] > 1}
    cut, origin = table.cut(cuts)
    rows = np.array([one.row for one in found], np.int64)
    rows += np.searchsorted(np.sort(list(cuts)), rows) + np.array([one.unit > 0 for one in found], np.int64)
    kept = np.delete(np.arange(len(origin)), rows)
    strays = [StrayRecord(one.place, *table.queue_of(one.key), one.number, one.moves_others) for one in found]
    strays.sort(key=lambda stray: stray.offset)
    return replace(cut.take(kept), left_out=len(found)), origin[kept], strays


class _StraySearch:
    """Search the queues for records that do not belong there, and for gaps that they left in other queues."""

    def __init__(self, table: QueueRuns, blocks: DenseBlocks, damaged: DamagedBytes) -> None:
        self._table, self._blocks, self._damaged = table, blocks, damaged
        self._in_topic = np.bincount(table.keys >> 32, weights=table.runs.counts)
        self._gaps: list[_FreePlaces] = []
        self._suspects: list[_Suspect] = []

    def walk(self, begin: int, end: int, expected: int | None) -> None:
        blocks = self._blocks
        firsts, counts = blocks.firsts[begin:end].tolist(), blocks.counts[begin:end].tolist()
        after, last = -1, -1
        for block, (first, count) in enumerate(zip(firsts, counts, strict=True), begin):
            following = firsts[block + 1 - begin] if block + 1 < end else None
            is_single = count == 1 and not blocks.light[block]
            if expected is None:
                if is_single and following is not None and 0 < following <= first:
                    self.suspect(block, is_stray=True)
                    continue
                expected = first
            anew = first == 0 < expected and self._is_created_anew(block)
            if first != expected and following is not None and not anew and is_single:
                if following == expected + 1:  # its queue offset is damaged
                    self.suspect(block, is_stray=True, moves_others=first < expected)
                    expected, last = expected + 1, -1
                    continue
                if expected > 0 and (following == expected or expected <= following <= first):
                    self.suspect(block, is_stray=True)
                    continue
            is_twin = first == expected - 1 and last >= 0 and first > 0
            if is_twin:  # two records claim one place: either may be stray
                self.suspect(last, from_end=True)
            if first != expected and following is None and is_single and expected > 0:
                if first == 0 and not anew:
                    self.suspect(block, is_stray=True)
                    continue
                self.suspect(block)
            elif is_twin:
                self.suspect(block)
            if first > expected:
                before = int(blocks.first_offsets[block])
                self._gaps.append(_FreePlaces(int(blocks.keys[block]), expected, first, after, before))
            expected = first + count if first == 0 else max(expected, first + count)
            after, last = int(blocks.last_offsets[block]), block

    def suspect(
        self, block: int, *, from_end: bool = False, is_stray: bool = False, moves_others: bool = False
    ) -> None:
        blocks, runs = self._blocks, self._table.runs
        if blocks.light[block]:
            return
        row, unit = int(blocks.starts[block]), 0
        number, place = int(blocks.firsts[block]), int(blocks.first_offsets[block])
        if from_end:
            row = int(blocks.stops[block]) - 1
            unit, number = int(runs.counts[row]) - 1, number + int(blocks.counts[block]) - 1
            place = int(blocks.last_offsets[block])
        self._suspects.append(_Suspect(int(blocks.keys[block]), number, place, row, unit, is_stray, moves_others))

    def _is_created_anew(self, block: int) -> bool:
        """True if another queue of the topic starts over, too, as all do when a topic is deleted."""
        blocks, topic = self._blocks, int(self._blocks.keys[block]) >> 32
        own = np.arange(*np.searchsorted(blocks.keys, [topic << 32, topic + 1 << 32]))[1:]
        again = own[(blocks.keys[own] == blocks.keys[own - 1]) & (blocks.firsts[own] == 0) & (own != block)]
        last, first = blocks.last_offsets, blocks.first_offsets
        return bool(((last[again - 1] < first[block]) & (last[block - 1] < first[again])).any())

    def strays(self) -> list[_Suspect]:
        """Proven strays, and suspects for which exactly one gap has a place that no other suspect claims."""
        places: dict[int, list[_FreePlaces]] = defaultdict(list)
        for gap in self._gaps:
            if gap.end - gap.first <= _MOST_PLACES:
                for number in range(gap.first, gap.end):
                    places[number].append(gap)
        claims: dict[tuple[int, int], list[int]] = defaultdict(list)
        for at, one in enumerate(self._suspects):
            fitting = [gap for gap in places.get(one.number, ()) if self._fits(one, gap)]
            if len(fitting) == 1:
                claims[fitting[0].key, one.number].append(at)
        missed = {claimants[0] for claimants in claims.values() if len(claimants) == 1}
        return [
            replace(one, moves_others=one.moves_others or at in missed)
            for at, one in enumerate(self._suspects)
            if one.is_stray or at in missed
        ]

    def _fits(self, one: _Suspect, gap: _FreePlaces) -> bool:
        if one.key == gap.key or not gap.after < one.place < gap.before:
            return False
        if not one.is_stray and self._damaged.between(gap.after, gap.before).stop:
            return False  # both may be what damage left
        if one.key >> 32 == gap.key >> 32:
            return True
        same_id = one.key & 0xFFFFFFFF == gap.key & 0xFFFFFFFF
        return same_id and (one.is_stray or self._in_topic[one.key >> 32] == 1)
