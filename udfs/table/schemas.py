"""Columns of the table ``messages``: Arrow schema, Spark schema and comments.

Names are MessageExt's in snake case, in the table's order; ``body`` is last and optional. Every column is nullable in
Spark (NOT NULL costs a check a row and forbids ``ALTER TABLE`` later); comments say which hold NULL.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import types as spark

TIMESTAMP = pa.timestamp("us", tz="UTC")
PROPERTIES = pa.map_(pa.string(), pa.string())
BODY = "body"

_ENDS = "1 first, 2 last, 3 alone; NULL: not known"
RUNS = ("queue_run", "log_run")  # position in a task's run; the views queue_gaps and clock_steps only read ends


def _schema(*columns: tuple[str, pa.DataType, str]) -> pa.Schema:
    return pa.schema([pa.field(name, kind, metadata={"comment": text}) for name, kind, text in columns])


MESSAGES_WITH_BODY = _schema(
    ("cluster", pa.string(), "Cluster name, as given to load"),
    ("broker", pa.string(), "Broker name, as given to load"),
    ("store_date", pa.date32(), "Date of store_timestamp in the table's time zone (partition)"),
    ("commit_log_offset", pa.int64(), "Where the record begins in the broker's commit log: unique in a broker"),
    ("size", pa.int32(), "Bytes of the whole record in the commit log"),
    ("topic", pa.string(), "Topic as stored: %RETRY%, %DLQ%, delay and transaction topics under their own names"),
    ("queue_id", pa.int32(), "Queue of the topic"),
    ("queue_offset", pa.int64(), "Number of the message in its queue"),
    ("tags", pa.string(), "Property TAGS; NULL without one"),
    ("tags_code", pa.int64(), "The queue's tagsCode: Java hash of tags, or delivery time (ms) in SCHEDULE_TOPIC_XXXX"),
    ("keys", pa.list_(pa.string()), "Keys of property KEYS, split at spaces; empty without one, never NULL"),
    ("uniq_key", pa.string(), "Property UNIQ_KEY, the client's message id; NULL without one"),
    ("offset_msg_id", pa.string(), "Id made of store_host and commit_log_offset, as mqadmin queryMsgById takes it"),
    ("flag", pa.int32(), "Flag of the producer's own"),
    ("sys_flag", pa.int32(), "MessageSysFlag bits"),
    ("transaction_type", pa.string(), "none, prepared, commit, rollback (of sys_flag); also in retry and DLQ copies"),
    ("reconsume_times", pa.int32(), "How often the message was sent back for a retry"),
    ("prepared_transaction_offset", pa.int64(), "Commit-log offset of the half message, of a committed one; else 0"),
    ("born_timestamp", TIMESTAMP, "When it was made, by the producer's clock; NULL outside of years 1 to 9999"),
    ("born_host", pa.string(), "Producer's address:port; IPv6 in brackets"),
    ("store_timestamp", TIMESTAMP, "When it was stored, by the broker's clock; NULL outside of years 1 to 9999"),
    ("store_host", pa.string(), "Broker's address:port; IPv6 in brackets"),
    ("body_crc", pa.int32(), "CRC-32 of the stored body, top bit cleared"),
    ("body_size", pa.int32(), "Bytes of the body as stored (compressed, if sys_flag has bit 0x1)"),
    ("properties", PROPERTIES, "All properties; of a name that occurs twice the last value, as the broker reads it"),
    ("magic_code", pa.int32(), "Record version: -626843481 (V1) or -626843477 (V2)"),
    ("dispatched", pa.bool_(), "Whether the message goes to a consume queue (not so: prepared and rolled back)"),
    ("salvaged", pa.bool_(), "Whether it was read past damage of the log, and may be wrong; NULL in older rows"),
    ("delay_level", pa.int32(), "Property DELAY, a number; waiting and delivered messages have it; NULL in older rows"),
    ("timer_due", TIMESTAMP, "When a timer of 5.x is to deliver it (property TIMER_OUT_MS); NULL in older rows"),
    ("real_topic", pa.string(), "Property REAL_TOPIC: where a delayed or half message belongs; NULL in older rows"),
    ("inner_num", pa.int32(), "Messages of an inner batch, which has so many numbers of its queue; NULL in older rows"),
    ("queue_run", pa.int32(), "Place in a run of consecutive queue offsets: 0 inside, " + _ENDS),
    ("log_run", pa.int32(), "Place in a run of the log without gaps, whose times do not fall: 0 inside, " + _ENDS),
    (BODY, pa.binary(), "Body as stored (compressed, if sys_flag has bit 0x1); NULL if not loaded"),
)  # fmt: skip
MESSAGES = MESSAGES_WITH_BODY.remove(len(MESSAGES_WITH_BODY) - 1)

DEFECTS = _schema(
    ("begin_offset", pa.int64(), "Commit-log offset of the first byte"),
    ("end_offset", pa.int64(), "Commit-log offset after the last byte"),
    ("kind", pa.string(), "damaged, stale (of an older log) or ghost (of another place)"),
    ("reason", pa.string(), "What is wrong, with its code"),
)
"""Ranges of the log without messages: the data source's ``records`` = ``defects``."""

PARTITION_COLUMNS = ("store_date",)
STATISTICS_COLUMNS = (
    "cluster", "broker", "commit_log_offset", "size", "topic", "queue_id", "queue_offset", "tags", "uniq_key",
    "born_timestamp", "store_timestamp",
)  # fmt: skip
"""Columns that filters use: Delta keeps minimum, maximum and NULL count of each to skip files."""


def messages(*, bodies: bool) -> pa.Schema:
    """Columns of the table, with or without bodies."""
    return MESSAGES_WITH_BODY if bodies else MESSAGES


def select(columns: Sequence[str]) -> pa.Schema:
    """Arrow schema of some columns, in the given order. Raises KeyError for an unknown name."""
    return pa.schema([MESSAGES_WITH_BODY.field(name) for name in columns])


def to_spark(schema: pa.Schema) -> spark.StructType:
    """Spark schema of an Arrow schema, with comments."""
    found = spark.StructType()
    for field in schema:
        comment = (field.metadata or {}).get(b"comment")
        metadata = {} if comment is None else {"comment": comment.decode()}
        found.add(field.name, spark_type(field.type), True, metadata)
    return found


def spark_type(kind: pa.DataType) -> spark.DataType:
    """Spark type of an Arrow type."""
    if pa.types.is_struct(kind):
        return to_spark(pa.schema(list(kind)))
    if pa.types.is_map(kind):
        return spark.MapType(spark_type(kind.key_type), spark_type(kind.item_type))
    if pa.types.is_list(kind):
        return spark.ArrayType(spark_type(kind.value_type))
    return _SCALARS[kind]()


_SCALARS: dict[pa.DataType, type[spark.DataType]] = {
    pa.bool_(): spark.BooleanType,
    pa.int32(): spark.IntegerType,
    pa.int64(): spark.LongType,
    pa.string(): spark.StringType,
    pa.binary(): spark.BinaryType,
    pa.date32(): spark.DateType,
    TIMESTAMP: spark.TimestampType,
}
