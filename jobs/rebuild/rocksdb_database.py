"""The database of RocksDB queues: sorted files written by tasks, ingested by one process.

    runs in staging --plan--> slices in order of keys --write--> sorted files --ingest--> database --compare--> checked

Files do not overlap, so nothing is compacted. Their bytes differ from run to run (RocksDB writes identities and times),
the pairs do not.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from jobs.log.log_scan import LogReading
from jobs.spark.runner import Runner
from storeformat.arrays import Int64s, LogExtent
from storeformat.errors import TotalsDisagree
from storeformat.queues import consume_queue, rocksdb_queues
from storeformat.queues.queue_runs import QueueRuns
from storeformat.storage import durable, files, locations, rocksdb
from udfs.files.build import batch_of, file_row
from udfs.files.rocksdb_pairs import (
    ComparedPart,
    ComparePairs,
    QueueEnds,
    QueuePart,
    UnitSlice,
    WriteTables,
    write_ends,
)
from udfs.log.staged_files import Readers

if TYPE_CHECKING:
    from jobs.rebuild.build_store import Workplace


def live_runs(table: QueueRuns) -> list[Int64s]:
    """Run numbers of each queue's last life."""
    numbers = np.flatnonzero(table.plan().runs["in_last_life"])
    return np.split(numbers, np.flatnonzero(np.diff(table.keys[numbers])) + 1) if len(numbers) else []


def _free(taken: list[tuple[int, int]], begin: int, end: int) -> list[tuple[int, int]]:
    """Parts of [begin, end) outside the sorted, disjoint intervals in ``taken``, which are then added to it."""
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


def in_parts(slices: Iterable[UnitSlice], most: int) -> Iterator[tuple[UnitSlice, ...]]:
    """Slices in parts of at most ``most`` units, cut if necessary."""
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


def ends_of_queues(reading: LogReading, slices: Sequence[UnitSlice]) -> tuple[list[QueueEnds], int]:
    """First unit and last written unit of every queue, and the end of the last queued record (0 without one)."""
    first_of: dict[tuple[str, int], UnitSlice] = {}
    for part in slices:
        first_of.setdefault((part.topic, part.queue_id), part)
    table, firsts = reading.queue_runs, reading.queue_runs.runs.first_queue_offsets
    ends, dispatched = [], 0
    with Readers() as readers:
        for runs in live_runs(table):
            queue, run = table.queue_at(runs[0]), int(runs[-1])
            if queue not in first_of:
                continue
            count, path = int(table.runs.counts[run]), reading.scans[table.scan_of_run[run]].staged.units.path
            last = readers.rows(path, consume_queue.UNIT, int(table.runs.begins[run]) + count - 1, 1)[0]
            part = first_of[queue]
            first = readers.rows(part.units_path, consume_queue.UNIT, part.begin, 1)[0]
            begin = part.queue_offset, int(first["phy_offset"])
            ends.append(QueueEnds(*queue, begin, (int(firsts[run]) + count - 1, int(last["phy_offset"]))))
            dispatched = max(dispatched, int(last["phy_offset"]) + int(last["size"]))
    return ends, dispatched


_PAIRS_A_FILE = 4_000_000  # about 140 MB of 56-byte pairs; a broker's own files have up to 256 MB
_PAIRS_A_TASK = 1_000_000
_BYTES_A_PAIR = 60
_FILES_BESIDE = 1 << 20


def planned_bytes(slices: Sequence[UnitSlice]) -> int:
    """Upper bound of the bytes on disk of a database."""
    return sum(part.count * (_BYTES_A_PAIR + len(part.topic)) for part in slices) + _FILES_BESIDE


def plan_database(reading: LogReading) -> list[UnitSlice]:
    """The units of a database in key order: those of the queues' last lives, of each queue offset the last one."""
    table, firsts = reading.queue_runs, reading.queue_runs.runs.first_queue_offsets
    slices: list[UnitSlice] = []
    for runs in live_runs(table):
        queue, taken = table.queue_at(runs[0]), list[tuple[int, int]]()
        for run in reversed(runs.tolist()):
            first, count = int(firsts[run]), int(table.runs.counts[run])
            units = reading.scans[table.scan_of_run[run]].staged.units.path
            for begin, end in _free(taken, max(first, 0), first + count):
                at = int(table.runs.begins[run]) + begin - first
                slices.append(UnitSlice(*queue, begin, units, at, end - begin))
    slices.sort(key=lambda part: (*rocksdb_queues.key_order(part.topic.encode(), part.queue_id), part.queue_offset))
    return slices


def build(
    reading: LogReading, slices: Sequence[UnitSlice], place: Workplace, runner: Runner, name: str
) -> pa.RecordBatch:
    """Build and check the database in ``place.made``/``name``."""
    tables = locations.join(place.runs, "tables")
    files.make_directory(tables)
    parts = enumerate(in_parts(slices, _PAIRS_A_FILE))
    jobs = [(f"default-{number:06d}.sst", part) for number, part in parts]
    written = runner.map("write tables of RocksDB", WriteTables(tables), jobs)
    ends, dispatched = ends_of_queues(reading, slices)
    beside = locations.join(tables, "offset.sst")
    write_ends(beside, ends, dispatched)
    units, offsets = rocksdb_queues.FAMILIES
    directory = locations.join(place.made, name)
    files.make_directory(directory)
    rocksdb.make_database(directory, {units: written, offsets: [beside]})
    compare, batches = ComparePairs(directory, LogExtent(reading.begin, reading.end)), list(batches_of_parts(slices))
    found: list[ComparedPart] = runner.map("check the RocksDB database", compare, batches)
    counted, wanted = sum(part.found.counts["compared"] for part in found), sum(part.count for part in slices)
    wrong = next((part for part in found if part.found.differences or part.found.counts["before_log"]), None)
    if wrong is not None or counted != wanted:
        raise TotalsDisagree(
            "the RocksDB database does not match the log", path=directory,
            found=wrong.found if wrong else counted, expected=wanted,
        )  # fmt: skip
    sizes = sorted(files.tree_sizes(directory).items())
    paths = [(locations.join(directory, path), size) for path, size in sizes]
    contents = durable.contents_on_disk(paths, lambda count: None)
    rows = zip(sizes, contents, strict=True)
    return batch_of(file_row(locations.join(name, path), content) for (path, _), content in rows)


def batches_of_parts(slices: Sequence[UnitSlice]) -> Iterator[list[QueuePart]]:
    """Batches of parts for tasks; the parts of a queue cover all of its keys."""
    batch: list[QueuePart] = []
    units = 0
    for (topic, queue_id), queue in groupby(slices, key=lambda part: (part.topic, part.queue_id)):
        parts = list(in_parts(queue, _PAIRS_A_TASK))
        edges = [0, *(part[0].queue_offset for part in parts[1:]), None]
        for part, begin, end in zip(parts, edges, edges[1:], strict=False):
            batch.append(QueuePart(topic.encode(), queue_id, begin or 0, end, part))
            units += sum(piece.count for piece in part)
            if units >= _PAIRS_A_TASK:
                yield batch
                batch, units = [], 0
    if batch:
        yield batch
