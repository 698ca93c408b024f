"""What a Spark task does for ``spark.read.format("rocketmq-commitlog")``: one stretch of the log -> record batches.

A stretch is either proven already, or it lies in a segment that a later one follows. Then the task proves it itself: it
follows the sizes from the segment's first byte to the stretch, decodes and checks what is in it, and raises DamagedLog
where the chain breaks off. So nothing has to read the log before the tasks do.

Filters are applied to record heads, before properties are looked at and rows are made; Spark applies them again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import datasource as spark

from storeformat import files
from storeformat.commitlog import BlockWindow, ChainEnd, ChainWalk, Split
from storeformat.dispatch import topic_names
from storeformat.errors import DamagedLog, WriteFailed
from storeformat.records import DecodeRules, RecordBlock
from udfs.rows import RowRules, record_batch

_SMALLEST, _LARGEST = -(1 << 63), (1 << 63) - 1
_UPPER = (spark.EqualTo, spark.EqualNullSafe, spark.LessThan, spark.LessThanOrEqual)
_LOWER = (spark.EqualTo, spark.EqualNullSafe, spark.GreaterThan, spark.GreaterThanOrEqual)

HEAD_COLUMNS = {
    "commit_log_offset": "physical_offset",
    "queue_id": "queue_id",
    "queue_offset": "queue_offset",
    "size": "total_size",
    "store_timestamp": "store_timestamp",
    "born_timestamp": "born_timestamp",
}
"""The columns whose bounds are pushed down, with their field of ``Heads``."""


@dataclass(frozen=True)
class HeadFilter:
    """What a record's head must hold: one of ``topics`` (None: any), and values within bounds, both inclusive."""

    topics: frozenset[str] | None = None
    bounds: tuple[tuple[str, int, int], ...] = ()

    @staticmethod
    def of(filters: Iterable[spark.Filter]) -> HeadFilter:
        """Returns what can be seen of some filters in heads; it lets pass what they do, and perhaps more."""
        topics: frozenset[str] | None = None
        bounds: dict[str, tuple[int, int]] = {}
        for one in filters:
            if not isinstance(one, (*_UPPER, *_LOWER, spark.In)) or len(one.attribute) != 1:
                continue
            (column,) = one.attribute
            values = list(one.value) if isinstance(one, spark.In) else [one.value]
            if column == "topic" and isinstance(one, (spark.EqualTo, spark.EqualNullSafe, spark.In)):
                named = frozenset(value for value in values if value is not None)
                topics = named if topics is None else topics & named
            elif column in HEAD_COLUMNS and None not in values and values:
                low, high = bounds.get(column, (_SMALLEST, _LARGEST))
                if isinstance(one, (*_LOWER, spark.In)):
                    low = max(low, min(map(_as_integer, values)))
                if isinstance(one, (*_UPPER, spark.In)):
                    high = min(high, max(map(_as_integer, values)))
                bounds[column] = (low, high)
        return HeadFilter(topics, tuple((column, low, high) for column, (low, high) in sorted(bounds.items())))

    def range_of(self, column: str) -> tuple[int, int]:
        """Returns the bounds of a column."""
        return next(((low, high) for name, low, high in self.bounds if name == column), (_SMALLEST, _LARGEST))

    def passes(self, block: RecordBlock) -> npt.NDArray[np.bool_]:
        """Returns which records of a block pass."""
        keep = block.genuine
        if self.topics is not None:
            wanted = np.array([topic in self.topics for topic in topic_names(block.topics)], bool)
            keep = keep & wanted[block.topic_codes]
        for column, low, high in self.bounds:
            values = getattr(block.heads, HEAD_COLUMNS[column])
            keep = keep & (values >= low) & (values <= high)
        return keep


