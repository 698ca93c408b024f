"""DataFrames of the log: what plans are made of between reading and writing."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from udfs.log.scan import SplitScan
from udfs.table import schemas
from udfs.table.parquet_files import WriteFiles
from udfs.table.proven_ranges import ProvenRange, ReadRanges

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def proven_ranges(scans: Iterable[SplitScan], from_offset: int = 0) -> tuple[ProvenRange, ...]:
    """Returns the ranges with records at or after ``from_offset``, in log order."""
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


def file_writer(setting: Callable[[str, str], str], table: str, read: ReadRanges, run: str) -> WriteFiles:
    """Returns what writes the rows of ranges into files of a table, with ``run`` in their names; compressed with zstd,
    unless a ``setting`` of Spark's names another codec.
    """
    codec = setting("spark.sql.parquet.compression.codec", "zstd")
    encoded = replace(read, rules=replace(read.rules, encoded=True), ranges=())
    return WriteFiles(table, encoded, _CODECS.get(codec.lower(), codec), schemas.STATISTICS_COLUMNS, run)


_CODECS = {"uncompressed": "none", "lz4_raw": "lz4"}
