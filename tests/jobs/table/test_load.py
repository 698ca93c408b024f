"""``load``: each record of a log once in the Delta table, whatever happens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support import broker_model, golden, messages_model
from support.broker_settings import BrokerSettings
from support.rebuilding import SETTINGS, rules_of_release
from support.table_bench import SEGMENT, Bench

from jobs.contract.options import LoadOptions, TopicFilter
from jobs.contract.reporter import Reporter
from jobs.report import views
from jobs.table import load, messages_table
from storeformat.errors import DamagedLog, NotAStore, Refused, UsageError, WrongSettings
from storeformat.queues.consume_queue import pack_units
from udfs.table import schemas

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
    with Path(root, "commitlog", f"{0:020d}").open("r+b") as file:
        file.seek(damaged.offset + 4)
        file.write(b"oops")
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
