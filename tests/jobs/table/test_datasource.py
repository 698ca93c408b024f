"""The data source, and README's example of tables."""

from __future__ import annotations

import base64
import json
import re
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import ArrayType, IntegerType, StringType, StructField, StructType
from support import broker_model, golden, messages_model
from support.broker_settings import BrokerSettings
from support.golden import GoldenStore
from support.rebuilding import SETTINGS, rules_of_release
from support.store_builder import LogBuilder, overwrite_log

from jobs.report import views
from jobs.table import datasource
from storeformat.errors import DamagedLog, UsageError
from udfs.table import schemas

pytestmark = pytest.mark.spark


# ----------------------------------------------------------------------------------------------------------- datasource
@pytest.fixture
def read(spark: SparkSession) -> Any:
    datasource.register(spark)

    def load(root: Path, **options: Any) -> DataFrame:
        return spark.read.format("rocketmq-commitlog").options(**options).load(str(root))

    return load


def options_for(store: GoldenStore) -> dict[str, str]:
    settings = [f"{name}={store.settings[name]}" for name in SETTINGS if name in store.settings]
    return {"settings": ",".join(settings), "broker-version": rules_of_release(store.version)}


def rows_here(root: Path, **options: Any) -> list[dict[str, Any]]:
    """The rows that Spark would get, from tasks that run here, one after the other."""
    source = datasource.CommitLogSource({name: str(value) for name, value in {"path": root, **options}.items()})
    reader = source.reader(source.schema())
    return [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]


@pytest.mark.golden
@pytest.mark.parametrize(
    ("name", "split_size"),
    [("base-clean-5.3.3", 40_000), ("embedded-5.5.0", 5_000), ("stale-mid-5.1.4", 5_000), ("sizes-4.6.1", 1 << 30)],
)
def test_every_record_of_a_real_store(read: Any, name: str, split_size: int) -> None:
    (store,) = golden.stores(name)
    root = golden.unpack(store)
    options = {"splitSize": split_size, "withBodies": "true", "cluster": "c", **options_for(store)}
    if name == "base-clean-5.3.3":
        found = read(root, **options).orderBy("commit_log_offset").toArrow().to_pylist()
    else:
        found = rows_here(root, **options)
    broker = BrokerSettings.of(store.version, store.settings)
    expected = messages_model.rows(broker_model.read_segments(root), broker, until=store.end_offset)
    constant = {"cluster": "c", "broker": None}
    assert [{**row, "properties": dict(row["properties"])} for row in found] == [
        {**constant, **row} for row in expected
    ]


@pytest.fixture
def log(tmp_path: Path) -> LogBuilder:
    log = LogBuilder(1 << 14)
    for number in range(600):
        log.clock += 10_000
        log.message(topic=f"T{number % 3}", queue_id=number % 4, keys=f"k{number}", tags="t", body=b"b" * (number % 40))
    log.write(tmp_path / "store")
    return log


def store_time(log: LogBuilder, number: int) -> int:
    return log.records[number].message.store_timestamp or 0


@pytest.mark.parametrize("trust", ["true", "false"])
@pytest.mark.parametrize("split_size", [2_000, 1 << 20])
def test_filters(log: LogBuilder, tmp_path: Path, split_size: int, trust: str) -> None:
    """Options that filter, against the same filters on all rows."""
    begin, end = log.records[400].offset, log.records[500].offset
    time, later = store_time(log, 200), store_time(log, 300)
    iso = datetime.fromtimestamp(time / 1000, timezone.utc).isoformat()
    for given, expected in (
        ({"topic": "T1"}, lambda p: p.message.topic == "T1"),
        ({"topic": "T1:2, T2"}, lambda p: p.message.queue == ("T1", 2) or p.message.topic == "T2"),
        ({"from-offset": begin, "until-offset": end}, lambda p: begin <= p.offset < end),
        ({"untilOffset": log.records[1].offset}, lambda p: p.offset == 0),
        ({"untilOffset": 0}, lambda p: False),
        ({"fromOffset": begin + 1, "topic": "T0"}, lambda p: p.offset > begin and p.message.topic == "T0"),
        ({"fromTime": time, "untilTime": later}, lambda p: time <= p.message.store_timestamp < later),
        ({"fromTime": iso}, lambda p: p.message.store_timestamp >= time),
        ({"topic": "none"}, lambda p: False),
    ):
        rows = rows_here(tmp_path / "store", splitSize=split_size, trustStoreTimes=trust, **given)
        found = [row["commit_log_offset"] for row in rows]
        assert found == [placed.offset for placed in log.records if expected(placed)]


