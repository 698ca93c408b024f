"""``load`` into tables that others made, changed, or keep from being written."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.table_bench import Bench

from jobs.table import messages_table
from storeformat.errors import MissingInput, NotAStore, Refused, UsageError, WriteFailed

pytestmark = pytest.mark.spark


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
    bench.messages(20)
    bench.load()
    bench.spark.sql(f"ALTER TABLE delta.`{bench.table}` SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
    bench.messages(20)
    with pytest.raises(MissingInput, match="the table has column mapping, and `load` cannot write into one with that"):
        bench.load()


def test_a_table_with_deletion_vectors(bench: Bench) -> None:
    """Rows are added to it; which of a file are replaced, delta-rs could not say."""
    bench.messages(20)
    bench.load()
    name = "delta.enableDeletionVectors"
    bench.spark.sql(f"ALTER TABLE delta.`{bench.table}` SET TBLPROPERTIES ('{name}' = true)")
    bench.spark.sql(f"DELETE FROM delta.`{bench.table}` WHERE commit_log_offset = {bench.expected[-1]}")
    bench.messages(20)
    assert bench.load()["rows"] == 20
    found = bench.spark.read.format("delta").load(bench.table).select("commit_log_offset").collect()
    assert sorted(row[0] for row in found) == [*bench.expected[:19], *bench.expected[20:]]
    with pytest.raises(Refused, match="files of the table have deletion vectors"):
        bench.load(repair_from=0)


def test_the_time_zone_is_the_tables(bench: Bench) -> None:
    bench.messages(3)
    bench.load(time_zone="Asia/Tokyo")
    bench.messages(3)
    bench.load()
    with pytest.raises(Refused, match="time zone"):
        bench.load(time_zone="UTC")
    with pytest.raises(UsageError, match="no such time zone"):
        bench.load(time_zone="Mars/Olympus")
    assert messages_table.MessagesTable(bench.table).time_zone == "Asia/Tokyo"


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
