"""Whatever shape a Delta table with our columns has, its rows are the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import deltalake
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from support import random_messages

from jobs.contract.options import ReportOptions
from jobs.contract.reporter import Reporter
from jobs.report import report, views
from jobs.table import messages_table
from storeformat.errors import MissingInput
from udfs.table import schemas

STRANGE = "a b/c%d=e:f#g?ü"
COUNT = 400


def messages() -> pa.Table:
    rows = random_messages.usual_messages(5, COUNT)
    for row in rows:
        row["topic"] = STRANGE if row["topic"] == "rmq_sys_other" else row["topic"]
    return pa.Table.from_pylist(rows, schema=schemas.MESSAGES_WITH_BODY)


def write(path: str, **how: Any) -> None:
    """Writes the messages in two commits."""
    rows = messages()
    for part in (rows.slice(0, 150), rows.slice(150)):
        deltalake.write_deltalake(path, part, mode="append", **how)


def place(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["cluster"], row["broker"], row["commit_log_offset"]


def rows_in(spark: SparkSession, path: str, *, by_delta: bool) -> list[dict[str, Any]]:
    """Returns what the view ``messages`` gives of a table, in an order of its own."""
    table = messages_table.open_table(path)
    assert table is not None
    assert views.needs_delta(table) == by_delta
    found = views.over_table(spark, table, ()).table("messages")
    found = found.select(*(name for name in schemas.MESSAGES_WITH_BODY.names if name in found.columns))
    return sorted(found.toArrow().to_pylist(), key=place)


@pytest.fixture(scope="module")
def usual(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[dict[str, Any]]]:
    """A table as ``load`` makes it, and its rows."""
    path = str(tmp_path_factory.mktemp("shapes") / "my table, 50%")
    write(path, partition_by=["store_date"])
    found = rows_in(spark, path, by_delta=False)
    written = sorted(messages().to_pylist(), key=place)
    taken = dict.fromkeys(schemas.FROM_PROPERTIES)
    assert [row | taken for row in found] == [row | taken for row in written]
    assert STRANGE in [row["topic"] for row in found]
    return path, found


@pytest.mark.parametrize(
    "columns",
    [[], ["broker", "store_date"], ["topic"], ["topic", "queue_id"], ["cluster"], ["store_timestamp"]],
    ids=str,
)
def test_columns_that_divide_a_table(
    columns: list[str], spark: SparkSession, tmp_path: Path, usual: tuple[str, list[dict[str, Any]]]
) -> None:
    path = str(tmp_path / "50% of it")
    write(path, partition_by=columns)
    assert rows_in(spark, path, by_delta=bool({"topic", "store_timestamp"} & {*columns})) == usual[1]


def test_a_checkpoint_and_a_column_of_ones_own(
    spark: SparkSession, tmp_path: Path, usual: tuple[str, list[dict[str, Any]]]
) -> None:
    path = str(tmp_path / "t")
    rows = messages()
    deltalake.write_deltalake(path, rows.slice(0, 150), partition_by=["topic"])
    deltalake.DeltaTable(path).create_checkpoint()
    more = rows.slice(150).append_column("team", pa.array(["a"] * (COUNT - 150)))
    deltalake.write_deltalake(path, more, mode="append", schema_mode="merge", partition_by=["topic"])
    deltalake.DeltaTable(path).alter.add_constraint({"positive": "size > 0"})
    assert rows_in(spark, path, by_delta=True) == usual[1]


def test_a_clone_names_files_of_another_place(
    spark: SparkSession, tmp_path: Path, usual: tuple[str, list[dict[str, Any]]]
) -> None:
    """As SHALLOW CLONE has them."""
    log = tmp_path / "clone" / "_delta_log"
    log.mkdir(parents=True)
    for version in range(2):
        lines = []
        for line in Path(usual[0], "_delta_log", f"{version:020d}.json").read_text(encoding="utf-8").splitlines():
            action = json.loads(line)
            if "add" in action:
                action["add"]["path"] = f"file:{quote(usual[0])}/{action['add']['path']}"
            lines.append(json.dumps(action))
        (log / f"{version:020d}.json").write_text("\n".join(lines), encoding="utf-8")
    assert rows_in(spark, str(log.parent), by_delta=True) == usual[1]


def test_features_of_writers_do_not_keep_readers_out(
    spark: SparkSession, tmp_path: Path, usual: tuple[str, list[dict[str, Any]]]
) -> None:
    path = str(tmp_path / "t")
    write(path, partition_by=["store_date"])
    protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["rowTracking", "domainMetadata"]}
    Path(path, "_delta_log", f"{2:020d}.json").write_text(json.dumps({"protocol": protocol}), encoding="utf-8")
    assert rows_in(spark, path, by_delta=False) == usual[1]


def test_a_log_that_lacks_a_version_is_not_read_as_if_it_were_whole(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    write(path)
    Path(path, "_delta_log", f"{0:020d}.json").unlink()
    with pytest.raises(MissingInput, match="the table cannot be read: "):
        messages_table.open_table(path)


COLUMNS = ", ".join(
    f"{field.name} {field.dataType.simpleString()}" for field in schemas.to_spark(schemas.MESSAGES_WITH_BODY)
)


def constraint(spark: SparkSession, path: str, source: str) -> None:
    spark.sql(f"CREATE TABLE delta.`{path}` USING delta PARTITIONED BY (store_date) AS SELECT * FROM {source}")
    spark.sql(f"ALTER TABLE delta.`{path}` ADD CONSTRAINT positive CHECK (size > 0)")


def generated(spark: SparkSession, path: str, source: str) -> None:
    made = COLUMNS.replace("store_date date", "store_date date GENERATED ALWAYS AS (CAST(store_timestamp AS DATE))")
    spark.sql(f"CREATE TABLE delta.`{path}` ({made}) USING delta PARTITIONED BY (store_date)")
    spark.sql(f"INSERT INTO delta.`{path}` SELECT * FROM {source}")


def mapped(spark: SparkSession, path: str, source: str) -> None:
    spark.sql(
        f"CREATE TABLE delta.`{path}` USING delta PARTITIONED BY (broker) "
        f"TBLPROPERTIES ('delta.columnMapping.mode' = 'name') AS SELECT * FROM {source}"
    )
    spark.sql(f"ALTER TABLE delta.`{path}` RENAME COLUMN flag TO marks")


def deleted(spark: SparkSession, path: str, source: str) -> None:
    rows = spark.sql(f"SELECT * FROM {source}")
    more = spark.sql(f"SELECT 'gone' AS topic, * EXCEPT (topic) FROM {source}").select(rows.columns)
    writer = rows.union(more).coalesce(1).write.format("delta").option("delta.enableDeletionVectors", "true")
    writer.save(path)
    spark.sql(f"DELETE FROM delta.`{path}` WHERE topic = 'gone'")


def cloned(spark: SparkSession, path: str, source: str) -> None:
    spark.sql(f"CREATE TABLE delta.`{path}` SHALLOW CLONE {source}")


def clustered(spark: SparkSession, path: str, source: str) -> None:
    spark.sql(f"CREATE TABLE delta.`{path}` ({COLUMNS}) USING delta CLUSTER BY (topic)")
    spark.sql(f"INSERT INTO delta.`{path}` SELECT * FROM {source}")


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize(
    ("make", "by_delta"),
    [(constraint, False), (generated, False), (cloned, True), (clustered, False), (mapped, True), (deleted, True)],
)
def test_what_delta_makes_of_a_table(
    make: Callable[[SparkSession, str, str], None], by_delta: bool, spark: SparkSession, tmp_path: Path,
    usual: tuple[str, list[dict[str, Any]]],
) -> None:  # fmt: skip
    path = str(tmp_path / "t")
    other = spark.newSession()
    other.conf.set("spark.sql.session.timeZone", "UTC")
    make(other, path, f"delta.`{usual[0]}`")
    found = rows_in(spark, path, by_delta=by_delta)
    assert found == [{name: value for name, value in row.items() if name in found[0]} for row in usual[1]]


@pytest.mark.spark
@pytest.mark.parametrize("damage", ["log", "file", "empty file"])
def test_a_table_that_is_damaged_is_one_line(damage: str, spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    write(str(path))
    if damage == "log":
        (path / "_delta_log" / f"{1:020d}.json").write_text('{"add": {"path": "x"', encoding="utf-8")
    elif damage == "file":
        next(path.glob("*.parquet")).unlink()
    else:
        next(path.glob("*.parquet")).write_bytes(b"")
    with pytest.raises(MissingInput, match="the table cannot be read: ") as error:
        report.run(ReportOptions(table=str(path)), Reporter(quiet=True))
    assert "\n" not in str(error.value)
    assert ("DeltaTable(...).repair()" in (error.value.advice or "")) == (damage != "log")


@pytest.mark.spark
def test_a_file_that_is_lost_on_storage_without_a_connector(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t"
    write(str(path), partition_by=["store_date"])
    monkeypatch.setattr(views, "_reaches", lambda _: False)
    next(path.glob("*/*.parquet")).unlink()
    with pytest.raises(MissingInput, match="the table cannot be read: ") as error:
        report.run(ReportOptions(table=str(path)), Reporter(quiet=True))
    assert "DeltaTable(...).repair()" in (error.value.advice or "")
