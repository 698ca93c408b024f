"""What a load writes into Delta's log, and what keeps two loads from committing the same rows.

==========================  ==========================================================================================
transaction of Delta's      ``rocketmq-store-spark/CLUSTER/BROKER/EPOCH`` -> the commit-log offset where the last load
                            ended. Kept for ever. A repair begins the next epoch, because its end may lie further back
another, of loads of        ``rocketmq-store-spark/CLUSTER/BROKER/EPOCH/TOPIC,TOPIC:QUEUE`` -> the same offset
some topics
another, of loads past      ``rocketmq-store-spark/CLUSTER/BROKER/salvaged/EPOCH`` -> where the first damage was
damage
files that were added       with the smallest and largest values that Delta skips files by
user metadata of a commit   range, settings and program version, for people: DESCRIBE HISTORY
==========================  ==========================================================================================

An append looks at the transactions of its broker in this epoch and the next, and fails when another commit has written
one of them since the load looked at the table: by delta-rs, which commits only right after the version that was looked
at (``plain_table``), or, in tables that are not plain, as a transaction of Delta's own (``OptimisticTransaction``). So
of two loads of a broker one passes, and so does one of a load and a repair; loads of several brokers do not hinder each
other.

``RESTORE TABLE ... TO VERSION`` takes rows away and leaves Delta's transactions as they are: these still say that the
rows were loaded. Only the history tells: it is read from Delta's log, from the newest commit back to the load.

==========================  ==========================================================================================
``_delta_log/N.json``       one action a line; N has 20 digits. Old ones go after ``delta.logRetentionDuration``
``{"txn": ...}``            ``appId`` and ``version``: what a load records
``{"commitInfo": ...}``     ``operation`` is RESTORE; ``operationParameters`` has ``version``, or ``timestamp``
==========================  ==========================================================================================
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from storeformat.errors import MissingInput, NotAStore, WriteFailed
from storeformat.storage import files, locations
from udfs.table import schemas
from udfs.table.parquet_files import PARTITION, WrittenFile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

APPLICATION = "rocketmq-store-spark"

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
    "DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION", "DELTA_TABLE_NOT_FOUND",
)  # fmt: skip
"""Delta's error classes of commits that lost a race, the last two of a table that another load is just making. Its
Python exceptions do not cover all of them.
"""

_TROUBLE = (
    "AccessControlException", "AccessDeniedException", "Permission denied", "Mkdirs failed",
    "ParentNotDirectoryException", "Not a directory", "No space left on device", "Read-only file system",
    "FileAlreadyExistsException", "DELTA_CANNOT_CREATE_LOG_PATH",
)  # fmt: skip

_FORBIDDEN = ("DELTA_REPLACE_WHERE_MISMATCH", "DELTA_VIOLATE_CONSTRAINT", "DELTA_NOT_NULL_CONSTRAINT_VIOLATED")
"""Delta's error classes of rows that a constraint does not allow; the first one has that of ``replaceWhere``, too."""


@dataclass(frozen=True)
class BrokerState:
    """How far a broker was loaded: up to ``end``, in which ``epoch`` of repairs, and which ``topics`` (empty: all).

    ``recorded`` says that the table's transactions tell so; else its rows do. From ``salvaged_from`` on rows were read
    past damage of the log.
    """

    end: int
    epoch: int
    topics: tuple[str, ...] = ()
    recorded: bool = True
    salvaged_from: int | None = None


@dataclass(frozen=True)
class BrokerRows:
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
    salvaged_from: int | None = None

    @property
    def condition(self) -> str:
        """The rows that are replaced, in SQL."""
        upper = "" if self.end is None else f" AND commit_log_offset < {self.end}"
        return f"{of_broker(self.cluster, self.broker)} AND commit_log_offset >= {self.begin}{upper}"


@dataclass(frozen=True)
class Commit:
    """A version of the table, the rows it brought, and whether there may be delayed messages among them."""

    version: int
    rows: int
    delayed: bool = True


class Overtaken(Exception):
    """Another load of the same broker was committed first."""


def recorded_state(transactions: Mapping[str, int], cluster: str, broker: str) -> BrokerState | None:
    """Returns how far a broker was loaded, from a table's transactions; None if they do not say."""
    prefix = application_prefix(cluster, broker)
    ends: dict[int, int] = {}
    topics: dict[int, tuple[str, ...]] = {}
    for name, version in transactions.items():
        epoch, _, selection = name.removeprefix(prefix).partition("/")
        if not (name.startswith(prefix) and epoch.isdigit()):
            continue
        if selection:
            topics[int(epoch)] = tuple(unquote(topic) for topic in selection.split(","))
        else:
            ends[int(epoch)] = version
    if not ends:
        return None
    epoch_now = max(ends)
    salvaged = transactions.get(_salvaged_name(prefix, epoch_now))
    return BrokerState(ends[epoch_now], epoch_now, topics.get(epoch_now, ()), salvaged_from=salvaged)


