"""Proven ranges of the commit log -> Parquet files of the table ``messages``, inside a Spark task.

A task writes files in the table's directory and returns one row a file for Delta's log. No message passes through the
JVM, which costs several times as much a row. The driver's commit (``jobs.table.messages_table``) adds the files to the
table; leftovers of a killed task are in no version, and VACUUM removes them.

A ``DraftTask`` writes while it proves its split: the driver judges the chain through all splits, commits the files of
proven ones, and removes the others (``jobs.table.commits``).

=====================  ============================================================================================
path                   ``store_date=2026-11-21/part-<range>-<run>-<random>.<codec>.parquet``, much as Spark names files
columns                those of the table but ``store_date``, which the directory's name holds; times in microseconds
row groups             one a sorted chunk of ``ReadRanges`` and date
statistics             Delta's JSON: rows, NULLs, smallest and largest value of the columns that filters use; texts are
                       cut to 32 characters, and a cut largest one is raised so that it stays one
=====================  ============================================================================================
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from itertools import pairwise
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.parquet as pq

from storeformat.errors import TotalsDisagree
from storeformat.log.segments import Split
from storeformat.message import SCHEDULE_TOPIC
from storeformat.record.decode import RecordBlock
from storeformat.storage import files, locations
from udfs.log.scan import ScanTask, SplitScan, scan_split
from udfs.table import schemas
from udfs.table.ordered_rows import OrderedRows
from udfs.table.proven_ranges import ProvenRange, ReadRanges


@dataclass(frozen=True)
class TableFile:
    """One file: ``name`` in Delta's log (URL-encoded), path, partition ``values``, extreme commit-log offsets."""

    name: str
    path: str
    size: int
    values: Mapping[str, Any]
    least: int | None = None
    largest: int | None = None


def dataset_of(found: Sequence[TableFile], schema: pa.Schema) -> pads.FileSystemDataset:
    """Rows of files; missing columns are NULL. 96-bit times are read as microseconds, for their whole range."""
    form = pads.ParquetFileFormat(read_options=pads.ParquetReadOptions(coerce_int96_timestamp_unit="us"))
    fragments = []
    for file in found:
        filesystem, inner = files.resolve(file.path)
        fragments.append(form.make_fragment(inner, filesystem, _all_rows_have(file.values, schema)))
    return pads.FileSystemDataset(fragments, schema, form)


def _all_rows_have(values: Mapping[str, Any], schema: pa.Schema) -> pc.Expression:
    condition = pc.scalar(True)
    for name, value in values.items():
        column = pc.field(name)
        condition &= column.is_null() if value is None else column == pa.scalar(value, schema.field(name).type)
    return condition


