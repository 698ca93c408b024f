"""RocksDB queues in a Spark task: sorted files from staged units and times, and a database compared with them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from storeformat.arrays import Int64s, LogExtent, Structs
from storeformat.queues import consume_queue, rocksdb_queues
from storeformat.queues.queue_check import Pairs, UnitComparison, compare_pairs
from storeformat.queues.rocksdb_queues import PAIRS_AT_A_TIME, VALUE, RocksDbQueues, rocksdb_queues_in
from storeformat.storage import files, locations, rocksdb
from udfs.log.staged_files import Readers
from udfs.log.staged_runs import TIME, times_path


@dataclass(frozen=True)
class UnitSlice:
    """``count`` units of one queue from ``queue_offset`` on: units of a staged file from ``begin`` on."""

    topic: str
    queue_id: int
    queue_offset: int
    units_path: str
    begin: int
    count: int


def staged_values(part: UnitSlice, readers: Readers) -> Iterator[tuple[Int64s, Structs]]:
    """Queue offsets and values of a slice's units, in batches."""
    for begin in range(0, part.count, PAIRS_AT_A_TIME):
        count = min(PAIRS_AT_A_TIME, part.count - begin)
        units = readers.rows(part.units_path, consume_queue.UNIT, part.begin + begin, count)
        times = readers.rows(times_path(part.units_path), TIME, part.begin + begin, count)
        first = part.queue_offset + begin
        yield np.arange(first, first + count, dtype=np.int64), rocksdb_queues.unit_values(units, times)


@dataclass(frozen=True)
class QueueEnds:
    """First and last unit of a queue: queue offset and commit-log offset of each."""

    topic: str
    queue_id: int
    first: tuple[int, int]
    last: tuple[int, int]


@dataclass(frozen=True)
class WriteTables:
    """Writes sorted files of units into ``directory``, by name and slices; yields their paths."""

    directory: str

    def __call__(self, planned: Iterator[tuple[str, Sequence[UnitSlice]]]) -> Iterator[str]:
        with Readers() as readers:
            for name, slices in planned:
                path = locations.join(self.directory, name)
                draft = files.draft_of(path, self.directory)
                rocksdb.write_sorted_file(draft, rocksdb_queues.FAMILIES[0], _pairs(slices, readers))
                files.settle(draft, path)
                yield path


def _pairs(slices: Sequence[UnitSlice], readers: Readers) -> Iterator[tuple[bytes, bytes]]:
    for part in slices:
        for offsets, values in staged_values(part, readers):
            keys = rocksdb_queues.unit_keys(part.topic.encode(), part.queue_id, offsets)
            yield from zip(_rows(keys.tobytes(), keys.shape[1]), _rows(values.tobytes(), VALUE.itemsize), strict=True)


def _rows(content: bytes, width: int) -> Iterator[bytes]:
    return (content[at : at + width] for at in range(0, len(content), width))


def write_ends(path: str, ends: Sequence[QueueEnds], dispatched: int) -> None:
    """Write the sorted file of the family ``offset``; ``dispatched`` is the end of the last queued record."""
    pairs = {rocksdb_queues.CHECKPOINT_KEY: rocksdb_queues.OFFSET.pack(dispatched)}
    for queue in ends:
        for name, (queue_offset, phy_offset) in ((rocksdb_queues.MAX, queue.last), (rocksdb_queues.MIN, queue.first)):
            key = rocksdb_queues.end_key(queue.topic.encode(), queue.queue_id, name)
            pairs[key] = rocksdb_queues.ENDS.pack(phy_offset, queue_offset)
    rocksdb.write_sorted_file(path, rocksdb_queues.FAMILIES[1], sorted(pairs.items()))


@dataclass(frozen=True)
class QueuePart:
    """Queue offsets [begin, end) to compare (None: to the last), with the log's units there, in order."""

    topic: bytes
    queue_id: int
    begin: int
    end: int | None
    slices: tuple[UnitSlice, ...]
    last: int | None = None  # the queue's last unit by the database


@dataclass(frozen=True)
class ComparedPart:
    """Comparison of some pairs of a queue."""

    topic: bytes
    queue_id: int
    found: UnitComparison


@dataclass(frozen=True)
class ComparePairs:
    """Compares parts of queues with the database in ``directory``; ``log.damaged``: whose records are unknown."""

    directory: str
    log: LogExtent
    dispatched: int | None = None

    def __call__(self, parts: Iterator[Sequence[QueuePart]]) -> Iterator[ComparedPart]:
        with Readers() as readers, rocksdb_queues_in(self.directory) as queues:
            for batch in parts:
                for part in batch:
                    for expected, found in _pairs_of(part, queues, readers):
                        compared = compare_pairs(expected, found, self.log, self.dispatched, part.last)
                        yield ComparedPart(part.topic, part.queue_id, compared)


def _pairs_of(part: QueuePart, queues: RocksDbQueues, readers: Readers) -> Iterator[tuple[Pairs, Pairs]]:
    """Pairs of the log and of the database, in batches."""
    queue, at = (part.topic, part.queue_id), part.begin
    none = Pairs(np.zeros(0, np.int64), np.zeros(0, VALUE))
    for slice_ in part.slices:
        for expected in staged_values(slice_, readers):
            end = int(expected[0][-1]) + 1
            there = [none, *queues.units(queue, at, end)]
            yield Pairs(*expected), Pairs(*map(np.concatenate, zip(*there, strict=True)))
            at = end
    for more in queues.units(queue, at, part.end):
        yield none, Pairs(*more)
