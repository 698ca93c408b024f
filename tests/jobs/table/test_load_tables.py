"""``load`` into tables that others made, changed, or keep from being written."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, write_deltalake
from deltalake.schema import PrimitiveType
from support.table_bench import Bench

from jobs.table import messages_table
from storeformat.errors import MissingInput, NotAStore, Refused, UsageError, WriteFailed

if TYPE_CHECKING:  # most of these tests run without pyspark
    from pyspark.sql import SparkSession


def test_a_table_of_an_older_version_gets_the_new_columns(bench: Bench) -> None:
    bench.messages(20)
    bench.load()
    rows = DeltaTable(bench.table).to_pyarrow_table().drop_columns(["dispatched", "properties"])
    bench.table = str(bench.work / "older")
    write_deltalake(bench.table, rows, partition_by=["store_date"])
    bench.messages(20)
    report = bench.load()
    assert report["rows"] == 20  # the copy has no transactions: its rows say where to go on
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
    rows = bench.table_rows("store_date", "store_timestamp")
    assert [row["store_date"] for row in rows] == [None, date(1899, 12, 31)]
    assert [row["store_timestamp"] is None for row in rows] == [True, False]


def test_something_else_at_the_tables_place(bench: Bench) -> None:
    bench.messages(3)
    other = str(bench.work / "numbers")
    write_deltalake(other, pa.table({"id": [0, 1, 2]}))
    with pytest.raises(NotAStore, match="no column cluster"):
        bench.load(table=other)
    wrong = str(bench.work / "wrong")
    bench.load()
    rows = DeltaTable(bench.table).to_pyarrow_table()
    at = rows.column_names.index("queue_id")
    write_deltalake(wrong, rows.set_column(at, "queue_id", rows["queue_id"].cast(pa.string())))
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
