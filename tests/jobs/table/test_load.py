"""``load``: each record of a log once in the Delta table, whatever happens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from delta.tables import DeltaTable
from pyspark.sql import SparkSession
from support import broker_model, golden, messages_model
from support.broker_settings import BrokerSettings
from support.rebuilding import SETTINGS, rules_of_release
from support.store_builder import LogBuilder

from jobs.contract.options import LoadOptions, TopicFilter
from jobs.contract.report import Report
from jobs.contract.reporter import Reporter
from jobs.table import load, messages_table
from storeformat.errors import DamagedLog, NotAStore, Refused, UsageError, WriteFailed, WrongSettings
from storeformat.queues.consume_queue import pack_units
from udfs.table import schemas

pytestmark = pytest.mark.spark

SEGMENT = 1 << 16


class Bench:
    """A log, a table, and loads of the one into the other."""

    def __init__(self, spark: SparkSession, work: Path) -> None:
        self.spark = spark
        self.work = work
        self.log = LogBuilder(SEGMENT)
        self.table = str(work / "messages")

    def messages(self, count: int, **fields: Any) -> None:
        for number in range(count):
            self.log.clock += 1000
            self.log.message(
                topic=f"T{number % 3}", queue_id=number % 2, body=b"x" * (number % 50), keys=f"k{number}", **fields
            )

    def load(self, name: str = "store", **options: Any) -> Report:
        root = self.log.write(self.work / name)
        given = {"cluster": "c", "broker": "b", "store": str(root), "table": self.table, **options}
        return load.run(LoadOptions(**given), Reporter(quiet=True))

    def rows(self, broker: str = "b") -> list[int]:
        """Offsets of a broker's rows, twice where they are there twice."""
        rows = self.spark.read.format("delta").load(self.table).where(f"broker = '{broker}'")
        return sorted(row[0] for row in rows.select("commit_log_offset").collect())

    @property
    def expected(self) -> list[int]:
        return [placed.offset for placed in self.log.records]

    def metadata(self) -> dict[str, Any]:
        row = DeltaTable.forPath(self.spark, self.table).history(1).select("userMetadata").first()
        assert row is not None
        found: dict[str, Any] = json.loads(row[0])
        return found


@pytest.fixture
def bench(spark: SparkSession, tmp_path: Path) -> Bench:
    return Bench(spark, tmp_path)


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
    assert [{**row, "properties": dict(row["properties"])} for row in found] == expected
    again = load.run(options, Reporter(quiet=True))
    assert (again["rows"], again["skipped"], again["version"]) == (0, True, report["version"])


def test_loads_what_is_new(bench: Bench) -> None:
    bench.messages(300)
    first = bench.load(split_size=10_000)
    bench.messages(500)
    second = bench.load(split_size=10_000)
    assert bench.rows() == bench.expected
    assert (first["rows"], second["rows"]) == (300, 500)
    then = bench.spark.sql(f"SELECT count(*) FROM delta.`{bench.table}` VERSION AS OF {first['version']}").first()
    assert then is not None
    assert then[0] == 300
    assert second["from_offset"] == first["to_offset"]
    assert second["to_offset"] == bench.log.records[-1].end
    metadata = bench.metadata()
    assert metadata["from_offset"] == first["to_offset"]
    assert {"program", "version", "run", "to_offset", "gap"} <= metadata.keys()


def test_what_the_table_says_of_itself(bench: Bench) -> None:
    bench.messages(50, tags="t", uniq_key="u")
    bench.load()
    rows = bench.spark.read.format("delta").load(bench.table)
    assert rows.columns == schemas.MESSAGES.names
    assert all(field.metadata["comment"] for field in rows.schema)
    detail = DeltaTable.forPath(bench.spark, bench.table).detail().first()
    assert detail is not None
    assert detail.partitionColumns == ["store_date"]
    log = Path(bench.table, "_delta_log", f"{1:020d}.json").read_text(encoding="utf-8")
    (added,) = [json.loads(line)["add"] for line in log.splitlines() if line.startswith('{"add"')]
    statistics = json.loads(added["stats"])
    assert set(statistics["minValues"]) == set(schemas.STATISTICS_COLUMNS)
    assert statistics["maxValues"]["commit_log_offset"] == bench.expected[-1]


def test_several_brokers_share_a_table(bench: Bench) -> None:
    bench.messages(40)
    bench.load(broker="it's/a")
    bench.messages(40)
    bench.load("store", broker="b")
    bench.load("store", broker="it's/a")
    assert bench.rows() == bench.expected
    assert bench.rows("it\\'s/a") == bench.expected
    assert bench.load(broker="b", cluster="other")["rows"] == 80


