"""The facts of a plain table without Spark, and what its page plots: the sums that the views ``storage_by_...``,
``throughput`` and ``size_buckets`` give, made by Arrow before a JVM would be up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from types import MappingProxyType

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
from pyarrow import acero

from jobs.report import page
from jobs.report.facts import KEYS, MOST_GROUPS, Facts, with_rates
from jobs.report.grouping import in_order, summed
from jobs.table.messages_table import MessagesTable

_BROKER = ("cluster", "broker")
_COLUMNS = MappingProxyType({"host": "born_host"})
"""The columns of which keys are made once rows have become few."""
READ = (*_BROKER, "topic", "queue_id", "tags", "born_host", "store_date", "store_timestamp", "size", "body_size")
"""All columns that any of them reads."""
_HOUR = pc.floor_temporal(pc.field("store_timestamp"), unit="hour")
_PORT = r":\d+$"
_SUMS = {
    "messages": ("messages", "sum"),
    "bytes": ("bytes", "sum"),
    "body_bytes": ("body_bytes", "sum"),
    "first_stored": ("first_stored", "min"),
    "last_stored": ("last_stored", "max"),
}
_OF_ROWS = (
    ("messages", "count", "size"),
    ("bytes", "sum", "size"),
    ("body_bytes", "sum", "body_size"),
    ("first_stored", "min", "store_timestamp"),
    ("last_stored", "max", "store_timestamp"),
)
_OF_SIZES = (("messages", "count", "size"), ("bytes", "sum", "size"))
_OF_MADE = ("store_timestamp", "size")
"""Of which keys are made."""


def measure_plain(table: MessagesTable, by: str) -> Facts:
    """Returns the facts of a table by topic, queue, tag, host, hour or date, as ``measure`` does without checks."""
    keys = KEYS[by]
    read = tuple(dict.fromkeys((*_BROKER, *(_COLUMNS.get(key, key) for key in keys))))
    sums = _summed(table.rows(), read, {"hour": _HOUR}, _OF_ROWS)
    if by == "host":
        sums = sums.append_column("host", host_of(sums["born_host"]))
    brokers = in_order(summed(sums, _BROKER, **_SUMS).drop_columns(["body_bytes"]), *_BROKER)
    groups = summed(sums, keys, **_SUMS)
    largest = in_order(groups, "-bytes", *keys, most=MOST_GROUPS)
    return with_rates(Facts(by, brokers.to_pylist(), largest.to_pylist(), {}, len(groups)))


def host_of(addresses: pa.ChunkedArray) -> pa.ChunkedArray:
    """Returns addresses without their ports."""
    return pc.replace_substring_regex(addresses, _PORT, "")


def plain_pictures(table: MessagesTable, facts: Facts) -> page.Pictures:
    """Returns what is plotted beside the groups, as ``page.read_pictures`` does."""
    ends = (facts.first_stored, facts.last_stored)
    first, last = (None if end is None else end.replace(minute=0, second=0, microsecond=0) for end in ends)
    step = page.step_of(timedelta() if first is None or last is None else last - first)
    made = {
        "at": pc.floor_temporal(pc.field("store_timestamp"), int(step.total_seconds()), "second"),
        "power": pc.floor(pc.log2(pc.field("size").cast(pa.float64()))).cast(pa.int64()),
    }
    sums = _summed(table.rows(), ("topic", *made), made, _OF_SIZES)
    largest = in_order(summed(sums, ["topic"], bytes=("bytes", "sum")), "-bytes", "topic", most=page.MOST_NAMED)
    named = pc.is_in(sums["topic"], value_set=largest["topic"].combine_chunks())
    topics = pc.if_else(named, sums["topic"], pa.scalar(None, pa.string()))
    by_time = sums.drop_columns(["topic"]).append_column("topic", topics).filter(pc.is_valid(sums["at"]))
    by_time = in_order(summed(by_time, ["at", "topic"], bytes=("bytes", "sum")), "at", "topic")
    by_size = in_order(summed(sums, ["power"], messages=("messages", "sum")), "power")
    sizes = ((row["power"], row["messages"]) for row in by_size.to_pylist())
    rows = [{"from_size": 1 << power, "to_size": 2 << power, "messages": messages} for power, messages in sizes]
    return page.Pictures(step, by_time.to_pylist(), rows)


def _summed(
    rows: pads.Dataset, keys: Sequence[str], made: Mapping[str, pc.Expression], sums: Sequence[tuple[str, str, str]]
) -> pa.Table:
    """Returns the sums of rows, a group a row; some keys are made of columns."""
    columns = tuple(dict.fromkeys(column for _, _, column in sums))
    read = dict.fromkeys((*columns, *_OF_MADE, *(key for key in keys if key not in made)))
    given = [*(made.get(key, pc.field(key)) for key in keys), *map(pc.field, columns)]
    every = pc.CountOptions("all")
    aggregates = [(column, f"hash_{how}", every if how == "count" else None, name) for name, how, column in sums]
    steps = [
        acero.Declaration("scan", acero.ScanNodeOptions(rows, columns=list(read))),
        acero.Declaration("project", acero.ProjectNodeOptions(given, [*keys, *columns])),
        acero.Declaration("aggregate", acero.AggregateNodeOptions(aggregates, list(keys))),
    ]
    return acero.Declaration.from_sequence(steps).to_table()
