r"""The views over the table ``messages``: ``register(spark, messages)``, then ``SELECT * FROM retry_ageing``.

Each is a file in ``jobs/report/sql/views``: a question, a CREATE VIEW with comments, and nothing that needs Python
(except ``traces``).

In ``spark-sql`` the files are run as they are, after one that makes ``messages`` (a table with bodies has its own
``body``)::

    CREATE TEMPORARY VIEW messages AS SELECT *, CAST(NULL AS BINARY) AS body FROM delta.`/data/messages`;

    . .venv/bin/activate
    spark-sql --properties-file conf/spark-defaults.conf --jars "$(ls .venv/jars/*.jar | paste -sd,)" \
      --conf spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension \
      --conf spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog \
      -i messages.sql -i jobs/report/sql/views/storage_by_topic.sql

For ``beeline`` or a BI tool, functions included, this opens a session to JDBC on this machine::

    from pyspark.sql import SparkSession
    from jobs.report import views
    from jobs.spark import launch

    settings = ("spark.sql.hive.thriftServer.singleSession=true",
                "spark.hadoop.hive.server2.thrift.bind.host=127.0.0.1")
    launch.prepare([word for setting in settings for word in ("--conf", setting)], delta=True)
    spark = SparkSession.builder.getOrCreate()
    views.register(spark, spark.read.format("delta").load("/data/messages"))
    server = spark._jvm.org.apache.spark.sql.hive.thriftserver.HiveThriftServer2
    server.startWithSparkSession(spark._jsparkSession, True)
    input("jdbc:hive2://127.0.0.1:10000/ is open; Enter ends it ")
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from jobs.report import functions
from jobs.spark import data_size

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from jobs.table.messages_table import MessagesTable

VIEWS = (
    "storage_by_topic",
    "storage_by_queue",
    "storage_by_tag",
    "storage_by_host",
    "storage_by_hour",
    "storage_by_date",
    "throughput",
    "size_buckets",
    "retry_ageing",
    "duplicates",
    "duplicates_by_topic",
    "transactions",
    "transaction_outcomes",
    "delays",
    "delay_accuracy",
    "queue_gaps",
    "clock_steps",
    "clock_skew_by_host",
)
"""Each reads ``messages`` and views before it."""
TRACE_VIEWS = ("traces", "consumptions")
"""Views that need bodies and the functions of ``jobs.report.functions``."""


def over_table(started: SparkSession, path: str, names: Sequence[str]) -> tuple[SparkSession, MessagesTable]:
    """Returns a session of its own, in which all times are UTC and these views lie over the table at a path, and the
    table; raises MissingInput if there is none.
    """
    from jobs.table import messages_table  # noqa: PLC0415  (imports Delta)

    spark = started.newSession()
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    table = messages_table.existing_table(spark, path)
    register(spark, table.rows(), names)
    return spark, table


def register(spark: SparkSession, messages: DataFrame, names: Sequence[str] = VIEWS + TRACE_VIEWS) -> None:
    """Makes ``messages`` and views over it temporary views of this session, whose settings follow the data.

    A table without bodies gets empty ones.
    """
    data_size.fit_session(spark, data_size.size_of(messages))
    if "body" not in messages.columns:
        messages = messages.selectExpr("*", "CAST(NULL AS BINARY) AS body")
    messages.createOrReplaceTempView("messages")
    if set(names) & set(TRACE_VIEWS):
        functions.register(spark)
    for name in names:
        for statement in functions.statements(functions.sql_text("views", f"{name}.sql")):
            spark.sql(statement)


def create_permanent(spark: SparkSession, table: str, names: Sequence[str] = VIEWS) -> None:
    """Makes ``messages`` over a table, and views over it, views of the session's current database, for tools whose
    catalog outlives a session. ``table`` is as in SQL: a name, or delta.`/data/messages`.
    """
    database = spark.catalog.currentDatabase()
    spark = spark.newSession()  # in which no temporary view has one of these names
    spark.catalog.setCurrentDatabase(database)
    body = "" if "body" in spark.table(table).columns else ", CAST(NULL AS BINARY) AS body"
    spark.sql(f"CREATE OR REPLACE VIEW messages AS SELECT *{body} FROM {table}")
    for name in names:
        (statement,) = functions.statements(functions.sql_text("views", f"{name}.sql"))
        spark.sql(statement)
        columns = ", ".join(spark.table(name).columns)
        spark.catalog.dropTempView(name)
        head, query = re.split(r"^\) AS$", statement, maxsplit=1, flags=re.MULTILINE)
        head = head.replace("TEMPORARY ", "", 1)
        # Spark wants a name for every column of such a view in its query, too.
        spark.sql(f"{head}) AS SELECT * FROM ({query}) AS named ({columns})")
