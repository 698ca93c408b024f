"""Arrow's sums of a table are those of the views; of golden stores see ``test_report``."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from support import random_messages
from support.report_facts import without_spark

from jobs.contract.options import ReportOptions
from jobs.contract.reporter import Reporter
from jobs.report import report
from jobs.report.facts import KEYS
from jobs.report.plain_facts import measure_plain
from jobs.table import messages_table
from udfs.table import schemas


@pytest.mark.slow
@pytest.mark.spark
def test_a_group_without_a_key_and_a_day_without_files(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "messages")
    messages_table.create_table(path, time_zone="UTC", bodies=False)
    options = ReportOptions(table=path, by="tag")
    assert found_both_ways(options, monkeypatch)["groups"] == []
    row = {"cluster": "c", "broker": "b", "topic": "t", "size": 100, "body_size": 9, "tags": None}
    columns = pa.Table.from_pylist(
        [row | {"store_date": None}, row | {"tags": "b", "store_date": date(2024, 5, 1)}], schema=schemas.MESSAGES
    )
    frame = spark.createDataFrame(columns, schemas.to_spark(schemas.MESSAGES))
    frame.write.format("delta").mode("append").save(path)
    for by, keys in (("date", [None, "2024-05-01"]), ("tag", [None, "b"])):
        groups = found_both_ways(ReportOptions(table=path, by=by), monkeypatch)["groups"]  # type: ignore[arg-type]
        assert [(group[KEYS[by][-1]], group["messages"]) for group in groups] == [(key, 1) for key in keys]


@pytest.mark.parametrize("days", [(None, date(2024, 5, 1)), (date(2024, 5, 1), None), (None, None)])
def test_messages_without_a_day_are_a_group_of_their_own(days: tuple[date | None, ...], tmp_path: Path) -> None:
    rows = [{**random_messages.messages(1, 1)[0], "size": 100, "store_date": day} for day in days]
    deltalake.write_deltalake(
        str(tmp_path / "t"), pa.Table.from_pylist(rows, schema=schemas.MESSAGES), partition_by=["store_date"]
    )
    table = messages_table.open_to_read(str(tmp_path / "t"))
    assert table is not None
    groups = [(group["store_date"], group["bytes"]) for group in measure_plain(table, "date").groups]
    assert groups == ([(None, 200)] if set(days) == {None} else [(None, 100), (date(2024, 5, 1), 100)])


def found_both_ways(options: ReportOptions, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Returns the report of Spark, once Arrow has made the same."""
    found: dict[str, Any] = json.loads(report.run(options, Reporter(quiet=True)).to_json()) | {"seconds": 0}
    with monkeypatch.context() as patched:
        without_spark(patched)
        assert json.loads(report.run(options, Reporter(quiet=True)).to_json()) | {"seconds": 0} == found
    return found
