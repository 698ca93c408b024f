"""RocksDB queues: Parquet files of key/value pairs, and sorted files that a database takes in, made of the staged units
and times of a scan; and a database compared with these. In a Spark task.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from storeformat.arrays import Int64s, Structs, sum_of_offsets
from storeformat.queues import consume_queue, rocksdb_pairs
from storeformat.queues.rocksdb_check import Limits, Pairs, PairsComparison, compare_pairs
from storeformat.queues.rocksdb_pairs import VALUE
from storeformat.storage import locations, outputs, rocksdb
from storeformat.store.rocksdb_queues import PAIRS_AT_A_TIME, RocksDbQueues, rocksdb_queues_in
from udfs.files.output_files import FileRow, OutputDirectory, Totals, batch_of
from udfs.log.staged_files import Readers
from udfs.log.staged_runs import TIME

SCHEMA = pa.schema(
    [
        ("family", pa.string()),
        ("topic", pa.string()),
        ("queue_id", pa.int32()),
        ("queue_offset", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("phy_offset", pa.int64()),
        ("size", pa.int32()),
        ("tags_code", pa.int64()),
        ("store_timestamp", pa.int64()),
    ]
)


@dataclass(frozen=True)
class UnitSlice:
    """``count`` units of one queue from ``queue_offset`` on: units of a staged file from ``begin`` on."""

    topic: str
    queue_id: int
    queue_offset: int
    units_path: str
    times_path: str
    begin: int
    count: int


@dataclass(frozen=True)
class PlannedPairsFile:
    """One Parquet file to make, of units of the slices in their order."""

    path: str
    slices: tuple[UnitSlice, ...]


@dataclass(frozen=True)
class WritePairs:
    """Writes files of pairs."""

    output: OutputDirectory

    def __call__(self, planned: Iterator[PlannedPairsFile]) -> Iterator[pa.RecordBatch]:
        with Readers() as readers:
            for file in planned:
                parts = [table for part in file.slices for table in _unit_pairs(part, readers)]
                yield batch_of([self.write(file.path, pa.concat_tables(parts))])

    def write(self, path: str, table: pa.Table) -> FileRow:
        """Writes a table as one Parquet file and returns its row, counted in the bytes on storage."""
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, compression="zstd", use_dictionary=["family", "topic", "queue_id"])
        return self.output.make_of(path, [memoryview(sink.getvalue())], None, _tally, what="a file of RocksDB pairs")


def _tally(stored: memoryview) -> Totals:
    read_back = pq.read_table(pa.BufferReader(stored), columns=["phy_offset"])
    return Totals(read_back.num_rows, sum_of_offsets(read_back.column(0).drop_null().to_numpy()))


def staged_values(part: UnitSlice, readers: Readers) -> Iterator[tuple[Int64s, Structs]]:
    """Yields queue offsets and values of a slice's units, some at a time."""
    for begin in range(0, part.count, PAIRS_AT_A_TIME):
        count = min(PAIRS_AT_A_TIME, part.count - begin)
        units = readers.rows(part.units_path, consume_queue.UNIT, part.begin + begin, count)
        times = readers.rows(part.times_path, TIME, part.begin + begin, count)
        first = part.queue_offset + begin
        yield np.arange(first, first + count, dtype=np.int64), rocksdb_pairs.unit_values(units, times)


def _unit_pairs(part: UnitSlice, readers: Readers) -> Iterator[pa.Table]:
    for offsets, values in staged_values(part, readers):
        keys = rocksdb_pairs.unit_keys(part.topic.encode(), part.queue_id, offsets)
        columns = {
            "family": pa.repeat(rocksdb_pairs.DEFAULT_FAMILY, len(offsets)),
            "topic": pa.repeat(part.topic, len(offsets)),
            "queue_id": np.full(len(offsets), part.queue_id, np.int32),
            "queue_offset": offsets,
            "key": _rows_of_bytes(keys.tobytes(), keys.shape[1]),
            "value": _rows_of_bytes(values.tobytes(), values.itemsize),
            **{name: values[name].astype(values[name].dtype.newbyteorder("=")) for name in values.dtype.names or ()},
        }
        yield pa.table(columns, SCHEMA)


def _rows_of_bytes(content: bytes, width: int) -> pa.Array:
    fixed = pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), len(content) // width, [None, pa.py_buffer(content)])
    return fixed.cast(pa.binary())


@dataclass(frozen=True)
class QueueEnds:
    """First and last unit of a queue: queue offset and commit-log offset of each."""

    topic: str
    queue_id: int
    first: tuple[int, int]
    last: tuple[int, int]

    def pairs(self) -> Iterator[tuple[bytes, bytes, tuple[int, int]]]:
        """Yields key and value of both, and what they are made of."""
        for name, end in ((rocksdb_pairs.MAX, self.last), (rocksdb_pairs.MIN, self.first)):
            queue_offset, phy_offset = end
            key = rocksdb_pairs.end_key(self.topic.encode(), self.queue_id, name)
            yield key, rocksdb_pairs.end_value(phy_offset, queue_offset), end


