"""``load``: new records of the commit log -> rows of the Delta table ``messages``, exactly once.

    where did the last load end? -> scan from there, prove the chain -> rows of the proven ranges -> one commit

Rows and their end are one commit, which fails if another was faster (``jobs.table.commits``).

Queues of SCHEDULE_TOPIC_XXXX show the broker's ``messageDelayLevel``: a unit's tags_code there is the delivery time,
STORETIMESTAMP + milliseconds of the level (``DefaultMessageStore#computeDeliverTimestamp``), and queue n is level n + 1
(``ScheduleMessageService#delayLevel2QueueId``).
"""

from __future__ import annotations

import argparse
import time
import uuid
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import deltalake
import numpy as np
import pyarrow as pa

from jobs.consumer_offsets.lag import lag_rows
from jobs.contract import options as read
from jobs.contract.options import LoadOptions
from jobs.contract.report import Report, Reporter, command, counted, job_command, program
from jobs.log.log_scan import LogRange, LogReading
from jobs.log.opening import OpenedStore, open_store, read_log
from jobs.log.restored_log import filled
from jobs.spark import session
from jobs.spark.runner import Runner
from jobs.table import commits, messages_table
from jobs.table.commits import BrokerRows, BrokerState, Commit, Drafts, code_of, loads_of, remove_files_of, taken_away
from jobs.table.messages_table import MessagesTable
from storeformat import __version__
from storeformat.arrays import Structs
from storeformat.errors import Refused, StoreFormatError, UsageError, WriteFailed, WrongSettings
from storeformat.log.chain_walk import BlockWindow, chain_from
from storeformat.log.segments import PLAIN, Segment, segment_at
from storeformat.message import BLANK_SIZE, CERTIFICATE_SIZE, SCHEDULE_TOPIC
from storeformat.record.decode import DecodeRules, RecordBlock, store_timestamp_at
from storeformat.storage import files, locations
from storeformat.store.config_files import BACKUP_SUFFIX, CONSUMER_OFFSETS, LMQ_OFFSETS
from storeformat.store.queue_ends import queue_ends, units_at
from udfs.log.log_copies import joined
from udfs.table import schemas
from udfs.table.parquet_files import WriteFiles, WrittenFile
from udfs.table.proven_ranges import ReadRanges, proven_blocks, proven_ranges
from udfs.table.rows import NO_DOUBT, Doubt, RowRules, record_batch

_ATTEMPTS = 5
_PAUSE = 0.5
_ROWS_COMPARED = 10_000

Row = dict[str, Any]

_TASKS_A_CORE = 4
_SMALLEST_SPLIT, _LARGEST_SPLIT = 64 << 20, 1 << 30

_TAIL = 4096

SUFFIX = "_consumer_offsets"
_SNAPSHOT_ATTEMPTS = 5
"""If several processes create the table at once, delta-rs lets all but one fail."""
SCHEMA = pa.schema([
    pa.field("cluster", pa.string()),
    pa.field("broker", pa.string()),
    pa.field("loaded_at", pa.timestamp("us", "UTC"), metadata={"comment": "When this snapshot was taken"}),
    pa.field("group", pa.string()),
    pa.field("topic", pa.string()),
    pa.field("queue_id", pa.int32()),
    pa.field("committed", pa.int64()),
    pa.field("queue_begin", pa.int64(), metadata={"comment": "First queue offset that the log still has"}),
    pa.field("queue_end", pa.int64()),
    pa.field("lag", pa.int64(), metadata={"comment": "Messages that can still be read"}),
    pa.field("deleted", pa.int64(), metadata={"comment": "Messages that were deleted before they were read"}),
])  # fmt: skip

_UNITS_ASKED = 16


