"""``spark.read.format("rocketmq-commitlog").load(ROOT)``: a commit log as rows of ``messages``.

``register(spark)`` makes the format known to a session. Options are those of the command line, written so or in camel
case, and read by the same parser:

======================  ============================================================================================
path                    the broker's storePathRootDir (the argument of ``load``)
columns                 which columns, separated by commas; or give ``.schema(...)``. Spark does not tell a Python
                        source which columns a query uses: name them, and nothing else is decoded. ``heads``: those
                        of record heads, for which no property is looked at. Default: all but ``body``
with-bodies             ``true``: all columns and ``body``
records                 ``messages`` (default), or ``defects``: damaged and stale ranges of the log instead
on-damage               ``fail`` (default), ``stop`` or ``salvage``; the latter two read the whole log while they plan.
                        keep-crc-failures ``true``: salvage keeps records whose body alone is damaged
cluster, broker         values of these two columns; NULL without
topic                   ``T`` or ``T:QUEUE``, several separated by commas: only these. A stream that is started again
                        with more topics gives of these no messages from before its checkpoint
from-offset             only records from this commit-log offset on; ``until-offset`` ends before one
from-time               only records stored then or later: milliseconds, or ISO 8601 with its zone. ``until-time``:
                        before then
trust-store-times       ``true``: these two skip segments by their first records' times, which is wrong where the
                        broker's clock was set back across a segment's first record
max-bytes-per-trigger   of a stream (``readStream``): no batch reads more of the log
======================  ============================================================================================

and time-zone (of ``store_date``), split-size, commitlog, broker-version, broker-conf, settings (``name=value,...``).
Options that filter are applied to record heads, before anything else of a record is decoded; ``where`` works as always,
on the rows. They are options because Spark 4.2.0 hands the filters that a Python source took for one query to the next
query on the same DataFrame.

A stream's offset is ``{"offset": 4096, "tail": 305419896}``: a log offset and the CRC-32 of the bytes before it. A
batch holds the records between two offsets; a restart from the checkpoint reads the same bytes. The stream fails when
records no longer lead to its offset, or the bytes before it differ, as after a crash of the broker.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from jobs.contract import options as read
from jobs.contract.options import DamagePolicy, LogOptions
from jobs.log.log_scan import LogReading
from jobs.log.opening import OpenedStore, open_store, read_log
from jobs.spark.runner import Runner
from jobs.table.load import doubt_of, tail_of
from storeformat.errors import Refused, UsageError
from storeformat.log.chain_walk import BlockWindow, chain_from
from storeformat.log.segments import PLAIN, Segment, plan_splits, segment_at
from storeformat.message import CERTIFICATE_SIZE
from storeformat.record.decode import DecodeRules, store_timestamp_at
from storeformat.storage import files
from udfs.table import schemas
from udfs.table.datasource import ALWAYS, HeadFilter, LogPartition, LogReader, TableReader
from udfs.table.proven_ranges import proven_ranges
from udfs.table.rows import HEAD_COLUMNS, RowRules

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Value = TypeVar("Value")
Default = TypeVar("Default")
Chosen = TypeVar("Chosen", bound=str)

FORMAT = "rocketmq-commitlog"
_LOG_OPTIONS = ("path", "commitlog", "brokerconf", "settings", "brokerversion", "ondamage", "untiloffset", "splitsize",
                "keepcrcfailures")  # fmt: skip
_OWN_OPTIONS = ("columns", "withbodies", "records", "cluster", "broker", "timezone", "truststoretimes",
                "topic", "fromoffset", "fromtime", "untiltime", "maxbytespertrigger")  # fmt: skip
_FEW_SEGMENTS = 8

OFFSET, TAIL = "offset", "tail"
SPLIT_SIZE = 128 << 20
"""Bytes scanned at a time by the process that plans the query."""

Offset = dict[str, int]


def register(spark: SparkSession) -> None:
    """Register ``format("rocketmq-commitlog")`` in a session."""
    spark.dataSource.register(CommitLogSource)


class CommitLogSource(DataSource):
    """The format, where the query is planned; ``udfs.table.datasource`` reads. Option names ignore case, - and _."""

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        self._given = {name.lower().replace("-", "").replace("_", ""): value for name, value in options.items()}
        unknown = sorted(self._given.keys() - {*_LOG_OPTIONS, *_OWN_OPTIONS})
        if unknown:
            raise UsageError(f"{FORMAT} has no option {unknown[0]}")
        self._defects = _choice(self._given, "records", ("messages", "defects")) == "defects"
        self._zone = self._parsed("timezone", read.time_zone, "UTC")

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        if self._defects:
            return schemas.to_spark(schemas.DEFECTS)
        names = [name.strip() for name in self._given.get("columns", "").split(",") if name.strip()]
        if not names:
            names = schemas.messages(bodies=self._is_set("withbodies")).names
        return schemas.to_spark(_selected(HEAD_COLUMNS if names == ["heads"] else names))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Reader of the log up to its current end."""
        options = self._log_options()
        store = open_store(options, needs_index_sizes=False)
        if self._defects:
            _demand(schemas.DEFECTS, schema)
            return TableReader(defects(read_log(store, options, Runner(), split_size=SPLIT_SIZE, on_damage="salvage")))
        times = first_times(store.segments) if self._is_set("truststoretimes") else {}
        reader = replace(self._log_reader(store, schema), first_times=times)
        if options.on_damage == "fail":
            return replace(reader, log_partitions=plan_partitions(store, options))
        # Policies that read on after damage need the whole log.
        reading = read_log(store, options, Runner(), split_size=SPLIT_SIZE)
        rules = replace(reader.rules, doubt=doubt_of(reading))
        return replace(reader, log_partitions=proven_partitions(reading, 0), rules=rules)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        options = self._log_options()
        if self._defects or options.on_damage != "fail" or self._is_set("truststoretimes"):
            raise UsageError("a stream takes neither records=defects nor on-damage nor trust-store-times")
        reader = self._log_reader(open_store(options, needs_index_sizes=False), schema)
        most_bytes = self._parsed("maxbytespertrigger", read.positive, None)
        return LogStreamReader(options, reader, most_bytes)

    def _log_reader(self, store: OpenedStore, schema: StructType) -> LogReader:
        columns = _selected(schema.names)
        _demand(columns, schema)
        rules = RowRules(
            store.dispatch_rules(), store.rules.split_parser, tuple(columns.names), self._zone,
            self._given.get("cluster"), self._given.get("broker"),
        )  # fmt: skip
        needed = rules.properties or "properties" in rules.columns
        decode = store.decode_rules() if needed else DecodeRules(properties=())
        return LogReader((), rules, decode, filter=self._filter())

    def _filter(self) -> HeadFilter:
        return HeadFilter(
            self._parsed("topic", _list_of(read.topic_filter), ()),
            (self._parsed("fromoffset", read.natural, ALWAYS[0]) or ALWAYS[0], ALWAYS[1]),
            (
                self._parsed("fromtime", read.milliseconds, ALWAYS[0]),
                self._parsed("untiltime", read.milliseconds, ALWAYS[1]),
            ),
        )

    def _is_set(self, name: str) -> bool:
        return _choice(self._given, name, ("false", "true")) == "true"

    def _parsed(self, name: str, parse: Callable[[str], Value], default: Default) -> Value | Default:
        if name not in self._given:
            return default
        try:
            return parse(self._given[name])
        except argparse.ArgumentTypeError as error:
            raise UsageError(f"option {name}: {error}") from error

    def _log_options(self) -> LogOptions:
        given = self._given
        if "path" not in given:
            raise UsageError('no store is named: .load("/path/to/store")')
        policies: tuple[DamagePolicy, ...] = ("fail", "stop", "salvage")
        return LogOptions(
            store=given["path"],
            commitlog=self._parsed("commitlog", read.paths, ()),
            broker_conf=given.get("brokerconf"),
            settings=self._parsed("settings", _list_of(read.setting), ()),
            broker_version=self._parsed("brokerversion", read.release, None),
            on_damage=_choice(given, "ondamage", policies),
            until_offset=self._parsed("untiloffset", read.natural, None),
            split_size=self._parsed("splitsize", read.positive, None),
            keep_crc_failures=self._is_set("keepcrcfailures"),
        )


