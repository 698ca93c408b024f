"""Every view gives what an independent slow count gives, over stores that real brokers wrote.

The rows come from the tests' own decoder, not from ``load``; the counts are plain Python over those rows. One more
broker, ``damaged``, is a golden store with messages taken out and clocks turned back: gaps and steps to be found.
"""

from __future__ import annotations

import re
import tarfile
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from support import golden, messages_model
from support.broker_model import read_segments
from support.broker_settings import BrokerSettings
from support.views_model import SLOW_COUNTS, Row

from jobs.report import views
from jobs.report.views import measure
from jobs.table import messages_table
from storeformat.errors import DependencyMissing
from udfs.table import schemas

pytestmark = [pytest.mark.spark, pytest.mark.golden]

STORES = ("base-larger-5.3.3", "base-clean-4.9.8", "batch-cq-5.3.3", "recreate-5.1.4", "retention-5.5.0", "lmq-5.5.0")
SHOP = Path(__file__).parents[3] / "notebooks" / "shop" / "shop-5.3.3.tar.gz"
SHOP_LEVELS = "1s 2s 2s 3s 4s 6s 8s 10s 15s 20s 30s 1m"


def rows_of(name: str) -> Iterator[Row]:
    (store,) = golden.stores(lambda one: one.name == name)
    settings = BrokerSettings.of(store.version, store.settings)
    for row in messages_model.rows(read_segments(golden.unpack(store)), settings, until=store.dispatched_up_to):
        yield {"cluster": "c", "broker": name, **row}


def rows_of_the_shop(directory: Path) -> Iterator[Row]:
    """A broker with clients: retries, dead letters, delays, transactions and traces."""
    with tarfile.open(SHOP) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(directory)
    settings = BrokerSettings.of("5.3.3", {"mappedFileSizeCommitLog": 262144, "messageDelayLevel": SHOP_LEVELS})
    for row in messages_model.rows(read_segments(directory / "shop-5.3.3"), settings):
        yield {"cluster": "c", "broker": "shop-a", **row}


def damaged(rows: Iterable[Row]) -> Iterator[Row]:
    """Messages are missing, others are there twice, and now and then a clock went back."""
    for number, whole in enumerate(rows):
        if number % 50 in (7, 8, 23):
            continue
        back = timedelta(hours=1) if number % 60 == 11 else timedelta()
        ahead = timedelta(minutes=5) if number % 70 == 13 else timedelta()
        key = "SAME" if number % 40 == 5 else whole["uniq_key"]
        yield whole | {
            "broker": "damaged",
            "store_timestamp": whole["store_timestamp"] - back,
            "born_timestamp": whole["born_timestamp"] + ahead,
            "uniq_key": key,
        }


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[Row]:
    found = [row for name in STORES for row in islice(rows_of(name), 700)]
    found += rows_of_the_shop(tmp_path_factory.mktemp("shop"))
    found += damaged([row for row in found if row["broker"] == STORES[0]])
    for name in (STORES[0], STORES[2], STORES[4], "damaged"):  # the others have rows of an older load
        of_broker = [row for row in found if row["broker"] == name]
        for begin in range(0, len(of_broker), 97):
            messages_model.mark_runs(of_broker[begin : begin + 97])
    return found


@pytest.fixture(scope="module")
def catalog(spark: SparkSession, rows: list[Row]) -> SparkSession:
    """A session of its own, so that no other test's views are in the way."""
    other = spark.newSession()
    table = pa.Table.from_pylist(rows, schema=schemas.MESSAGES_WITH_BODY)
    messages = other.createDataFrame(table, schemas.to_spark(schemas.MESSAGES_WITH_BODY))
    views.register(other, messages, views.VIEWS)
    return other


Answers = Callable[[str], list[Row]]


@pytest.fixture(scope="module")
def answers(catalog: SparkSession) -> Answers:
    """The rows of a view, which is asked once."""
    return cache(lambda name: catalog.table(name).toArrow().to_pylist())


def test_every_view_is_counted() -> None:
    assert set(SLOW_COUNTS) == set(views.VIEWS)
    questions = {path.stem for path in Path(views.__file__).parent.glob("sql/views/*.sql")} - {"storage_by"}
    keys = re.findall(r"(?m)^\[([a-z]+)\]", views.sql_text("views", "storage_by.ini"))
    questions |= {f"storage_by_{key}" for key in keys}
    assert questions == {*views.VIEWS, *views.TRACE_VIEWS, "lag"}
    told = (Path(views.__file__).parents[1] / "table" / "README.md").read_text(encoding="utf-8")
    assert [name for name in questions if f"{name}`" not in told and f"`_{name.rpartition('_')[2]}`" not in told] == []


