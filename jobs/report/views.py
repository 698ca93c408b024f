"""The views over the table ``messages``: ``register(spark, messages)``, then ``SELECT * FROM retry_ageing``.

Each is a file in ``jobs/report/sql/views``, those of ``storage_by_KEY`` together one; all but ``traces`` are SQL alone.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from configparser import ConfigParser
from dataclasses import dataclass
from importlib import resources
from string import Template
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from jobs.contract.report import duration_text, printable, size_text
from jobs.table.messages_table import MessagesTable, unreadable
from storeformat.errors import DependencyMissing
from storeformat.storage import files, locations
from udfs.functions.scalar import FUNCTIONS
from udfs.table import schemas
from udfs.table.parquet_files import ReadFiles

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Row = dict[str, Any]

KEYS: Mapping[str, tuple[str, ...]] = {
    "topic": ("topic",),
    "queue": ("cluster", "broker", "topic", "queue_id"),
    "tag": ("topic", "tags"),
    "host": ("host",),
    "hour": ("hour",),
    "date": ("store_date",),
}
MOST_GROUPS = 100_000
_WIDEST = 127
"""Characters of a group's key on a terminal: the limit of topics (Validators); a tag may have thousands."""
_AT_ONCE = 3
"""Queries at a time: others use the cores while one is planned or runs its last tasks."""
_SECONDS_OF = {"hour": 3600, "date": 86400}

CHECKS = ("retries", "duplicates", "transactions", "delays", "gaps", "clock_steps", "clocks_ahead")
"""Files in ``jobs/report/sql/checks``: what people ask first when something is wrong, in few rows."""
BY_REAL_TOPIC = ("retries", "transactions", "delays")
"""Checks of messages stored under another topic than their own."""


@dataclass(frozen=True)
class Facts:
    """Rows of brokers, checks by name, and the largest of ``groups_in_all`` groups (``MOST_GROUPS`` at most)."""

    by: str
    brokers: Sequence[Row]
    groups: Sequence[Row]
    checks: dict[str, list[Row]]
    groups_in_all: int

    @property
    def messages(self) -> int:
        return sum(broker["messages"] for broker in self.brokers)

    @property
    def bytes(self) -> int:
        return sum(broker["bytes"] for broker in self.brokers)

    @property
    def first_stored(self) -> Any:
        return min((broker["first_stored"] for broker in self.brokers if broker["first_stored"]), default=None)

    @property
    def last_stored(self) -> Any:
        return max((broker["last_stored"] for broker in self.brokers if broker["last_stored"]), default=None)

    @property
    def span(self) -> float:
        """Seconds from the oldest message to the newest, at least 1."""
        return max((self.last_stored - self.first_stored).total_seconds(), 1.0) if self.first_stored else 1.0

    @property
    def mean_rate(self) -> float:
        return self.bytes / self.span

    def names_of_brokers(self, most: int) -> str:
        names = ", ".join(f"{broker['cluster']}/{broker['broker']}" for broker in self.brokers[:most])
        return names + (f" and {len(self.brokers) - most} more" if len(self.brokers) > most else "")


def measure(spark: SparkSession, by: str, *, checks: bool, without: Sequence[str] = ()) -> Facts:
    """Facts from the registered views, with ``checks`` those not in ``without``."""
    keys = ", ".join(KEYS[by])
    asked = {
        **{name: sql_text("checks", f"{name}.sql") for name in CHECKS if checks and name not in without},
        "groups": f"""
            SELECT {keys}, sum(messages) AS messages, sum(bytes) AS bytes, sum(body_bytes) AS body_bytes,
                   min(first_stored) AS first_stored, max(last_stored) AS last_stored
              FROM storage_by_{by} GROUP BY {keys} ORDER BY bytes DESC, {keys} LIMIT {MOST_GROUPS}""",
        "brokers": """
            SELECT cluster, broker, sum(messages) AS messages, sum(bytes) AS bytes, min(first_stored) AS first_stored,
                   max(last_stored) AS last_stored
              FROM storage_by_date GROUP BY cluster, broker ORDER BY cluster, broker""",
    }
    found = dict(zip(asked, answers(spark, asked.values()), strict=True))
    brokers, groups = found.pop("brokers"), found.pop("groups")
    count = f"SELECT count(*) FROM (SELECT DISTINCT {keys} FROM storage_by_{by})"
    in_all = len(groups) if len(groups) < MOST_GROUPS else spark.sql(count).collect()[0][0]
    return with_rates(Facts(by, brokers, groups, found, in_all))


