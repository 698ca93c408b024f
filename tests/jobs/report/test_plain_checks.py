"""What Arrow and numpy find in a plain table is what the views find in it, whatever the rows are."""

from __future__ import annotations

from pathlib import Path

import deltalake
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from support import random_messages

from jobs.report import page, plain_checks, views
from jobs.report.facts import measure
from jobs.report.plain_facts import measure_plain, plain_pictures
from jobs.table import plain_table
from udfs.table import schemas


def written(path: Path, rows: pa.Table, files: int) -> plain_table.PlainTable:
    """Returns a plain table of these rows, in several commits."""
    step = -(-len(rows) // files)
    for begin in range(0, len(rows), step):
        deltalake.write_deltalake(str(path), rows.slice(begin, step), mode="append", partition_by=["store_date"])
    table = plain_table.open_plain(str(path))
    assert table is not None
    return table


@pytest.mark.spark
@pytest.mark.parametrize(
    ("seed", "count", "bodies"), [(3, 2000, True), pytest.param(2, 400, False, marks=pytest.mark.slow)]
)
def test_the_views_find_the_same(seed: int, count: int, bodies: bool, spark: SparkSession, tmp_path: Path) -> None:
    schema = schemas.MESSAGES_WITH_BODY if bodies else schemas.MESSAGES
    rows = pa.Table.from_pylist(random_messages.messages(seed, count), schema=schema)
    table = written(tmp_path / "messages", rows, 3)
    other = spark.newSession()
    views.register(other, other.createDataFrame(rows, schemas.to_spark(schema)), views.VIEWS)
    facts = measure(other, "topic", checks=True)
    found = plain_checks.check_plain(table)
    assert all(facts.checks.values())
    for checks in (found, facts.checks):  # in whose order topics of two clusters are equal
        checks["duplicates"].sort(key=str)
    for name in facts.checks:
        assert found[name] == facts.checks[name], name
    assert plain_pictures(table, measure_plain(table, "topic")) == page.read_pictures(other)
