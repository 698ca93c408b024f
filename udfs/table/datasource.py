"""Tasks of ``spark.read.format("rocketmq-commitlog")``: a part of the log -> record batches.

A partition is proven, or in a segment that a later one follows. Then the task proves it: it follows the sizes from the
segment's first byte, decodes and checks the partition, and raises DamagedLog where the chain breaks. So the log need
not be read before.

Filters apply to record heads, before properties and rows. They come as options, not by ``pushFilters``: Spark 4.2.0
passes the filters that a Python source took for one query also to the next query on the same DataFrame.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from pyspark.sql import datasource as spark

from storeformat.arrays import Bools
from storeformat.errors import DamagedLog
from storeformat.log.chain_walk import BlockWindow, ChainWalk, chain_from
from storeformat.log.segments import ChainEnd, Split
from storeformat.queues.topic_filter import TopicFilter, selected
from storeformat.record.decode import DecodeRules, RecordBlock
from storeformat.storage import files
from udfs.table.proven_ranges import ProvenRange, proven_blocks
from udfs.table.rows import RowRules, record_batch

ALWAYS = (-(1 << 63), 1 << 63)


@dataclass(frozen=True)
class HeadFilter:
    """Filter on record heads: queues, and half-open ranges of offset and store time."""

    topics: tuple[TopicFilter, ...] = ()
    offsets: tuple[int, int] = ALWAYS
    times: tuple[int, int] = ALWAYS

    def passes(self, block: RecordBlock) -> Bools:
        """Which records pass; foreign ones do not."""
        keep = ~block.foreign
        if self.topics:
            keep = keep & selected(self.topics, block.topics, block.topic_codes, block.heads.queue_id)
        for values, (begin, end) in ((block.offsets, self.offsets), (block.heads.store_timestamp, self.times)):
            if (begin, end) != ALWAYS:
                keep = keep & (values >= begin) & (values <= end - 1)
        return keep


@dataclass(frozen=True)
class LogPartition(spark.InputPartition):
    """A part of a segment; ``records`` is its proven number, or None."""

    split: Split
    records: int | None = None


@dataclass
class LogReader(spark.DataSourceReader):
    """Reads partitions. ``first_times``: first store timestamp by segment base, if times ascend by segment."""

    log_partitions: tuple[LogPartition, ...]
    rules: RowRules
    decode_rules: DecodeRules
    first_times: dict[int, int] = field(default_factory=dict)
    filter: HeadFilter = HeadFilter()

    def partitions(self) -> Sequence[spark.InputPartition]:
        """Partitions that may hold matching rows."""
        begin, end = self.filter.offsets
        return [
            partition
            for partition in self.log_partitions
            if partition.split.start < end and partition.split.stop > begin and self._is_in_time(partition)
        ]

    def _is_in_time(self, partition: LogPartition) -> bool:
        base = partition.split.segment.base
        first = self.first_times.get(base, ALWAYS[0])
        later = [other for other in self.first_times if other > base]
        last = self.first_times[min(later)] if later else ALWAYS[1]
        begin, end = self.filter.times
        return first < end and last >= begin

    def read(self, partition: spark.InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, LogPartition):  # Spark's own, where there is nothing to read
            return
        for every in self._blocks(partition):
            block = self.rules.doubt.without_wrong(every)
            keep = self.filter.passes(block)
            if keep.any():
                yield record_batch(block if keep.all() else block.take(np.flatnonzero(keep)), self.rules)

    def _blocks(self, partition: LogPartition) -> Iterator[RecordBlock]:
        split = partition.split
        if partition.records is not None:
            yield from proven_blocks(ProvenRange(split, partition.records), self.decode_rules)
            return
        with files.RangeReader(split.segment.path) as reader:
            window = BlockWindow(reader, split.segment)
            start = chain_reaches(window, split)
            if start is None or start >= split.stop:
                return
            walk = ChainWalk(window, split, start, self.decode_rules)
            yield from walk
        if walk.ended == ChainEnd.DEFECT:
            raise DamagedLog(
                f"the commit log is damaged: {walk.defect.name}; the option on-damage may be stop or salvage",
                path=split.segment.path,
                offset=walk.position,
            )


def chain_reaches(window: BlockWindow, split: Split) -> int | None:
    """Position of a split's first record, by the sizes from the segment's start; None if the chain breaks before."""
    segment = split.segment
    if split.start == segment.base:
        return segment.base
    rules = DecodeRules(check_crc=False, properties=())
    walk = chain_from(window, segment.base, rules, stop=split.start, limit=split.limit).finish()
    return walk.position if walk.ended == ChainEnd.STOP else None


@dataclass
class TableReader(spark.DataSourceReader):
    """Reads rows that the planner already has."""

    rows: pa.Table

    def read(self, partition: spark.InputPartition) -> Iterator[pa.RecordBatch]:
        yield from self.rows.to_batches()
