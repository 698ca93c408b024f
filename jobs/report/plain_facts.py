"""The facts of a plain table without Spark: the sums that the views ``storage_by_...`` give, made by Arrow.

A report without checks asks for nothing else, and is there before a JVM would be up.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
from pyarrow import acero

from jobs.report.facts import KEYS, MOST_GROUPS, Facts, with_rates
from jobs.table.plain_table import PlainTable

_BROKER = ("cluster", "broker")
_COLUMNS = MappingProxyType({"host": "born_host"})
"""The columns of which keys are made once rows have become few."""
READ = (*_BROKER, "topic", "queue_id", "tags", "born_host", "store_date", "store_timestamp", "size", "body_size")
"""All columns that any of them reads."""
_HOUR = pc.floor_temporal(pc.field("store_timestamp"), unit="hour")
_PORT = r":\d+$"
_SUMS = (
    ("messages", "sum", "messages"),
    ("bytes", "sum", "bytes"),
    ("body_bytes", "sum", "body_bytes"),
    ("first_stored", "min", "first_stored"),
    ("last_stored", "max", "last_stored"),
)
_OF_ROWS = (
    ("messages", "count", "size"),
    ("bytes", "sum", "size"),
    ("body_bytes", "sum", "body_size"),
    ("first_stored", "min", "store_timestamp"),
    ("last_stored", "max", "store_timestamp"),
)


def measure_plain(table: PlainTable, by: str) -> Facts:
    """Returns the facts of a table by topic, queue, tag, host, hour or date, as ``measure`` does without checks."""
    keys = KEYS[by]
    read = tuple(dict.fromkeys((*_BROKER, *(_COLUMNS.get(key, key) for key in keys))))
    parts = [_summed(rows, read, pc.scalar(pa.scalar(day, pa.date32()))) for day, rows in table.dates()]
    if not parts:
        return Facts(by, [], [], {}, 0)
    sums = pa.concat_tables(parts)
    if by == "host":
        sums = sums.append_column("host", pc.replace_substring_regex(sums["born_host"], _PORT, ""))
    brokers = _in_order(_regrouped(sums, _BROKER).drop_columns(["body_bytes"]), [], _BROKER)
    groups = _regrouped(sums, keys)
    largest = _in_order(groups, [("bytes", "descending")], keys, MOST_GROUPS)
    return with_rates(Facts(by, brokers.to_pylist(), largest.to_pylist(), {}, len(groups)))


def _in_order(
    rows: pa.Table, first: Sequence[tuple[str, str]], keys: Sequence[str], most: int | None = None
) -> pa.Table:
    """Returns rows as SQL orders them: those without a key before those with one."""
    order = list(first)
    sorting = rows
    for key in keys:
        sorting = sorting.append_column(f"has {key}", pc.is_valid(rows[key]))
        order += [(f"has {key}", "ascending"), (key, "ascending")]
    return rows.take(pc.sort_indices(sorting, order)[:most])


def _summed(rows: pads.Dataset, keys: Sequence[str], day: pc.Expression) -> pa.Table:
    """Returns the sums of the rows of one day's files, a group a row."""
    made = {"hour": _HOUR, "store_date": day}
    columns = tuple(dict.fromkeys(column for _, _, column in _OF_ROWS))
    read = dict.fromkeys((*columns, *(key for key in keys if key not in made)))
    given = [*(made.get(key, pc.field(key)) for key in keys), *map(pc.field, columns)]
    return _run(
        acero.Declaration("scan", acero.ScanNodeOptions(rows, columns=list(read))),
        acero.Declaration("project", acero.ProjectNodeOptions(given, [*keys, *columns])),
        _aggregation(_OF_ROWS, keys),
    )


def _regrouped(sums: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Returns sums of sums."""
    source = acero.Declaration("table_source", acero.TableSourceNodeOptions(sums))
    return _run(source, _aggregation(_SUMS, keys))


def _aggregation(sums: Sequence[tuple[str, str, str]], keys: Sequence[str]) -> acero.Declaration:
    every = pc.CountOptions("all")
    aggregates = [(column, f"hash_{how}", every if how == "count" else None, name) for name, how, column in sums]
    return acero.Declaration("aggregate", acero.AggregateNodeOptions(aggregates, list(keys)))


def _run(*steps: acero.Declaration) -> pa.Table:
    return acero.Declaration.from_sequence(list(steps)).to_table()