def test_what_filters_spare(log: LogBuilder, tmp_path: Path) -> None:
    """Segments that cannot hold a row are not read."""

    def partitions(**options: int) -> int:
        given = {"path": str(tmp_path / "store"), "splitSize": 1 << 20, "trustStoreTimes": "true", **options}
        source = datasource.CommitLogSource({name: str(value) for name, value in given.items()})
        return len(source.reader(source.schema()).partitions())

    assert partitions() == len(log.segments) > 3
    assert partitions(fromOffset=20_000, untilOffset=20_200) == 1
    assert partitions(untilTime=store_time(log, 0) + 1) == 1
    assert partitions(fromTime=store_time(log, 599)) == 1


def test_two_queries_on_one_frame(spark: SparkSession, read: Any, log: LogBuilder, tmp_path: Path) -> None:
    """Spark 4.2.0 hands the filters that a Python source took for one query to the next one: this source takes none."""
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        frame = read(tmp_path / "store", columns="topic")
        assert [frame.where("topic = 'T1'").count(), frame.count()] == [200, 600]
        assert frame.where("topic = 'T1'").union(frame).count() == 800
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_a_schema_of_the_users(spark: SparkSession, read: Any, log: LogBuilder, tmp_path: Path) -> None:
    wanted = spark.read.format("rocketmq-commitlog").schema("body binary, topic string")
    rows = wanted.load(str(tmp_path / "store")).collect()
    assert {(row.topic, bytes(row.body)) for row in rows} == {
        (str(placed.message.topic), placed.message.body) for placed in log.records
    }
    assert read(tmp_path / "store").columns == schemas.MESSAGES.names
    with pytest.raises(PySparkException, match="UsageError: the schema does not fit"):
        spark.read.format("rocketmq-commitlog").schema("topic string not null").load(str(tmp_path / "store")).collect()


def test_a_schema_that_does_not_fit_is_refused_while_a_query_is_planned(log: LogBuilder, tmp_path: Path) -> None:
    def ask(*fields: StructField, **options: str) -> None:
        datasource.CommitLogSource({"path": str(tmp_path / "store"), **options}).reader(StructType(list(fields)))

    topic = StructField("topic", StringType())
    ask(topic)
    for fields in (
        (), (topic, topic), (StructField("topic", IntegerType()),), (StructField("topic", StringType(), False),),
        (StructField("nothing", StringType()),), (StructField("keys", ArrayType(StringType(), False)),),
    ):  # fmt: skip
        with pytest.raises(UsageError, match="column"):
            ask(*fields)
    with pytest.raises(UsageError, match="columns are struct<begin_offset"):
        ask(topic, records="defects")


def test_from_sql(spark: SparkSession, read: Any, log: LogBuilder, tmp_path: Path) -> None:
    view = f"CREATE TEMPORARY VIEW log USING `rocketmq-commitlog` OPTIONS (path '{tmp_path / 'store'}')"
    spark.sql(view)
    try:
        assert spark.sql("SELECT count(*), max(size) FROM log WHERE topic = 'T2'").first()[0] == 200  # type: ignore[index]
    finally:
        spark.catalog.dropTempView("log")


@pytest.mark.parametrize("in_last_segment", [False, True])
def test_damage(read: Any, log: LogBuilder, tmp_path: Path, in_last_segment: bool) -> None:
    last = max(log.segments)
    damaged = [placed for placed in log.records if (placed.offset >= last) is in_last_segment][7]
    overwrite_log(tmp_path / "store" / "commitlog", damaged.offset + 4, b"oops")
    with pytest.raises(PySparkException, match="damaged"):
        read(tmp_path / "store", splitSize=3_000).collect()
    with pytest.raises(DamagedLog):
        rows_here(tmp_path / "store", splitSize=3_000)
    stop = rows_here(tmp_path / "store", onDamage="stop", columns="commit_log_offset")
    assert len(stop) == sum(placed.offset < damaged.offset for placed in log.records)
    assert len(rows_here(tmp_path / "store", onDamage="salvage", columns="commit_log_offset")) == 599
    (row,) = rows_here(tmp_path / "store", records="defects")
    assert (row["begin_offset"], row["end_offset"], row["kind"]) == (damaged.offset, damaged.end, "damaged")


@pytest.mark.parametrize("place", [1, -1])
def test_a_file_of_an_older_log(log: LogBuilder, tmp_path: Path, place: int) -> None:
    """As every job on a log: its records are whole, and are none of this log."""
    older = LogBuilder(log.segment_size, clock=log.clock - 100_000_000_000)
    while len(older.segments) < len(log.segments) + 1:
        older.clock += 10_000
        older.message(topic="T0", queue_id=1, body=b"o" * 31)
    base = sorted(log.segments)[place]
    (tmp_path / "store" / "commitlog" / f"{base:020d}").write_bytes(bytes(older.segments[base]))
    source = datasource.CommitLogSource({"path": str(tmp_path / "store")})
    with pytest.raises(DamagedLog, match="older log"):
        source.reader(source.schema())