@pytest.mark.parametrize("name", views.VIEWS)
def test_a_view_gives_what_a_slow_count_gives(name: str, answers: Answers, rows: list[Row]) -> None:
    found = sorted(in_order(row.values()) for row in answers(name))
    expected = sorted(map(in_order, SLOW_COUNTS[name](rows)))
    assert len(found) == len(expected)
    assert expected, f"no store has anything for {name}"
    for one, other in zip(found, expected, strict=True):
        assert plain(one) == pytest.approx(plain(other), rel=1e-9)


def in_order(row: Iterable[Any]) -> tuple[tuple[bool, Any], ...]:
    """Sortable: a null comes first."""
    return tuple((value is not None, 0 if value is None else value) for value in row)


def plain(row: tuple[tuple[bool, Any], ...]) -> list[Any]:
    """Only numbers, for approx: the rest must be equal."""
    values = [value.timestamp() if isinstance(value, datetime) else value for given, value in row]
    return [value if isinstance(value, (int, float)) else hash(value) for value in values] + [given for given, _ in row]


def test_the_shop_is_as_it_was_run(answers: Answers) -> None:
    """What Shop.java did, by its own rules (notebooks/shop/README.md)."""

    def of_shop(name: str, **where: Any) -> list[Row]:
        return [row for row in answers(name) if row.items() >= {"broker": "shop-a", **where}.items()]

    (orders,) = of_shop("storage_by_topic", topic="orders")
    (twice,) = (row for row in answers("duplicates_by_topic") if row["topic"] == "orders")
    assert (orders["messages"], twice["surplus"]) == (1094 + 27, 27)
    assert len(of_shop("transactions")) == 1094 // 5
    retries = sorted(of_shop("retry_ageing", consumer_group="ledger"), key=lambda row: row["reconsume_times"])
    assert [(row["kind"], row["reconsume_times"]) for row in retries] == [
        ("retry", 1), ("retry", 2), ("retry", 3), ("dlq", 4),
    ]  # fmt: skip
    assert {(row["origin_topic"], row["messages"]) for row in retries} == {("payments", 14)}
    levels = of_shop("delay_accuracy")
    assert levels
    assert all(row["delivered"] == row["scheduled"] for row in levels)


def test_a_table_without_bodies_has_all_views_but_no_rollbacks(catalog: SparkSession, rows: list[Row]) -> None:
    table = pa.Table.from_pylist([row for row in rows if row["broker"] == STORES[0]], schema=schemas.MESSAGES)
    other = catalog.newSession()
    views.register(other, other.createDataFrame(table, schemas.to_spark(schemas.MESSAGES)))
    outcomes = {row.outcome for row in other.table("transaction_outcomes").collect()}
    assert outcomes == {"committed", "not committed"}
    assert other.table("traces").count() == 0


def test_rows_that_a_broker_and_clients_may_well_write(catalog: SparkSession, rows: list[Row]) -> None:
    """Properties that are no numbers, times and offsets that end 64 bits, and no name of a broker."""
    plain = next(row for row in rows if row["topic"] == "orders")
    far = 1 << 62

    def row(offset: int, **changes: Any) -> Row:
        return plain | {"cluster": None, "broker": None, "commit_log_offset": offset, **changes}

    odd = [
        row(0, queue_offset=1, properties={"INNER_BASE": "x", "INNER_NUM": "1e9"}, uniq_key="a", born_timestamp=None),
        row(1, queue_offset=2, uniq_key="a", born_timestamp=None),
        row(2, queue_offset=2 * far - 1, uniq_key="b"),
        row(3, queue_offset=0, uniq_key="c", store_timestamp=plain["store_timestamp"] - timedelta(seconds=1)),
        row(4, queue_offset=2 * far - 2, uniq_key="d"),
        row(
            5,
            topic="SCHEDULE_TOPIC_XXXX",
            tags_code=far,
            properties={"REAL_TOPIC": "orders"},
            uniq_key="e",
            queue_offset=0,
        ),
        row(
            6, topic="rmq_sys_wheel_timer", properties={"REAL_TOPIC": "orders", "TIMER_OUT_MS": str(-far)}, uniq_key="f"
        ),
        row(7, topic="%RETRY%g", uniq_key="g"),
    ]
    other = catalog.newSession()
    table = pa.Table.from_pylist(odd, schema=schemas.MESSAGES_WITH_BODY)
    names = views.of_report("topic", checks=True, plots=False)
    views.register(other, other.createDataFrame(table, schemas.to_spark(schemas.MESSAGES_WITH_BODY)), names)
    found = measure(other, "topic", checks=True)
    assert [row.state for row in other.table("delays").orderBy("commit_log_offset").collect()] == ["waiting", "overdue"]
    assert [row.one_batch for row in other.table("duplicates").collect()] == [True]
    assert [row.milliseconds for row in other.table("clock_steps").collect()] == [1000]
    (gaps,) = (row for row in found.checks["gaps"] if row["kind"] == "gap")
    assert (gaps["places"], gaps["missing"]) == (2, 2 * far - 1)
    assert [row["consumer_group"] for row in found.checks["retries"]] == ["g"]