def plan_partitions(store: OpenedStore, options: LogOptions) -> tuple[LogPartition, ...]:
    """Plan what the tasks read. Only the log after a break shows whether it is damage or the end, so the last written
    segment is read here; tasks prove the others. A log with a segment older than the one before it is read whole.
    """
    segments = store.segments
    until = store.committed if options.until_offset is None else options.until_offset
    times = first_times([segment for segment in segments if until is None or segment.base < until])
    falls = any(later < earlier for earlier, later in pairwise(times.values()))
    begin = segments[0].base if falls or not times else max(times)
    earlier = [segment for segment in segments if segment.base < begin]
    size = options.split_size or (SPLIT_SIZE if len(earlier) < _FEW_SEGMENTS else segments[0].size)
    unproven = tuple(LogPartition(split) for split in plan_splits(earlier, size))
    last = read_log(store, options, Runner(), split_size=SPLIT_SIZE, begin=begin)
    return unproven + proven_partitions(last, begin)


def first_times(segments: Sequence[Segment]) -> dict[int, int]:
    """Store time of the first record of each segment that begins with one, by the segment's base."""
    times = {}
    for segment in segments:
        with files.RangeReader(segment.path) as reader:
            place = segment.framing.head_size
            offset, head = segment.base + place, reader.read(place, max(min(CERTIFICATE_SIZE, segment.size - place), 0))
            if PLAIN.find(head, offset, len(head), offset, offset + 1) is not None:
                times[segment.base] = store_timestamp_at(reader, place)
    return times