def with_rates(facts: Facts) -> Facts:
    """Add share and rates to the groups."""
    seconds = _SECONDS_OF.get(facts.by, facts.span)
    for group in facts.groups:
        group["share"] = group["bytes"] / max(facts.bytes, 1)
        group["messages_per_second"] = group["messages"] / seconds
        group["bytes_per_second"] = group["bytes"] / seconds
    return facts


def answers(spark: SparkSession, queries: Iterable[str]) -> list[list[Row]]:
    """Rows of each query."""
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        return list(threads.map(lambda query: list(spark.sql(query).toArrow().to_pylist()), queries))


_SENTENCES = {
    "retries": ("groups", "{retries:,} retries and {dead:,} dead letters; consumer groups: {groups}", "none"),
    "duplicates": ("surplus", "{surplus:,} messages more than unique keys", "none"),
    "transactions": ("outcomes", "{outcomes}", "none"),
    "delays": ("scheduled", "{scheduled:,} delayed messages, {overdue:,} overdue{late}{early}", "none"),
    "gaps": ("places", "{missing:,} messages are missing in queues{again}", "none: queue offsets are consecutive"),
    "clocks": (
        "clocks", "the broker's clock went back {steps:,} times; {ahead:,} producers' clocks are ahead of it",
        "no step back, no producer ahead",
    ),
}  # fmt: skip
"""The figure that must not be zero, the sentence, and what is said without."""


def sentences(checks: dict[str, list[Row]]) -> dict[str, str]:
    """What each check found, in a sentence."""

    def total(name: str, column: str, **where: str) -> int:
        rows = (row for row in checks.get(name, ()) if all(row[key] == value for key, value in where.items()))
        return sum(row[column] for row in rows)

    def known(column: str) -> list[int]:
        return [row[column] for row in checks.get("delays", ()) if row[column] is not None]

    outcomes = Counter[str]()
    for row in checks.get("transactions", ()):
        outcomes[row["outcome"]] += row["transactions"]
    latest, earliest = max(known("max_late_ms"), default=-1), min(known("min_late_ms"), default=0)
    again = total("gaps", "places", kind="restart") + total("gaps", "places", kind="repeat")
    steps, ahead = total("clock_steps", "steps"), len(checks.get("clocks_ahead", ()))
    doubt = f"; up to {-earliest:,} ms too early: was the broker's messageDelayLevel given to load?"
    figures = {
        "retries": total("retries", "messages", kind="retry"),
        "dead": total("retries", "messages", kind="dlq"),
        "groups": len({row["consumer_group"] for row in checks.get("retries", ())}),
        "surplus": total("duplicates", "surplus"),
        "outcomes": ", ".join(f"{count:,} {outcome}" for outcome, count in sorted(outcomes.items())),
        "scheduled": total("delays", "scheduled"),
        "overdue": total("delays", "overdue"),
        "late": f", at most {latest:,} ms late" if latest >= 0 else "",
        "early": doubt if earliest < 0 else "",
        "places": total("gaps", "places"),
        "missing": total("gaps", "missing"),
        "again": f"; at {again:,} places offsets restart or occur twice" if again else "",
        "steps": steps,
        "ahead": ahead,
        "clocks": steps + ahead,
    }
    found = {name: text.format(**figures) if figures[one] else none for name, (one, text, none) in _SENTENCES.items()}
    without = "not judged with this --topic: name a whole topic, and none in which the broker keeps messages of others"
    return found | {name: without for name in BY_REAL_TOPIC if name not in checks}


def moment(value: Any) -> str:
    """A UTC time as ``2024-05-30 07:15:02``."""
    return "?" if value is None else str(value)[:19]


def key_text(value: Any) -> str:
    """A group's key, safe for a terminal."""
    if value is None:
        return "(none)"
    return str(value)[:16] if hasattr(value, "hour") else printable(str(value))


