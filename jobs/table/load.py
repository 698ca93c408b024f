"""``load``: new records of the commit log -> rows of the Delta table ``messages``, exactly once.

    where did the last load end? -> scan from there, prove the chain -> rows of the proven ranges -> one commit

Rows and their end are one commit, which fails if another was faster (``jobs.table.commits``).
"""

from __future__ import annotations

import argparse
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from jobs.contract import option_values
from jobs.contract.options import LoadOptions
from jobs.contract.report import Report
from jobs.contract.reporter import Reporter
from jobs.log.log_scan import LogRange, LogReading
from jobs.log.opening import OpenedStore, open_store, read_log
from jobs.log.restored_log import filled
from jobs.spark import session
from jobs.spark.runner import Runner
from jobs.table import commits, messages_table
from jobs.table.commits import BrokerRows, BrokerState, Commit, commits_back_from, taken_away
from jobs.table.consumer_offsets import add_snapshot
from jobs.table.continuation import begins_inside_a_record, newest_row_in_log, tail_of
from jobs.table.deliveries import check_delay_levels, shortest_delays, too_early
from jobs.table.drafts import Drafts, remove_files_of
from jobs.table.load_window import Row, Window, end_of, nothing_follows, plan_window, split_size_for
from jobs.table.messages_table import MessagesTable
from jobs.table.salvaged_rows import doubt_of, first_doubt, replace_rows
from storeformat import __version__
from storeformat.errors import Refused, StoreFormatError, UsageError
from storeformat.log.segments import segment_at
from storeformat.storage import locations, outputs
from storeformat.store.delay_levels import shown_delays
from udfs.table import schemas
from udfs.table.parquet_files import WriteFiles, WrittenFile
from udfs.table.proven_ranges import ReadRanges, proven_ranges
from udfs.table.rows import NO_DOUBT, RowRules

_ATTEMPTS = 5
_PAUSE = 0.5
_ROWS_COMPARED = 10_000


def run(options: LoadOptions, reporter: Reporter) -> Report:
    """Load what is new in the log."""
    try:  # later than the command line is read: what knows time zones may have to be installed first
        option_values.time_zone(options.time_zone or "UTC")
    except argparse.ArgumentTypeError as error:
        raise UsageError(f"--time-zone {error}") from error
    store = open_store(options, needs_index_sizes=False, restores=True)
    shown = shown_delays(store.root, store.segments)
    store = replace(store, notes=(*store.notes, *check_delay_levels(store, options, shown)))
    reporter.note(*store.notes)
    path = locations.absolute(options.table)
    if outputs.lies_inside(path, store.root):
        raise Refused("the table must not lie inside the store", path=path)
    with (
        session.shared_spark(),
        filled(store, reporter) as whole,
    ):
        load = Load(whole, options, path, reporter, levels_shown=bool(shown))
        facts = load.run()
    if not options.dry_run:
        facts["consumer_offsets"], notes = add_snapshot(store, options, path)
        reporter.note(*notes)
    return reporter.report("load", **store.facts(), **facts)