def test_until_an_offset_and_on(bench: Bench) -> None:
    bench.messages(60)
    bench.load(until_offset=bench.expected[31])
    assert bench.rows() == bench.expected[:31]
    assert bench.load(until_offset=bench.expected[5])["skipped"]
    bench.load()
    assert bench.rows() == bench.expected


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


def test_topics_that_no_message_is_of(bench: Bench) -> None:
    bench.messages(3)
    report = bench.load(topics=(TopicFilter("Mistyped"),))
    assert report["rows"] == 0
    assert "no new message is of Mistyped" in report["notes"]
    assert "no new message is of Mistyped" not in bench.load(topics=(TopicFilter("Mistyped"),))["notes"]


def test_dry_run_writes_nothing(bench: Bench) -> None:
    bench.messages(10)
    report = bench.load(dry_run=True)
    assert report["messages"] == 10
    assert not Path(bench.table).exists()


def test_an_empty_log_makes_an_empty_table(bench: Bench) -> None:
    bench.log.raw(b"")  # a segment of zeros
    assert bench.load()["rows"] == 0
    bench.messages(5)
    bench.load()
    assert bench.rows() == bench.expected


# --- a log that is not the continuation --------------------------------------------------------------------------


def test_retention_took_what_was_never_loaded(bench: Bench) -> None:
    bench.messages(500)
    bench.load()
    loaded = bench.expected
    while len(bench.log.segments) < 4:
        bench.messages(100)
    end = bench.load(dry_run=True)["from_offset"]
    bench.log.remove_head(2)
    with pytest.raises(Refused, match="never loaded") as refused:
        bench.load("later")
    assert "--allow-gap" in (refused.value.advice or "")
    report = bench.load("later", allow_gap=True)
    begin = min(bench.log.segments)
    assert report["gap"] == {"begin": end, "end": begin}
    assert bench.metadata()["gap"] == [end, begin]
    assert bench.rows() == loaded + bench.expected
    assert bench.load("later")["skipped"]


def test_retention_took_only_what_was_loaded(bench: Bench) -> None:
    while len(bench.log.segments) < 3:
        bench.messages(100)
    bench.load()
    loaded = bench.expected
    bench.messages(30)
    bench.log.remove_head(1)
    bench.load("later")
    assert bench.rows() == sorted(set(loaded) | set(bench.expected))


def test_a_log_that_was_truncated_and_rewritten(bench: Bench) -> None:
    """What was truncated away still lies behind the new end, the newest loaded record whole and at its place."""
    bench.messages(200)
    bench.load()
    newest = bench.log.records[-1]
    cut = bench.log.records[150].offset
    bench.log.truncate(cut)
    bench.messages(20, flag=7)
    bench.log.settle()
    assert newest in bench.log.stale_records
    with pytest.raises(Refused, match="truncated") as refused:
        bench.load()
    assert f"--repair-from {cut}" in (refused.value.advice or "")
    report = bench.load(repair_from=cut)
    assert (report["from_offset"], report["rows"]) == (cut, len(bench.log.records) - 150)
    assert bench.rows() == bench.expected
    assert bench.metadata()["repair"] is True
    bench.messages(100)
    bench.load()
    assert bench.rows() == bench.expected


def test_a_shorter_log(bench: Bench) -> None:
    bench.messages(150)
    bench.log.write(bench.work / "shorter")
    shorter, end = bench.expected, bench.log.end_offset
    bench.messages(500)
    bench.load()
    options = {"store": str(bench.work / "shorter"), "cluster": "c", "broker": "b", "table": bench.table}
    with pytest.raises(Refused, match="truncated") as refused:
        load.run(LoadOptions(**options), Reporter(quiet=True))
    assert f"--repair-from {end}" in (refused.value.advice or "")
    load.run(LoadOptions(**options, repair_from=bench.log.records[149].offset - 5), Reporter(quiet=True))
    assert bench.rows() == shorter
    assert load.run(LoadOptions(**options), Reporter(quiet=True))["skipped"]
    load.run(LoadOptions(**options, repair_from=0), Reporter(quiet=True))
    assert bench.rows() == shorter


def test_repair_leaves_other_brokers_alone(bench: Bench) -> None:
    bench.messages(50)
    bench.load()
    bench.load(broker="other")
    bench.load(repair_from=0)
    assert bench.rows() == bench.rows("other") == bench.expected


