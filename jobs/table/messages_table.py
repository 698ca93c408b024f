"""The Delta table ``messages``: making it, asking how far a broker was loaded, adding rows to it at most once.

What was loaded is written in the table itself, in the same commit as the rows (``jobs.table.commits``). New rows come
as files that tasks have written. Delta's own writer *replaces* rows: those after the offset from which a log was
rewritten, and every range of a table that needs more of Delta than such files have. A range that is replaced cannot get
in twice either: of two commits that replace a common range, Delta lets only one pass.

The table is partitioned by date and not clustered: delta-rs, which many readers are built on, cannot write a table with
the features ``clustering`` and ``domainMetadata``, and OPTIMIZE of closed dates alone touches each file once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StructType

from jobs.table import commits, plain_table, s3_tables
from jobs.table.commits import BrokerRows, BrokerState, Commit
from jobs.table.plain_table import PlainTable
from storeformat.errors import DependencyMissing, MissingInput, NotAStore, Refused
from storeformat.storage import files, locations, outputs
from udfs.table import schemas
from udfs.table.parquet_files import WrittenFile

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TIME_ZONE = "rocketmq.timeZone"
IDENTITY = (
    "commit_log_offset", "size", "topic", "queue_id", "queue_offset", "store_timestamp", "body_crc", "magic_code",
)  # fmt: skip
"""Columns that tell two records apart which lie at the same offset of different logs."""

REQUIRED = ("cluster", "broker", "store_date", *IDENTITY)
"""Columns without which a table is another table; all others may be missing and are added."""

_NEAR = 64 << 20
_MOST_DATES_A_TASK = 100
_COMMITS_LOOKED_AT = 50
_VERSION = re.compile(r"\d{20}\.(.+\.)?(json|parquet)")


Session = Callable[[], "SparkSession"]
"""Gives the session, which may start only then."""


class MessagesTable:
    """A table ``messages`` at a path; only ``exists`` may be asked where there may be none.

    What is asked of a ``plain`` table, and files that are added to it, need no session.
    """

    def __init__(self, spark: SparkSession | Session, path: str, plain: PlainTable | None = None) -> None:
        self._session: Session = spark if callable(spark) else lambda: spark
        self.path = path
        self._plain = plain

    @cached_property
    def _spark(self) -> SparkSession:
        session = self._session()
        require_delta(session)
        return session

    @property
    def _place(self) -> str:
        """The path as Spark takes it: a bare one would be looked for in Hadoop's ``fs.defaultFS``."""
        return f"file:{self.path}" if locations.is_local(self.path) else self.path

    def exists(self) -> bool:
        """Returns whether Delta's log has a version here; its directory alone is not a table yet."""
        return int(self._snapshot().version()) >= 0

    @property
    def plain(self) -> PlainTable | None:
        """The table as delta-rs reads and commits to it, None where it is of another kind."""
        return self._plain

    @property
    def properties(self) -> dict[str, str]:
        """The table's properties."""
        return dict(self._metadata()["configuration"])

    @property
    def time_zone(self) -> str:
        """The time zone whose midnight divides ``store_date``."""
        return self.properties.get(TIME_ZONE, "UTC")

    def schema(self) -> StructType:
        """Returns the columns that the table has."""
        return StructType.fromJson(json.loads(self._metadata()["schemaString"]))

    def rows(self) -> DataFrame:
        """Returns all rows."""
        return self._spark.read.format("delta").load(self._place)

    def version(self) -> int:
        """Returns the newest version; of a plain table the one that was opened."""
        return self._plain.version if self._plain else int(self._snapshot().version())

    def state(self, cluster: str, broker: str) -> BrokerState | None:
        """Returns how far a broker was loaded, None if it never was."""
        if self._plain:
            return self._plain.state(cluster, broker)
        transactions = {}
        entries = self._snapshot().transactions().iterator()
        while entries.hasNext():
            entry = entries.next()
            transactions[str(entry._1())] = int(entry._2())
        found = commits.recorded_state(transactions, cluster, broker)
        if found is not None:
            return found
        # A copy of a table (CTAS, CLONE) has the rows and not their transactions.
        (end,) = self._of(cluster, broker).selectExpr("max(commit_log_offset + size)").first() or (None,)
        return None if end is None else BrokerState(int(end), 0, recorded=False)

    def last_rows(self, cluster: str, broker: str, below: int, count: int) -> list[dict[str, Any]]:
        """Returns the last rows of a broker below an offset, newest first: their ``IDENTITY``."""
        if self._plain:
            return self._plain.last_rows(cluster, broker, below, count, IDENTITY)
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
        if missing and self._plain:
            self._plain.add_columns(schemas.select(missing))
            self._plain = plain_table.open_plain(self.path)
        elif missing:
            columns = ", ".join(
                f"{field.name} {field.dataType.simpleString()} COMMENT {commits.literal(field.metadata['comment'])}"
                for field in schemas.to_spark(schemas.select(missing))
            )
            self._spark.sql(f"ALTER TABLE delta.{_quoted(self._place)} ADD COLUMNS ({columns})")
        return missing

    def takes_files(self) -> bool:
        """Returns whether files that tasks have written can be rows of this table as they are."""
        return commits.takes_files(self._metadata())

    def append(
        self, written: Sequence[WrittenFile], what: BrokerRows, seen: BrokerState | None, topics: Sequence[str]
    ) -> Commit:
        """Commits files of new rows; ``seen`` is the state on which they are based. Raises Overtaken."""
        if self._plain:
            return self._plain.append(written, what, seen, topics)
        with commits.plain_trouble(self.path):
            return commits.append(self._spark, self._log(), written, what, seen, topics)

    def replace(self, rows: DataFrame, what: BrokerRows, *, bodies: bool) -> Commit | None:
        """Commits rows; returns the commit, None where this very range had been committed. Raises Overtaken.

        ``bodies`` makes the writer look at its buffers after every row: a default of 100 rows may be 400 MB of bodies.
        """
        writer = (
            rows.write.format("delta")
            .mode("overwrite")
            .option("replaceWhere", what.condition)
            .option("txnAppId", f"{commits.application_prefix(what.cluster, what.broker)}{what.epoch}")
            .option("txnVersion", what.done)
            .option("userMetadata", json.dumps(what.metadata))
        )
        if bodies:
            for unit in ("page.size", "block.size"):
                writer = writer.option(f"parquet.{unit}.row.check.min", 1)
        before = int(self._snapshot().version())
        with _no_sort_by_partition(self._spark), commits.plain_trouble(self.path):
            writer.save(self._place)
        return self._commit_of(what, before)

    def _commit_of(self, what: BrokerRows, before: int) -> Commit | None:
        """Returns the commit with this metadata, if there is one after the version ``before``."""
        from delta.tables import DeltaTable  # noqa: PLC0415  (imports Spark's SQL)

        if int(self._snapshot().version()) == before:
            return None
        history = DeltaTable.forPath(self._spark, self._place).history(_COMMITS_LOOKED_AT)
        wanted = json.dumps(what.metadata)
        for row in history.select("version", "userMetadata", "operationMetrics").collect():
            if row.userMetadata == wanted:
                metrics = {name: int(row.operationMetrics.get(name, 0)) for name in ("numOutputRows", "numCopiedRows")}
                # Rows of other brokers that shared a file with replaced ones are written again, and counted.
                return Commit(int(row.version), metrics["numOutputRows"] - metrics["numCopiedRows"])
        return None

    def _of(self, cluster: str, broker: str) -> DataFrame:
        return self.rows().where(commits.of_broker(cluster, broker))

    def _log(self) -> Any:
        jvm: Any = self._spark._jvm
        return jvm.org.apache.spark.sql.delta.DeltaLog.forTable(self._spark._jsparkSession, self._place)

    def _snapshot(self) -> Any:
        jvm: Any = self._spark._jvm
        nothing = jvm.scala.Option.empty()
        return self._log().update(False, nothing, nothing)

    def _metadata(self) -> dict[str, Any]:
        if self._plain:
            return self._plain.metadata
        metadata: dict[str, Any] = json.loads(self._snapshot().metadata().json())
        found: dict[str, Any] = metadata.get("metaData", metadata)
        return found