def span_text(seconds: float) -> str:
    """A storage duration, in days from two days on."""
    return duration_text(seconds) if seconds < 172_800 else f"{seconds / 86_400:,.1f} days"


def number_text(value: float, digits: int) -> str:
    """A number with ``digits`` significant digits, or all digits before the point."""
    return f"{value:,.0f}" if abs(value) >= 10 ** (digits - 1) else f"{value:.{digits}g}"


def rate_text(rate: float) -> str:
    """Bytes per second, with a fraction for small rates."""
    return f"{size_text(rate)}/s" if rate >= 10 else f"{rate:.2g} B/s"


AMOUNTS: Mapping[str, Callable[[Any], str]] = {
    "messages": "{:,}".format,
    "bytes": size_text,
    "share": "{:.1%}".format,
    "messages_per_second": lambda rate: number_text(rate, 3),
    "bytes_per_second": rate_text,
}
"""The figures of a group, and how each is written."""


def to_lines(facts: Facts, most: int, elsewhere: str = "") -> list[str]:
    """Lines for a terminal with the ``most`` largest groups; ``elsewhere`` says where the others are."""
    if not facts.brokers:
        return ["The table is empty."]
    head = (
        f"{facts.messages:,} messages, {size_text(facts.bytes)}, {moment(facts.first_stored)} to "
        f"{moment(facts.last_stored)} ({span_text(facts.span)}); {facts.names_of_brokers(5)}"
    )
    rows = [(*KEYS[facts.by], "messages", "bytes", "share", "messages/s", "rate")]
    rows += [
        (
            *(
                text if len(text := key_text(group[key])) <= _WIDEST else f"{text[:_WIDEST]}..."
                for key in KEYS[facts.by]
            ),
            *(text_of(group[name]) for name, text_of in AMOUNTS.items()),
        )
        for group in facts.groups[:most]
    ]
    lines = [head, "", *_aligned(rows, left=len(KEYS[facts.by]))]
    if facts.groups_in_all > most:
        lines.append(f"... and {facts.groups_in_all - most:,} more{elsewhere}")
    if facts.checks:
        lines += ["", *(f"{title:<14}{sentence}" for title, sentence in sentences(facts.checks).items())]
    return lines


