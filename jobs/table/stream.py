"""``spark.readStream.format("rocketmq-commitlog")``: a growing commit log as a stream of rows of ``messages``.

A stream offset is ``{"offset": 4096, "tail": 305419896}``: a log offset and the CRC-32 of the bytes before it. A batch
holds the records between two offsets; a restart from the checkpoint reads the same bytes. The stream fails when records
no longer lead to its offset, or the bytes before it differ, as after a crash of the broker.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    SupportsTriggerAvailableNow,
)

from jobs.contract.options import LogOptions
from jobs.log.log_scan import LogReading
from jobs.log.opening import OpenedStore, open_store, read_log
from jobs.spark.runner import Runner
from jobs.table.continuation import tail_of
from storeformat.errors import Refused
from storeformat.log.block_window import BlockWindow
from storeformat.log.chain_walk import chain_from
from storeformat.log.segments import segment_at
from storeformat.record.decode import DecodeRules
from storeformat.storage import files
from udfs.table.datasource import LogPartition, LogReader
from udfs.table.proven_ranges import proven_ranges

OFFSET, TAIL = "offset", "tail"
SPLIT_SIZE = 128 << 20
"""Bytes scanned at a time by the process that plans the query."""

Offset = dict[str, int]


def proven_partitions(reading: LogReading, begin: int) -> tuple[LogPartition, ...]:
    """Partitions of a proven reading from ``begin`` on."""
    return tuple(LogPartition(item.split, item.records) for item in proven_ranges(reading.scans, begin))


class LogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans batches; only the reader of partitions is sent to executors. ``most_bytes`` bounds a batch."""

    def __init__(self, options: LogOptions, reader: LogReader, most_bytes: int | None = None) -> None:
        self._options = options
        self._reader = reader
        self._most_bytes = most_bytes
        self._planned: tuple[int, LogReading] | None = None
        self._target: int | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return replace, (self._reader,)

    def initialOffset(self) -> Offset:  # noqa: N802
        """First offset of the segment with the first wanted record, or of the log."""
        segments = open_store(self._options, needs_index_sizes=False).segments
        wanted = self._reader.filter.offsets[0]
        bases = [segment.base for segment in segments if segment.base <= wanted]
        return {OFFSET: max(bases, default=segments[0].base)}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadAllAvailable() if self._most_bytes is None else ReadMaxBytes(self._most_bytes)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix the end of the query at the current end of the log's records."""
        store = open_store(self._options, needs_index_sizes=False)
        reading = self._read(store, store.segments[-1].base, store.segments[-1].end)
        self._target = store.segments[-1].base if reading is None else reading.end

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        begin = start[OFFSET]
        store = open_store(self._options, needs_index_sizes=False)
        self._require_leading_to(store, start)
        log_end = store.segments[-1].end if self._target is None else self._target
        most = limit.max_bytes if isinstance(limit, ReadMaxBytes) else log_end - begin
        while True:
            reading = self._read(store, begin, min(begin + most, log_end))
            if reading is not None and reading.end > begin:
                tail = tail_of(store.segments, reading.end)
                return {OFFSET: reading.end} if tail is None else {OFFSET: reading.end, TAIL: tail}
            if reading is None or begin + most >= log_end:
                return start
            most *= 2  # not one record fits

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Proven partitions between two offsets, as just planned, or read again after a restart."""
        begin, stop = start[OFFSET], end[OFFSET]
        if begin == stop:
            return []
        if self._planned is not None and (self._planned[0], self._planned[1].end) == (begin, stop):
            reading: LogReading | None = self._planned[1]
        else:
            store = open_store(self._options, needs_index_sizes=False)
            reading = self._read(store, begin, stop)
            tail = tail_of(store.segments, stop)
            if reading is not None and reading.end == stop and end.get(TAIL, tail) != tail:
                raise _another_log(store.root, "other bytes before it", stop)
        if reading is None or reading.end != stop:
            raise _another_log(self._options.store, begin if reading is None else reading.end, stop)
        return replace(self._reader, log_partitions=proven_partitions(reading, begin)).partitions()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._reader.read(partition)

    def _require_leading_to(self, store: OpenedStore, start: Offset) -> None:
        """Refuse a log with other bytes before the offset; older offsets without a tail are checked by record sizes."""
        begin = start[OFFSET]
        end = store.segments[-1].end if store.committed is None else min(store.committed, store.segments[-1].end)
        if end < begin:
            raise _another_log(store.root, end, begin)
        segment = segment_at(store.segments, begin - 1)
        if segment is None or start.get(TAIL) == tail_of(store.segments, begin):  # nothing of it is there any more
            return
        if TAIL not in start and any(one.base == begin for one in store.segments):
            return
        rules = DecodeRules(as_broker=store.as_broker, properties=(), check_crc=False)
        with files.RangeReader(segment.path) as reader:
            reached = chain_from(BlockWindow(reader, segment), segment.base, rules, stop=begin).finish().position
        if reached != begin or TAIL in start:
            raise _another_log(store.root, reached, begin)

    def _read(self, store: OpenedStore, begin: int, until: int) -> LogReading | None:
        first, last = store.segments[0], store.segments[-1]
        if begin < first.base:
            raise Refused(
                "the log starts after the offset that the stream has reached: retention deleted what it had not read",
                path=store.root, found=first.base, expected=begin,
                advice="a stream with a new checkpoint starts where the log starts",
            )  # fmt: skip
        bound = store.committed if self._options.until_offset is None else self._options.until_offset
        until = min(until, last.end if bound is None else bound)
        if until <= begin:
            return None
        options = replace(self._options, until_offset=until)
        reading = read_log(store, options, Runner(), split_size=SPLIT_SIZE, begin=begin, on_damage="fail")
        self._planned = begin, reading
        return reading


def _another_log(path: str, found: object, expected: int) -> Refused:
    return Refused(
        "the log is not the one that was read: it was truncated, or is another store's",
        path=path, found=found, expected=expected,
        advice="a stream with a new checkpoint starts over; the option from-offset sets where",
    )  # fmt: skip