def end_pairs(ends: Sequence[QueueEnds], dispatched: int) -> pa.Table:
    """Returns the pairs of the family ``offset``; ``dispatched`` is the end of the last record in a queue."""
    rows = [
        _end_row(queue.topic, queue.queue_id, key, value) | {"queue_offset": queue_offset, "phy_offset": phy_offset}
        for queue in ends
        for key, value, (queue_offset, phy_offset) in queue.pairs()
    ]
    topic, value = rocksdb_pairs.CHECKPOINT_TOPIC.decode(), rocksdb_pairs.checkpoint_value(dispatched)
    rows.append(_end_row(topic, 0, rocksdb_pairs.checkpoint_key(), value))
    return pa.Table.from_pylist(rows, SCHEMA)


def _end_row(topic: str, queue_id: int, key: bytes, value: bytes) -> dict[str, object]:
    return {"family": rocksdb_pairs.OFFSET_FAMILY, "topic": topic, "queue_id": queue_id, "key": key, "value": value}


@dataclass(frozen=True)
class WrittenTable:
    """One sorted file: where it lies, and the pairs in it."""

    path: str
    pairs: int


@dataclass(frozen=True)
class WriteTables:
    """Writes sorted files of units into ``directory``."""

    directory: str

    def __call__(self, planned: Iterator[PlannedPairsFile]) -> Iterator[WrittenTable]:
        with Readers() as readers:
            for file in planned:
                path = locations.join(self.directory, file.path)
                draft = outputs.draft_of(path, self.directory)
                rocksdb.write_sorted_file(draft, rocksdb_pairs.FAMILIES[0], _pairs(file.slices, readers))
                outputs.settle(draft, path)
                yield WrittenTable(path, sum(part.count for part in file.slices))


def _pairs(slices: Sequence[UnitSlice], readers: Readers) -> Iterator[tuple[bytes, bytes]]:
    for part in slices:
        for offsets, values in staged_values(part, readers):
            keys = rocksdb_pairs.unit_keys(part.topic.encode(), part.queue_id, offsets)
            yield from zip(_rows(keys.tobytes(), keys.shape[1]), _rows(values.tobytes(), VALUE.itemsize), strict=True)


def _rows(content: bytes, width: int) -> Iterator[bytes]:
    return (content[at : at + width] for at in range(0, len(content), width))


def write_ends(path: str, ends: Sequence[QueueEnds], dispatched: int) -> None:
    """Writes the sorted file of the family ``offset``; ``dispatched`` is the end of the last record in a queue."""
    pairs = {key: value for queue in ends for key, value, _ in queue.pairs()}
    pairs[rocksdb_pairs.checkpoint_key()] = rocksdb_pairs.checkpoint_value(dispatched)
    rocksdb.write_sorted_file(path, rocksdb_pairs.FAMILIES[1], sorted(pairs.items()))


@dataclass(frozen=True)
class QueuePart:
    """A part of a queue to compare: queue offsets from ``begin`` on and before ``end`` (None: to its last), with the
    units that the log makes there, in order.
    """

    topic: bytes
    queue_id: int
    begin: int
    end: int | None
    slices: tuple[UnitSlice, ...]
    last: int | None = None
    """The queue's last unit as the database says."""


@dataclass(frozen=True)
class ComparedPart:
    """What was found of a part; ``offset_sum`` is that of the commit-log offsets in the database."""

    topic: bytes
    queue_id: int
    found: PairsComparison
    offset_sum: int


@dataclass(frozen=True)
class ComparePairs:
    """Compares parts of queues with the database in ``directory``."""

    directory: str
    log_begin: int
    dispatched: int | None = None
    unread: tuple[tuple[int, int], ...] = ()

    def __call__(self, parts: Iterator[Sequence[QueuePart]]) -> Iterator[ComparedPart]:
        with Readers() as readers, rocksdb_queues_in(self.directory) as queues:
            for batch in parts:
                for part in batch:
                    yield self._compare(part, queues, readers)

    def _compare(self, part: QueuePart, queues: RocksDbQueues, readers: Readers) -> ComparedPart:
        limits = Limits(self.log_begin, self.dispatched, part.last, self.unread)
        total, sum_ = PairsComparison(), 0
        at = part.begin
        for slice_ in part.slices:
            for offsets, values in staged_values(slice_, readers):
                end = int(offsets[-1]) + 1
                there = list(queues.units((part.topic, part.queue_id), at, end))
                total = total.plus(compare_pairs(Pairs(offsets, values), _joined(there), limits))
                sum_ += _sum(there)
                at = end
        for there_one in queues.units((part.topic, part.queue_id), at, part.end):
            total, sum_ = total.plus(compare_pairs(_joined([]), Pairs(*there_one), limits)), sum_ + _sum([there_one])
        return ComparedPart(part.topic, part.queue_id, total, sum_ % (1 << 64))


def _joined(there: Sequence[tuple[Int64s, Structs]]) -> Pairs:
    return Pairs(
        np.concatenate([np.zeros(0, np.int64), *(offsets for offsets, _ in there)]),
        np.concatenate([np.zeros(0, VALUE), *(values for _, values in there)]),
    )


def _sum(there: Sequence[tuple[Int64s, Structs]]) -> int:
    return sum(sum_of_offsets(values["phy_offset"].astype(np.int64)) for _, values in there)
