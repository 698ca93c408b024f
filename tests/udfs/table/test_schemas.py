"""The table's columns as Arrow and as Spark see them."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import types as spark

from udfs.table import schemas


def test_both_schemas_have_the_same_columns_and_comments() -> None:
    arrow = schemas.MESSAGES_WITH_BODY
    made = schemas.to_spark(arrow)
    assert made.fieldNames() == arrow.names
    assert arrow.names[-1] == schemas.BODY
    assert all(field.nullable and len(field.metadata["comment"]) > 10 for field in made)
    assert made["keys"].dataType == spark.ArrayType(spark.StringType())
    assert made["properties"].dataType == spark.MapType(spark.StringType(), spark.StringType())
    assert {made[name].dataType for name in ("born_timestamp", "store_timestamp")} == {spark.TimestampType()}


def test_columns_that_files_are_skipped_by_are_columns() -> None:
    assert set(schemas.STATISTICS_COLUMNS) | set(schemas.PARTITION_COLUMNS) <= set(schemas.MESSAGES.names)


def test_columns_in_the_order_that_is_asked_for() -> None:
    assert schemas.select(["topic", "body"]).types == [pa.string(), pa.binary()]
    with pytest.raises(KeyError):
        schemas.select(["nothing"])