def defects(reading: LogReading) -> pa.Table:
    """Ranges of a log that are not messages of its own, in log order."""
    rows = [
        (item.begin, item.end, kind, item.reason)
        for kind, ranges in (("damaged", reading.damaged), ("stale", reading.stale))
        for item in ranges
    ] + [(offset, offset + size, "ghost", "a record of another place") for offset, size in reading.foreign_records]
    return pa.Table.from_pylist(
        [dict(zip(schemas.DEFECTS.names, row, strict=True)) for row in sorted(rows)], schemas.DEFECTS
    )


def _selected(names: Sequence[str]) -> pa.Schema:
    unknown = [name for name in names if name not in schemas.MESSAGES_WITH_BODY.names]
    if unknown:
        raise UsageError(f"{FORMAT} has no column {unknown[0]}")
    if not names or len(set(names)) < len(names):
        raise UsageError(f"{FORMAT} gives one column or more, each once")
    return schemas.select(names)


def _demand(columns: pa.Schema, schema: StructType) -> None:
    fitting = schemas.to_spark(columns)
    wanted, given = ([(one.name, one.dataType, one.nullable) for one in fields] for fields in (fitting, schema))
    if wanted != given:
        raise UsageError(f"the schema does not fit: columns are {fitting.simpleString()}, none of them NOT NULL")


def _choice(given: dict[str, str], name: str, values: Sequence[Chosen]) -> Chosen:
    text = given.get(name, values[0]).lower()
    for value in values:
        if value == text:
            return value
    raise UsageError(f"option {name}: {text} is not one of {', '.join(values)}")


def _list_of(parse: Callable[[str], Value]) -> Callable[[str], tuple[Value, ...]]:
    return lambda text: tuple(parse(part.strip()) for part in text.split(",") if part.strip())


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