def _aligned(rows: Sequence[Sequence[str]], left: int) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(
            cell.ljust(width) if column < left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


_OF_CHECKS = (
    "retry_ageing", "duplicates", "duplicates_by_topic", "transactions", "transaction_outcomes", "delays",
    "delay_accuracy", "queue_gaps", "clock_steps", "clock_skew_by_host",
)  # fmt: skip
VIEWS = (
    "storage_by_topic", "storage_by_queue", "storage_by_tag", "storage_by_host", "storage_by_hour", "storage_by_date",
    "throughput", "size_buckets", *_OF_CHECKS, "messages_gaps",
)  # fmt: skip
"""Each view reads ``messages`` and earlier views."""
TRACE_VIEWS = ("traces", "consumptions")
"""Views that need bodies and the functions of ``jobs.report.functions``."""
_OF_PLOTS = ("storage_by_topic", "throughput", "size_buckets")

_COMMENT = re.compile(r"^\s*--.*\n?", re.MULTILINE)

SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"
OUR_DEFAULT = "8"
"""Value in conf/spark-defaults.conf; any other value is the user's and stays."""
_BYTES_A_PARTITION = 16 << 20
"""Bytes of Delta files, about 250,000 messages without bodies."""
_MOST_PARTITIONS = 2000
_UNKNOWN = 1 << 60
"""Spark uses the largest number where a source knows no size."""


def of_report(by: str, *, checks: bool, plots: bool) -> tuple[str, ...]:
    """Views that a report needs: registering one takes a tenth of a second."""
    names = {"storage_by_date", f"storage_by_{by}", *(_OF_CHECKS if checks else ()), *(_OF_PLOTS if plots else ())}
    return tuple(name for name in VIEWS if name in names)


def over_table(started: SparkSession, table: MessagesTable, names: Sequence[str]) -> SparkSession:
    """A new session in UTC with these views over a table."""
    spark = started.newSession()
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    register(spark, _rows_of(spark, table), names)
    return spark


def needs_delta(table: MessagesTable) -> bool:
    """True if only Delta can read the table: its files hold more than its rows, or its paths do not name partitions."""
    return not (table.is_plain and (table.paths_name_partitions or not _reaches(table)))


def _reaches(table: MessagesTable) -> bool:
    return locations.is_local(table.path) or table.path.startswith("hdfs://")


def _rows_of(spark: SparkSession, table: MessagesTable) -> DataFrame:
    """Rows of the table's version, by Spark's Parquet reader (starts seconds sooner), Arrow in tasks, or Delta."""
    own = pa.schema([field for field in table.schema if field.name.lower() in schemas.MESSAGES_WITH_BODY.names])
    columns = schemas.to_spark(own)
    # A bare path would be looked for in Hadoop's ``fs.defaultFS``.
    scheme = "file:" if locations.is_local(table.path) else ""
    if needs_delta(table):
        require_delta(spark)
        rows = spark.read.format("delta").option("versionAsOf", table.version).load(scheme + table.path)
        return rows.select(*own.names)  # names of other columns may be anything, and Spark replaces ${...} in SQL
    if not table.files:
        nothing = (f"CAST(NULL AS {one.dataType.simpleString()}) AS `{one.name}`" for one in columns)
        return spark.range(0).selectExpr(*nothing)
    if not _reaches(table):
        read = ReadFiles(tuple(table.files), own)
        return spark.range(0, len(read.files), 1, len(read.files)).mapInArrow(read, columns).persist()
    for file in table.files:  # Spark passes over a file that has become empty
        if files.size_of(file.path) != file.size:
            raise unreadable(file.path, "a file is not what Delta's log says")
    reader = spark.read.schema(columns).option("basePath", scheme + table.path)
    reader = reader.option("__globPaths__", "false")  # a path may have brackets and stars, and is no pattern
    return reader.parquet(*(scheme + file.path for file in table.files))


def require_delta(spark: SparkSession) -> None:
    """Raise DependencyMissing if Spark cannot read Delta tables."""
    jvm: Any = spark._jvm
    extensions = f"{spark.conf.get('spark.sql.extensions', '')} {spark.conf.get('spark.sql.catalog.spark_catalog', '')}"
    if type(jvm.org.apache.spark.sql.delta.DeltaLog).__name__ != "JavaClass" or "Delta" not in extensions:
        raise DependencyMissing(
            "Spark lacks Delta's jar, or its extension and catalog",
            advice="./spark-submit.sh brings them; elsewhere: --packages io.delta:delta-spark_4.2_2.13:4.4.0"
            " --conf spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension"
            " --conf spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog",
        )


def register(spark: SparkSession, messages: DataFrame, names: Sequence[str] = VIEWS + TRACE_VIEWS) -> None:
    """Create ``messages`` (NULL for missing bodies) and views as temporary views; fits the session to the data."""
    if hasattr(messages, "_jdf"):  # Spark Connect tells no size, and its settings are the server's
        plan = messages._jdf.queryExecution().optimizedPlan()
        fit_session(spark, int(str(plan.stats().sizeInBytes())))
    messages.selectExpr(*columns_of(messages)).createOrReplaceTempView("messages")
    if set(names) & set(TRACE_VIEWS):
        register_functions(spark)
    for name in names:
        spark.sql(view_text(name))


_LONG_WAY = {
    "delay_level": "try_cast(properties['DELAY'] AS INT)",
    # As other times: NULL outside of years 1 to 9999.
    "timer_due": "CASE WHEN try_cast(properties['TIMER_OUT_MS'] AS BIGINT) >= -62135510400000 AND"
    " try_cast(properties['TIMER_OUT_MS'] AS BIGINT) < 253402214400000"
    " THEN timestamp_millis(try_cast(properties['TIMER_OUT_MS'] AS BIGINT)) END",
    "real_topic": "properties['REAL_TOPIC']",
    "inner_num": "CASE WHEN try_cast(properties['INNER_BASE'] AS BIGINT) IS NOT NULL"
    " THEN try_cast(properties['INNER_NUM'] AS INT) END",
    **dict.fromkeys(schemas.RUNS, "CAST(NULL AS INT)"),
    schemas.BODY: "CAST(NULL AS BINARY)",
}
"""SQL for columns that a table may lack."""


def columns_of(messages: DataFrame) -> list[str]:
    """Columns of the view ``messages`` as SQL; what older rows lack comes from the slower properties map."""
    columns = {name: "`" + name.replace("`", "``") + "`" for name in messages.columns}
    lacks = not _LONG_WAY.keys() - {schemas.BODY} <= columns.keys()
    older = lacks or bool(messages.where("queue_run IS NULL").select("queue_run").take(1))
    for name, way in _LONG_WAY.items():
        if older or name not in columns:
            value = f"coalesce({name}, {way})" if name in columns else way
            columns[name] = f"{value} AS {name}"
    return list(columns.values())


def register_lag(spark: SparkSession, consumer_offsets: DataFrame) -> None:
    """Create ``consumer_offsets``, and the view ``lag``, as temporary views."""
    consumer_offsets.createOrReplaceTempView("consumer_offsets")
    spark.sql(view_text("lag"))


def create_permanent(spark: SparkSession, table: str, names: Sequence[str] = VIEWS) -> None:
    """Create permanent views over ``table``, as named in SQL; columns added later are NULL until the next call."""
    database = spark.catalog.currentDatabase()
    if not hasattr(spark, "newSession"):
        what = "Spark Connect opens no session without this one's temporary views"
        raise DependencyMissing(what, advice="make permanent views with Spark itself, as spark-submit.sh starts it")
    spark = spark.newSession()  # in which no temporary view has one of these names
    spark.catalog.setCurrentDatabase(database)
    # The columns have their names from the head of each view.
    spark.conf.set("spark.sql.legacy.allowAutoGeneratedAliasForView", "true")
    columns = ", ".join(columns_of(spark.table(table)))
    spark.sql(f"CREATE OR REPLACE VIEW messages AS SELECT {columns} FROM {table}")
    for name in names:
        spark.sql(view_text(name).replace("CREATE OR REPLACE TEMPORARY VIEW", "CREATE OR REPLACE VIEW", 1))


def register_functions(spark: SparkSession) -> None:
    """Register the functions in this session."""
    from pyspark.sql.pandas.functions import arrow_udf  # noqa: PLC0415  (for the reading of the file alone no Spark is needed)

    make: Any = arrow_udf  # its declared overloads want column types written out
    for name, (function, returned) in FUNCTIONS.items():
        spark.udf.register(f"_rmq_{name}", make(function, schemas.spark_type(returned)))
    for statement in statements(sql_text("functions.sql")):
        spark.sql(statement)


def view_text(name: str) -> str:
    """The statement of a view: its file, or the template of ``storage_by_KEY`` with the row of the key."""
    if not name.startswith("storage_by_"):
        return statements(sql_text("views", f"{name}.sql"))[0]
    key, rows = name.removeprefix("storage_by_"), ConfigParser(interpolation=None)
    rows.read_string(sql_text("views", "storage_by.ini"))
    return Template(statements(sql_text("views", "storage_by.sql"))[0]).substitute(rows[key], key=key)


def sql_text(*path: str) -> str:
    """Text of a file below ``jobs/report/sql``; works from a zip, too."""
    return resources.files("jobs.report").joinpath("sql", *path).read_text(encoding="utf-8")


def statements(text: str) -> list[str]:
    """SQL statements without comment lines; a statement ends with a semicolon at a line's end."""
    return [part.strip() for part in re.split(r";\s*(?:\n|$)", _COMMENT.sub("", text)) if part.strip()]


def fit_session(spark: SparkSession, size: int) -> None:
    """Set the session's shuffle partitions for a table of ``size`` bytes, unless the user has set them."""
    if spark.sparkContext.getConf().get(SHUFFLE_PARTITIONS, OUR_DEFAULT) == OUR_DEFAULT and size < _UNKNOWN:
        spark.conf.set(SHUFFLE_PARTITIONS, max(1, min(-(-size // _BYTES_A_PARTITION), _MOST_PARTITIONS)))
