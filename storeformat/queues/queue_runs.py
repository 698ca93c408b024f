"""Runs of units as one table, sorted by queue and in log order within a queue."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from storeformat import message as m
from storeformat.arrays import Bools, Int64s, Table
from storeformat.javacompat import decode_java_utf8
from storeformat.queues.consume_queue import Places, place_runs, without_races


@dataclass(frozen=True)
class DamagedBytes:
    """Sorted damaged ranges [begin, end); ``held_records`` marks those that certainly held a record."""

    begins: Int64s
    ends: Int64s
    held_records: Bools

    @staticmethod
    def of(ranges: Sequence[tuple[int, int, bool]]) -> DamagedBytes:
        begins, ends, held = np.array(sorted(ranges), np.int64).reshape(-1, 3).T
        return DamagedBytes(begins, ends, held.astype(bool))

    def between(self, after: int, before: int) -> slice:
        """Slice of the ranges that begin in the open interval (after, before); ``slice(0)`` for none."""
        low, high = np.searchsorted(self.begins, [after + 1, before])
        return slice(int(low), int(high)) if low < high else slice(0)

    def room(self, ranges: slice) -> int:
        """Messages that these ranges can have held at most."""
        return int((self.ends[ranges] - self.begins[ranges]).sum()) // m.MIN_RECORD_SIZE


@dataclass(frozen=True)
class QueueRuns:
    """Rows of ``RUN``, sorted by ``keys`` (topic number << 32 | queue id). ``after_loss``: lost messages precede it;
    ``begins_anew``: they begin a re-created topic; ``counter_lost``: a unit of queue offset 0 without re-creation;
    ``left_out``: records of no row.
    """

    topics: list[bytes]
    keys: Int64s
    runs: Table
    scan_of_run: Int64s
    after_loss: Bools | None = None
    begins_anew: Bools | None = None
    counter_lost: Bools | None = None
    left_out: int = 0

    def plan(self) -> Places:
        runs = self.runs
        firsts = without_races(self.keys, runs.first_queue_offsets, runs.counts, runs.light, self.after_loss)
        return place_runs(self.keys, firsts, runs.counts, self.after_loss, self.begins_anew, self.counter_lost)

    def take(self, order: Int64s) -> QueueRuns:
        """Rows in this order, without the marks of losses."""
        runs: Table = self.runs.take(order).view(np.recarray)
        lost = None if self.counter_lost is None else self.counter_lost[order]
        return QueueRuns(self.topics, self.keys[order], runs, self.scan_of_run[order], counter_lost=lost)

    def queue_at(self, row: int) -> tuple[str, int]:
        return self.queue_of(int(self.keys[row]))

    def queue_of(self, key: int) -> tuple[str, int]:
        return decode_java_utf8(self.topics[key >> 32]), key & 0xFFFFFFFF

    def has_gaps(self) -> bool:
        """True if a queue has a jump between two runs."""
        jumps = self.runs.first_queue_offsets[1:] != (self.runs.first_queue_offsets + self.runs.counts)[:-1]
        return bool((jumps & (self.keys[1:] == self.keys[:-1])).any())

    def ranges(self) -> dict[tuple[str, int], tuple[int, int]]:
        """Queue offsets [begin, end) of each queue with a message in the log, in its last life."""
        places = self.plan()
        live = np.flatnonzero(places.runs["in_last_life"])
        starts = np.flatnonzero(np.diff(self.keys[live], prepend=-1))
        if not len(starts):
            return {}
        begins = np.minimum.reduceat(self.runs.first_queue_offsets[live], starts)
        rows = zip(places.queues["key"].tolist(), begins.tolist(), places.queues["end"].tolist(), strict=True)
        return {self.queue_of(key): (max(begin, 0), end) for key, begin, end in rows}

    def cut(self, cuts: Mapping[int, int]) -> tuple[QueueRuns, Int64s]:
        """Split rows before unit ``cuts[row]``; also the old row numbers. Log offsets at the cut may be bounds."""
        origin = np.sort(np.append(np.arange(len(self.keys)), np.array(list(cuts), np.int64)))
        table = self.take(origin)
        runs = table.runs
        for head in np.flatnonzero(origin[1:] == origin[:-1]).tolist():
            at = cuts[int(origin[head])]
            tail, count = head + 1, int(runs.counts[head])
            begin, end = int(runs.first_offsets[head]), int(runs.last_offsets[head])
            runs.counts[head], runs.counts[tail] = at, count - at
            runs.first_queue_offsets[tail] += at
            runs.begins[tail] += at
            runs.last_offsets[head] = begin if at == 1 else end - 1
            runs.first_offsets[tail] = end if at == count - 1 else begin + 1
        return table, origin

    def births(self) -> dict[tuple[str, int], list[int]]:
        """Log offsets, by queue, of messages with queue offset 0 before which the queue may have been deleted."""
        keys, runs = self.keys, self.runs
        again = np.append(False, (runs.first_queue_offsets[1:] == 0) & (keys[1:] == keys[:-1])) & ~runs.light
        found: dict[tuple[str, int], list[int]] = defaultdict(list)
        for row in np.flatnonzero(again if self.counter_lost is None else again & ~self.counter_lost).tolist():
            found[self.queue_at(row)].append(int(runs.first_offsets[row]))
        return found

    def with_lost_counters(self, damaged: DamagedBytes, behind: Collection[int] = ()) -> QueueRuns:
        """Set ``counter_lost``: another queue continues over the restart, or ``behind`` (log offsets) shows it."""
        if not self.births():
            return self
        blocks = DenseBlocks.of(self)
        keys, topics, begins, ends = blocks.keys, blocks.keys >> 32, blocks.first_offsets, blocks.last_offsets
        again = np.flatnonzero((blocks.firsts[1:] == 0) & (keys[1:] == keys[:-1]) & ~blocks.light[1:]) + 1
        sound = ~blocks.light & (np.searchsorted(damaged.begins, begins) == np.searchsorted(damaged.begins, ends))
        lost = np.isin(begins[again], list(behind))
        for topic in np.unique(topics[again]).tolist():
            own = np.arange(*np.searchsorted(topics, [topic, topic + 1]))
            own = own[sound[own]]
            own = own[np.argsort(begins[own])]
            furthest = np.maximum.accumulate(np.append(-1, ends[own]))
            here = topics[again] == topic
            before = np.searchsorted(begins[own], ends[again[here] - 1])
            lost[here] |= furthest[before] > begins[again[here]]
        rows = blocks.starts[again[lost]]
        table, origin = self.cut({row: 1 for row in rows.tolist() if self.runs.counts[row] > 1})
        return replace(table, counter_lost=np.isin(origin, rows) & (table.runs.first_queue_offsets == 0))


@dataclass(frozen=True)
class DenseBlocks:
    """Consecutive runs of a queue as one row, from QueueRuns rows [start, stop); independent of the splits."""

    keys: Int64s
    starts: Int64s
    stops: Int64s
    firsts: Int64s
    counts: Int64s
    first_offsets: Int64s
    last_offsets: Int64s
    light: Bools

    @staticmethod
    def of(table: QueueRuns) -> DenseBlocks:
        keys, runs = table.keys, table.runs
        counts = runs.counts
        firsts = without_races(keys, runs.first_queue_offsets, counts, runs.light).copy()
        for row in [] if table.counter_lost is None else np.flatnonzero(table.counter_lost).tolist():
            firsts[row] = firsts[row - 1] + counts[row - 1]
        is_start = np.ones(len(keys), bool)
        is_start[1:] = (keys[1:] != keys[:-1]) | (firsts[1:] != firsts[:-1] + counts[:-1])
        starts = np.flatnonzero(is_start)
        stops = np.append(starts, len(keys))[1:]
        counts = np.add.reduceat(counts, starts) if len(starts) else counts[:0]
        offsets = runs.first_offsets[starts], runs.last_offsets[stops - 1]
        return DenseBlocks(keys[starts], starts, stops, firsts[starts], counts, *offsets, runs.light[starts])

    def queues(self) -> tuple[Int64s, Int64s]:
        begins = np.flatnonzero(np.diff(self.keys, prepend=-1))
        return begins, np.append(begins, len(self.keys))[1:]
