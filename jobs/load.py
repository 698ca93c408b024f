"""``load``: what is new in the commit log -> rows of the Delta table ``messages``, exactly once.

    where did the last load end? -> scan from there, prove the chain -> rows of the proven ranges -> one commit

A load may run twice, beside another one, or be killed: the table holds each record once, because range and rows are one
commit that replaces the range (``jobs.tables``). The log may belong to a running broker: its end is fixed by the scan.
"""

from __future__ import annotations

import time
import uuid
import zoneinfo
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jobs import session, tables, transforms
from jobs.config import LoadOptions
from jobs.logscan import DEFAULT_SPLIT_SIZE, LogReading, scan_log
from jobs.opening import OpenedStore, open_store
from jobs.reporting import Report, Reporter
from jobs.running import Runner, SparkRunner
from storeformat import __version__, files
from storeformat.commitlog import BlockWindow, ChainWalk, Segment, Split
from storeformat.errors import Refused, UsageError
from storeformat.records import DecodeRules
from udfs import schemas
from udfs.ranges import ReadRanges
from udfs.rows import RowRules, record_batch
from udfs.scan import ScanTask, Selection

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Row = dict[str, Any]

_ATTEMPTS = 5
_ROWS_COMPARED = 10_000


def run(options: LoadOptions, reporter: Reporter) -> Report:
    """Returns the report of one load; its rows are in the table when it returns."""
    begun = time.monotonic()
    _check_time_zone(options.time_zone)
    store = open_store(options)
    for note in store.notes:
        reporter.note(note)
    path = files.absolute(options.table)
    if (path + "/").startswith(files.join(store.root, "")):
        raise Refused("the table must not lie inside the store", path=path)
    with session.spark_session("rocketmq-store-spark load") as spark:
        load = Load(spark, store, options, path, reporter)
        facts = load.run()
    return Report("load", facts.pop("status"), store=store.root, **facts, seconds=round(time.monotonic() - begun, 3))


@dataclass(frozen=True)
class Window:
    """What a load reads and replaces.

    The scan begins at ``scan_from``: where a record is known to begin, None for the log's first byte. Rows count from
    ``rows_from`` on. ``gap`` are the bytes that were never loaded and are no more.
    """

    scan_from: int | None
    rows_from: int
    epoch: int = 0
    gap: tuple[int, int] | None = None
    repair: bool = False


def plan_window(
    options: LoadOptions,
    segments: Sequence[Segment],
    state: tables.BrokerState | None,
    last: Row | None,
    is_in_log: Callable[[Row], bool],
    agreeing_end: Callable[[], int | None],
) -> Window:
    """Returns what to load next, or raises Refused where the log is not the continuation of what was loaded.

    ``last`` is the last row below the place where rows begin (the end of the last load, or ``repair_from``), and
    ``is_in_log`` says whether the log has such a record; ``agreeing_end`` is where log and table still agree.
    """
    log_begin, log_limit = segments[0].base, segments[-1].end
    begin = state.end if state else log_begin
    epoch = state.epoch if state else 0
    if options.repair_from is not None:
        if options.repair_from > begin:
            raise UsageError(f"--repair-from {options.repair_from}: what was loaded ends at {begin} already")
        begin, epoch = options.repair_from, epoch + 1
    elif state is None:
        return Window(None, log_begin)
    repair = options.repair_from is not None
    if last is not None and last["commit_log_offset"] >= log_begin:
        if begin > log_limit or not is_in_log(last):
            raise _not_the_same_log(last, log_limit, agreeing_end())
        return Window(last["commit_log_offset"], begin, epoch, repair=repair)
    if begin < log_begin:
        if not options.allow_gap:
            raise Refused(
                "the log begins behind the end of the last load: retention deleted records that were never loaded",
                found=log_begin, expected=begin, advice="--allow-gap goes on and records the gap",
            )  # fmt: skip
        return Window(None, log_begin, epoch, (begin, log_begin), repair)
    if begin > log_limit:
        raise Refused("the log ends before the last load did", found=log_limit, expected=begin)
    base = next((segment.base for segment in segments if segment.base <= begin < segment.end), begin)
    return Window(base, begin, epoch, repair=repair)


