"""Facts of a report, and tables of other shapes."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import deltalake
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from support import random_messages
from support.report_facts import ABOUT, BEGIN, facts, group

from jobs.contract.options import ReportOptions
from jobs.contract.report import Reporter
from jobs.report import page, report, views
from jobs.report.views import CHECKS, key_text, moment, number_text, sentences, to_lines, with_rates
from jobs.table import messages_table
from storeformat.errors import MissingInput
from udfs.table import schemas

# --------------------------------------------------------------------------------------------------------- facts


NOTHING = {
    "retries": "none",
    "duplicates": "none",
    "transactions": "none",
    "delays": "none",
    "gaps": "none: queue offsets are consecutive",
    "clocks": "no step back, no producer ahead",
}


def level(scheduled: int, overdue: int, least: int | None, most: int | None) -> dict[str, Any]:
    return {"level": 3, "scheduled": scheduled, "overdue": overdue, "min_late_ms": least, "max_late_ms": most}


EARLY = "ms too early: was the broker's messageDelayLevel given to load?"


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ({}, {}),
        (
            {
                "retries": [
                    {"consumer_group": "a", "kind": "retry", "messages": 1200},
                    {"consumer_group": "a", "kind": "dlq", "messages": 3},
                    {"consumer_group": "b", "kind": "retry", "messages": 34},
                ],
                "duplicates": [{"surplus": 1200}, {"surplus": 34}],
                "transactions": [
                    {"outcome": "open", "transactions": 1000},
                    {"outcome": "committed", "transactions": 5},
                    {"outcome": "open", "transactions": 7},
                ],
                "delays": [level(5, 2, None, None)],
                "gaps": [{"kind": "gap", "places": 2, "missing": 1234}],
                "clock_steps": [{"steps": 1000}, {"steps": 2}],
                "clocks_ahead": [],
            },
            {
                "retries": "1,234 retries and 3 dead letters; consumer groups: 2",
                "duplicates": "1,234 messages more than unique keys",
                "transactions": "5 committed, 1,007 open",
                "delays": "5 delayed messages, 2 overdue",
                "gaps": "1,234 messages are missing in queues",
                "clocks": "the broker's clock went back 1,002 times; 0 producers' clocks are ahead of it",
            },
        ),
        (
            {
                "delays": [level(1000, 1000, None, None), level(5, 2, 0, 0)],
                "gaps": [
                    {"kind": "gap", "places": 2, "missing": 4},
                    {"kind": "repeat", "places": 1000, "missing": 0},
                    {"kind": "restart", "places": 3, "missing": 0},
                ],
                "clock_steps": [],
                "clocks_ahead": [{"host": "a"}, {"host": "b"}],
            },
            {
                "delays": "1,005 delayed messages, 1,002 overdue, at most 0 ms late",
                "gaps": "4 messages are missing in queues; at 1,003 places offsets restart or occur twice",
                "clocks": "the broker's clock went back 0 times; 2 producers' clocks are ahead of it",
            },
        ),
        (
            {"delays": [level(5, 0, -8_000, -1), level(2, 0, -9, -3)]},
            {"delays": f"7 delayed messages, 0 overdue; up to 8,000 {EARLY}"},
        ),
        (
            {"delays": [level(5, 0, -1, 1_007), level(2, 0, 4, 9)]},
            {"delays": f"7 delayed messages, 0 overdue, at most 1,007 ms late; up to 1 {EARLY}"},
        ),
    ],
)
def test_what_the_checks_found_in_sentences(found: dict[str, list[dict[str, Any]]], said: dict[str, str]) -> None:
    assert sentences({**{name: [] for name in CHECKS}, **found}) == NOTHING | said


def test_the_whole_text() -> None:
    groups = [
        {**group("a long tag", 1500, 1_500_000), "share": 0.75, "messages_per_second": 1500.0, "bytes_per_second": 7.0},
        {**group(None, 5, 500), "share": 0.0025, "messages_per_second": 0.012345, "bytes_per_second": 12_345.0},
        {**group("not shown", 1, 1), "share": 0.0, "messages_per_second": 0.0, "bytes_per_second": 0.0},
    ]
    one = facts().brokers[0] | {"messages": 251, "bytes": 333_500}
    brokers = [{**one, "broker": f"b{number}"} for number in range(6)]
    found = facts(brokers=brokers, groups=groups, groups_in_all=1236)
    head = (
        "1,506 messages, 2.0 MB, 2024-05-30 07:00:00 to 2024-05-30 09:00:00 (2.0 h); c/b0, c/b1, c/b2, c/b3, c/b4 and "
        "1 more"
    )
    assert to_lines(found, 2, " (elsewhere)") == [
        head,
        "",
        "topic   tags        messages   bytes  share  messages/s       rate",
        "orders  a long tag     1,500  1.5 MB  75.0%       1,500      7 B/s",
        "orders  (none)             5   500 B   0.2%      0.0123  12.3 kB/s",
        "... and 1,234 more (elsewhere)",
        "",
        "retries       none",
        "duplicates    none",
        "transactions  none",
        "delays        none",
        "gaps          none: queue offsets are consecutive",
        "clocks        no step back, no producer ahead",
    ]
    short = facts(brokers=brokers[:5], groups=groups[:2], checks={})
    assert to_lines(short, 2)[1:] == ["", *to_lines(found, 2)[2:5]]
    assert to_lines(short, 2)[0].endswith("; c/b0, c/b1, c/b2, c/b3, c/b4")


@pytest.mark.parametrize(
    ("value", "digits", "shown"),
    [
        (0.0, 3, "0"), (0.00012345, 3, "0.000123"), (1.5, 3, "1.5"), (99.94, 3, "99.9"), (100.4, 3, "100"),
        (1500.4, 3, "1,500"), (1_234_567.8, 3, "1,234,568"), (-1500.4, 3, "-1,500"), (999.44, 4, "999.4"),
        (1000.4, 4, "1,000"),
    ],
)  # fmt: skip
def test_a_number_for_a_person(value: float, digits: int, shown: str) -> None:
    assert number_text(value, digits) == shown


@pytest.mark.parametrize(
    ("key", "shown"),
    [
        (None, "(none)"),
        (datetime(2024, 5, 3, 7, 8, 9), "2024-05-03 07:08"),
        (date(2024, 5, 3), "2024-05-03"),
        (7, "7"),
        ("a\nb", "a\\x0ab"),
    ],
)
def test_the_key_of_a_group_for_a_person(key: Any, shown: str) -> None:
    assert key_text(key) == shown


def test_times_from_the_first_broker_to_the_last() -> None:
    broker = facts().brokers[0]
    assert (moment(None), moment(BEGIN)) == ("?", "2024-05-30 07:00:00")
    brokers = [
        broker | {"first_stored": None, "last_stored": None},
        broker | {"last_stored": BEGIN + timedelta(milliseconds=500)},
        broker | {"first_stored": BEGIN + timedelta(seconds=9), "last_stored": BEGIN + timedelta(seconds=10)},
    ]
    found = facts(brokers=brokers)
    assert (found.first_stored, found.last_stored, found.span) == (BEGIN, BEGIN + timedelta(seconds=10), 10.0)
    assert facts(brokers=brokers[:2]).span == 1.0
    timeless = facts(brokers=brokers[:1])
    assert (timeless.first_stored, timeless.last_stored, timeless.span) == (None, None, 1.0)
    nothing = facts(brokers=[broker | {"bytes": 0}], groups=[group("a", 0, 0)])
    assert with_rates(nothing).groups[0]["share"] == 0


def test_a_long_tag_does_not_fill_a_terminal() -> None:
    lines = to_lines(facts(groups=[group("x" * 5000, 1, 100)]), report.SHOWN)
    assert max(map(len, lines)) < 250


def test_an_empty_table_has_a_report() -> None:
    empty = facts(brokers=[], groups=[], checks={})
    assert to_lines(empty, report.SHOWN) == ["The table is empty."]
    assert "The table is empty." in page.render(empty, page.Pictures(timedelta(minutes=1), [], []), *ABOUT)
    assert report.to_csv(empty).splitlines()[0].startswith("topic,tags,messages,bytes")


@pytest.mark.parametrize(("by", "seconds"), [("tag", 7200), ("hour", 3600), ("date", 86400)])
def test_rates_are_those_of_the_whole_time_or_of_the_hour_or_day_itself(by: str, seconds: int) -> None:
    groups = [group("a", 30, 300), group("b", 10, 1200)]
    for one in groups:
        del one["share"], one["messages_per_second"], one["bytes_per_second"]
    found = with_rates(facts(by=by, groups=groups)).groups
    assert [one["share"] for one in found] == [300 / 2100, 1200 / 2100]
    assert [one["messages_per_second"] for one in found] == [30 / seconds, 10 / seconds]
    assert [one["bytes_per_second"] for one in found] == [300 / seconds, 1200 / seconds]


def test_the_text_of_a_report_is_that_of_its_facts(monkeypatch: pytest.MonkeyPatch) -> None:
    found = facts()
    monkeypatch.setattr(report, "measured", lambda *_: found)
    made = report.run(ReportOptions(table="messages"), Reporter(quiet=True))
    assert made.to_text().startswith(to_lines(found, report.SHOWN)[0])
    assert (made["table"], made["messages"]) == ("messages", 21)


# -------------------------------------------------------------------------------------------------- table shapes
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
    taken = dict.fromkeys(("delay_level", "timer_due", "real_topic", "inner_num"))
    assert [row | taken for row in found] == [row | taken for row in written]
    assert STRANGE in [row["topic"] for row in found]
    return path, found


@pytest.mark.parametrize(
    "columns",
    [
        [],
        ["broker", "store_date"],
        ["topic"],
        ["cluster"],
        *(pytest.param(more, marks=pytest.mark.slow) for more in (["topic", "queue_id"], ["store_timestamp"])),
    ],
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