def run(options: LoadOptions, reporter: Reporter) -> Report:
    """Load what is new in the log."""
    try:  # later than the command line is read: what knows time zones may have to be installed first
        read.time_zone(options.time_zone or "UTC")
    except argparse.ArgumentTypeError as error:
        raise UsageError(f"--time-zone {error}") from error
    store = open_store(options, needs_index_sizes=False, restores=True)
    observed = observed_delays(store.root, store.segments)
    store = replace(store, notes=(*store.notes, *check_delay_levels(store, options, observed)))
    reporter.note(*store.notes)
    path = locations.absolute(options.table)
    if files.resolves_inside(path, store.root):
        raise Refused("the table must not lie inside the store", path=path)
    with (
        session.shared_spark(),
        filled(store, reporter) as whole,
    ):
        load = Load(whole, options, path, reporter, levels_observed=bool(observed))
        facts = load.run()
    if not options.dry_run:
        facts["consumer_offsets"], notes = add_snapshot(store, options, path)
        reporter.note(*notes)
    if (begin := facts.get("repair_from")) is not None:
        table = ("--table", options.table, "--cluster", options.cluster, "--broker", options.broker)
        again = job_command("load", options, *table, "--repair-from", str(begin))
        facts |= {"verdict": "the log is sound again, and rows were read past its damage", "next": again}
    if not options.dry_run:
        facts.setdefault("next", command(program(), "report", "--table", path))
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
        levels_observed: bool = True,
    ) -> None:
        self._store = store
        self._options = options
        self._path = path
        self._reporter = reporter
        self._run_id = uuid.uuid4().hex
        self._reading: LogReading | None = None
        self._drafts: Drafts | None = None
        self._commits_after: int | None = None
        self._levels_shown = levels_observed
        self._salvaged_from: int | None = None

    def run(self) -> dict[str, Any]:
        try:
            facts = self._with_attempts()
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

    def _with_attempts(self) -> dict[str, Any]:
        for attempt in range(_ATTEMPTS):
            try:
                return self._attempt()
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
        self._check_topics(table, state)
        self._check_not_restored(table, state)
        known_end = self._reading.end if self._reading else options.until_offset
        if state and known_end is not None and known_end <= state.end and options.repair_from is None:
            return self._facts(None, table, Window(state.end, state.end), state.end)
        below = state.end if state and options.repair_from is None else options.repair_from
        last = table.last_row(options.cluster, options.broker, below) if table and below is not None else None
        window = plan_window(options, self._store.segments, state, last)
        is_new = table is None
        if table is None and not options.dry_run:  # tasks write into its directory
            table = messages_table.create_table(self._path, time_zone=zone, bodies=options.with_bodies)
        elif table is not None and not options.dry_run and not nothing_follows(self._store.segments, window):
            table, added = table.with_columns(schemas.messages(bodies=options.with_bodies).names)
            for name in added:
                self._reporter.note(f"the table got the column {name}, which older rows do not have")
        reading = self._read(table, window, zone)
        self._check_continues(None if is_new else table, window, reading)
        if table is None or options.dry_run or (reading.end == window.rows_from and not window.repair and not is_new):
            return self._facts(None, None if is_new else table, window, reading.end)
        return self._facts(self._commit(table, state, window, reading, zone), table, window, reading.end)

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
        if reading.damaged_places or reading.left_out or reading.end < facts["to_offset"]:
            return {}
        self._reporter.warn(
            f"rows from offset {begin} on were read past damage of the log, which is sound again: "
            f"--repair-from {begin} loads them again"
        )
        return {"differs": True, "repair_from": begin}

    def _check_not_restored(self, table: MessagesTable | None, state: BrokerState | None) -> None:
        options = self._options
        if table is None or state is None or not state.recorded:
            return
        taken = taken_away(table.history(), options.cluster, options.broker, state.end)
        if taken is None:
            return
        version, operation = taken
        last = table.last_row(options.cluster, options.broker, state.end)
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

    def _check_topics(self, table: MessagesTable | None, state: BrokerState | None) -> None:
        """Require the topics of earlier loads: one offset records their progress."""
        options, topics = self._options, self._topics
        if options.repair_from is not None:
            if topics:
                raise UsageError("--repair-from replaces the rows of all topics: leave out --topic")
        elif table is not None and state is not None and state.topics != code_of(topics):
            loads = (loads_of(commit, options.cluster, options.broker) for commit in table.history())
            before = next((load["topics"] for load in loads if load), []) if state.topics else ["all topics"]
            again = f"--repair-from {self._store.segments[0].base} loads all topics again"
            raise Refused(
                "this broker was loaded with other topics: their rows could not be told from those that are missing",
                path=self._path,
                found=", ".join(topics) or "all topics", expected=", ".join(before) or "those of loads before",
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
        removed, kept = table.replaced_files(what, write) if window.repair else ([], [])
        self._commits_after = table.version
        commit = table.append([*written, *kept], what, state, self._topics, removed)
        return replace(commit, rows=sum(file.rows for file in written))

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
        verdict = f"nothing new: the table has the log up to offset {end}"
        if commit or self._options.dry_run:
            rows = f"{counted(commit.rows, 'row')} loaded" if commit else "would be loaded"
            verdict = f"{rows}: offsets {window.rows_from} to {end} of the log"
        return {
            "verdict": verdict,
            "figures": reading.figures if reading and (commit or damaged or self._options.dry_run) else None,
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
        shortest = shortest_delays(table, options.cluster, options.broker, window.rows_from)
        early = too_early(shortest, self._store.dispatch_rules().delay_millis)
        if early:
            levels = ", ".join(f"level {level}: {shortest[level]:,} ms" for level in early)
            self._reporter.warn(
                f"delayed messages came before they were due ({levels}): messageDelayLevel is not the broker's; "
                f"--broker-conf FILE --repair-from {window.rows_from} loads them with the right due times"
            )


def doubt_of(reading: LogReading) -> Doubt:
    """Doubtful records: after damage in their segment, with a wrong body CRC, or in a wrong place of a queue."""
    ranges = [(item.begin, item.end) for item in reading.kept]
    for item in reading.damaged:
        after = segment_at(reading.segments, max(item.end - 1, item.begin))
        ranges.append((item.begin, after.end if after else item.end))
    wrong = sorted(stray.offset for stray in reading.left_out)
    return Doubt(tuple(joined(ranges)), tuple(wrong))


def first_doubt(doubt: Doubt, rows_from: int) -> int | None:
    """First doubtful offset from ``rows_from`` on."""
    begins = [max(begin, rows_from) for begin, end in doubt.ranges if end > rows_from]
    return min([*begins, *(offset for offset in doubt.wrong if offset >= rows_from)], default=None)


def row_reader(
    store: OpenedStore, options: LoadOptions, reading: LogReading | None, rows_from: int, zone: str
) -> ReadRanges:
    """Converter from proven ranges (none without a reading) to rows."""
    rules = RowRules(
        store.dispatch_rules(), store.rules.split_parser, tuple(schemas.messages(bodies=options.with_bodies).names),
        zone, options.cluster, options.broker, doubt=doubt_of(reading) if reading else NO_DOUBT,
    )  # fmt: skip
    return ReadRanges(proven_ranges(reading.scans, rows_from) if reading else (), rules, rows_from, options.topics)


def check_delay_levels(store: OpenedStore, options: LoadOptions, observed: dict[int, int]) -> list[str]:
    """Note, or WrongSettings without ``--set``, if the store's queues prove other delay levels."""
    wrong = contradicted(observed, store.dispatch_rules().delay_millis)
    if not wrong:
        return []
    levels = ", ".join(f"level {level}: {observed[level]:,} ms" for level in wrong)
    if "messageDelayLevel" in dict(options.settings):
        return [f"messageDelayLevel is taken as given; the store's own queues show another one ({levels})"]
    raise WrongSettings(
        f"the broker has another messageDelayLevel, its queues of {SCHEDULE_TOPIC} show it",
        path=store.root, found=levels, expected=store.settings.text("messageDelayLevel"),
        advice="--broker-conf FILE, or --set messageDelayLevel='1s 5s ...', gives the broker's",
    )  # fmt: skip


_SHORTEST = f"""
    count(*) AS pairs, min(waiting.queue_id + 1) AS level,
    min((CAST(delivered.store_timestamp AS BIGINT) - CAST(waiting.store_timestamp AS BIGINT)) / 1000) AS delay
FROM (SELECT *, properties['REAL_TOPIC'] AS came_as FROM mine WHERE topic = '{SCHEDULE_TOPIC}') AS waiting
JOIN (SELECT * FROM mine WHERE properties['DELAY'] IS NOT NULL AND dispatched) AS delivered
    ON delivered.topic = waiting.came_as AND delivered.properties['REAL_TOPIC'] = waiting.came_as
    AND delivered.uniq_key = waiting.uniq_key AND delivered.reconsume_times = waiting.reconsume_times
    AND delivered.store_timestamp >= waiting.store_timestamp
GROUP BY waiting.came_as, waiting.uniq_key, waiting.reconsume_times
"""


def shortest_delays(table: MessagesTable, cluster: str, broker: str, begin: int) -> dict[int, int]:
    """Shortest delay (ms) by level, of messages stored just twice: waiting and delivered."""
    question = f"SELECT level, min(delay) AS delay FROM (SELECT {_SHORTEST}) WHERE pairs = 1 GROUP BY level"
    rows = table.answer(question, cluster, broker, begin)
    return dict(zip(rows["level"].to_pylist(), rows["delay"].to_pylist(), strict=True))


def too_early(shortest: dict[int, int], delay_millis: Sequence[int]) -> list[int]:
    """Levels at which a message was delivered before it was due."""
    return [level for level, delay in sorted(shortest.items()) if delay < sum(delay_millis[level - 1 : level])]


@dataclass(frozen=True)
class Window:
    """What a load reads (from the segment base ``scan_from``) and replaces (from ``rows_from``). The scan must meet the
    record of ``last``, the newest row before; ``gap`` was never loaded and is gone; ``tail``: see ``tail_of``.
    """

    scan_from: int
    rows_from: int
    epoch: int = 0
    last: Row | None = None
    gap: tuple[int, int] | None = None
    repair: bool = False
    tail: int | None = None


def end_of(row: Row | None) -> int | None:
    """Offset after a row's record."""
    return row["commit_log_offset"] + row["size"] if row else None


def plan_window(
    options: LoadOptions, segments: Sequence[Segment], state: commits.BrokerState | None, last: Row | None
) -> Window:
    """What to load next; ``last`` is the newest row below ``repair_from`` or the end of the last load."""
    log_begin = segments[0].base
    if state is None:
        if options.repair_from is not None:
            raise UsageError("--repair-from: nothing of this broker was loaded yet")
        return Window(log_begin, log_begin)
    begin, epoch, repair = state.end, state.epoch, False
    if options.repair_from is not None:
        if options.repair_from > begin:
            raise UsageError(f"--repair-from {options.repair_from}: the loaded range ends at {begin}")
        if options.repair_from < log_begin <= begin:
            raise Refused(
                "the log begins after --repair-from: the rows before are in the table alone",
                found=options.repair_from, expected=log_begin,
                advice=f"--repair-from {log_begin} replaces what the log still has",
            )  # fmt: skip
        epoch, repair = epoch + 1, True
        begin = options.repair_from if options.repair_from >= log_begin else begin
    if begin < log_begin:
        if not options.allow_gap:
            raise Refused(
                "the log begins after the end of the last load: retention deleted records that were never loaded",
                found=log_begin, expected=begin, advice="--allow-gap continues and records the gap",
            )  # fmt: skip
        return Window(log_begin, log_begin, epoch, gap=(begin, log_begin), repair=repair)
    if last is not None and last["commit_log_offset"] < log_begin:
        last = None  # its segment is gone, as it should be
    known = begin if last is None else last["commit_log_offset"]
    # From the first byte of its segment on: only the sizes tell a record of the log from one that was truncated away.
    base = (segment_at(segments, known) or segments[-1]).base
    same = begin > log_begin and not repair and state.salvaged_from is None
    return Window(base, begin, epoch, last, repair=repair, tail=state.tail if same else None)


def nothing_follows(segments: Sequence[Segment], window: Window) -> bool:
    """True if a local log seems to end where the last load ended; only a reading proves it."""
    if window.last is None or window.repair or not all(locations.is_local(segment.path) for segment in segments):
        return False
    end = window.rows_from
    segment = segment_at(segments, end)
    if segment is None:
        return end == segments[-1].end
    return not any(files.read_range(segment.path, end - segment.base, min(BLANK_SIZE, segment.end - end)))


def split_size_for(size: int, cores: int) -> int:
    """Bytes of log per task and table file: small loads keep all cores busy, large ones get few large files."""
    return max(min(size // (_TASKS_A_CORE * cores), _LARGEST_SPLIT), _SMALLEST_SPLIT)


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
            with files.RangeReader(segment.path) as reader:
                window, unchecked = BlockWindow(reader, segment), replace(rules, check_crc=False)
                yield inside, iter(chain_from(window, segment.base, unchecked, stop=inside[-1] + 1))


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


def add_snapshot(store: OpenedStore, options: LoadOptions, table: str) -> tuple[int, list[str]]:
    """Append a snapshot; returns the number of rows, and notes."""
    if not (locations.is_local(store.root) and locations.is_local(table)):
        return 0, []
    config = locations.join(store.root, "config")
    kept = LMQ_OFFSETS if store.settings.flag("enableLmq") else CONSUMER_OFFSETS
    if not any(files.exists(locations.join(config, name)) for name in (kept, kept + BACKUP_SUFFIX, "consumerOffsets")):
        return 0, []
    try:
        rows, _ = lag_rows(store)
    except StoreFormatError as error:
        return 0, [f"committed offsets are not in {locations.name_of(table)}{SUFFIX}: {error}"]
    if rows:
        fixed = {"cluster": options.cluster, "broker": options.broker, "loaded_at": int(time.time() * 1_000_000)}
        named = [{**row, **fixed, "queue_begin": row["begin"], "queue_end": row["end"]} for row in rows]
        _append(locations.local_path(table) + SUFFIX, pa.Table.from_pylist(named, SCHEMA))
    return len(rows), []


def _append(path: str, table: pa.Table) -> None:
    messages_table.refuse_irregular_log(path)
    files.make_directory(path)
    for left in reversed(range(_SNAPSHOT_ATTEMPTS)):
        try:
            deltalake.write_deltalake(path, table, mode="append", name="consumer_offsets")
        except (OSError, deltalake.exceptions.DeltaError) as error:
            if left and not isinstance(error, OSError):
                time.sleep(0.1 * (_SNAPSHOT_ATTEMPTS - left))
                continue
            what = f"a snapshot of committed offsets was not added: {files.first_line(error)}"
            raise WriteFailed(what, path=path) from error
        return


def observed_delays(root: str, segments: Sequence[Segment]) -> dict[int, int]:
    """Milliseconds of each delay level, from the newest units of local queues and their records."""
    observed = {}
    for queue in queue_ends(root, topics=(SCHEDULE_TOPIC,)) if locations.is_local(root) else ():
        newest = units_at(queue, np.arange(max(queue.end - _UNITS_ASKED, queue.begin), queue.end))
        delay = next(_delays(newest, segments), None)
        if delay is not None:
            observed[queue.queue_id + 1] = delay
    return dict(sorted(observed.items()))


def contradicted(observed: dict[int, int], delay_millis: Sequence[int]) -> list[int]:
    """Levels whose delay differs from ``delay_millis``."""
    return [level for level, delay in observed.items() if tuple(delay_millis[level - 1 : level]) != (delay,)]


def _delays(units: Structs, segments: Sequence[Segment]) -> Iterator[int]:
    """Delivery time - store time of the units whose records are in the log, newest first."""
    for offset, size, deliver_time in units[::-1].tolist():
        segment = segment_at(segments, offset)
        if segment is None or offset + max(size, CERTIFICATE_SIZE) > segment.end - segment.missing:
            continue
        with files.RangeReader(segment.path) as reader:
            head = reader.read(offset - segment.base, CERTIFICATE_SIZE)
            found = PLAIN.find(head, offset, len(head), offset, offset + 1)
            if found is None or int.from_bytes(head[:4], "big", signed=True) != size:
                continue
            delay = deliver_time - store_timestamp_at(reader, offset - segment.base)
        if delay >= 0:  # the address of an extended unit is negative
            yield delay