def _not_the_same_log(last: Row, log_limit: int, agreeing: int | None) -> Refused:
    what = (
        "the log does not hold the record that was loaded last: it is another store's, or was truncated and rewritten"
    )
    if agreeing is None:
        advice = "none of the newest rows is in this log: give another --broker for another store, or --repair-from N"
    else:
        advice = f"log and table agree up to {agreeing}: --repair-from {agreeing} replaces what was loaded behind it"
    return Refused(what, offset=last["commit_log_offset"], advice=advice)


class Load:
    """One run: the store, the table, and what is found out on the way."""

    def __init__(
        self, spark: SparkSession, store: OpenedStore, options: LoadOptions, path: str, reporter: Reporter
    ) -> None:
        self._spark = spark
        self._store = store
        self._options = options
        self._path = path
        self._reporter = reporter
        self._run_id = uuid.uuid4().hex
        self._reading: LogReading | None = None

    def run(self) -> dict[str, Any]:
        """Returns the facts of the report."""
        for _ in range(_ATTEMPTS):
            try:
                return self._attempt()
            except tables.Overtaken as overtaken:  # noqa: PERF203  (a retry)
                self._reporter.note(f"another load was faster, looking again ({overtaken})")
        raise Refused("other loads of this broker were committed again and again", path=self._path)

    def _attempt(self) -> dict[str, Any]:
        options = self._options
        table = tables.open_table(self._spark, self._path)
        zone = tables.refuse_time_zone(table, options.time_zone) if table else options.time_zone or "UTC"
        state = table.state(options.cluster, options.broker) if table else None
        if state and options.until_offset is not None and options.until_offset <= state.end and not self._repairs:
            return self._facts(None, table, Window(None, state.end), state.end)
        window = self._window(table, state)
        reading = self._read(window)
        if reading.end < window.rows_from:
            raise Refused(
                "the log ends before the last load did", found=reading.end, expected=window.rows_from,
                advice=f"was it truncated? --repair-from {reading.end} takes back what was loaded behind its end",
            )  # fmt: skip
        if options.dry_run or (reading.end == window.rows_from and not window.repair and table):
            return self._facts(None, table, window, reading.end)
        if table is None:
            table = tables.create_table(self._spark, self._path, time_zone=zone, bodies=options.with_bodies)
        else:
            wanted = schemas.MESSAGES_WITH_BODY if options.with_bodies else schemas.MESSAGES
            for name in table.add_missing_columns(wanted.names):
                self._reporter.note(f"the table got the column {name}, which older rows do not have")
        return self._facts(self._commit(table, window, reading, zone), table, window, reading.end)

    @property
    def _repairs(self) -> bool:
        return self._options.repair_from is not None

    def _window(self, table: tables.MessagesTable | None, state: tables.BrokerState | None) -> Window:
        options, store = self._options, self._store
        below = options.repair_from if options.repair_from is not None else state.end if state else 0
        last: Row | None = None
        if table and state:
            last = next(iter(table.last_rows(options.cluster, options.broker, below, 1)), None)

        def agreeing_end() -> int | None:
            rows = table.last_rows(options.cluster, options.broker, below, _ROWS_COMPARED) if table else []
            return next((row["commit_log_offset"] + row["size"] for row in rows if is_in_log(store, row)), None)

        return plan_window(options, store.segments, state, last, lambda row: is_in_log(store, row), agreeing_end)

    def _read(self, window: Window) -> LogReading:
        """Returns the proven reading of what is to be loaded; a second attempt needs no second one."""
        if self._reading is None:
            size = sum(segment.size for segment in self._store.segments if segment.end > (window.scan_from or 0))
            with (
                self._reporter.progress("scan", size) as progress,
                session.watching(self._spark.sparkContext, progress),
            ):
                self._reading = scan(SparkRunner(self._spark.sparkContext), self._store, self._options, window)
        return self._reading

    def _commit(
        self, table: tables.MessagesTable, window: Window, reading: LogReading, zone: str
    ) -> tables.Commit | None:
        options = self._options
        read = row_reader(self._store, options, reading, window.rows_from, zone)
        what = tables.Replacement(
            options.cluster,
            options.broker,
            begin=window.rows_from,
            end=None if window.repair else reading.end,
            done=reading.end,
            epoch=window.epoch,
            metadata=self._metadata(window, reading),
        )
        size = reading.end - window.rows_from
        with self._reporter.progress("load", size) as progress, session.watching(self._spark.sparkContext, progress):
            self._spark.sparkContext.setJobDescription("write rows")
            return table.replace(transforms.message_rows(self._spark, read), what, bodies=options.with_bodies)

    def _metadata(self, window: Window, reading: LogReading) -> dict[str, Any]:
        """Returns what DESCRIBE HISTORY shows of this load."""
        options = self._options
        return {
            "program": tables.APPLICATION,
            "version": __version__,
            "run": self._run_id,
            "cluster": options.cluster,
            "broker": options.broker,
            "store": self._store.root,
            "from_offset": window.rows_from,
            "to_offset": reading.end,
            "broker_version": self._store.rules.version,
            "on_damage": options.on_damage,
            "gap": window.gap,
            "repair": window.repair,
            "topics": [
                item.topic if item.queue_id is None else f"{item.topic}:{item.queue_id}" for item in options.topics
            ],
            "damaged_ranges": [item.as_row() for item in reading.damaged[:100]],
        }

    def _facts(
        self, commit: tables.Commit | None, table: tables.MessagesTable | None, window: Window, end: int
    ) -> dict[str, Any]:
        reading = self._reading
        damaged = bool(reading and reading.damaged)
        return {
            "status": "damaged" if damaged else "ok",
            **(reading.facts() if reading else {"log_begin": self._store.segments[0].base, "log_end": end}),
            "lost_messages": None,
            "table": self._path,
            "rows": commit.rows if commit else 0,
            "version": commit.version if commit else table.version() if table else None,
            "from_offset": window.rows_from,
            "to_offset": end,
            "skipped": commit is None and not self._options.dry_run,
            "gap": {"begin": window.gap[0], "end": window.gap[1]} if window.gap else None,
            "dry_run": self._options.dry_run,
            "broker_version": self._store.rules.version,
            "broker_version_reason": self._store.version_reason,
            "notes": list(self._store.notes),
        }


