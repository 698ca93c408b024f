"""What a Spark task does for ``spark.read.format("rocketmq-commitlog")``: a part of the log -> record batches.

A partition is either proven already, or it lies in a segment that a later one follows. Then the task proves it: it
follows the sizes from the segment's first byte to the partition, decodes and checks what is in it, and raises
DamagedLog where the chain breaks. So nothing has to read the log before the tasks do.

Filters are applied to record heads, before properties are looked at and rows are made. They come as options, and
``pushFilters`` is left alone: Spark 4.2.0 hands the filters that a Python source took for one query also to the next
query on the same DataFrame.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from pyspark.sql import datasource as spark

from storeformat.arrays import Bools
from storeformat.errors import DamagedLog
from storeformat.log.block_window import BlockWindow
from storeformat.log.chain_walk import ChainWalk, chain_from
from storeformat.log.framing import ChainEnd
from storeformat.log.segments import Split
from storeformat.queues.topic_filter import TopicFilter, selected
from storeformat.record.decode import DecodeRules, RecordBlock
from storeformat.storage import files
from udfs.table.proven_ranges import ProvenRange, proven_blocks
from udfs.table.rows import RowRules, record_batch

ALWAYS = (-(1 << 63), 1 << 63)


@dataclass(frozen=True)
class HeadFilter:
    """What a record's head must say: one of the wanted queues, and an offset and a store time in half-open ranges."""

    topics: tuple[TopicFilter, ...] = ()
    offsets: tuple[int, int] = ALWAYS
    times: tuple[int, int] = ALWAYS

    def passes(self, block: RecordBlock) -> Bools:
        """Returns which records of a block pass; no foreign record does."""
        keep = ~block.foreign
        if self.topics:
            keep = keep & selected(self.topics, block.topics, block.topic_codes, block.heads.queue_id)
        for values, (begin, end) in ((block.offsets, self.offsets), (block.heads.store_timestamp, self.times)):
            if (begin, end) != ALWAYS:
                keep = keep & (values >= begin) & (values <= end - 1)
        return keep


@dataclass(frozen=True)
class LogPartition(spark.InputPartition):
    """A part of a segment. ``records`` says how many it holds where that is proven, else None."""

    split: Split
    records: int | None = None


@dataclass
class LogReader(spark.DataSourceReader):
    """Reads partitions. ``first_times`` holds the first store timestamp of each segment by its base, where times are
    trusted to rise from segment to segment.
    """

    log_partitions: tuple[LogPartition, ...]
    rules: RowRules
    decode_rules: DecodeRules
    first_times: dict[int, int] = field(default_factory=dict)
    filter: HeadFilter = HeadFilter()

    def partitions(self) -> Sequence[spark.InputPartition]:
        """Returns the partitions that may hold rows which pass."""
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
    """Returns where the first record of a split begins, following the sizes from the segment's start; None where the
    chain breaks off before: then that is the affair of the split where it does.
    """
    segment = split.segment
    if split.start == segment.base:
        return segment.base
    rules = DecodeRules(check_crc=False, properties=())
    walk = chain_from(window, segment.base, rules, stop=split.start, limit=split.limit).finish()
    return walk.position if walk.ended == ChainEnd.STOP else None


@dataclass
class TableReader(spark.DataSourceReader):
    """Gives rows that are there already: what a planner found out."""

    rows: pa.Table

    def read(self, partition: spark.InputPartition) -> Iterator[pa.RecordBatch]:
        yield from self.rows.to_batches()