def open_table(spark: SparkSession | Session, path: str, *, writes: bool = False) -> MessagesTable | None:
    """Returns the table at a path, None if nothing is there. Raises NotAStore if something else is there, and, for one
    who ``writes``, Refused where one of two commits at once could be lost.
    """
    plain = plain_table.open_plain(path)
    if plain is None and plain_table.may_be_plain(path):
        if _is_free(path):
            return None
        plain = plain_table.open_plain(path)  # another load may have made it just now
    table = MessagesTable(spark, path, plain)
    if plain is None and writes and s3_tables.on_s3(path):
        raise s3_tables.needs_delta(path, "this table has properties or features that")
    if plain is None and not table.exists():
        # A load that makes the table at this moment, or was killed when it did, has made Delta's directory first.
        if _is_free(path):
            return None
        if not table.exists():
            raise NotAStore("this exists and is not a Delta table", path=path)
    check_schema(table.schema(), path)
    return table


def _is_free(path: str) -> bool:
    """Returns whether a table can be made at a path: nothing is there, or Delta's directory without a version, in which
    a load may be writing its first one: delta-rs makes it as a file of another name, ``.json#1``, and links it.
    """
    names = [entry.name for entry in files.list_directory(path) or ()]
    if names != ["_delta_log"]:
        return not names
    log = files.list_directory(locations.join(path, "_delta_log")) or ()
    return not any(_VERSION.fullmatch(entry.name) for entry in log)