@dataclass(frozen=True)
class ReadFiles:
    """A mapper from file numbers to rows, for ``mapInArrow``."""

    files: tuple[TableFile, ...]
    schema: pa.Schema

    def __call__(self, numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from dataset_of([self.files[number]], self.schema).to_batches()


PARTITION = "store_date"
_CODECS = {"uncompressed": "none", "lz4_raw": "lz4"}  # Spark's names of codecs with another name in pyarrow
NO_DATE = "__HIVE_DEFAULT_PARTITION__"
_STATISTICS_LENGTH = 32
_ABOVE_ALL = "\U0010ffff"
_MOST_OPEN = 50
_TEXTS = ("cluster", "broker", "topic", "tags", "uniq_key")
_LONGEST = 4096  # bytes of a text up to which Parquet's writer gives extremes
Extremes = Mapping[tuple[int, str], Mapping[str, Any]]
"""``min`` and ``max`` of a column, by row group number and column name."""
_EPOCH = date(1970, 1, 1)
_PLAIN = (
    "commit_log_offset", "queue_offset", "uniq_key", "offset_msg_id", "body_crc", "body", "properties.key_value.value",
)  # fmt: skip
"""Columns of mostly distinct values: a dictionary attempt costs time and saves nothing."""

_NOT_COMPARED = ("offset_msg_id", "body", "keys.list.element", "properties.key_value.key", "properties.key_value.value")
"""Columns without statistics: no filter uses them."""


@dataclass(frozen=True)
class WrittenFile:
    """A finished file: path in the table (needs no escapes), partition (None: no date), rows, bytes, Delta's
    statistics. ``delayed``: it may hold a message that waits for its time.
    """

    path: str
    store_date: str | None
    rows: int
    size: int
    statistics: str
    delayed: bool = False


@dataclass(frozen=True)
class WriteFiles:
    """A mapper from ranges to the files of their rows, below ``table``; ``codec`` is pyarrow's name."""

    table: str
    read: ReadRanges
    codec: str
    run: str = field(default_factory=lambda: uuid.uuid4().hex)  # part of all file names

    @classmethod
    def of(cls, setting: Callable[[str, str], str], table: str, read: ReadRanges, run: str) -> WriteFiles:
        """From Spark's settings; the default codec is zstd."""
        codec = setting("spark.sql.parquet.compression.codec", "zstd")
        encoded = replace(read, rules=replace(read.rules, encoded=True), ranges=())
        return cls(table, encoded, _CODECS.get(codec.lower(), codec), run)

    def __call__(self, ranges: Iterable[ProvenRange]) -> Iterator[WrittenFile]:
        for wanted in ranges:
            with ExitStack() as streams:
                files_of_range = RangeFiles(self, wanted.split.number, streams)
                for chunk in self.read.chunks(wanted):
                    files_of_range.write(chunk)
                finished = files_of_range.finish()
            yield from finished


class RangeFiles:
    """The files of one range, one a date. If ``streams`` fails, it removes them."""

    def __init__(self, rules: WriteFiles, number: int, streams: ExitStack) -> None:
        self._rules = rules
        self._number = number
        self._streams = streams
        self._rows = OrderedRows(rules.read.rules)
        self._done: list[WrittenFile] = []
        self._parts: dict[int | None, _Part] = {}
        self.seen = 0  # records in blocks, wanted or not, except foreign ones
        self._wanted = self._written = 0

    def add(self, block: RecordBlock) -> None:
        """Add the wanted records of a block."""
        wanted = self._rules.read.selected(block)
        self.seen += int(np.count_nonzero(~block.foreign))
        self._wanted += int(np.count_nonzero(~wanted.foreign))
        self._rows.add(wanted)
        if self._rows.is_full:
            self.write(self._rows.chunk())

    def write(self, chunk: pa.Table) -> None:
        """Write sorted rows: a row group of each date."""
        for day, rows in by_date(chunk):
            self._written += len(rows)
            if day not in self._parts:
                if len(self._parts) == _MOST_OPEN:
                    self._close()
                rules = self._rules
                name = f"part-{self._number:05d}-{rules.run}-{uuid.uuid4().hex[:16]}.{rules.codec.lower()}.parquet"
                self._parts[day] = _Part(self._streams, rules.table, day, name, rows.schema, rules.codec)
            self._parts[day].write(rows)

    def finish(self) -> list[WrittenFile]:
        """Finish the files. Raises TotalsDisagree if a record was not written."""
        if self._rows.rows:
            self.write(self._rows.chunk())
        self._close()
        if self._wanted and self._wanted != self._written:
            raise TotalsDisagree("files of rows lack records", found=self._written, expected=self._wanted)
        return self._done

    def _close(self) -> None:
        self._done += [part.finish() for part in self._parts.values()]
        self._parts = {}


class _Part:
    """One file being written. If its task fails, ``streams`` removes it, even if finished."""

    def __init__(
        self, streams: ExitStack, table: str, day: int | None, name: str, schema: pa.Schema, codec: str
    ) -> None:
        self._date = None if day is None else (_EPOCH + timedelta(days=day)).isoformat()
        self._path = f"{PARTITION}={self._date or NO_DATE}/{name}"
        self._whole_path = locations.join(table, self._path)
        self._stream = streams.enter_context(files.new_stream(self._whole_path))
        self._metadata: list[pq.FileMetaData] = []
        self._delayed = False
        self._groups = 0
        self._extremes: dict[tuple[int, str], Mapping[str, Any]] = {}
        self._writer = pq.ParquetWriter(
            self._stream,
            schema,
            compression=codec,
            use_dictionary=[name for name in _leaves(schema) if name not in _PLAIN],
            write_statistics=[name for name in _leaves(schema) if name not in _NOT_COMPARED],
            store_schema=False,
            write_page_index=True,
            metadata_collector=self._metadata,
        )
        streams.callback(self._end)

    def _end(self) -> None:
        """Close the writer before its stream: an unfinished one would write when collected."""
        with suppress(OSError, pa.ArrowException, RuntimeError):  # the last where the metadata could not be written
            self._writer.close()

    def write(self, rows: pa.Table) -> None:
        self._delayed |= SCHEDULE_TOPIC in distinct_texts(rows["topic"]).unique().to_pylist()
        for name in _TEXTS:
            if (pc.max(pc.binary_length(distinct_texts(rows[name]))).as_py() or 0) > _LONGEST:
                self._extremes[self._groups, name] = pc.min_max(rows[name].cast(pa.string())).as_py()
        self._groups += 1
        with files.writing(self._whole_path):
            self._writer.write_table(rows, row_group_size=rows.num_rows)

    def finish(self) -> WrittenFile:
        with files.writing(self._whole_path):
            self._writer.close()
            size = self._stream.tell()
            self._stream.close()
        (metadata,) = self._metadata
        statistics = file_statistics(metadata, schemas.STATISTICS_COLUMNS, self._extremes)
        found = json.dumps(statistics, ensure_ascii=False)  # arrow-rs joins no surrogates
        return WrittenFile(self._path, self._date, metadata.num_rows, size, found, self._delayed)


def distinct_texts(column: pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Texts of a column; of a dictionary each once."""
    return column.unify_dictionaries().chunk(0).dictionary if pa.types.is_dictionary(column.type) else column


def by_date(chunk: pa.Table) -> Iterator[tuple[int | None, pa.Table]]:
    """Rows of each ``store_date`` (days since 1970, None without), less that column. A chunk is sorted by date."""
    dates = chunk.column(PARTITION).combine_chunks()
    rows = chunk.drop_columns([PARTITION])
    absent = np.asarray(dates.is_null())
    days = np.asarray(dates.cast(pa.int32()).fill_null(0))
    changes = np.flatnonzero((days[1:] != days[:-1]) | (absent[1:] != absent[:-1])) + 1
    edges = [0, *changes.tolist(), len(days)] if len(days) else []
    for begin, end in pairwise(edges):
        yield None if absent[begin] else int(days[begin]), rows.slice(begin, end - begin)


def _leaves(schema: pa.Schema) -> list[str]:
    """Parquet's names of the leaf columns."""
    names = []
    for column in schema:
        if pa.types.is_map(column.type):
            names += [f"{column.name}.key_value.key", f"{column.name}.key_value.value"]
        else:
            names.append(f"{column.name}.list.element" if pa.types.is_list(column.type) else column.name)
    return names


def file_statistics(
    metadata: pq.FileMetaData, columns: tuple[str, ...], extremes: Extremes = MappingProxyType({})
) -> dict[str, Any]:
    """Statistics of a file for Delta's log, as Delta's own writer makes them. ``extremes``: of row groups where the
    footer has none because a text is too long; without them delta-rs' filters skip the file.
    """
    smallest: dict[str, Any] = {}
    largest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    places = {groups[0].column(at).path_in_schema: at for at in range(metadata.num_columns)} if groups else {}
    for name in columns:
        if name not in places:
            continue
        found = [group.column(places[name]).statistics for group in groups]
        if any(item is None or not item.has_null_count for item in found):
            continue
        nulls[name] = sum(item.null_count for item in found)
        ranges: list[Mapping[str, Any]] = [
            {"min": item.min, "max": item.max} if item.has_min_max else extremes.get((number, name), {})
            for number, (item, group) in enumerate(zip(found, groups, strict=True))
            if item.null_count < group.num_rows
        ]
        if ranges and all(ranges):
            least = min(one["min"] for one in ranges)
            smallest[name] = least[:_STATISTICS_LENGTH] if isinstance(least, str) else _plain(least)
            largest[name] = _largest(max(one["max"] for one in ranges))
    return {"numRecords": metadata.num_rows, "minValues": smallest, "maxValues": largest, "nullCount": nulls}


def _largest(value: Any) -> Any:
    if isinstance(value, str) and len(value) > _STATISTICS_LENGTH and value[_STATISTICS_LENGTH] != _ABOVE_ALL:
        return value[:_STATISTICS_LENGTH] + _ABOVE_ALL
    return _plain(value)


def _plain(value: Any) -> Any:
    is_time = isinstance(value, datetime)
    return value.isoformat(timespec="milliseconds").replace("+00:00", "Z") if is_time else value


@dataclass(frozen=True)
class DraftTask:
    """A mapper from splits to scans and files. Raises TotalsDisagree if a scan counts other records than rows."""

    scan: ScanTask
    write: WriteFiles

    def __call__(self, splits: Iterator[Split]) -> Iterator[tuple[SplitScan, list[WrittenFile]]]:
        for split in splits:
            with ExitStack() as streams:
                rows = RangeFiles(self.write, split.number, streams)
                scan = scan_split(split, self.scan, rows.add)
                finished = rows.finish()
                if rows.seen != scan.records:
                    raise TotalsDisagree(
                        "a scan counts other records than became rows", path=split.segment.path, found=rows.seen,
                        expected=scan.records,
                    )  # fmt: skip
            yield scan, finished
