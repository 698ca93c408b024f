"""``report``: what it says about rows is right, in all its outputs."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from support import golden, messages_model
from support.broker_model import read_segments
from support.broker_settings import BrokerSettings
from support.report_facts import TAGS, facts, group, without_spark

from jobs.contract.options import ReportOptions
from jobs.contract.reporter import Reporter
from jobs.report import report
from jobs.report.facts import CHECKS, KEYS
from jobs.table import messages_table
from storeformat.errors import MissingInput, WriteFailed
from udfs.table import schemas


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("=cmd|' /C calc'!A0", "'=cmd|' /C calc'!A0"),
        ("+1", "'+1"),
        ("-1", "'-1"),
        ("@SUM(1)", "'@SUM(1)"),
        ("\uff1d1", "'\uff1d1"),
        ("\t=1", "\\x09=1"),
        ("a\x1b[2J\u009bb\r\n=1", "a\\x1b[2J\\x9bb\\x0d\\x0a=1"),
        ("TagA", "TagA"),
        ("订单 1-2", "订单 1-2"),
    ],
)
def test_no_cell_is_a_formula(text: str, written: str) -> None:
    (row,) = csv.DictReader(io.StringIO(report.to_csv(facts(groups=[group(text, 1, 100)])), newline=""))
    assert (row["tags"], row["topic"], row["messages"]) == (written, "orders", "1")


def test_csv_holds_every_group_whatever_the_tag() -> None:
    rows = list(csv.DictReader(io.StringIO(report.to_csv(facts()), newline="")))
    assert [row["tags"] or None for row in rows] == TAGS
    assert [int(row["messages"]) for row in rows] == [6, 5, 4, 3, 2, 1]


# --------------------------------------------------------------------------------------------------------- with Spark
@pytest.fixture(scope="module")
def table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[dict[str, Any]]]:
    """A Delta table and its rows: two golden stores as two brokers."""
    rows = []
    for name in ("base-clean-4.9.8", "retention-5.5.0"):
        (store,) = golden.stores(lambda one, name=name: one.name == name)  # type: ignore[misc]
        settings = BrokerSettings.of(store.version, store.settings)
        read = messages_model.rows(read_segments(golden.unpack(store)), settings)
        rows += [{"cluster": "c", "broker": name, **row} for row in read]
    path = str(tmp_path_factory.mktemp("report") / "messages")
    messages_table.create_table(spark, path, time_zone="UTC", bodies=False)
    columns = spark.createDataFrame(
        pa.Table.from_pylist(rows, schema=schemas.MESSAGES), schemas.to_spark(schemas.MESSAGES)
    )
    columns.write.format("delta").mode("append").save(path)
    return path, rows


def key_of(row: dict[str, Any], by: str) -> tuple[Any, ...]:
    values = {
        **row,
        "host": row["born_host"].rpartition(":")[0],
        "hour": row["store_timestamp"].replace(minute=0, second=0, microsecond=0),
    }
    return tuple(values[name] for name in KEYS[by])


@pytest.mark.spark
@pytest.mark.golden
@pytest.mark.parametrize("here", [False, True], ids=["spark", "arrow"])
@pytest.mark.parametrize("by", sorted(KEYS))
def test_groups_are_those_of_a_slow_count(
    by: str, here: bool, table: tuple[str, list[dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, rows = table
    if here:
        without_spark(monkeypatch)
    found = report.run(ReportOptions(table=path, by=by), Reporter(quiet=True))  # type: ignore[arg-type]
    messages, sizes = Counter(key_of(row, by) for row in rows), Counter[Any]()
    for row in rows:
        sizes[key_of(row, by)] += row["size"]
    assert {tuple(one[key] for key in KEYS[by]): (one["messages"], one["bytes"]) for one in found["groups"]} == {
        key: (messages[key], sizes[key]) for key in messages
    }
    assert [one["bytes"] for one in found["groups"]] == sorted(sizes.values(), reverse=True)
    assert sum(one["share"] for one in found["groups"]) == pytest.approx(1)
    assert (found["messages"], found["bytes"]) == (len(rows), sum(sizes.values()))
    seconds = (found["last_stored"] - found["first_stored"]).total_seconds()
    length = {"hour": 3600, "date": 86400}.get(by, seconds)
    first = found["groups"][0]
    assert first["bytes_per_second"] == pytest.approx(first["bytes"] / length)
    assert found.exit_code == 0


@pytest.mark.spark
@pytest.mark.golden
def test_all_outputs_at_once(
    table: tuple[str, list[dict[str, Any]]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, rows = table
    html, listed = tmp_path / "report.html", tmp_path / "report.csv"
    html.write_text("that of the night before")
    options = ReportOptions(table=path, by="date", html=str(html), csv=str(listed))
    found = report.run(options, Reporter(quiet=True))
    as_json = json.loads(found.to_json())
    assert as_json["groups"][0]["store_date"] == str(found["groups"][0]["store_date"])
    assert isinstance(found["groups"][0]["store_date"], date)
    assert set(as_json["checks"]) == set(CHECKS)
    assert html.read_text(encoding="utf-8").endswith("</html>\n")
    assert len(listed.read_text(encoding="utf-8").splitlines()) == 1 + len({row["store_date"] for row in rows})
    assert "delayed messages" in found.to_text()
    by_spark = html.read_bytes()
    without_spark(monkeypatch)
    assert json.loads(report.run(options, Reporter(quiet=True)).to_json()) | {"seconds": 0} == as_json | {"seconds": 0}
    assert html.read_bytes() == by_spark


@pytest.mark.parametrize("what", ["html", "csv"])
def test_a_directory_is_no_file(what: str, tmp_path: Path) -> None:
    with pytest.raises(WriteFailed, match="directory"):
        report.run(ReportOptions(table="t", **{what: str(tmp_path)}), Reporter(quiet=True))


@pytest.mark.spark
def test_no_such_table(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(MissingInput):
        report.run(ReportOptions(table=str(tmp_path / "nothing")), Reporter(quiet=True))
