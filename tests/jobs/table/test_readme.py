"""README's lines that take a topic and a time out of a log, and its weekly statements for the table."""

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
from pyspark.sql import SparkSession
from support import broker_model, golden, messages_model
from support.broker_settings import BrokerSettings

from jobs.report import views
from jobs.table import datasource

pytestmark = pytest.mark.spark

ROOT = Path(__file__).resolve().parents[3]


def lines() -> str:
    """The block of README that writes files."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
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
    (block,) = re.findall(r"```sql\n(OPTIMIZE .*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
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
