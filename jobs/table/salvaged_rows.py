"""Rows that were read past damage of the log: what a reading doubts, and what a log that is sound again says of them.

A load of a damaged log marks the rows that it read past damage (column ``salvaged``), leaves out those that say what is
not so, and records where the first damage was. Once the log is sound again (restored, or taken from a replica), the
rows from there on are compared with it, segment by segment; ``load --repair-damaged`` puts those that differ right, and
no other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
from deltalake.transaction import RemoveAction

from jobs.contract.options import LoadOptions
from jobs.log.log_scan import LogReading
from jobs.log.opening import OpenedStore, read_log
from jobs.spark.runner import Runner
from jobs.table.commits import BrokerRows, BrokerState, Commit, Overtaken
from jobs.table.drafts import remove_files
from jobs.table.messages_table import MessagesTable
from storeformat.arrays import Bools, Int64s
from storeformat.log.segments import segment_at, segment_with
from storeformat.queues.topic_filter import TopicFilter
from udfs.table import schemas
from udfs.table.parquet_files import PARTITION, RangeFiles, WriteFiles, WrittenFile
from udfs.table.proven_ranges import ReadRanges, proven_ranges
from udfs.table.rows import Doubt, RowRules

_OFFSET = "commit_log_offset"
_ORDER = [(name, "ascending") for name in (PARTITION, "topic", "queue_id", "queue_offset")]
_NOT_COMPARED = frozenset({"cluster", "broker", "salvaged", *schemas.FROM_PROPERTIES, *schemas.RUNS})
"""Columns that say nothing of the record, or what the properties say, which older rows have, too."""


def doubt_of(reading: LogReading) -> Doubt:
    """Returns what a reading doubts: records after damage in its segment, those whose body does not have its CRC, and
    those in a wrong place of a queue, which say what is not so.
    """
    ranges = [(item.begin, item.end) for item in reading.kept]
    for item in reading.damaged:
        after = segment_at(reading.segments, max(item.end - 1, item.begin))
        ranges.append((item.begin, after.end if after else item.end))
    merged: list[tuple[int, int]] = []
    for begin, end in sorted(ranges):
        if merged and begin <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((begin, end))
    wrong = sorted(stray.offset for stray in reading.losses.strays) if reading.salvaged else []
    return Doubt(tuple(merged), tuple(wrong))


def first_doubt(doubt: Doubt, rows_from: int) -> int | None:
    """Returns the first offset from ``rows_from`` on that is in doubt, None where nothing is."""
    begins = [max(begin, rows_from) for begin, end in doubt.ranges if end > rows_from]
    return min([*begins, *(offset for offset in doubt.wrong if offset >= rows_from)], default=None)


@dataclass(frozen=True)
class Difference:
    """Rows of the table that are not as the log has them, by their offsets, and the rows that the log has instead.

    ``damaged`` says that the log itself still is: then nothing was compared.
    """

    gone: Int64s
    rows: pa.Table
    damaged: bool = False

    @property
    def count(self) -> int:
        """How many offsets differ: rows that are missing, others, or too many."""
        return len(np.union1d(self.gone, np.asarray(self.rows[_OFFSET])))


def compare_with_log(
    store: OpenedStore, options: LoadOptions, table: MessagesTable, state: BrokerState, begin: int, zone: str,
    runner: Runner,
) -> Difference | None:  # fmt: skip
    """Returns how a broker's rows from ``begin`` on differ from its log; None where the log does not hold them any more
    or ends elsewhere.
    """
    begin = max(begin, store.segments[0].base)
    if begin >= state.end or segment_at(store.segments, begin) is None:
        return None
    until = replace(options, until_offset=state.end)
    scan_from = segment_with(store.segments, begin).base
    reading = read_log(store, until, runner, begin=scan_from, on_damage="salvage")
    made = schemas.messages(bodies=options.with_bodies).names
    columns = [name for name in table.schema.names if name in made]
    empty = schemas.select(columns).empty_table()
    if reading.damaged_places or (reading.salvaged and reading.losses.strays):
        return Difference(np.zeros(0, np.int64), empty, damaged=True)
    if reading.end != state.end:
        return None
    rules = RowRules(
        store.dispatch_rules(), store.rules.split_parser, tuple(columns), zone, options.cluster, options.broker
    )
    read = ReadRanges(proven_ranges(reading.scans, begin), rules, begin, tuple(map(TopicFilter.parse, state.topics)))
    gone, rows = [np.zeros(0, np.int64)], [empty]
    for low, high, logged in _parts(read, begin, state.end, empty):
        there = table.answer(f"SELECT {', '.join(columns)} FROM mine", options.cluster, options.broker, low, high)
        wrong_there, wrong_logged = _differing(there, logged)
        gone.append(np.asarray(there[_OFFSET])[wrong_there])
        rows.append(logged.filter(pa.array(wrong_logged)))
    return Difference(np.concatenate(gone), pa.concat_tables(rows).sort_by(_ORDER))


def _parts(read: ReadRanges, begin: int, end: int, empty: pa.Table) -> Iterator[tuple[int, int, pa.Table]]:
    """Yields stretches of the log, which tile [begin, end), and the rows of each."""
    starts = [max(one.split.start, begin) for one in read.ranges]
    edges = [begin, *starts[1:], end] if starts else [begin, end]
    for number, (low, high) in enumerate(pairwise(edges)):
        rows = pa.concat_tables([empty, *(read.chunks(read.ranges[number]) if starts else ())])
        yield low, high, rows


def _differing(there: pa.Table, logged: pa.Table) -> tuple[Bools, Bools]:
    """Returns which rows of the table and of the log the other one does not have just so."""
    mine, logs = (np.asarray(rows[_OFFSET]) for rows in (there, logged))
    _, first, second = np.intersect1d(mine, logs, return_indices=True)
    equal = np.ones(len(first), bool)
    for name in logged.column_names:
        if name not in _NOT_COMPARED:
            left, right = (rows[name].take(pa.array(at)) for rows, at in ((there, first), (logged, second)))
            if not left.equals(right):
                pairs = zip(left.to_pylist(), right.to_pylist(), strict=True)
                equal &= np.fromiter((one == other for one, other in pairs), bool, len(first))
    wrong_there, wrong_logged = np.ones(len(mine), bool), np.ones(len(logs), bool)
    wrong_there[first[equal]] = False
    wrong_logged[second[equal]] = False
    if len(np.unique(mine)) < len(mine):  # a row that is there twice is once too many
        _, counts = np.unique(mine, return_inverse=True)
        twice = np.bincount(counts)[counts] > 1
        wrong_there |= twice
        wrong_logged |= np.isin(logs, mine[twice])
    return wrong_there, wrong_logged


def replace_rows(
    table: MessagesTable, written: Sequence[WrittenFile],
    parts: Iterable[tuple[RemoveAction | None, Iterable[pa.Table]]],
    what: BrokerRows, seen: BrokerState | None, topics: Sequence[str], write: WriteFiles,
) -> Commit:  # fmt: skip
    """Returns the commit that puts rows in place of others: files that are ``written``, whose rows it counts, and the
    rows of ``parts``, each in place of a file that goes, or of none. Raises Overtaken where another commit came in
    between.
    """
    made, removed = list(written), []
    with ExitStack() as streams:
        for number, (action, tables) in enumerate(parts):
            removed += [action] if action is not None else []
            of_part = RangeFiles(write, number, streams)
            for rows in tables:
                for name in schemas.RUNS:  # rows come between others, or others have gone from between them
                    place = rows.column_names.index(name)
                    rows = rows.set_column(place, rows.field(place), pa.nulls(len(rows), pa.int32()))  # noqa: PLW2901
                of_part.write(rows)
            made += of_part.finish()
    try:
        commit = table.append(made, what, seen, topics, removed)
    except Overtaken:
        remove_files(table.path, made)
        raise
    return replace(commit, rows=sum(file.rows for file in written))