def test_repair_cannot_leave_a_gap(bench: Bench) -> None:
    bench.messages(50)
    end = bench.load()["to_offset"]
    with pytest.raises(UsageError, match="ends at"):
        bench.load(repair_from=end + 1)


def test_another_store_under_the_same_name(bench: Bench) -> None:
    bench.messages(50)
    bench.load()
    before = bench.rows()
    bench.log = LogBuilder(SEGMENT, clock=1_800_000_000_000)
    bench.messages(90, flag=3)
    with pytest.raises(Refused, match="another store") as refused:
        bench.load("other")
    assert "--broker" in (refused.value.advice or "")
    assert bench.rows() == before


def test_a_repair_replaces_also_rows_whose_bytes_are_no_more(bench: Bench) -> None:
    bench.messages(50)
    bench.load()
    bench.log = LogBuilder(SEGMENT, clock=1_800_000_000_000)
    while len(bench.log.segments) < 3:
        bench.messages(90, flag=3)
    bench.log.remove_head(1)
    report = bench.load("other", repair_from=0, allow_gap=True)
    assert (report["rows"], bench.rows()) == (len(bench.expected), bench.expected)


@pytest.mark.parametrize("to", ["first", "nothing"])
def test_a_table_that_was_restored_to_an_older_version(bench: Bench, to: str) -> None:
    """RESTORE takes rows away and leaves the transactions: these still say that all was loaded."""
    bench.messages(40)
    bench.load(broker="other")
    before = bench.spark.sql(f"DESCRIBE HISTORY delta.`{bench.table}` LIMIT 1").first()
    assert before is not None
    first = bench.load()
    bench.messages(50)
    second = bench.load()
    version = first["version"] if to == "first" else before.version
    reached = first["to_offset"] if to == "first" else 0
    bench.spark.sql(f"RESTORE TABLE delta.`{bench.table}` TO VERSION AS OF {version}")
    for _ in range(2):
        with pytest.raises(Refused, match="restored to an older version") as refused:
            bench.load()
        assert (refused.value.found, refused.value.expected) == (reached, second["to_offset"])
        bench.messages(10)
    assert f"--repair-from {reached} " in (refused.value.advice or "")
    with pytest.raises(Refused, match="restored"):
        bench.load(repair_from=reached + 1)
    bench.load(broker="other")
    bench.load(repair_from=reached)
    assert bench.rows() == bench.expected
    bench.messages(10)
    bench.load()
    bench.load(broker="other")
    assert bench.rows() == bench.rows("other") == bench.expected


def test_rows_that_a_person_deleted_stay_deleted(bench: Bench) -> None:
    bench.messages(40)
    bench.load()
    bench.spark.sql(f"DELETE FROM delta.`{bench.table}` WHERE commit_log_offset > {bench.expected[9]}")
    kept = bench.expected[:10]
    bench.messages(5)
    assert bench.load()["rows"] == 5
    assert bench.rows() == kept + bench.expected[-5:]


# --- damage ------------------------------------------------------------------------------------------------------


def test_damage(bench: Bench) -> None:
    bench.messages(50)
    root = bench.log.write(bench.work / "broken")
    damaged = bench.log.records[30]
    with Path(root, "commitlog", f"{0:020d}").open("r+b") as file:
        file.seek(damaged.offset + 4)
        file.write(b"oops")
    options = {"store": str(root), "cluster": "c", "broker": "b", "table": bench.table}
    with pytest.raises(DamagedLog):
        load.run(LoadOptions(**options), Reporter(quiet=True))
    report = load.run(LoadOptions(**options, on_damage="stop"), Reporter(quiet=True))
    assert (report["status"], report.exit_code, report["rows"]) == ("damaged", 1, 30)
    assert bench.rows() == bench.expected[:30]
    assert bench.metadata()["damaged_ranges"][0]["begin"] == damaged.offset
    bench.table = options["table"] = str(bench.work / "salvaged")
    report = load.run(LoadOptions(**options, on_damage="salvage"), Reporter(quiet=True))
    assert (report["status"], report.exit_code, report["rows"], report["lost_messages"]) == ("damaged", 1, 49, 1)
    assert bench.rows() == [*bench.expected[:30], *bench.expected[31:]]
    again = load.run(LoadOptions(**options, on_damage="salvage"), Reporter(quiet=True))
    assert (again["rows"], again["skipped"], again["to_offset"]) == (0, True, report["to_offset"])


