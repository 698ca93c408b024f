"""Proven ranges of the commit log -> rows, inside a Spark task.

A first pass (``udfs.log.scan``) proved and checked every record; here they are read again without CRC checks, and their
number must match. Chunks are sorted by (topic, queue, queue offset), so that pages have narrow statistics; rows do not
move between tasks, so files keep narrow ranges of offsets and times.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from storeformat.errors import WriteFailed
from storeformat.log.chain import ChainReport
from storeformat.log.chain_walk import BLOCK_SIZE, BlockWindow, ChainWalk
from storeformat.log.segments import Split
from storeformat.queues.topic_filter import TopicFilter, selected
from storeformat.record.decode import DecodeRules, RecordBlock
from storeformat.storage import files
from udfs.log.scan import SplitScan
from udfs.table.ordered_rows import OrderedRows
from udfs.table.rows import RowRules


@dataclass(frozen=True)
class ProvenRange:
    """Bytes [begin, end) of the log with ``records`` records (and foreign ones), in one segment."""

    split: Split
    records: int

    @staticmethod
    def of(report: ChainReport, records: int) -> ProvenRange:
        """The range that a split's report proved."""
        split, start, end = report.split, report.start or 0, report.end
        return ProvenRange(Split(split.number, split.segment, start, end, end, start), records)


def proven_ranges(scans: Iterable[SplitScan], from_offset: int = 0) -> tuple[ProvenRange, ...]:
    """Ranges with records at or after ``from_offset``, in log order."""
    return tuple(
        ProvenRange.of(scan.report, scan.records)
        for scan in scans
        if scan.report.start is not None and scan.records and scan.report.end > from_offset
    )


def proven_blocks(proven: ProvenRange, rules: DecodeRules, block_size: int = BLOCK_SIZE) -> Iterator[RecordBlock]:
    """Records of a range, without checks. Raises WriteFailed at the end if their number differs from the proven."""
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
    """Turns proven ranges into rows, without records before ``from_offset``."""

    ranges: tuple[ProvenRange, ...]
    rules: RowRules
    from_offset: int = 0
    topics: tuple[TopicFilter, ...] = ()
    block_size: int = BLOCK_SIZE

    def chunks(self, wanted: ProvenRange) -> Iterator[pa.Table]:
        """Rows of one range in sorted tables of one chunk a column."""
        rules = DecodeRules(split_parser=self.rules.split_parser, properties=self.rules.properties)
        rows = OrderedRows(self.rules)
        for block in proven_blocks(wanted, rules, self.block_size):
            rows.add(self.selected(block))
            if rows.is_full:
                yield rows.chunk()
        if rows.rows:
            yield rows.chunk()

    def selected(self, block: RecordBlock) -> RecordBlock:
        """Records of a block that become rows."""
        block = self.rules.doubt.without_wrong(block)
        keep = ~block.foreign & (block.offsets >= self.from_offset)
        if self.topics:
            keep &= selected(self.topics, block.topics, block.topic_codes, block.heads.queue_id)
        return block if keep.all() else block.take(np.flatnonzero(keep))
