"""What is not for one process to tell is left to Spark, whatever else the table is."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest
from support import random_messages
from support.report_facts import without_spark

from jobs.contract.options import ReportOptions
from jobs.contract.reporter import Reporter
from jobs.report import plain_rows, report
from jobs.spark.execution import BROUGHT
from udfs.table import schemas


def asked(path: Path, rows: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> bool:
    """Returns whether a report with checks would ask Spark."""
    table = pa.Table.from_pylist(rows, schema=schemas.MESSAGES)
    deltalake.write_deltalake(str(path), table, partition_by=["store_date"])
    without_spark(monkeypatch)
    assert report.without_spark(ReportOptions(table=str(path)), Reporter(quiet=True), BROUGHT) is not None
    return report.without_spark(ReportOptions(table=str(path), checks=True), Reporter(quiet=True), BROUGHT) is None


@pytest.mark.parametrize("name", ["topic", "queue_offset", "properties"])
def test_a_value_that_every_message_has_is_missing(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = random_messages.messages(1, 20)
    rows[7][name] = None
    assert asked(tmp_path / "t", rows, monkeypatch)


@pytest.mark.parametrize("limit", ["MOST_ROWS", "MOST_TRACKED"])
def test_more_than_the_memory_is_for(limit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = random_messages.messages(1, 20)
    tracked = sum(row["topic"] != "orders" for row in rows)
    monkeypatch.setattr(plain_rows, limit, 20 if limit == "MOST_ROWS" else tracked + 20)
    assert not asked(tmp_path / "t", rows, monkeypatch)
    monkeypatch.setattr(plain_rows, limit, 19 if limit == "MOST_ROWS" else 1)
    assert asked(tmp_path / "u", rows, monkeypatch)


def test_times_of_96_bits_are_read_to_the_end_of_time(tmp_path: Path) -> None:
    """Spark may write such; as nanoseconds of 64 bits they would end in 2262."""
    late = datetime(3000, 1, 2, 3, 4, 5, 6, timezone.utc)
    rows = [{**row, "store_timestamp": late} for row in random_messages.messages(1, 3)]
    table = pa.Table.from_pylist(rows, schema=schemas.MESSAGES).drop_columns(["store_date"])
    pq.write_table(table, tmp_path / "part.parquet", use_deprecated_int96_timestamps=True)
    (fragment,) = pads.dataset(tmp_path / "part.parquet").get_fragments()
    read = plain_rows.RowGroup(fragment, 0, {}).read(["store_timestamp", "topic"])
    assert plain_rows._micros(read["store_timestamp"]).tolist() == [int(late.timestamp()) * 10**6 + 6] * 3
    assert pa.types.is_dictionary(read["topic"].type)
