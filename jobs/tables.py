"""The Delta table ``messages``: making it, asking how far a broker was loaded, replacing a range of it at most once.

What was loaded is written in the table itself, in the same commit as the rows:

==========================  ==========================================================================================
transaction of Delta's      ``rocketmq-store-spark/CLUSTER/BROKER/EPOCH`` -> the commit-log offset where the last load
                            ended. Kept for ever. A repair begins the next epoch, because its end may lie further back
row                         the last one loaded shows whether a log is still the one that was loaded
user metadata of a commit   range, settings and program version, for people: DESCRIBE HISTORY
==========================  ==========================================================================================

Every load *replaces* the range that it loads, mostly an empty one. So rows cannot get in twice, whatever happened to a
load before or happens to one beside it: Delta lets only one of two commits pass that replace a common range.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from delta.tables import DeltaTable
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from storeformat import files
from storeformat.errors import DependencyMissing, MissingInput, NotAStore, Refused, WriteFailed
from udfs import schemas
from udfs.tablefiles import PARTITION, WrittenFile

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

TIME_ZONE = "rocketmq.timeZone"
APPLICATION = "rocketmq-store-spark"
IDENTITY = (
    "commit_log_offset", "size", "topic", "queue_id", "queue_offset", "store_timestamp", "body_crc", "magic_code",
)  # fmt: skip
"""Columns that tell two records apart which lie at the same offset of different logs."""

REQUIRED = ("cluster", "broker", "store_date", *IDENTITY)
"""Columns without which a table is another table; all others may be missing and are added."""

_NEAR = 64 << 20
_MOST_DATES_A_TASK = 100
_COMMITS_LOOKED_AT = 50

_WHEN_PLAIN = {
    "delta.columnMapping.mode": ("none",),
    "delta.isolationLevel": ("Serializable",),  # else an append does not stop a repair beside it
    "delta.enableIcebergCompatV1": ("false",),
    "delta.enableIcebergCompatV2": ("false",),
    "delta.enableRowTracking": ("false",),
}
"""Table properties that need Delta's own writer, with the values that do not."""

_CONFLICTS = (
    "DELTA_CONCURRENT_", "DELTA_METADATA_CHANGED", "DELTA_PROTOCOL_CHANGED", "DELTA_TABLE_ALREADY_EXISTS",
)  # fmt: skip
"""Delta's error classes of commits that lost a race. Its Python exceptions do not cover all of them."""

_TROUBLE = (
    "AccessControlException", "AccessDeniedException", "Permission denied", "Mkdirs failed",
    "ParentNotDirectoryException", "Not a directory", "No space left on device", "Read-only file system",
    "FileAlreadyExistsException",
)  # fmt: skip


@dataclass(frozen=True)
class BrokerState:
    """How far a broker was loaded: up to ``end``, in which ``epoch`` of repairs, and which ``topics`` (empty: all).

    ``recorded`` says that the table's transactions tell so; else its rows do.
    """

    end: int
    epoch: int
    topics: tuple[str, ...] = ()
    recorded: bool = True


@dataclass(frozen=True)
class Replacement:
    """Rows [begin, end) of a broker that a commit puts in place of what is there; up to any offset if ``end`` is None.

    ``done`` is where the log ended and ``epoch`` the epoch in which it is recorded; ``metadata`` goes into the history.
    """

    cluster: str
    broker: str
    begin: int
    end: int | None
    done: int
    epoch: int
    metadata: Mapping[str, Any]

    @property
    def condition(self) -> str:
        """The rows that are replaced, in SQL."""
        upper = "" if self.end is None else f" AND commit_log_offset < {self.end}"
        return f"{_of_broker(self.cluster, self.broker)} AND commit_log_offset >= {self.begin}{upper}"


@dataclass(frozen=True)
class Commit:
    """A version of the table, and the rows it brought."""

    version: int
    rows: int


class Overtaken(Exception):
    """Another load of the same broker was committed first."""