def test_views_that_outlive_a_session(spark: SparkSession, rows: list[Row], tmp_path: Path) -> None:
    """For tools that know a catalog and no Python."""
    of_broker = [row for row in rows if row["broker"] == STORES[0]]
    table = pa.Table.from_pylist(of_broker[:50], schema=schemas.MESSAGES_WITH_BODY)
    path = str(tmp_path / "messages")
    messages = spark.createDataFrame(table, schemas.to_spark(schemas.MESSAGES_WITH_BODY))
    messages.drop(*views._LONG_WAY).write.format("delta").save(path)
    spark.sql("CREATE DATABASE lasting")
    try:
        one = spark.newSession()
        one.sql("USE lasting")
        one.sql(f"CREATE TABLE stored USING DELTA LOCATION '{path}'")
        views.register(
            one, one.table("stored"), ("storage_by_topic",)
        )  # a temporary one of the same name is no hindrance
        views.create_permanent(one, "stored")
        # A load with bodies, by a newer release: views stand, and have the columns once they are made again.
        messages.write.format("delta").mode("append").option("mergeSchema", "true").save(path)
        other = spark.newSession()
        made = {row.viewName for row in other.sql("SHOW VIEWS IN lasting").collect() if not row.isTemporary}
        assert made == {"messages", *views.VIEWS}
        assert other.sql("SELECT sum(messages) FROM lasting.storage_by_topic").first()[0] == 2 * table.num_rows  # type: ignore[index]
        counted = (
            "SELECT count(*), count(body), count(real_topic) = count(properties['REAL_TOPIC']) FROM lasting.messages"
        )
        assert other.sql(counted).first() == (2 * table.num_rows, 0, True)
        views.create_permanent(one, "stored", ())
        assert other.sql(counted).first() == (2 * table.num_rows, table.num_rows, True)
    finally:
        spark.sql("DROP DATABASE lasting CASCADE")


class Connected:
    """A session or a DataFrame without what Spark Connect does not have."""

    def __init__(self, of: object) -> None:
        self._of = of

    def __getattr__(self, name: str) -> Any:
        if name in ("_jdf", "_jvm", "sparkContext", "newSession"):
            raise AttributeError(name)
        return getattr(self._of, name)


def test_spark_connect(spark: SparkSession) -> None:
    one = spark.newSession()
    messages = one.createDataFrame([], schemas.to_spark(schemas.MESSAGES))
    connected: Any = Connected(one)
    views.register(connected, Connected(messages), ("storage_by_topic",))  # type: ignore[arg-type]
    assert one.table("storage_by_topic").count() == 0
    with pytest.raises(DependencyMissing, match="Spark Connect"):
        views.create_permanent(connected, "stored")


def test_the_name_of_a_column_is_no_sql(spark: SparkSession, rows: list[Row], tmp_path: Path) -> None:
    """Of a table that only Delta can read, with a name that would end the quotes and run a method of Java's."""
    jvm: Any = spark._jvm
    name = "size` + length(reflect('java.lang.System', 'setProperty', 'planted', 'x')) AS `planted"
    table = pa.Table.from_pylist(rows[:9], schema=schemas.MESSAGES)
    messages = spark.createDataFrame(table, schemas.to_spark(schemas.MESSAGES)).withColumn(name, f.lit(1))
    path = str(tmp_path / "hostile")
    messages.write.format("delta").option("delta.columnMapping.mode", "name").partitionBy("store_date").save(path)
    opened = messages_table.open_table(path)
    assert opened is not None
    assert views.needs_delta(opened)
    spark.sql("CREATE DATABASE hostile")
    try:
        one = views.over_table(spark, opened, ("storage_by_topic",))
        assert len(one.table("messages").collect()) == 9
        assert jvm.java.lang.System.getProperty("planted") is None
        assert sum(row.messages for row in one.table("storage_by_topic").collect()) == 9
        assert one.table("messages").columns == schemas.MESSAGES_WITH_BODY.names
        views.register(one, one.read.format("delta").load(path), ())
        assert len(one.table("messages").collect()) == 9
        assert one.table("messages").columns == [*messages.columns, schemas.BODY]
        one = spark.newSession()
        one.sql("USE hostile")
        views.create_permanent(one, f"delta.`{path}`", ("storage_by_topic",))
        assert sum(row.messages for row in one.table("storage_by_topic").collect()) == 9
        assert one.table("messages").columns == [*messages.columns, schemas.BODY]
    finally:
        spark.sql("DROP DATABASE hostile CASCADE")
        planted = jvm.java.lang.System.clearProperty("planted")
    assert planted is None