class Load:
    """State of one run."""

    def __init__(
        self,
        store: OpenedStore,
        options: LoadOptions,
        path: str,
        reporter: Reporter,
        *,
        levels_shown: bool = True,
    ) -> None:
        self._store = store
        self._options = options
        self._path = path
        self._reporter = reporter
        self._run_id = uuid.uuid4().hex
        self._reading: LogReading | None = None
        self._drafts: Drafts | None = None
        self._commits_after: int | None = None
        self._levels_shown = levels_shown
        self._salvaged_from: int | None = None

    def run(self) -> dict[str, Any]:
        try:
            facts = self._with_attempts(self._attempt)
            return facts | self._sound_again(facts)
        except BaseException:
            if not self._may_be_committed():
                remove_files_of(self._run_id, self._path)
            raise
        finally:
            if self._drafts is not None:
                self._drafts.discard()

    def _may_be_committed(self) -> bool:
        """A commit that failed may still stand, unless the table has no newer version."""
        if self._commits_after is None:
            return False
        try:
            table = messages_table.open_table(self._path)
        except StoreFormatError:
            return True
        return table is None or table.version != self._commits_after

    def _with_attempts(self, do: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        for attempt in range(_ATTEMPTS):
            try:
                return do()
            except commits.Overtaken as overtaken:  # noqa: PERF203  (a retry)
                self._commits_after = None
                self._reporter.say(f"another load committed first, trying again ({overtaken})")
                time.sleep(attempt * _PAUSE)
        raise Refused(
            "other loads committed first, again and again",
            path=self._path,
            advice="if none is at work, one was killed as it made the table: remove the directory with its _delta_log",
        )

    def _attempt(self) -> dict[str, Any]:
        options = self._options
        table = messages_table.open_table(self._path, writes=True)
        zone = messages_table.refuse_time_zone(table, options.time_zone) if table else options.time_zone or "UTC"
        state = table.state(options.cluster, options.broker) if table else None
        self._salvaged_from = state.salvaged_from if state else None
        self._check_topics(state)
        self._check_not_restored(table, state)
        known_end = self._reading.end if self._reading else options.until_offset
        if state and known_end is not None and known_end <= state.end and options.repair_from is None:
            return self._facts(None, table, Window(state.end, state.end), state.end)
        window = plan_window(options, self._store.segments, state, self._newest_row(table, state))
        is_new = table is None
        if table is None and not options.dry_run:  # tasks write into its directory
            table = messages_table.create_table(self._path, time_zone=zone, bodies=options.with_bodies)
        elif table is not None and not options.dry_run and not nothing_follows(self._store.segments, window):
            table = self._with_columns(table)
        reading = self._read(table, window, zone)
        self._check_continues(None if is_new else table, window, reading)
        if table is None or options.dry_run or (reading.end == window.rows_from and not window.repair and not is_new):
            return self._facts(None, None if is_new else table, window, reading.end)
        return self._facts(self._commit(table, state, window, reading, zone), table, window, reading.end)

    def _with_columns(self, table: MessagesTable) -> MessagesTable:
        whole, missing = table.with_columns(schemas.messages(bodies=self._options.with_bodies).names)
        for name in missing:
            self._reporter.note(f"the table got the column {name}, which older rows do not have")
        return whole

    def _sound_again(self, facts: dict[str, Any]) -> dict[str, Any]:
        """Report facts on rows that were read past damage, once the log is sound again."""
        options, begin = self._options, self._salvaged_from
        if begin is None or options.dry_run or options.repair_from is not None or facts["damaged"]:
            return {}
        begin = max(begin, self._store.segments[0].base)
        scan_from = segment_at(self._store.segments, begin)
        if scan_from is None:
            return {}
        with session.runner_for(self._reporter, "check", self._store.segments[-1].end - begin) as runner:
            reading = read_log(self._store, options, runner, begin=scan_from.base, on_damage="salvage")
        if reading.damaged_places or (reading.salvaged and reading.losses.strays) or reading.end < facts["to_offset"]:
            return {}
        self._reporter.warn(
            f"rows from offset {begin} on were read past damage of the log, which is sound again: "
            f"--repair-from {begin} loads them again"
        )
        return {"differs": True, "repair_from": begin}

    def _newest_row(self, table: MessagesTable | None, state: BrokerState | None) -> Row | None:
        options = self._options
        if table is None or state is None:
            return None
        below = state.end if options.repair_from is None else options.repair_from
        return next(iter(table.last_rows(options.cluster, options.broker, below, 1)), None)

    def _check_not_restored(self, table: MessagesTable | None, state: BrokerState | None) -> None:
        options = self._options
        if table is None or state is None or not state.recorded:
            return
        transaction = f"{commits.application_prefix(options.cluster, options.broker)}{state.epoch}"
        with commits.understanding(self._path):
            taken = taken_away(commits_back_from(self._path, table.version), transaction, state.end)
        if taken is None:
            return
        version, operation = taken
        last = next(iter(table.last_rows(options.cluster, options.broker, state.end, 1)), None)
        log_begin = self._store.segments[0].base
        reached = log_begin if operation == "FSCK" else max(end_of(last) or 0, log_begin)
        if options.repair_from is None or options.repair_from > reached:
            raise Refused(
                f"{operation} of the table (its version {version}) took rows away that were loaded",
                path=self._path, found=reached, expected=state.end,
                advice=f"--repair-from {reached} loads them again",
            )  # fmt: skip

    def _check_continues(self, table: MessagesTable | None, window: Window, reading: LogReading) -> None:
        last, options = window.last, self._options
        if table is None:
            return
        is_another = window.tail is not None and tail_of(self._store.segments, window.rows_from) != window.tail
        if not is_another and (last is None or newest_row_in_log(self._store, [last], reading)):
            agreeing: int | None = min(reading.end, window.rows_from)
            if agreeing == window.rows_from:
                if not begins_inside_a_record(self._store, window, reading):
                    return
                agreeing = end_of(last)
        else:
            rows = table.last_rows(options.cluster, options.broker, window.rows_from, _ROWS_COMPARED)
            agreeing = end_of(newest_row_in_log(self._store, rows, reading))
        if agreeing is None:
            advice = "none of the newest rows is in this log: another store needs another --broker (or --repair-from N)"
        else:
            advice = f"log and table agree up to {agreeing}: --repair-from {agreeing} replaces what was loaded after it"
        raise Refused(
            "the log is not the one that was loaded: it is another store's, or it was truncated and rewritten",
            path=self._store.root, offset=last["commit_log_offset"] if last else reading.end, advice=advice,
        )  # fmt: skip

    def _read(self, table: MessagesTable | None, window: Window, zone: str) -> LogReading:
        """Read what is to be loaded, once for all attempts; tasks write drafts of the rows."""
        if self._reading is None:
            options, begin = self._options, window.scan_from
            size = sum(segment.size for segment in self._store.segments if segment.end > begin)
            if nothing_follows(self._store.segments, window):  # then Spark's start would be all of the work
                split_size = split_size_for(size, 1)
                with self._reporter.progress("scan", size):
                    self._reading = read_log(self._store, options, Runner(), split_size=split_size, begin=begin)
                return self._reading
            with session.runner_for(self._reporter, "scan", size) as tasks:
                split_size = split_size_for(size, tasks.parallelism)
                runner: Runner = tasks
                if table is not None and not window.repair and not options.dry_run:
                    read = row_reader(self._store, options, None, window.rows_from, zone)
                    runner = self._drafts = Drafts(runner, WriteFiles.of(tasks.setting, table.path, read, self._run_id))
                self._reading = read_log(self._store, options, runner, split_size=split_size, begin=begin)
        return self._reading

    def _check_topics(self, state: BrokerState | None) -> None:
        """Require the topics of earlier loads: one offset records their progress."""
        options, topics = self._options, self._topics
        if options.repair_from is not None:
            if topics:
                raise UsageError("--repair-from replaces the rows of all topics: leave out --topic")
        elif state is not None and state.topics != topics:
            again = f"--repair-from {self._store.segments[0].base} loads all topics again"
            raise Refused(
                "this broker was loaded with other topics: their rows could not be told from those that are missing",
                path=self._path,
                found=", ".join(topics) or "all topics", expected=", ".join(state.topics) or "all topics",
                advice=f"another --broker (or table) takes them; {again}",
            )  # fmt: skip

    @property
    def _topics(self) -> tuple[str, ...]:
        return tuple(sorted(set(map(str, self._options.topics))))

    def _commit(
        self, table: MessagesTable, state: BrokerState | None, window: Window, reading: LogReading, zone: str
    ) -> Commit | None:
        options = self._options
        read = row_reader(self._store, options, reading, window.rows_from, zone)
        what = BrokerRows(
            options.cluster, options.broker, begin=window.rows_from, done=reading.end, epoch=window.epoch,
            metadata=self._metadata(window, reading.end, reading.damaged),
            salvaged_from=first_doubt(read.rules.doubt, window.rows_from),
            tail=tail_of(self._store.segments, reading.end),
        )  # fmt: skip
        size = reading.end - window.rows_from
        with session.runner_for(self._reporter, "load", size) as runner:
            held: list[WrittenFile] = []
            missing = read.ranges
            if self._drafts:
                held, missing = self._drafts.take(read.ranges, read.from_offset, read.rules.doubt)
            write = WriteFiles.of(runner.setting, table.path, read, self._run_id)
            written = held + runner.map("write rows", write, missing)
        self._commits_after = table.version
        if not window.repair:
            return table.append(written, what, state, self._topics)
        parts = table.files_with(what.cluster, what.broker, what.begin)
        return replace_rows(table, written, parts, what, state, self._topics, write)

    def _metadata(self, window: Window, end: int, damaged: Sequence[LogRange]) -> dict[str, Any]:
        options = self._options
        return {
            "program": commits.APPLICATION,
            "version": __version__,
            "run": self._run_id,
            "cluster": options.cluster,
            "broker": options.broker,
            "store": locations.without_secrets(self._store.root),
            "from_offset": window.rows_from,
            "to_offset": end,
            "broker_version": self._store.rules.version,
            "on_damage": options.on_damage,
            "gap": window.gap,
            "repair": window.repair,
            "topics": self._topics,
            "damaged_ranges": [item.as_row() for item in damaged[:100]],
        }

    def _facts(self, commit: Commit | None, table: MessagesTable | None, window: Window, end: int) -> dict[str, Any]:
        reading = self._reading
        damaged = bool(reading and reading.damaged_places)
        if self._topics and commit and not commit.rows and reading and reading.end > window.rows_from:
            self._reporter.warn(f"no new message is of {', '.join(self._topics)}")  # a name mistyped?
        self._warn_of_deliveries(commit, table, window)
        return {
            "damaged": damaged,
            **(reading.facts() if reading else {"log_begin": self._store.segments[0].base, "log_end": end}),
            "table": self._path,
            "rows": commit.rows if commit else 0,
            "version": commit.version if commit else table.version if table else None,
            "from_offset": window.rows_from,
            "to_offset": end,
            "skipped": commit is None and not self._options.dry_run,
            "gap": {"begin": window.gap[0], "end": window.gap[1]} if window.gap else None,
            "dry_run": self._options.dry_run,
        }

    def _warn_of_deliveries(self, commit: Commit | None, table: MessagesTable | None, window: Window) -> None:
        options = self._options
        if self._levels_shown or table is None or not (commit and commit.rows and commit.delayed):
            return
        newest = messages_table.open_table(self._path) or table
        shortest = shortest_delays(newest, options.cluster, options.broker, window.rows_from)
        early = too_early(shortest, self._store.dispatch_rules().delay_millis)
        if early:
            levels = ", ".join(f"level {level}: {shortest[level]:,} ms" for level in early)
            self._reporter.warn(
                f"delayed messages came before they were due ({levels}): messageDelayLevel is not the broker's; "
                f"--broker-conf FILE --repair-from {window.rows_from} loads them with the right due times"
            )


def row_reader(
    store: OpenedStore, options: LoadOptions, reading: LogReading | None, rows_from: int, zone: str
) -> ReadRanges:
    """Converter from proven ranges (none without a reading) to rows."""
    rules = RowRules(
        store.dispatch_rules(), store.rules.split_parser, tuple(schemas.messages(bodies=options.with_bodies).names),
        zone, options.cluster, options.broker, doubt=doubt_of(reading) if reading else NO_DOUBT,
    )  # fmt: skip
    return ReadRanges(proven_ranges(reading.scans, rows_from) if reading else (), rules, rows_from, options.topics)