class MessagesTable:
    """An existing table ``messages`` at a path."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._spark = spark
        self.path = path

    @property
    def properties(self) -> dict[str, str]:
        """The table's properties."""
        return dict(self._snapshot_metadata()["configuration"])

    @property
    def time_zone(self) -> str:
        """The time zone whose midnight divides ``store_date``."""
        return self.properties.get(TIME_ZONE, "UTC")

    def schema(self) -> StructType:
        """Returns the columns that the table has."""
        return self.rows().schema

    def rows(self) -> DataFrame:
        """Returns all rows."""
        return self._spark.read.format("delta").load(self.path)

    def version(self) -> int:
        """Returns the newest version."""
        return int(self._snapshot().version())

    def state(self, cluster: str, broker: str) -> BrokerState | None:
        """Returns how far a broker was loaded, None if it never was."""
        prefix = _application_prefix(cluster, broker)
        found: dict[int, int] = {}
        topics: dict[int, tuple[str, ...]] = {}
        transactions = self._snapshot().transactions().iterator()
        while transactions.hasNext():
            entry = transactions.next()
            name, version = str(entry._1()), int(entry._2())
            if not name.startswith(prefix):
                continue
            epoch, _, selection = name.removeprefix(prefix).partition("/")
            if epoch.isdigit() and selection:
                topics[int(epoch)] = tuple(unquote(topic) for topic in selection.split(","))
            elif epoch.isdigit():
                found[int(epoch)] = version
        if found:
            return BrokerState(found[max(found)], max(found), topics.get(max(found), ()))
        # A copy of a table (CTAS, CLONE) has the rows and not their transactions.
        (end,) = self._of(cluster, broker).selectExpr("max(commit_log_offset + size)").first() or (None,)
        return None if end is None else BrokerState(int(end), 0, recorded=False)

    def last_rows(self, cluster: str, broker: str, below: int, count: int) -> list[dict[str, Any]]:
        """Returns the last rows of a broker below an offset, newest first: their ``IDENTITY``."""
        for begin in (below - _NEAR, 0):
            where = f"commit_log_offset < {below} AND commit_log_offset >= {max(begin, 0)}"
            rows = self._of(cluster, broker).where(where).select(*IDENTITY)
            found = rows.orderBy(rows.commit_log_offset.desc()).limit(count).toArrow().to_pylist()
            if len(found) == count or begin <= 0:
                return list(found)
        return []

    def add_missing_columns(self, wanted: Sequence[str]) -> list[str]:
        """Adds the columns that an older version of this program did not have; returns their names."""
        present = {name.lower() for name in self.schema().names}
        missing = [name for name in wanted if name not in present]
        if missing:
            columns = ", ".join(
                f"{field.name} {field.dataType.simpleString()} COMMENT {_literal(field.metadata['comment'])}"
                for field in schemas.to_spark(schemas.select(missing))
            )
            self._spark.sql(f"ALTER TABLE delta.{_quoted(self.path)} ADD COLUMNS ({columns})")
        return missing

    def takes_files(self) -> bool:
        """Returns whether files of ours can be rows of this table as they are, and Delta can tell doubled loads apart.

        Not so where its owner gave it column mapping, constraints, generated columns or the like, which Delta's own
        writer has to heed, or divided it differently.
        """
        metadata = self._snapshot_metadata()
        mine = all(
            value in _WHEN_PLAIN.get(name, (value,)) and not name.startswith("delta.constraints.")
            for name, value in metadata["configuration"].items()
        )
        fields = json.loads(metadata["schemaString"])["fields"]
        ours = {field["name"]: field for field in fields}
        return (
            mine
            and metadata["partitionColumns"] == list(schemas.PARTITION_COLUMNS)
            and all(name in ours for name in schemas.MESSAGES.names)
            and all(field["nullable"] and not field["metadata"].keys() - {"comment"} for field in fields)
        )

    def append(
        self, written: Sequence[WrittenFile], what: Replacement, seen: BrokerState | None, topics: Sequence[str]
    ) -> Commit:
        """Commits files of new rows; ``seen`` is the state on which they are based. Raises Overtaken.

        One of two loads of a broker passes: a commit fails that has read a transaction which another one wrote
        meanwhile, and every load reads those of its broker, in this epoch and in the next.
        """
        jvm: Any = self._spark._jvm
        python = jvm.org.apache.spark.api.python.PythonUtils
        some, nothing = jvm.scala.Option.apply, jvm.scala.Option.empty
        prefix = _application_prefix(what.cluster, what.broker)
        actions = [_transaction(f"{prefix}{what.epoch}", what.done)]
        if topics:
            selection = ",".join(quote(topic, safe="") for topic in topics)
            actions.append(_transaction(f"{prefix}{what.epoch}/{selection}", what.done))
        now = int(time.time() * 1000)
        actions += [_added(file, now) for file in written]
        rows = sum(file.rows for file in written)
        with _plain_trouble(self.path):
            transaction = self._log().startTransaction()
            expected = seen.end if seen and seen.recorded else -1
            for epoch, known in ((what.epoch, expected), (what.epoch + 1, -1)):
                if int(transaction.txnVersion(f"{prefix}{epoch}")) != known:
                    raise Overtaken(f"{what.cluster}/{what.broker} was loaded meanwhile")
            metrics = {
                "numFiles": len(written), "numOutputBytes": sum(file.size for file in written), "numOutputRows": rows,
            }  # fmt: skip
            transaction.registerSQLMetrics(self._spark._jsparkSession, python.toScalaMap(self._metrics(metrics)))
            parse = getattr(getattr(jvm.org.apache.spark.sql.delta.actions, "Action$"), "MODULE$").fromJson
            operation = getattr(jvm.org.apache.spark.sql.delta, "DeltaOperations$Write")(
                jvm.org.apache.spark.sql.SaveMode.Append,
                some(python.toSeq(list(schemas.PARTITION_COLUMNS))),
                nothing(),
                some(json.dumps(what.metadata)),
                *[nothing() for _ in range(5)],
            )
            version = transaction.commit(python.toSeq([parse(json.dumps(action)) for action in actions]), operation)
        return Commit(int(version), rows)

    def _metrics(self, values: Mapping[str, int]) -> dict[str, Any]:
        """Returns Spark's counters of these values, which DESCRIBE HISTORY shows."""
        jvm: Any = self._spark._jvm
        found = {}
        for name, value in values.items():
            found[name] = jvm.org.apache.spark.sql.execution.metric.SQLMetrics.createMetric(
                self._spark.sparkContext._jsc.sc(), name
            )
            found[name].set(value)
        return found

    def replace(self, rows: DataFrame, what: Replacement, *, bodies: bool) -> Commit | None:
        """Commits rows; returns the commit, None where this very range had been committed. Raises Overtaken.

        ``bodies`` makes the writer look at its buffers after every row: a default of 100 rows may be 400 MB of bodies.
        """
        writer = (
            rows.write.format("delta")
            .mode("overwrite")
            .option("replaceWhere", what.condition)
            .option("txnAppId", f"{_application_prefix(what.cluster, what.broker)}{what.epoch}")
            .option("txnVersion", what.done)
            .option("userMetadata", json.dumps(what.metadata))
        )
        if bodies:
            for unit in ("page.size", "block.size"):
                writer = writer.option(f"parquet.{unit}.row.check.min", 1)
        before = self.version()
        with _no_sort_by_partition(self._spark), _plain_trouble(self.path):
            writer.save(self.path)
        return self._commit_of(what, before)

    def _commit_of(self, what: Replacement, before: int) -> Commit | None:
        """Returns the commit with this metadata, if there is one behind the version ``before``."""
        if self.version() == before:
            return None
        history = DeltaTable.forPath(self._spark, self.path).history(_COMMITS_LOOKED_AT)
        wanted = json.dumps(what.metadata)
        for row in history.select("version", "userMetadata", "operationMetrics").collect():
            if row.userMetadata == wanted:
                metrics = {name: int(row.operationMetrics.get(name, 0)) for name in ("numOutputRows", "numCopiedRows")}
                # Rows of other brokers that shared a file with replaced ones are written anew, and counted.
                return Commit(int(row.version), metrics["numOutputRows"] - metrics["numCopiedRows"])
        return None

    def _of(self, cluster: str, broker: str) -> DataFrame:
        return self.rows().where(_of_broker(cluster, broker))

    def _log(self) -> Any:
        jvm: Any = self._spark._jvm
        return jvm.org.apache.spark.sql.delta.DeltaLog.forTable(self._spark._jsparkSession, self.path)

    def _snapshot(self) -> Any:
        jvm: Any = self._spark._jvm
        nothing = jvm.scala.Option.empty()
        return self._log().update(False, nothing, nothing)

    def _snapshot_metadata(self) -> dict[str, Any]:
        metadata: dict[str, Any] = json.loads(self._snapshot().metadata().json())
        found: dict[str, Any] = metadata.get("metaData", metadata)
        return found