def test_what_is_refused_is_said_in_spark(read: Any, log: LogBuilder, tmp_path: Path) -> None:
    with pytest.raises(PySparkException, match="no option colums"):
        read(tmp_path / "store", colums="topic").collect()
    with pytest.raises(PySparkException, match="no such store"):
        read(tmp_path / "nowhere").collect()


# --------------------------------------------------------------------------------------------------------------- readme
ROOT = Path(__file__).resolve().parents[3]
README = (ROOT / "jobs" / "table" / "README.md").read_text(encoding="utf-8")


def lines() -> str:
    """The block of README that writes files."""
    blocks = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    (found,) = [block for block in blocks if ".write.parquet(" in block]
    return str(found)


@pytest.mark.golden
def test_a_topic_and_a_time_leave_a_log(spark: SparkSession, tmp_path: Path) -> None:
    (store,) = golden.stores("base-clean-5.5.0")
    root = golden.unpack(store)
    settings = BrokerSettings.of(store.version, store.settings)
    everything = list(messages_model.rows(broker_model.read_segments(root), settings, until=store.end_offset))
    topic = max({row["topic"] for row in everything}, key=lambda name: sum(row["topic"] == name for row in everything))
    times = sorted(row["store_timestamp"] for row in everything if row["topic"] == topic)
    begin, end = times[len(times) // 4], times[-len(times) // 4]
    expected = {
        row["offset_msg_id"]: row
        for row in everything
        if row["topic"] == topic and begin <= row["store_timestamp"] < end
    }
    assert len(expected) > 10
    code = lines()
    for said, meant in {
        '"orders"': repr(topic), "2026-01-31T02:00:00Z": iso(begin), "2026-01-31T03:00:00Z": iso(end),
        "/data/orders": str(tmp_path / "orders"),
    }.items():  # fmt: skip
        assert said in code
        code = code.replace(said, meant)
    datasource.register(spark)
    views.register(spark, spark.read.format("rocketmq-commitlog").load(str(root)))
    exec(code, {"spark": spark, "store": str(root)})
    in_parquet = pq.read_table(tmp_path / "orders-parquet").to_pylist()
    assert {row["offset_msg_id"]: facts(row) for row in in_parquet} == {
        name: facts(row) for name, row in expected.items()
    }
    in_json = [
        json.loads(line)
        for part in (tmp_path / "orders-json").glob("part-*")
        for line in part.read_text(encoding="utf-8").splitlines()
    ]
    assert len(in_json) == len(expected)
    for row in in_json:
        assert base64.b64decode(row["body"]) == expected[row["offset_msg_id"]]["body"]
        assert row["properties"] == expected[row["offset_msg_id"]]["properties"]


def iso(moment: datetime) -> str:
    return moment.astimezone(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def facts(row: dict[str, Any]) -> tuple[Any, ...]:
    names = ("topic", "queue_id", "queue_offset", "uniq_key", "tags", "keys", "body")
    return (*(row[name] for name in names), dict(row["properties"]))


def statements() -> list[str]:
    (block,) = re.findall(r"```sql\n(OPTIMIZE .*?)```", README, re.DOTALL)
    return [line.partition(";")[0] for line in block.strip().split("\n")]


@pytest.mark.slow
def test_each_closed_date_is_rewritten_once(spark: SparkSession, tmp_path: Path) -> None:
    """Whatever else is there stays."""
    path = str(tmp_path / "messages")
    rows = spark.range(10).selectExpr(
        "date_sub(current_date(), CAST(id AS INT)) AS store_date", "'T' AS topic", "now() AS store_timestamp"
    )
    for _ in range(2):
        rows.write.format("delta").mode("append").partitionBy("store_date").save(path)

    def files_by_age() -> list[set[str]]:
        named: dict[str, set[str]] = {}
        for file in map(Path, DeltaTable(path).file_uris()):
            named.setdefault(file.parent.name, set()).add(file.name)
        return [named[date] for date in sorted(named, reverse=True)]

    before = files_by_age()
    for statement in statements():
        spark.sql(statement.replace("/data/messages", path))
    after = files_by_age()
    assert [len(files) for files in after] == [2, *[1] * 7, 2, 2]
    assert [after[0], *after[8:]] == [before[0], *before[8:]]