def _as_integer(value: Any) -> int:
    """Returns a number as it is, a time as milliseconds, rounded down: stored times are whole milliseconds."""
    if isinstance(value, datetime):
        aware = value if value.tzinfo is not None else value.astimezone()
        return int((aware - datetime(1970, 1, 1, tzinfo=timezone.utc)).total_seconds() * 1000 // 1)
    return int(value)


@dataclass(frozen=True)
class Stretch(spark.InputPartition):
    """A part of a segment. ``records`` says how many it holds where that is proven, else None."""

    split: Split
    records: int | None = None


@dataclass
class StretchReader(spark.DataSourceReader):
    """Reads stretches. ``first_times`` holds the first store timestamp of each segment by its base, where times are
    trusted to rise from segment to segment.
    """

    stretches: tuple[Stretch, ...]
    rules: RowRules
    decode_rules: DecodeRules
    first_times: dict[int, int] = field(default_factory=dict)
    filter: HeadFilter = HeadFilter()

    def pushFilters(self, filters: list[spark.Filter]) -> Iterable[spark.Filter]:  # noqa: N802  (Spark's name)
        """Keeps what heads can answer, and leaves every filter to Spark, too."""
        self.filter = HeadFilter.of(filters)
        return filters

    def partitions(self) -> Sequence[spark.InputPartition]:
        """Returns the stretches that may hold rows which pass."""
        low, high = self.filter.range_of("commit_log_offset")
        return [
            stretch
            for stretch in self.stretches
            if stretch.split.start <= high and stretch.split.stop > low and self._is_in_time(stretch)
        ]

    def _is_in_time(self, stretch: Stretch) -> bool:
        low, high = self.filter.range_of("store_timestamp")
        times = sorted(self.first_times.items())
        begin = self.first_times.get(stretch.split.segment.base, _SMALLEST)
        end = next((time for base, time in times if base > stretch.split.segment.base), _LARGEST)
        return begin <= high and end >= low

    def read(self, partition: spark.InputPartition) -> Iterator[pa.RecordBatch]:
        """Yields the rows of a stretch."""
        if not isinstance(partition, Stretch):
            return
        for block in self._blocks(partition):
            keep = self.filter.passes(block)
            if keep.any():
                yield record_batch(block if keep.all() else block.take(np.flatnonzero(keep)), self.rules)

    def _blocks(self, stretch: Stretch) -> Iterator[RecordBlock]:
        split = stretch.split
        with files.RangeReader(split.segment.path) as reader:
            window = BlockWindow(reader, split.segment)
            proven = stretch.records is not None
            start: int | None = split.start if proven else chain_reaches(window, split)
            if start is None or start >= split.stop:
                return
            rules = replace(self.decode_rules, check_crc=self.decode_rules.check_crc and not proven)
            walk = ChainWalk(window, split, start, rules)
            found = 0
            for block in walk:
                found += int(block.genuine.sum())
                yield block
        if proven and found != stretch.records:
            raise WriteFailed(
                "the log changed while it was read", path=split.segment.path, found=found, expected=stretch.records
            )
        if walk.ended == ChainEnd.DEFECT:
            raise DamagedLog(
                f"the commit log is damaged: {walk.defect.name}; the option on-damage may be stop or salvage",
                path=split.segment.path,
                offset=walk.position,
            )


def chain_reaches(window: BlockWindow, split: Split) -> int | None:
    """Returns where the first record of a split begins, following the sizes from the segment's begin; None where the
    chain breaks off before: then that is the affair of the split where it does.
    """
    segment = split.segment
    if split.start == segment.base:
        return segment.base
    before = Split(split.number, segment, segment.base, split.start, split.limit, segment.base)
    walk = ChainWalk(window, before, segment.base, DecodeRules(check_crc=False, properties=()))
    for _ in walk:
        pass
    return walk.position if walk.ended == ChainEnd.STOP else None


@dataclass
class TableReader(spark.DataSourceReader):
    """Gives rows that are there already: what a planner found out."""

    rows: pa.Table

    def read(self, partition: spark.InputPartition) -> Iterator[pa.RecordBatch]:
        """Yields the rows."""
        yield from self.rows.to_batches()