def takes_files(metadata: Mapping[str, Any]) -> bool:
    """Returns whether files of ours can be rows of a table as they are, and Delta can tell doubled loads apart.

    Not so where its owner gave it column mapping, constraints, generated columns or the like, which Delta's own writer
    has to heed, or divided it differently. ``metadata`` is the table's, as Delta's log has it.
    """
    plain = all(
        value in _WHEN_PLAIN.get(name, (value,)) and not name.startswith("delta.constraints.")
        for name, value in metadata["configuration"].items()
    )
    fields = json.loads(metadata["schemaString"])["fields"]
    return (
        plain
        and metadata["partitionColumns"] == list(schemas.PARTITION_COLUMNS)
        and {field["name"] for field in fields} >= set(schemas.MESSAGES.names)
        and all(field["nullable"] and not field["metadata"].keys() - {"comment"} for field in fields)
    )


def transaction_names(what: BrokerRows, topics: Sequence[str]) -> list[str]:
    """Returns under which names a load records its end: the broker's, and that of its topics where it has some."""
    name = f"{application_prefix(what.cluster, what.broker)}{what.epoch}"
    return [name, f"{name}/{','.join(quote(topic, safe='') for topic in topics)}"] if topics else [name]


def salvage_recorded(transactions: Mapping[str, int], what: BrokerRows) -> dict[str, int]:
    """Returns the transaction that says from where on rows were read past damage, none where none were."""
    if what.salvaged_from is None:
        return {}
    name = _salvaged_name(application_prefix(what.cluster, what.broker), what.epoch)
    return {name: min(what.salvaged_from, transactions.get(name, what.salvaged_from))}


def _salvaged_name(prefix: str, epoch: int) -> str:
    return f"{prefix}salvaged/{epoch}"


def _watched(what: BrokerRows, seen: BrokerState | None) -> tuple[str, str]:
    """Returns the transactions that no other commit may have made meanwhile: of the epoch that was seen, and of a
    repair's.
    """
    prefix = application_prefix(what.cluster, what.broker)
    epoch = seen.epoch if seen and seen.recorded else what.epoch
    return f"{prefix}{epoch}", f"{prefix}{epoch + 1}"


def refuse_overtaken(transactions: Mapping[str, int], what: BrokerRows, seen: BrokerState | None) -> None:
    """Raises Overtaken unless a table's transactions are those of the state on which rows are based."""
    expected = seen.end if seen and seen.recorded else None
    for name, known in zip(_watched(what, seen), (expected, None), strict=True):
        if transactions.get(name) != known:
            raise Overtaken(f"{what.cluster}/{what.broker} was loaded meanwhile")


def append(
    spark: SparkSession,
    log: Any,
    written: Sequence[WrittenFile],
    what: BrokerRows,
    seen: BrokerState | None,
    topics: Sequence[str],
) -> Commit:
    """Commits files of new rows to a table; ``log`` is its DeltaLog, ``seen`` the state on which they are based.

    Raises Overtaken. Files of a commit that failed stay where they are: only Delta can tell whether it really did.
    """
    jvm: Any = spark._jvm
    python = jvm.org.apache.spark.api.python.PythonUtils
    some, nothing = jvm.scala.Option.apply, jvm.scala.Option.empty
    now = int(time.time() * 1000)
    names = transaction_names(what, topics)
    actions = [{"txn": {"appId": name, "version": what.done, "lastUpdated": now}} for name in names]
    actions += [_added(file, now) for file in written]
    rows = sum(file.rows for file in written)
    transaction = log.startTransaction()
    found = {name: int(transaction.txnVersion(name)) for name in _watched(what, seen)}
    refuse_overtaken({name: version for name, version in found.items() if version >= 0}, what, seen)
    metrics = {"numFiles": len(written), "numOutputBytes": sum(file.size for file in written), "numOutputRows": rows}
    transaction.registerSQLMetrics(spark._jsparkSession, python.toScalaMap(_metrics(spark, metrics)))
    parse = getattr(getattr(jvm.org.apache.spark.sql.delta.actions, "Action$"), "MODULE$").fromJson
    operation = getattr(jvm.org.apache.spark.sql.delta, "DeltaOperations$Write")(
        jvm.org.apache.spark.sql.SaveMode.Append,
        some(python.toSeq(list(schemas.PARTITION_COLUMNS))),
        nothing(),
        some(json.dumps(what.metadata)),
        *[nothing() for _ in range(5)],
    )
    version = transaction.commit(python.toSeq([parse(json.dumps(action)) for action in actions]), operation)
    return Commit(int(version), rows, any(file.delayed for file in written))


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


