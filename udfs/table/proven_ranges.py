"""Proven ranges of the commit log -> rows, inside a Spark task.

A first pass (``udfs.log.scan``) proved which bytes are records and checked every one; here they are read again and
become rows, without checking bodies a second time. That both passes saw the same records is asserted by their number.

Rows leave in chunks sorted by (topic, queue, queue offset): what is filtered and shown together lies together in a
file, and pages carry narrow statistics. No row moves between tasks for it, so files keep narrow ranges of offsets and
times.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from storeformat.errors import WriteFailed
from storeformat.log.block_window import BLOCK_SIZE, BlockWindow
from storeformat.log.chain import ChainReport
from storeformat.log.chain_walk import ChainWalk
from storeformat.log.segments import Split
from storeformat.queues.topic_filter import TopicFilter, selected
from storeformat.record.decode import DecodeRules, RecordBlock
from storeformat.storage import files
from udfs.log.scan import SplitScan
from udfs.table.ordered_rows import OrderedRows
from udfs.table.rows import RowRules


@dataclass(frozen=True)
class ProvenRange:
    """Bytes [begin, end) of the log that are ``records`` records (and foreign ones), all in one segment."""

    split: Split
    records: int

    @staticmethod
    def of(report: ChainReport, records: int) -> ProvenRange:
        """Returns the range that a split's report proved."""
        split, start, end = report.split, report.start or 0, report.end
        return ProvenRange(Split(split.number, split.segment, start, end, end, start), records)


def proven_ranges(scans: Iterable[SplitScan], from_offset: int = 0) -> tuple[ProvenRange, ...]:
    """Returns the ranges with records at or after ``from_offset``, in log order."""
    return tuple(
        ProvenRange.of(scan.report, scan.records)
        for scan in scans
        if scan.report.start is not None and scan.records and scan.report.end > from_offset
    )


def proven_blocks(proven: ProvenRange, rules: DecodeRules, block_size: int = BLOCK_SIZE) -> Iterator[RecordBlock]:
    """Yields the records of a range. Nothing is checked again, and what a scan stepped over does not end them;
    at the end raises WriteFailed unless these were the records that it proved.
    """
    split, found = proven.split, 0
    with files.RangeReader(split.segment.path) as reader:
        lenient = replace(rules, check_crc=False, as_broker=True)
        walk = ChainWalk(BlockWindow(reader, split.segment), split, split.start, lenient, block_size)
        for block in walk:
            found += int((~block.foreign).sum())
            yield block
    if walk.position != split.stop or found != proven.records:
        raise WriteFailed(
            "the log changed while it was read",
            path=split.segment.path, offset=walk.position, found=f"{found} records", expected=proven.records,
        )  # fmt: skip


@dataclass(frozen=True)
class ReadRanges:
    """What turns proven ranges into rows. Records before ``from_offset`` give none."""

    ranges: tuple[ProvenRange, ...]
    rules: RowRules
    from_offset: int = 0
    topics: tuple[TopicFilter, ...] = ()
    block_size: int = BLOCK_SIZE

    def chunks(self, wanted: ProvenRange) -> Iterator[pa.Table]:
        """Yields the rows of one range: tables of one chunk a column, each in order."""
        rules = DecodeRules(split_parser=self.rules.split_parser, properties=self.rules.properties)
        rows = OrderedRows(self.rules)
        for block in proven_blocks(wanted, rules, self.block_size):
            rows.add(self.selected(block))
            if rows.is_full:
                yield rows.chunk()
        if rows.rows:
            yield rows.chunk()

    def selected(self, block: RecordBlock) -> RecordBlock:
        """Returns the records of a block that become rows."""
        block = self.rules.doubt.without_wrong(block)
        keep = ~block.foreign & (block.offsets >= self.from_offset)
        if self.topics:
            keep &= selected(self.topics, block.topics, block.topic_codes, block.heads.queue_id)
        return block if keep.all() else block.take(np.flatnonzero(keep))