def open_table(spark: SparkSession, path: str) -> MessagesTable | None:
    """Returns the table at a path, None if nothing is there. Raises what is there instead."""
    require_delta(spark)
    if not DeltaTable.isDeltaTable(spark, path):
        if files.exists(path) and files.list_directory(path):
            raise NotAStore("there is something else than a Delta table", path=path)
        return None
    table = MessagesTable(spark, path)
    check_schema(table.schema(), path)
    return table


def existing_table(spark: SparkSession, path: str) -> MessagesTable:
    """Returns the table at a path; raises MissingInput if there is none."""
    table = open_table(spark, path)
    if table is None:
        raise MissingInput("there is no such table", path=path, advice="`load` makes one")
    return table


def create_table(spark: SparkSession, path: str, *, time_zone: str, bodies: bool) -> MessagesTable:
    """Returns the table at a path, made if it is not there."""
    schema = schemas.MESSAGES_WITH_BODY if bodies else schemas.MESSAGES
    with _plain_trouble(path):
        (
            DeltaTable.createIfNotExists(spark)
            .location(path)
            .addColumns(schemas.to_spark(schema))
            .partitionedBy(*schemas.PARTITION_COLUMNS)
            .property(TIME_ZONE, time_zone)
            .property("delta.dataSkippingStatsColumns", ",".join(schemas.STATISTICS_COLUMNS))
            .execute()
        )
    return MessagesTable(spark, path)