def test_a_missing_segment_is_damage_like_any_other(bench: Bench) -> None:
    bench.messages(1_300)
    root = bench.log.write(bench.work / "broken")
    Path(root, "commitlog", f"{SEGMENT:020d}").unlink()
    options = {"store": str(root), "cluster": "c", "broker": "b", "table": bench.table}
    with pytest.raises(NotAStore, match="missing"):
        load.run(LoadOptions(**options), Reporter(quiet=True))
    report = load.run(LoadOptions(**options, on_damage="salvage"), Reporter(quiet=True))
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
    row = bench.spark.read.format("delta").load(bench.table).first()
    assert row is not None
    assert row.tags_code == due


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
    assert not any("due" in note for note in bench.load(settings=right, repair_from=0)["notes"])


# --- tables --------------------------------------------------------------------------------------------------------


def test_a_table_of_an_older_version_gets_the_new_columns(bench: Bench) -> None:
    bench.messages(20)
    bench.load()
    old = bench.expected
    rows = bench.spark.read.format("delta").load(bench.table)
    older = str(bench.work / "older")
    writer = rows.drop("dispatched", "properties").write.format("delta").partitionBy("store_date")
    writer.save(older)
    bench.table = older
    bench.messages(20)
    report = bench.load()
    assert report["rows"] == 20  # the copy has no transactions: its rows say where to go on
    assert bench.rows() == bench.expected
    table = bench.spark.read.format("delta").load(older)
    assert table.schema["properties"].metadata["comment"]
    assert table.where("dispatched IS NULL").count() == len(old)
    assert table.where("properties IS NOT NULL AND dispatched").count() == 20


def test_bodies_may_come_later(bench: Bench) -> None:
    bench.messages(3)
    bench.load()
    bench.log.message(topic="T", body=b"\x00\xffbody")
    bench.load(with_bodies=True)
    rows = bench.spark.read.format("delta").load(bench.table).orderBy("commit_log_offset")
    assert [row.body for row in rows.select("body").collect()] == [None, None, None, bytearray(b"\x00\xffbody")]


def test_a_column_of_a_users_own_stays(bench: Bench) -> None:
    bench.messages(3)
    bench.load()
    bench.spark.sql(f"ALTER TABLE delta.`{bench.table}` ADD COLUMNS (note string)")
    bench.messages(3)
    bench.load()
    assert bench.rows() == bench.expected


def test_a_table_whose_owner_gave_it_column_mapping(bench: Bench) -> None:
    """Delta's own writer knows what its columns are called in files."""
    bench.messages(20)
    bench.load()
    bench.spark.sql(f"ALTER TABLE delta.`{bench.table}` SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
    bench.spark.sql(f"ALTER TABLE delta.`{bench.table}` DROP COLUMN flag")
    bench.messages(20)
    assert bench.load()["rows"] == 20
    assert bench.rows() == bench.expected
    with pytest.raises(UsageError, match="column mapping"):
        bench.load(broker="other", topics=(TopicFilter("T0"),))


def test_the_time_zone_is_the_tables(bench: Bench) -> None:
    bench.messages(3)
    bench.load(time_zone="Asia/Tokyo")
    bench.messages(3)
    bench.load()
    with pytest.raises(Refused, match="time zone"):
        bench.load(time_zone="UTC")
    with pytest.raises(UsageError, match="no such time zone"):
        bench.load(time_zone="Mars/Olympus")
    assert messages_table.MessagesTable(bench.spark, bench.table).time_zone == "Asia/Tokyo"


def test_times_out_of_range_have_no_date(bench: Bench) -> None:
    bench.log.message(topic="T", born_timestamp=(1 << 63) - 1, store_timestamp=-(1 << 63))
    bench.log.message(topic="T", born_timestamp=0, store_timestamp=-2_208_988_800_001)
    bench.load()
    rows = bench.spark.read.format("delta").load(bench.table)
    assert rows.where("store_date IS NULL AND store_timestamp IS NULL").count() == 1
    assert rows.where("store_date = '1899-12-31'").count() == 1


def test_something_else_at_the_tables_place(bench: Bench) -> None:
    bench.messages(3)
    other = str(bench.work / "numbers")
    bench.spark.range(3).write.format("delta").save(other)
    with pytest.raises(NotAStore, match="no column cluster"):
        bench.load(table=other)
    wrong = str(bench.work / "wrong")
    bench.load()
    rows = bench.spark.read.format("delta").load(bench.table)
    rows.withColumn("queue_id", rows.queue_id.cast("string")).write.format("delta").save(wrong)
    with pytest.raises(NotAStore, match="type of queue_id"):
        bench.load(table=wrong)
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