def scan(runner: Runner, store: OpenedStore, options: LoadOptions, window: Window) -> LogReading:
    """Returns the proven reading of the log from where the window says."""
    task = ScanTask("", store.decode_rules(), store.dispatch_rules(), with_entries=False)
    return scan_log(
        runner,
        store.segments,
        task,
        split_size=options.split_size or DEFAULT_SPLIT_SIZE,
        until=options.until_offset,
        begin=window.scan_from,
        on_damage=options.on_damage,
    )


def row_reader(store: OpenedStore, options: LoadOptions, reading: LogReading, rows_from: int, zone: str) -> ReadRanges:
    """Returns what turns the proven ranges of a reading into rows."""
    columns = schemas.MESSAGES_WITH_BODY if options.with_bodies else schemas.MESSAGES
    rules = RowRules(
        store.dispatch_rules(), store.rules.split_parser, tuple(columns.names), zone, options.cluster, options.broker
    )
    return ReadRanges(
        transforms.proven_ranges(reading.scans, rows_from),
        rules,
        rows_from,
        Selection(tuple((item.topic, item.queue_id) for item in options.topics)),
    )


def is_in_log(store: OpenedStore, row: Row) -> bool:
    """Returns whether the log holds, at the row's offset, the record that the row was made of."""
    offset = row["commit_log_offset"]
    segment = next((segment for segment in store.segments if segment.base <= offset < segment.end), None)
    if segment is None:
        return False
    rules = RowRules(store.dispatch_rules(), store.rules.split_parser, columns=tables.IDENTITY)
    with files.RangeReader(segment.path) as reader:
        split = Split(0, segment, offset, offset + 1, segment.end, offset)
        for block in ChainWalk(BlockWindow(reader, segment), split, offset, DecodeRules(False, False, ()), row["size"]):
            found: list[Row] = record_batch(block, rules).to_pylist()
            return found == [{name: row[name] for name in tables.IDENTITY}]
    return False


def _check_time_zone(zone: str | None) -> None:
    try:
        zoneinfo.ZoneInfo(zone or "UTC")
    except (ValueError, zoneinfo.ZoneInfoNotFoundError) as error:
        raise UsageError(f"--time-zone {zone}: no such time zone") from error