def check_schema(found: StructType, path: str) -> None:
    """Raises NotAStore unless a table of these columns is, or can become, the table ``messages``."""
    types = {field.name.lower(): field.dataType.simpleString() for field in found}
    missing = [name for name in REQUIRED if name not in types]
    if missing:
        raise NotAStore(f"this Delta table is not `messages`: it has no column {missing[0]}", path=path)
    for field in schemas.to_spark(schemas.MESSAGES_WITH_BODY):
        expected = field.dataType.simpleString()
        if types.get(field.name, expected) != expected:
            raise NotAStore(
                f"this Delta table is not `messages`: the type of {field.name} is wrong",
                path=path, found=types[field.name], expected=expected,
            )  # fmt: skip


def require_delta(spark: SparkSession) -> None:
    """Raises DependencyMissing where Spark cannot read Delta tables."""
    advice = (
        "./spark-submit.sh brings it; elsewhere: --packages io.delta:delta-spark_4.2_2.13:4.4.0, with Delta's extension"
    )
    jvm: Any = spark._jvm
    if type(jvm.org.apache.spark.sql.delta.DeltaLog).__name__ != "JavaClass":
        raise DependencyMissing("Spark has no Delta jar", advice=advice)
    catalog = spark.conf.get("spark.sql.catalog.spark_catalog", "") or ""
    extensions = spark.conf.get("spark.sql.extensions", "") or ""
    if "DeltaCatalog" not in catalog or "DeltaSparkSessionExtension" not in extensions:
        raise DependencyMissing("Spark has Delta's jar, but not its extension and catalog", advice=advice)


@contextmanager
def _no_sort_by_partition(spark: SparkSession) -> Iterator[None]:
    """Within it a task keeps a file open for each of a few dates, instead of sorting its rows by date first."""
    name = "spark.sql.maxConcurrentOutputFileWriters"
    before = spark.conf.get(name, None)
    spark.conf.set(name, _MOST_DATES_A_TASK)
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, before)


@contextmanager
def _plain_trouble(path: str) -> Iterator[None]:
    """Turns conflicts into Overtaken, and what the file system says into WriteFailed."""
    try:
        yield
    except (Py4JError, PySparkException) as error:
        text = str(error)
        if any(sign in text for sign in _CONFLICTS):
            raise Overtaken(text.partition("\n")[0]) from error
        for sign in _TROUBLE:
            if sign in text:
                raise WriteFailed(f"the table cannot be written: {sign}", path=path) from error
        raise


def _transaction(name: str, version: int) -> dict[str, Any]:
    return {"txn": {"appId": name, "version": version, "lastUpdated": int(time.time() * 1000)}}


def _added(file: WrittenFile, now: int) -> dict[str, Any]:
    return {
        "add": {
            "path": file.path,
            "partitionValues": {PARTITION: file.store_date},
            "size": file.size,
            "modificationTime": now,
            "dataChange": True,
            "stats": file.statistics,
        }
    }


def _application_prefix(cluster: str, broker: str) -> str:
    return f"{APPLICATION}/{quote(cluster, safe='')}/{quote(broker, safe='')}/"


def _of_broker(cluster: str, broker: str) -> str:
    return f"cluster = {_literal(cluster)} AND broker = {_literal(broker)}"


def _literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def refuse_time_zone(table: MessagesTable, asked: str | None) -> str:
    """Returns the table's time zone; raises Refused where another one was asked for."""
    if asked is not None and asked != table.time_zone:
        raise Refused(
            "the table is divided by another time zone's dates", path=table.path, found=asked, expected=table.time_zone
        )
    return table.time_zone
