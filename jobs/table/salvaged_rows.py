"""Rows read past damage of the log (column ``salvaged``), and their replacement. Such a load records the first damage;
once the log is sound again, a load names the ``--repair-from`` that replaces the rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace

import pyarrow as pa
from deltalake.transaction import RemoveAction

from jobs.log.log_scan import LogReading
from jobs.table.commits import BrokerRows, BrokerState, Commit, Overtaken
from jobs.table.drafts import remove_files
from jobs.table.messages_table import MessagesTable
from storeformat.log.segments import segment_at
from udfs.table import schemas
from udfs.table.parquet_files import RangeFiles, WriteFiles, WrittenFile
from udfs.table.rows import Doubt

_OFFSET = "commit_log_offset"
_NOT_COMPARED = frozenset({"cluster", "broker", "salvaged", *schemas.FROM_PROPERTIES, *schemas.RUNS})
"""Columns that are not part of the record, or derived from its properties."""


def doubt_of(reading: LogReading) -> Doubt:
    """Doubtful records: after damage in their segment, with a wrong body CRC, or in a wrong place of a queue."""
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
    """First doubtful offset from ``rows_from`` on."""
    begins = [max(begin, rows_from) for begin, end in doubt.ranges if end > rows_from]
    return min([*begins, *(offset for offset in doubt.wrong if offset >= rows_from)], default=None)


def replace_rows(
    table: MessagesTable, written: Sequence[WrittenFile],
    parts: Iterable[tuple[RemoveAction | None, Iterable[pa.Table]]],
    what: BrokerRows, seen: BrokerState | None, topics: Sequence[str], write: WriteFiles,
) -> Commit:  # fmt: skip
    """Commit ``written`` and the rows of ``parts`` in place of files; only rows of ``written`` are counted."""
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
