"""Which units a database of RocksDB queues holds, and in which files: pure functions on small tables, in the driver.

A unit lies under its own queue offset, so nothing shifts. Of several with one queue offset the last one stays, and of a
queue that was created again its last life.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from jobs.log.log_scan import LogReading
from jobs.log.queue_runs import QueueRuns
from storeformat.arrays import Int64s
from storeformat.queues import consume_queue
from udfs.files.rocksdb_pairs import PlannedPairsFile, QueueEnds, UnitSlice
from udfs.log.staged_files import Readers


@dataclass(frozen=True)
class LiveRuns:
    """All runs of a log, and the ``numbers`` of those that count."""

    table: QueueRuns
    numbers: Int64s

    def queues(self) -> list[Int64s]:
        """Returns the numbers of the runs that count of each queue."""
        edges = np.flatnonzero(np.diff(self.table.keys[self.numbers])) + 1
        return np.split(self.numbers, edges) if len(self.numbers) else []


def plan_slices(reading: LogReading, live: LiveRuns) -> list[UnitSlice]:
    """Returns the units that stay, queue by queue and in order of queue offset: those of a queue's last life, and of
    several with one queue offset the last one.
    """
    table, firsts = live.table, live.table.runs.first_queue_offsets
    paths = [(scan.units.path, scan.units.times_path) for scan in reading.scans]
    slices: list[UnitSlice] = []
    for runs in live.queues():
        key = int(table.keys[runs[0]])
        taken: list[tuple[int, int]] = []
        mine: list[UnitSlice] = []
        for run in reversed(runs.tolist()):
            first, count = int(firsts[run]), int(table.runs.counts[run])
            for begin, end in _free(taken, max(first, 0), first + count):
                at = int(table.runs.begins[run]) + begin - first
                units, times = paths[table.scan_of_run[run]]
                mine.append(UnitSlice(table.names[key >> 32], key & 0xFFFFFFFF, begin, units, times, at, end - begin))
        slices += sorted(mine, key=lambda part: part.queue_offset)
    return slices


def live_runs(reading: LogReading) -> LiveRuns:
    """Returns the runs of every queue's last life."""
    table = reading.queue_runs
    return LiveRuns(table, np.flatnonzero(table.plan().in_last_life))


def _free(taken: list[tuple[int, int]], begin: int, end: int) -> list[tuple[int, int]]:
    """Returns the parts of [begin, end) that none of the intervals in ``taken`` (sorted, apart) has, and takes them."""
    at = bisect.bisect_left(taken, (begin, begin))
    if at and taken[at - 1][1] > begin:
        at -= 1
    free, last = [], at
    while last < len(taken) and taken[last][0] < end:
        low, high = taken[last]
        if begin < low:
            free.append((begin, low))
        begin, last = max(begin, high), last + 1
    if begin < end:
        free.append((begin, end))
    taken[at:last] = sorted([*taken[at:last], *free])
    return free


def cut(slices: Sequence[UnitSlice], rows_a_file: int, path: Callable[[int], str]) -> Iterator[PlannedPairsFile]:
    """Yields the files: each has about as many rows as the others, of one queue or of several."""
    for number, part in enumerate(in_parts(slices, rows_a_file)):
        yield PlannedPairsFile(path(number), part)


def in_parts(slices: Iterable[UnitSlice], most: int) -> Iterator[tuple[UnitSlice, ...]]:
    """Yields the slices in parts of at most so many units; one that is larger is cut."""
    part: list[UnitSlice] = []
    units = 0
    for whole in slices:
        for begin in range(0, whole.count, most):
            count = min(most, whole.count - begin)
            if units + count > most:
                yield tuple(part)
                part, units = [], 0
            part.append(replace(whole, queue_offset=whole.queue_offset + begin, begin=whole.begin + begin, count=count))
            units += count
    if part:
        yield tuple(part)


def ends_of_queues(reading: LogReading, live: LiveRuns, slices: Sequence[UnitSlice]) -> tuple[list[QueueEnds], int]:
    """Returns first and last unit of every queue, and where the last record in a queue ends (0 without a unit). The
    last unit is the last one written, not that of the highest queue offset.
    """
    first_of: dict[tuple[str, int], UnitSlice] = {}
    for part in slices:
        first_of.setdefault((part.topic, part.queue_id), part)
    table, firsts = live.table, live.table.runs.first_queue_offsets
    ends, dispatched = [], 0
    with Readers() as readers:
        for runs in live.queues():
            key, run = int(table.keys[runs[0]]), int(runs[-1])
            queue = (table.names[key >> 32], key & 0xFFFFFFFF)
            if queue not in first_of:
                continue
            count, path = int(table.runs.counts[run]), reading.scans[table.scan_of_run[run]].units.path
            last = readers.rows(path, consume_queue.UNIT, int(table.runs.begins[run]) + count - 1, 1)[0]
            part = first_of[queue]
            first = readers.rows(part.units_path, consume_queue.UNIT, part.begin, 1)[0]
            ends.append(
                QueueEnds(
                    *queue,
                    (part.queue_offset, int(first["phy_offset"])),
                    (int(firsts[run]) + count - 1, int(last["phy_offset"])),
                )
            )
            dispatched = max(dispatched, int(last["phy_offset"]) + int(last["size"]))
    return ends, dispatched
