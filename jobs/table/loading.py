"""What is new in the commit log -> rows of the Delta table ``messages``, exactly once.

    where did the last load end? -> scan from there, prove the chain -> rows of the proven ranges -> one commit

A load may run twice, beside another one, or be killed: the table holds each record once, because rows and how far they
reach are one commit, which fails when another one was faster (``jobs.table.commits``). The log may belong to a running
broker: its end is fixed by the scan.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from jobs.config import LoadOptions
from jobs.log.log_scan import LogReading
from jobs.log.opening import OpenedStore
from jobs.log.store_log import read_log, selection_of
from jobs.reporting import Reporter
from jobs.spark import session, transforms
from jobs.spark.runner import SparkRunner
from jobs.table import commits, messages_table
from storeformat import __version__
from storeformat.errors import Refused, UsageError
from storeformat.log.block_window import BlockWindow
from storeformat.log.chain_walk import chain_from
from storeformat.log.segments import Segment, segment_at
from storeformat.record.decode import DecodeRules, RecordBlock
from storeformat.storage import files
from udfs.table import schemas
from udfs.table.proven_ranges import ReadRanges, proven_blocks
from udfs.table.rows import RowRules, record_batch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Row = dict[str, Any]

_ATTEMPTS = 5
_PAUSE = 0.5
_ROWS_COMPARED = 10_000
_TASKS_A_CORE = 4
_SMALLEST_SPLIT, _LARGEST_SPLIT = 64 << 20, 1 << 30


@dataclass(frozen=True)
class Window:
    """What a load reads and replaces.

    The scan begins at ``scan_from``, the first byte of a segment, and rows count from ``rows_from`` on. ``last`` is the
    newest row before them: the scan must meet its record. ``gap`` are the bytes that were never loaded and are no more.
    """

    scan_from: int
    rows_from: int
    epoch: int = 0
    last: Row | None = None
    gap: tuple[int, int] | None = None
    repair: bool = False

    @property
    def replace_from(self) -> int:
        """The offset from which on rows are replaced: of a repair also those whose bytes are no more."""
        return self.gap[0] if self.repair and self.gap else self.rows_from


def plan_window(
    options: LoadOptions, segments: Sequence[Segment], state: commits.BrokerState | None, last: Row | None
) -> Window:
    """Returns what to load next; ``last`` is the newest row below ``repair_from`` or the end of the last load."""
    log_begin = segments[0].base
    if state is None:
        if options.repair_from is not None:
            raise UsageError("--repair-from: nothing of this broker was loaded yet")
        return Window(log_begin, log_begin)
    begin, epoch, repair = state.end, state.epoch, False
    if options.repair_from is not None:
        if options.repair_from > begin:
            raise UsageError(f"--repair-from {options.repair_from}: what was loaded ends at {begin} already")
        begin, epoch, repair = options.repair_from, epoch + 1, True
    if begin < log_begin:
        if not options.allow_gap:
            raise Refused(
                "the log begins behind the end of the last load: retention deleted records that were never loaded",
                found=log_begin, expected=begin, advice="--allow-gap goes on and records the gap",
            )  # fmt: skip
        return Window(log_begin, log_begin, epoch, gap=(begin, log_begin), repair=repair)
    if last is not None and last["commit_log_offset"] < log_begin:
        last = None  # its segment is gone, as it should be
    known = begin if last is None else last["commit_log_offset"]
    # From the first byte of its segment on: only the sizes tell a record of the log from one that was truncated away.
    base = (segment_at(segments, known) or segments[-1]).base
    return Window(base, begin, epoch, last, repair=repair)


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
        for attempt in range(_ATTEMPTS):
            try:
                return self._attempt()
            except commits.Overtaken as overtaken:  # noqa: PERF203  (a retry)
                self._reporter.note(f"another load was faster, looking again ({overtaken})")
                time.sleep(attempt * _PAUSE)
        raise Refused(
            "other loads were faster again and again",
            path=self._path,
            advice="if none is at work, one was killed as it made the table: remove the directory with its _delta_log",
        )

    def _attempt(self) -> dict[str, Any]:
        options = self._options
        table = messages_table.open_table(self._spark, self._path)
        zone = messages_table.refuse_time_zone(table, options.time_zone) if table else options.time_zone or "UTC"
        state = table.state(options.cluster, options.broker) if table else None
        self._check_topics(state)
        known_end = self._reading.end if self._reading else options.until_offset
        if state and known_end is not None and known_end <= state.end and options.repair_from is None:
            return self._facts(None, table, Window(state.end, state.end), state.end)
        window = plan_window(options, self._store.segments, state, self._newest_row(table, state))
        reading = self._read(window)
        self._check_continues(table, window, reading)
        if options.dry_run or (reading.end == window.rows_from and not window.repair and table):
            return self._facts(None, table, window, reading.end)
        if table is None:
            table = messages_table.create_table(self._spark, self._path, time_zone=zone, bodies=options.with_bodies)
        else:
            wanted = schemas.MESSAGES_WITH_BODY if options.with_bodies else schemas.MESSAGES
            for name in table.add_missing_columns(wanted.names):
                self._reporter.note(f"the table got the column {name}, which older rows do not have")
        return self._facts(self._commit(table, state, window, reading, zone), table, window, reading.end)

    def _newest_row(self, table: messages_table.MessagesTable | None, state: commits.BrokerState | None) -> Row | None:
        """Returns the newest row before the place where rows are to begin."""
        options = self._options
        if table is None or state is None:
            return None
        below = state.end if options.repair_from is None else options.repair_from
        return next(iter(table.last_rows(options.cluster, options.broker, below, 1)), None)

    def _check_continues(self, table: messages_table.MessagesTable | None, window: Window, reading: LogReading) -> None:
        """Raises Refused unless the log goes on from what was loaded, and says from where on a repair would help."""
        last, options = window.last, self._options
        agreeing: int | None
        if table is None:
            return
        if last is None or holds(self._store, [last], reading):
            agreeing = min(reading.end, window.rows_from)
            if agreeing == window.rows_from and not self._parts_a_record(window, reading):
                return
            if agreeing == window.rows_from:
                agreeing = last["commit_log_offset"] + last["size"] if last else None
        else:
            rows = table.last_rows(options.cluster, options.broker, window.rows_from, _ROWS_COMPARED)
            found = holds(self._store, rows, reading)
            agreeing = found["commit_log_offset"] + found["size"] if found else None
        if agreeing is None:
            advice = "none of the newest rows is in this log: another store needs another --broker (or --repair-from N)"
        else:
            advice = (
                f"log and table agree up to {agreeing}: --repair-from {agreeing} replaces what was loaded behind it"
            )
        raise Refused(
            "the log is not the one that was loaded: it is another store's, or it was truncated and rewritten",
            path=self._store.root, offset=last["commit_log_offset"] if last else reading.end, advice=advice,
        )  # fmt: skip

    def _parts_a_record(self, window: Window, reading: LogReading) -> bool:
        """Returns whether rows would begin in the midst of a record that the table does not have.

        Where only some topics were loaded, the newest row may lie far in front of the place where a log was rewritten.
        """
        last = window.last
        if last is not None and last["commit_log_offset"] + last["size"] >= window.rows_from:
            return False
        for _, blocks in _parts_with(self._store, reading, [window.rows_from - 1]):
            for block in blocks:
                inside = (block.offsets < window.rows_from) & (
                    block.offsets + block.heads.total_size > window.rows_from
                )
                if inside.any():
                    return True
                if block.offsets[-1] >= window.rows_from - 1:
                    break
        return False

    def _read(self, window: Window) -> LogReading:
        """Returns the proven reading of what is to be loaded; a second attempt needs no second one."""
        if self._reading is None:
            size = sum(segment.size for segment in self._store.segments if segment.end > window.scan_from)
            with (
                self._reporter.progress("scan", size) as progress,
                session.watching(self._spark.sparkContext, progress),
            ):
                context = self._spark.sparkContext
                split_size = split_size_for(size, context.defaultParallelism)
                runner, begin = SparkRunner(context), window.scan_from
                self._reading = read_log(self._store, self._options, runner, split_size=split_size, begin=begin)
        return self._reading

    def _check_topics(self, state: commits.BrokerState | None) -> None:
        """Raises unless the topics asked for are those of the loads before: one offset says how far they got."""
        options, topics = self._options, self._topics
        if options.repair_from is not None:
            if topics:
                raise UsageError("--repair-from replaces the rows of all topics: leave out --topic")
        elif state is not None and state.topics != topics:
            raise Refused(
                "this broker was loaded with other topics: their rows could not be told from those that are missing",
                path=self._path,
                found=", ".join(topics) or "all topics",
                expected=", ".join(state.topics) or "all topics",
                advice="another --broker (or table) takes them; "
                f"--repair-from {self._store.segments[0].base} loads all topics anew",
            )

    @property
    def _topics(self) -> tuple[str, ...]:
        """The topics asked for, as the command line writes them; empty: all."""
        named = {
            item.topic if item.queue_id is None else f"{item.topic}:{item.queue_id}" for item in self._options.topics
        }
        return tuple(sorted(named))

    def _commit(
        self,
        table: messages_table.MessagesTable,
        state: commits.BrokerState | None,
        window: Window,
        reading: LogReading,
        zone: str,
    ) -> commits.Commit | None:
        """Returns the commit of the window's rows: of files that tasks write, or, where rows are to be replaced or the
        table is not as plain as this program makes it, of what Delta's own writer makes of them.
        """
        options = self._options
        read = row_reader(self._store, options, reading, window.rows_from, zone)
        what = commits.BrokerRows(
            options.cluster,
            options.broker,
            begin=window.replace_from,
            end=None if window.repair else reading.end,
            done=reading.end,
            epoch=window.epoch,
            metadata=self._metadata(window, reading),
        )
        size = reading.end - window.rows_from
        with self._reporter.progress("load", size) as progress, session.watching(self._spark.sparkContext, progress):
            if not window.repair and table.takes_files():
                write = transforms.file_writer(self._spark, table.path, read)
                written = SparkRunner(self._spark.sparkContext).map("write rows", write, read.ranges)
                return table.append(written, what, state, self._topics)
            if self._topics:
                raise UsageError("--topic needs a table as `load` makes it: no column mapping, constraints or the like")
            self._spark.sparkContext.setJobDescription("write rows")
            return table.replace(transforms.message_rows(self._spark, read), what, bodies=options.with_bodies)

    def _metadata(self, window: Window, reading: LogReading) -> dict[str, Any]:
        """Returns what DESCRIBE HISTORY shows of this load."""
        options = self._options
        return {
            "program": commits.APPLICATION,
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
            "topics": self._topics,
            "damaged_ranges": [item.as_row() for item in reading.damaged[:100]],
        }

    def _facts(
        self, commit: commits.Commit | None, table: messages_table.MessagesTable | None, window: Window, end: int
    ) -> dict[str, Any]:
        reading = self._reading
        damaged = bool(reading and reading.damaged_places)
        return {
            "status": "damaged" if damaged else "ok",
            **(reading.facts() if reading else {"log_begin": self._store.segments[0].base, "log_end": end}),
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
            "notes": [*self._store.notes, *self._nothing_of_topics(commit, window)],
        }

    def _nothing_of_topics(self, commit: commits.Commit | None, window: Window) -> list[str]:
        """Returns a note where topics were asked for and none of the new messages is of them: a name mistyped?"""
        reading = self._reading
        if not (self._topics and commit and not commit.rows and reading and reading.end > window.rows_from):
            return []
        note = f"no new message is of {', '.join(self._topics)}"
        self._reporter.warn(note)
        return [note]


def split_size_for(size: int, cores: int) -> int:
    """Returns how much of the log a task takes, and a file of the table holds: of a small load so little that all cores
    have work to the end, of a large one a whole segment, so that files are few and large.
    """
    return max(min(size // (_TASKS_A_CORE * cores), _LARGEST_SPLIT), _SMALLEST_SPLIT)


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
        selection_of(options.topics),
    )


def holds(store: OpenedStore, rows: Sequence[Row], reading: LogReading) -> Row | None:
    """Returns the newest of some rows whose record is in the log, and is the same: the reading has proven it, or, in
    front of where that begins, the sizes lead to it.
    """
    wanted = {row["commit_log_offset"]: row for row in rows}
    for offsets, blocks in _parts_with(store, reading, sorted(wanted)):
        found = [row for row in _records_at(store, blocks, offsets) if row == wanted[row["commit_log_offset"]]]
        if found:
            return found[-1]
    return None


def _parts_with(
    store: OpenedStore, reading: LogReading, offsets: Sequence[int]
) -> Iterator[tuple[list[int], Iterator[RecordBlock]]]:
    """Yields each part of the log in which some of these offsets lie, the newest first: these, and its records."""
    rules = DecodeRules(as_broker=store.as_broker, properties=())
    for proven in reversed(transforms.proven_ranges(reading.scans)):
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
    """Returns the ``IDENTITY`` of those records that begin at some ascending offsets."""
    rules = RowRules(store.dispatch_rules(), store.rules.split_parser, columns=messages_table.IDENTITY)
    found: list[Row] = []
    for block in blocks:
        here = np.flatnonzero(np.isin(block.offsets, offsets))
        if here.size:
            found += record_batch(block.take(here), rules).to_pylist()
        if block.offsets[-1] >= offsets[-1]:
            break
    return found