def existing_table(spark: SparkSession, path: str) -> MessagesTable:
    """Returns the table at a path; raises MissingInput if there is none."""
    require_delta(spark)
    table = open_table(spark, path)
    if table is None:
        raise MissingInput("there is no such table", path=path, advice="`load` makes one")
    return table


def create_table(spark: SparkSession | Session, path: str, *, time_zone: str, bodies: bool) -> MessagesTable:
    """Returns the table at a path, made if it is not there."""
    schema = schemas.MESSAGES_WITH_BODY if bodies else schemas.MESSAGES
    properties = {TIME_ZONE: time_zone, "delta.dataSkippingStatsColumns": ",".join(schemas.STATISTICS_COLUMNS)}
    if plain_table.may_be_plain(path):
        outputs.make_directory(path)
        plain_table.create(path, schema, properties)
        return MessagesTable(spark, path, plain_table.open_plain(path))
    from delta.tables import DeltaTable  # noqa: PLC0415  (imports Spark's SQL)

    table = MessagesTable(spark, path)
    with commits.plain_trouble(path):
        maker = DeltaTable.createIfNotExists(table._spark).location(table._place).addColumns(schemas.to_spark(schema))
        for name, value in properties.items():
            maker = maker.property(name, value)
        maker.partitionedBy(*schemas.PARTITION_COLUMNS).execute()
    return table


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
        "./spark-submit.sh brings it; elsewhere: --packages io.delta:delta-spark_4.2_2.13:4.4.0"
        " --conf spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension"
        " --conf spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog"
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


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def refuse_time_zone(table: MessagesTable, asked: str | None) -> str:
    """Returns the table's time zone; raises Refused where another one was asked for."""
    if asked is not None and asked != table.time_zone:
        raise Refused(
            "the dates of the table are those of another time zone",
            path=table.path,
            found=asked,
            expected=table.time_zone,
        )
    return table.time_zone
