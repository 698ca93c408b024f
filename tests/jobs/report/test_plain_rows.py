"""What is not for one process to tell is left to Spark, whatever else the table is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from support import random_messages
from support.report_facts import without_spark

from jobs.contract.options import ReportOptions
from jobs.contract.reporter import Reporter
from jobs.report import plain_rows, report
from udfs.table import schemas


def asked(path: Path, rows: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> bool:
    """Returns whether a report with checks would ask Spark."""
    table = pa.Table.from_pylist(rows, schema=schemas.MESSAGES)
    deltalake.write_deltalake(str(path), table, partition_by=["store_date"])
    without_spark(monkeypatch)
    assert report.without_spark(ReportOptions(table=str(path)), Reporter(quiet=True)) is not None
    return report.without_spark(ReportOptions(table=str(path), checks=True), Reporter(quiet=True)) is None


@pytest.mark.parametrize("name", ["topic", "queue_offset", "properties"])
def test_a_value_that_every_message_has_is_missing(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = random_messages.messages(1, 20)
    rows[7][name] = None
    assert asked(tmp_path / "t", rows, monkeypatch)


@pytest.mark.parametrize("limit", ["MOST_ROWS", "MOST_TOLD"])
def test_more_than_the_memory_is_for(limit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = random_messages.messages(1, 20)
    told = sum(row["topic"] != "orders" for row in rows)
    monkeypatch.setattr(plain_rows, limit, 20 if limit == "MOST_ROWS" else told + 20)
    assert not asked(tmp_path / "t", rows, monkeypatch)
    monkeypatch.setattr(plain_rows, limit, 19 if limit == "MOST_ROWS" else 1)
    assert asked(tmp_path / "u", rows, monkeypatch)
