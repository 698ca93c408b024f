"""Lost messages, as proven by the queues: queue offsets are dense, so a gap between two survivors names them.

Damaged bytes in between explain a gap if they could have held it: brokers of 5.0.0 left gaps of their own, and a
corrupt queue offset must not ask for billions of fillers. A salvage counts other gaps, too, because no survivor may
move; but none of light queues: from 5.0.0 on a broker also counts up for a record whose queue has no light name, and
then dispatches it to none (MultiDispatchUtils, CommitLogDispatcherBuildConsumeQueue).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from jobs.log.queue_runs import DamagedBytes, DenseBlocks, QueueRuns, SharedRoom
from jobs.log.stray_records import StrayRecord, place_strays
from storeformat import message as m
from storeformat.arrays import Bools
from storeformat.limits import LISTED
from storeformat.log.record_ref import RecordRef
from storeformat.record.dispatch import topic_names
from udfs.log.scan import SplitScan

DAMAGE = "damaged bytes of the log"
NO_DAMAGE = "no damaged bytes: flags, the topic or the queue id of a record in between may be damaged"
_Queue = tuple[str, int]
_LEAST_LIGHT = 9
"""Bytes in a record for one light queue, at least: name, queue offset and separators."""


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
    """At least this many messages are lost, as the rest of the store proves."""
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
        return max(self.messages + len(self.unexplained), self.least, *(places[queue] for queue in self.light))

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
        mine = missing.get((topic, record.queue_id))
        if mine is not None and record.queue_offset in mine:
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
