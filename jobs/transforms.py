"""DataFrames of the log: what plans are made of between reading and writing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from udfs import schemas
from udfs.ranges import ProvenRange, ReadRanges
from udfs.scan import SplitScan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def proven_ranges(scans: Iterable[SplitScan], from_offset: int) -> tuple[ProvenRange, ...]:
    """Returns the ranges with records at or behind ``from_offset``, in log order."""
    return tuple(
        ProvenRange.of(scan.report, scan.records)
        for scan in scans
        if scan.report.start is not None and scan.records and scan.report.end > from_offset
    )


def message_rows(spark: SparkSession, read: ReadRanges) -> DataFrame:
    """Returns the rows of all ranges; a range is a partition, so a file of the table holds one stretch of the log."""
    count = max(len(read.ranges), 1)
    numbers = spark.range(0, len(read.ranges), 1, count)
    return numbers.mapInArrow(read, schemas.to_spark(schemas.select(read.rules.columns)))
