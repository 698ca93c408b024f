"""Does the log continue what was loaded? Compares the newest rows, and the CRC of the bytes before the end."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from jobs.log.log_scan import LogReading
from jobs.log.opening import OpenedStore
from jobs.table import messages_table
from jobs.table.load_window import Row, Window
from storeformat.log.block_window import BlockWindow
from storeformat.log.chain_walk import chain_from
from storeformat.log.segments import Segment, segment_at
from storeformat.record.decode import DecodeRules, RecordBlock
from storeformat.storage import files
from udfs.table.proven_ranges import proven_blocks, proven_ranges
from udfs.table.rows import RowRules, record_batch

_TAIL = 4096


def tail_of(segments: Sequence[Segment], end: int) -> int | None:
    """CRC-32 of up to 4,096 bytes of a segment before an offset, to distinguish logs; None without the segment."""
    segment = segment_at(segments, end - 1)
    if segment is None:
        return None
    length = min(_TAIL, end - segment.base)
    return zlib.crc32(files.read_range(segment.path, end - segment.base - length, length))


def newest_row_in_log(store: OpenedStore, rows: Sequence[Row], reading: LogReading) -> Row | None:
    """Newest of these rows whose record is the same in the log, proven by the reading or, before it, by the sizes."""
    wanted = {row["commit_log_offset"]: row for row in rows}
    for offsets, blocks in _parts_with(store, reading, sorted(wanted)):
        found = [row for row in _records_at(store, blocks, offsets) if row == wanted[row["commit_log_offset"]]]
        if found:
            return found[-1]
    return None


def begins_inside_a_record(store: OpenedStore, window: Window, reading: LogReading) -> bool:
    """True if rows would begin inside a record without a row, as after a rewrite of other topics."""
    last = window.last
    if last is not None and last["commit_log_offset"] + last["size"] >= window.rows_from:
        return False
    for _, blocks in _parts_with(store, reading, [window.rows_from - 1]):
        for block in blocks:
            inside = (block.offsets < window.rows_from) & (block.offsets + block.heads.total_size > window.rows_from)
            if inside.any():
                return True
            if block.offsets[-1] >= window.rows_from - 1:
                break
    return False


def _parts_with(
    store: OpenedStore, reading: LogReading, offsets: Sequence[int]
) -> Iterator[tuple[list[int], Iterator[RecordBlock]]]:
    rules = DecodeRules(as_broker=store.as_broker, properties=())
    for proven in reversed(proven_ranges(reading.scans)):
        inside = [offset for offset in offsets if proven.split.start <= offset < proven.split.stop]
        if inside:
            yield inside, proven_blocks(proven, rules)
    for segment in reversed(store.segments):
        inside = [offset for offset in offsets if segment.base <= offset < min(segment.end, reading.begin)]
        if inside:
            yield inside, _chain_to(segment, inside[-1], replace(rules, check_crc=False))


def _chain_to(segment: Segment, last: int, rules: DecodeRules) -> Iterator[RecordBlock]:
    with files.RangeReader(segment.path) as reader:
        yield from chain_from(BlockWindow(reader, segment), segment.base, rules, stop=last + 1)


def _records_at(store: OpenedStore, blocks: Iterable[RecordBlock], offsets: Sequence[int]) -> list[Row]:
    rules = RowRules(store.dispatch_rules(), columns=messages_table.IDENTITY)
    found: list[Row] = []
    for block in blocks:
        here = np.flatnonzero(np.isin(block.offsets, offsets))
        if here.size:
            found += record_batch(block.take(here), rules).to_pylist()
        if block.offsets[-1] >= offsets[-1]:
            break
    return found