def _metrics(spark: SparkSession, values: Mapping[str, int]) -> dict[str, Any]:
    """Returns Spark's counters of these values, which DESCRIBE HISTORY shows."""
    jvm: Any = spark._jvm
    found = {}
    for name, value in values.items():
        found[name] = jvm.org.apache.spark.sql.execution.metric.SQLMetrics.createMetric(
            spark.sparkContext._jsc.sc(), name
        )
        found[name].set(value)
    return found


@contextmanager
def plain_trouble(path: str) -> Iterator[None]:
    """Turns conflicts into Overtaken, constraints into NotAStore, and what the file system says into WriteFailed."""
    from py4j.protocol import Py4JError  # noqa: PLC0415  (most loads need no JVM)
    from pyspark.errors import PySparkException  # noqa: PLC0415

    try:
        yield
    except (Py4JError, PySparkException) as error:
        text = str(error)
        if any(sign in text for sign in _CONFLICTS):
            raise Overtaken(text.partition("\n")[0]) from error
        if any(sign in text for sign in _FORBIDDEN):
            advice = "DESCRIBE DETAIL shows the table's constraints"
            raise NotAStore("a constraint of the table forbids rows of this log", path=path, advice=advice) from error
        for sign in _TROUBLE:
            if sign in text:
                raise WriteFailed(f"the table cannot be written: {sign}", path=path) from error
        raise


def application_prefix(cluster: str, broker: str) -> str:
    """Returns how the names of a broker's transactions begin."""
    return f"{APPLICATION}/{quote(cluster, safe='')}/{quote(broker, safe='')}/"


def of_broker(cluster: str, broker: str) -> str:
    """Returns the condition for a broker's rows, in SQL."""
    return f"cluster = {literal(cluster)} AND broker = {literal(broker)}"


def literal(text: str) -> str:
    """Returns a text as SQL writes it."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


Actions = Sequence[Mapping[str, Any]]


def commits_back_from(table: str, newest: int) -> Iterator[tuple[int, Actions]]:
    """Yields version and actions of a table's commits, the newest first, as far back as Delta's log has them."""
    for version in range(newest, -1, -1):
        try:
            content = files.read_bytes(locations.join(table, "_delta_log", f"{version:020d}.json"))
        except MissingInput:
            return
        with understanding(table):
            actions = [dict(json.loads(line)) for line in content.splitlines() if line.strip()]
        yield version, actions


NOT_DELTAS = (ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError)
"""What becomes of a log in which something else stands than Delta writes."""


@contextmanager
def understanding(table: str) -> Iterator[None]:
    """Within it, a log that is not as Delta writes one raises MissingInput."""
    try:
        yield
    except NOT_DELTAS as error:
        what = f"the table cannot be read: its log is not as Delta writes one ({type(error).__name__})"
        raise MissingInput(what, path=locations.join(table, "_delta_log")) from error


def restored_before(commits: Iterable[tuple[int, Actions]], transaction: str, end: int) -> int | None:
    """Returns the version of the RESTORE that took a load's rows away, None if they are still there.

    The load is the commit that recorded ``end`` for ``transaction``. A log that no longer has it shows nothing. Raises
    ``NOT_DELTAS``, so ValueError for a RESTORE of a version that was not there yet.
    """
    restores: dict[int, int] = {}
    newest = -1
    for version, actions in commits:
        newest = max(newest, version)
        if (transaction, end) in [(txn["appId"], txn["version"]) for action in actions if (txn := action.get("txn"))]:
            content = newest
            while content > version:  # the rows of a RESTORE are those of its target
                content = restores.get(content, content - 1)
            return max(restores) if content < version else None
        for action in actions:
            information = action.get("commitInfo", {})
            if information.get("operation") == "RESTORE":
                target = information.get("operationParameters", {}).get("version")
                restores[version] = -1 if target is None else int(target)  # of a time it is not known which that was
                if restores[version] >= version:
                    raise ValueError("a version that was restored before it was there")
    return None
