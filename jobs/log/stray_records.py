"""Records in the wrong place of a queue: their queue id, topic or queue offset is damaged, and nothing checks these.

===========================  ==========================================================================================
its queue goes on            as if the record had the next queue offset: its queue offset is damaged
its queue goes on            as if the record was not there: it came from another queue
it is alone in its queue     and another queue misses just this message between the same neighbours
===========================  ==========================================================================================

A stray record is put back if exactly one place is free for it and no other record claims that place; one that is alone,
or the last of its queue, only if no damaged bytes explain the gap. One without a place is left out of all queues.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from jobs.log.queue_runs import DamagedBytes, DenseBlocks, QueueRuns
from storeformat.arrays import Bools, Int64s

_MOST_PLACES = 64
"""Largest gap, in queue offsets, searched for stray records: damage explains larger ones."""


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
