"""Loads with Spark, and tables of several shapes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import pytest
from deltalake import DeltaTable, Field, write_deltalake
from deltalake.schema import PrimitiveType
from support import broker_model, golden, messages_model
from support.broker_settings import BrokerSettings
from support.loading import SEGMENT, Bench, load_here
from support.object_store import Bucket, serving
from support.rebuilding import SETTINGS, rules_of_release
from support.store_builder import LogBuilder, overwrite_log

from jobs.contract.options import LoadOptions, TopicFilter
from jobs.contract.report import Reporter
from jobs.report import views
from jobs.report.views import CHECKS
from jobs.table import load, messages_table
from jobs.table.messages_table import place_of
from storeformat.errors import DamagedLog, MissingInput, NotAStore, Refused, UsageError, WriteFailed, WrongSettings
from storeformat.queues.consume_queue import pack_units
from udfs.table import schemas

# ---------------------------------------------------------------------------------------------------------- load
if TYPE_CHECKING:  # most of these tests run without pyspark
    from pyspark.sql import SparkSession


@pytest.mark.spark
@pytest.mark.golden
def test_every_row_of_real_stores(spark: SparkSession, tmp_path: Path) -> None:
    """Stores of several releases as the brokers of one cluster, in one table."""
    zone, table, loads = "America/New_York", str(tmp_path / "t"), {}
    expected: list[dict[str, Any]] = []
    names = {"base-clean-5.3.3", "base-clean-4.6.1", "embedded-5.5.0", "stale-mid-4.9.8"}
    for store in golden.stores(lambda one: one.name in names):
        root = golden.unpack(store)
        settings = tuple((key, str(store.settings[key])) for key in SETTINGS if key in store.settings)
        options = LoadOptions(
            store=str(root), table=table, cluster="c", broker=store.name, settings=settings, with_bodies=True,
            broker_version=rules_of_release(store.version), split_size=20_000, time_zone=zone,
        )  # fmt: skip
        segments, broker = broker_model.read_segments(root), BrokerSettings.of(store.version, store.settings)
        rows = list(messages_model.rows(segments, broker, until=store.end_offset, zone=zone))
        expected += [{"cluster": "c", "broker": store.name, **row} for row in rows]
        report = load.run(options, Reporter(quiet=True))
        assert (report["rows"], report["to_offset"], report["skipped"]) == (len(rows), store.end_offset, False)
        loads[store.name] = options
    found = spark.read.format("delta").load(table).toArrow().to_pylist()
    assert loads.keys() == names
    in_order = {name: number for number, name in enumerate(loads)}
    found.sort(key=lambda row: (in_order[row["broker"]], row["commit_log_offset"]))
    assert None not in {row["queue_run"] for row in found}
    unknown = dict.fromkeys(schemas.RUNS)  # they depend on how the work was divided
    assert [{**row, "properties": dict(row["properties"]), **unknown} for row in found] == expected
    again = load.run(options, Reporter(quiet=True))
    assert (again["rows"], again["skipped"], again["version"]) == (0, True, report["version"])


@pytest.mark.spark
def test_a_local_table_stays_local_where_hadoop_knows_a_cluster(spark: SparkSession, bench: Bench) -> None:
    """A configuration of HDFS (HADOOP_CONF_DIR) says where bare paths are; a repair wrote its table there."""
    bench.messages(20)
    bench.load()
    session = spark.newSession()
    session.conf.set("fs.defaultFS", "hdfs://127.0.0.1:1")
    table = messages_table.open_table(str(bench.table))
    assert table is not None
    assert views.over_table(session, table, ()).table("messages").count() == 20


@pytest.mark.spark
def test_what_the_table_says_of_itself(spark: SparkSession, bench: Bench) -> None:
    bench.messages(50, tags="t", uniq_key="u")
    bench.load()
    rows = spark.read.format("delta").load(bench.table)
    assert rows.columns == schemas.MESSAGES.names
    assert all(field.metadata["comment"] for field in rows.schema)
    from delta.tables import DeltaTable

    detail = DeltaTable.forPath(spark, bench.table).detail().first()
    assert detail is not None
    assert detail.partitionColumns == ["store_date"]
    log = Path(bench.table, "_delta_log", f"{1:020d}.json").read_text(encoding="utf-8")
    (added,) = [json.loads(line)["add"] for line in log.splitlines() if line.startswith('{"add"')]
    statistics = json.loads(added["stats"])
    assert set(statistics["minValues"]) == set(schemas.STATISTICS_COLUMNS)
    assert statistics["maxValues"]["commit_log_offset"] == bench.expected[-1]


@pytest.mark.spark
def test_a_plan_shows_which_files_are_skipped(spark: SparkSession, bench: Bench) -> None:
    for count in (40, 60):
        bench.messages(count)
        bench.load()
    rows = spark.read.format("delta").load(bench.table)
    assert len(rows.inputFiles()) == 2
    newest = rows.where(f"commit_log_offset >= {bench.expected[-1]}")
    assert len(newest.inputFiles()) == 1
    plan = newest._jdf.queryExecution().explainString(
        spark._jvm.org.apache.spark.sql.execution.ExplainMode.fromString("formatted")  # type: ignore[union-attr]
    )
    assert "GreaterThanOrEqual(commit_log_offset" in plan


def test_several_brokers_share_a_table(bench: Bench) -> None:
    bench.messages(40)
    bench.load(broker="it's/a")
    bench.messages(40)
    bench.load("store", broker="b")
    bench.load("store", broker="it's/a")
    assert bench.rows() == bench.expected
    assert bench.rows("it's/a") == bench.expected
    assert bench.load(broker="b", cluster="other")["rows"] == 80


def test_only_some_topics(bench: Bench) -> None:
    """One offset says how far a broker was loaded, so all its loads take the same topics."""
    bench.messages(60)
    some = (TopicFilter("T0"), TopicFilter("T1", 1))
    report = bench.load(topics=some)
    wanted = [p.offset for p in bench.log.records if p.message.queue in {("T0", 0), ("T0", 1), ("T1", 1)}]
    assert bench.rows() == wanted
    assert report["rows"] == len(wanted)
    assert bench.load(topics=some[::-1])["skipped"]
    for others in ((), (TopicFilter("T0"),)):
        with pytest.raises(Refused, match="other topics") as refused:
            bench.load(topics=others)
        assert "--repair-from 0" in (refused.value.advice or "")
    with pytest.raises(UsageError, match="all topics"):
        bench.load(topics=some, repair_from=0)
    assert bench.load(repair_from=0)["rows"] == 60
    assert bench.rows() == bench.expected
    assert bench.load()["skipped"]
    with pytest.raises(Refused, match="other topics"):
        bench.load(topics=some)


def test_some_topics_of_a_log_that_was_truncated_and_rewritten(bench: Bench) -> None:
    """The newest row lies in front of the cut, and is there still: only where records begin tells."""
    bench.log.message(topic="Rare")
    bench.messages(40)
    rare = (TopicFilter("Rare"),)
    end = bench.load(topics=rare)["to_offset"]
    bench.log.truncate(bench.log.records[20].offset)
    while bench.log.end_offset <= end + 1000:
        bench.log.message(topic="Rare", body=b"y" * 777)
    with pytest.raises(Refused, match="truncated"):
        bench.load(topics=rare)
    assert bench.rows() == bench.expected[:1]
    bench.load(repair_from=bench.log.records[1].offset)
    assert bench.rows() == bench.expected


def test_an_empty_log_makes_an_empty_table(bench: Bench) -> None:
    bench.log.raw(b"")  # a segment of zeros
    assert bench.load()["rows"] == 0
    bench.messages(5)
    bench.load()
    assert bench.rows() == bench.expected


# --- damage ------------------------------------------------------------------------------------------------------


def test_damage(bench: Bench) -> None:
    bench.messages(50)
    root = bench.log.write(bench.work / "broken")
    damaged = bench.log.records[30]
    overwrite_log(root / "commitlog", damaged.offset + 4, b"oops")
    with pytest.raises(DamagedLog):
        bench.load_of(root)
    report = bench.load_of(root, on_damage="stop")
    assert (report["status"], report.exit_code, report["rows"]) == ("damaged", 1, 30)
    assert bench.rows() == bench.expected[:30]
    assert bench.metadata()["damaged_ranges"][0]["begin"] == damaged.offset
    bench.table = str(bench.work / "salvaged")
    report = bench.load_of(root, on_damage="salvage")
    assert (report["status"], report.exit_code, report["rows"], report["lost_messages"]) == ("damaged", 1, 49, 1)
    assert bench.rows() == [*bench.expected[:30], *bench.expected[31:]]
    again = bench.load_of(root, on_damage="salvage")
    assert (again["rows"], again["skipped"], again["to_offset"]) == (0, True, report["to_offset"])


def test_a_missing_segment_is_damage_like_any_other(bench: Bench) -> None:
    bench.messages(1_300)
    root = bench.log.write(bench.work / "broken")
    Path(root, "commitlog", f"{SEGMENT:020d}").unlink()
    with pytest.raises(NotAStore, match="missing"):
        bench.load_of(root)
    report = bench.load_of(root, on_damage="salvage")
    assert report["damaged_ranges"][0]["begin"] == SEGMENT
    assert bench.rows() == [offset for offset in bench.expected if not SEGMENT <= offset < 2 * SEGMENT]


def test_other_delay_levels_than_the_brokers_queues_show(bench: Bench) -> None:
    placed = bench.log.message(topic="SCHEDULE_TOPIC_XXXX", queue_id=2, properties={"DELAY": "3"})
    queue = bench.work / "store" / "consumequeue" / "SCHEDULE_TOPIC_XXXX" / "2"
    queue.mkdir(parents=True)
    due = (placed.message.store_timestamp or 0) + 2_000
    unit = pack_units([placed.offset], [placed.end - placed.offset], [due])
    (queue / f"{0:020d}").write_bytes(unit.tobytes().ljust(2_000, b"\0"))
    with pytest.raises(WrongSettings, match="another messageDelayLevel") as refused:
        bench.load()
    assert "level 3: 2,000 ms" in str(refused.value)
    assert not Path(bench.table).exists()
    other = bench.load(settings=(("messageDelayLevel", "1s 5s 7s"),), dry_run=True)
    assert any("level 3: 2,000 ms" in note for note in other["notes"])
    report = bench.load(settings=(("messageDelayLevel", "1s 2s 2s"),))
    assert not any("messageDelayLevel" in note for note in report["notes"])
    assert [row["tags_code"] for row in bench.table_rows("tags_code")] == [due]


def test_deliveries_contradict_delay_levels_that_no_queue_shows(bench: Bench) -> None:
    """Level 3 is 10 s, and a message came after 2 s; the others are on time, late, or not one message."""
    for key, level, waited in (("a", 3, 2_000), ("b", 2, 5_000), ("c", 1, 9_000), ("d", 4, 100), ("d", 4, 30_000)):
        properties = {"REAL_TOPIC": "orders", "DELAY": str(level)}
        bench.log.message(topic="SCHEDULE_TOPIC_XXXX", queue_id=level - 1, uniq_key=key, properties=properties)
        bench.log.clock += waited
        bench.log.message(topic="orders", uniq_key=key, properties=properties)
    (note,) = (note for note in bench.load()["notes"] if "before they were due" in note)
    assert "(level 3: 2,001 ms)" in note  # the builder's clock adds one a message
    assert "--repair-from 0 " in note
    right = (("messageDelayLevel", "1s 5s 2s 30s"),)
    anew = bench.load(settings=right, table=str(bench.work / "anew"))
    assert not any("due" in note for note in anew["notes"])


# --------------------------------------------------------------------------------------------------- load tables
def test_a_table_of_an_older_version_gets_the_new_columns(bench: Bench) -> None:
    bench.messages(20)
    bench.load()
    rows = DeltaTable(bench.table).to_pyarrow_table().drop_columns(["dispatched", "properties", "salvaged"])
    bench.table = str(bench.work / "older")
    write_deltalake(bench.table, rows, partition_by=["store_date"])
    bench.messages(20)
    report = bench.load()
    assert report["rows"] == 20  # the copy has no transactions: its rows say where to go on
    got = "the table got the column {}, which older rows do not have".format
    assert {got(name) for name in ("dispatched", "properties", "salvaged")} <= set(report["notes"])
    assert not any("column" in note for note in bench.load()["notes"])
    assert bench.rows() == bench.expected
    fields = {field.name: field for field in DeltaTable(bench.table).schema().fields}
    assert fields["properties"].metadata["comment"]
    found = [(row["dispatched"], row["properties"] is None) for row in bench.table_rows("dispatched", "properties")]
    assert found == [(None, True)] * 20 + [(True, False)] * 20


def test_bodies_may_come_later(bench: Bench) -> None:
    bench.messages(3)
    bench.load()
    bench.log.message(topic="T", body=b"\x00\xffbody")
    bench.load(with_bodies=True)
    assert [row["body"] for row in bench.table_rows("body")] == [None, None, None, b"\x00\xffbody"]


def test_a_column_of_a_users_own_stays(bench: Bench) -> None:
    bench.messages(3)
    bench.load()
    DeltaTable(bench.table).alter.add_columns(Field("note", PrimitiveType("string")))
    bench.messages(3)
    bench.load()
    assert bench.rows() == bench.expected
    assert {row["note"] for row in bench.table_rows("note")} == {None}


@pytest.mark.spark
def test_a_table_whose_owner_gave_it_column_mapping(spark: SparkSession, bench: Bench) -> None:
    bench.messages(20)
    bench.load()
    spark.sql(f"ALTER TABLE delta.`{bench.table}` SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
    bench.messages(20)
    with pytest.raises(MissingInput, match="the table has column mapping, and `load` cannot write into one with that"):
        bench.load()


@pytest.mark.spark
def test_a_table_with_deletion_vectors(spark: SparkSession, bench: Bench) -> None:
    """Rows are added to it; which of a file are replaced, delta-rs could not say."""
    bench.messages(20)
    bench.load()
    name = "delta.enableDeletionVectors"
    spark.sql(f"ALTER TABLE delta.`{bench.table}` SET TBLPROPERTIES ('{name}' = true)")
    spark.sql(f"DELETE FROM delta.`{bench.table}` WHERE commit_log_offset = {bench.expected[-1]}")
    bench.messages(20)
    assert bench.load()["rows"] == 20
    found = spark.read.format("delta").load(bench.table).select("commit_log_offset").collect()
    assert sorted(row[0] for row in found) == [*bench.expected[:19], *bench.expected[20:]]
    with pytest.raises(Refused, match="files of the table have deletion vectors"):
        bench.load(repair_from=0)


def test_something_else_at_the_tables_place(bench: Bench) -> None:
    bench.messages(3)
    Path(bench.work, "begun", "_delta_log").mkdir(parents=True)  # the load that made it was killed there
    assert bench.load(table=str(bench.work / "begun"))["rows"] == 3
    Path(bench.work, "plain").mkdir()
    Path(bench.work, "plain", "file").write_text("x", encoding="utf-8")
    with pytest.raises(NotAStore, match="not a Delta table"):
        bench.load(table=str(bench.work / "plain"))
    with pytest.raises((WriteFailed, NotAStore)):
        bench.load(table=str(bench.work / "plain" / "file" / "table"))
    with pytest.raises(Refused, match="inside the store"):
        bench.load(table=str(bench.work / "store" / "table"))


def test_a_table_that_cannot_be_written(bench: Bench) -> None:
    """Nobody may write below /sys, not even root; and a task finds a file where its directory should be."""
    bench.messages(3)
    with pytest.raises(WriteFailed) as failed:
        bench.load(table="/sys/messages")
    assert failed.value.exit_code == 74
    bench.load(until_offset=0)  # makes the table
    Path(bench.table, "store_date=2023-11-14").write_text("", encoding="utf-8")
    with pytest.raises(WriteFailed, match="store_date=2023-11-14") as failed:
        bench.load()
    assert len(str(failed.value).splitlines()) == 1
    Path(bench.table, "store_date=2023-11-14").unlink()
    assert bench.load()["rows"] == 3


# -------------------------------------------------------------------------------------------------- table places
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with serving() as found:
        yield found


@pytest.fixture
def bucket(endpoint: str, request: pytest.FixtureRequest) -> Bucket:
    one = Bucket(endpoint, f"tables-{abs(hash(request.node.name))}")
    one.client.create_bucket(Bucket=one.name)
    return one


def grown(log: LogBuilder, root: Path, count: int) -> Path:
    for number in range(count):
        log.message(topic=f"T{number % 3}", body=b"x" * 50, keys=f"k{number}")
    return log.write(root)


def rows(table: str) -> list[tuple[str, int]]:
    uri, options = place_of(table)
    found = deltalake.DeltaTable(uri, storage_options=options).to_pyarrow_table(columns=["broker", "commit_log_offset"])
    return sorted(zip(*found.to_pydict().values(), strict=True))


def test_what_a_path_says_to_delta_rs() -> None:
    uri = "s3a://k%2Fey:s%2Bec@b/a/t?scheme=http&endpoint_override=h:9000&region=eu"
    found, options = place_of(uri)
    assert found == "s3://b/a/t"
    assert options == {
        "aws_endpoint_url": "http://h:9000", "aws_region": "eu", "aws_access_key_id": "k/ey",
        "aws_secret_access_key": "s+ec", "aws_allow_http": "true", "aws_conditional_put": "etag",
    }  # fmt: skip
    assert place_of("s3://b/t") == (
        "s3://b/t", {"aws_allow_http": "true", "aws_conditional_put": "etag"},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("path", "place", "options"),
    [
        ("/a b/t", "/a b/t", {}),
        ("file:///a%20b/t", "/a b/t", {}),
        ("hdfs://n:9000/t", "hdfs://n:9000/t", {}),
        ("gs://b/t", "gs://b/t", {}),
        ("gs://anonymous@b/t", "gs://b/t", {"google_skip_signature": "true"}),
        ("abfss://c@acc.dfs.core.windows.net/a/t", "az://c/a/t", {"azure_storage_account_name": "acc"}),
        (
            "abfs://acc:k%2Fey@h:1/c/t?enable_tls=false", "az://c/t",
            {"azure_storage_account_key": "k/ey", "azure_storage_account_name": "acc",
             "azure_storage_endpoint": "http://h:1/acc", "allow_http": "true"},
        ),
    ],
)  # fmt: skip
def test_other_places(path: str, place: str, options: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AZURE_STORAGE_KEY", raising=False)
    assert place_of(path) == (place, options)


def test_a_path_that_delta_rs_takes_for_another_is_refused() -> None:
    assert place_of("/a/50%") == ("/a/50%", {})
    with pytest.raises(UsageError, match="delta-rs takes %20 in the path of a table for another character: /a/c%20d"):
        place_of("/a/c%20d")


def test_loads_what_is_new(bucket: Bucket, tmp_path: Path) -> None:
    log, table = LogBuilder(1 << 16), bucket.uri("t")
    first = load_here(grown(log, tmp_path / "s", 300), table)
    second = load_here(grown(log, tmp_path / "s", 200), table)
    third = load_here(tmp_path / "s", table)
    assert [one["rows"] for one in (first, second, third)] == [300, 200, 0]
    assert (second["from_offset"], third["skipped"]) == (first["to_offset"], True)
    assert rows(table) == [("b", placed.offset) for placed in log.records]


@pytest.mark.slow
def test_two_processes_side_by_side(bucket: Bucket, tmp_path: Path) -> None:
    """Of one broker each record is there once; of two brokers all."""
    log = LogBuilder(1 << 16)
    root, table = grown(log, tmp_path / "s", 500), bucket.uri("t")
    program = Path(load_here.__code__.co_filename)
    for _ in range(2):
        grown(log, root, 100)
        running = [
            subprocess.Popen(
                [sys.executable, str(program), "none", str(root), table, broker], stdout=subprocess.PIPE, text=True
            )
            for broker in ("a", "a", "b")
        ]
        said = [process.communicate(timeout=120)[0].split() for process in running]
        assert [process.returncode for process in running] == [0, 0, 0]
        assert sorted(skipped for _, skipped in said[:2]) == ["False", "True"]
    assert rows(table) == [(broker, placed.offset) for broker in ("a", "b") for placed in log.records]


@pytest.mark.spark
@pytest.mark.slow
def test_spark_loads_and_reads_a_table(bucket: Bucket, tmp_path: Path) -> None:
    """Tasks in a Spark of its own write the rows, and read them: nothing of Java knows the place."""
    root, table = grown(LogBuilder(1 << 16), tmp_path / "s", 300), bucket.uri("t")
    line = [sys.executable, "-m", "jobs", "--master", "local[1]"]
    load = ("load", "--store", str(root), "--table", table, "--cluster", "c", "--broker", "b")
    for words in (load, ("report", "--table", table, "--checks", "--by", "date")):
        done = subprocess.run([*line, *words, "--json"], cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["messages"], found["groups_in_all"], set(found["checks"])) == (300, 1, set(CHECKS))