def test_functions_in_sql(catalog: SparkSession, rows: list[Row]) -> None:
    views.register(catalog, catalog.table("messages"), views.TRACE_VIEWS)
    views.register_functions(catalog)
    names = re.findall(r"TEMPORARY FUNCTION (\w+)", views.sql_text("functions.sql"))
    steps = {row.step: row["count"] for row in catalog.table("traces").groupBy("step").count().collect()}
    assert steps["Pub"] >= 1094
    counted = "SELECT count(*), count_if(consumer_group = 'ledger' AND NOT success) FROM consumptions"
    assert catalog.sql(counted).first() == (steps["SubBefore"], 4 * 14)  # the first attempt and three retries
    assert steps["SubBefore"] > 0
    assert len(names) == len(set(names)) > 15
    described = [row.function_desc for row in catalog.sql("DESCRIBE FUNCTION EXTENDED rmq_uniq_key_time").collect()]
    assert any("When a client made a unique key." in line for line in described)
    assert any(line.split()[-4:-1] == ["DEFAULT", "0", "'time"] or "DEFAULT 0" in line for line in described)
    real = {
        ("orders", "{}"): None,
        ("orders", "{'REAL_TOPIC': 'orders', 'DELAY': '3'}"): None,
        ("SCHEDULE_TOPIC_XXXX", "{'REAL_TOPIC': 'orders'}"): "orders",
        ("SCHEDULE_TOPIC_XXXX", "{'REAL_TOPIC': '%RETRY%g', 'RETRY_TOPIC': 'orders'}"): "orders",
        ("RMQ_SYS_TRANS_HALF_TOPIC", "{'REAL_TOPIC': 'orders'}"): "orders",
        ("%RETRY%g", "{'REAL_TOPIC': '%RETRY%g', 'RETRY_TOPIC': 'orders'}"): "orders",
        ("%DLQ%g", "{'RETRY_TOPIC': 'orders'}"): "orders",
        ("%DLQ%g", "{'RETRY_TOPIC': 'other', 'DLQ_ORIGIN_TOPIC': 'orders'}"): "orders",
        ("%DLQ%g", "{}"): None,
    }
    asked = [f"rmq_real_topic('{topic}', from_json(\"{given}\", 'map<string, string>'))" for topic, given in real]
    assert catalog.sql(f"SELECT {', '.join(asked)}").first()[:] == tuple(real.values())
    wrong = catalog.sql(
        """
        SELECT count_if(rmq_tags_code(tags) <> tags_code AND topic <> 'SCHEDULE_TOPIC_XXXX') AS tags,
               count_if(rmq_offset_msg_id(store_host, commit_log_offset) <> offset_msg_id) AS ids,
               count_if(rmq_offset_msg_id_parts(offset_msg_id).commit_log_offset <> commit_log_offset) AS parts,
               count_if(rmq_transaction_type(sys_flag) <> transaction_type) AS transactions,
               count_if(unix_millis(store_timestamp) + rmq_delay_ms(rmq_delay_level(properties)) <> tags_code
                        AND topic = 'SCHEDULE_TOPIC_XXXX' AND broker <> 'shop-a') AS delays,
               count_if(rmq_uncompressed_body(body, sys_flag) IS NULL) AS bodies
          FROM messages WHERE broker <> 'damaged'
        """
    ).first()
    assert wrong.asDict() == dict.fromkeys(("tags", "ids", "parts", "transactions", "delays", "bodies"), 0)
    for name in names:
        count = len(catalog.sql(f"DESCRIBE FUNCTION {name}").collect())
        assert count > 2
    levels = ("x", "", "1", "1x", "1.5s", "99999999999999999999h", "9223372036854775807h")
    odd = [f"rmq_delay_ms(1, '{text}')" for text in levels]
    odd += ["rmq_delay_ms(NULL)", "rmq_index_slot(NULL, 'k')", "rmq_index_slot('t', 'k', 0)"]
    odd += ["rmq_index_slot('t', 'k', -7)", "rmq_host_ip(NULL)", "rmq_host_ip('x')"]
    odd += ["rmq_real_topic(NULL, map('REAL_TOPIC', 'orders'))"]
    assert catalog.sql(f"SELECT {', '.join(odd)}").first()[:] == (None,) * len(odd)
    assert catalog.sql("SELECT rmq_delay_ms(99), rmq_delay_ms(0), rmq_delay_ms(2, '1s 2d')").first()[:] == (
        7_200_000,
        0,
        172_800_000,
    )
    assert catalog.sql("SELECT rmq_host_ip('[fe80::2]:9'), rmq_host_ip('1.2.3.4:5')").first()[:] == (
        "fe80::2",
        "1.2.3.4",
    )
