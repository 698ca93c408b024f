"""Workers of a local Spark are forked from a process that holds all that our tasks import."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def what_a_worker_has(rows: Iterator[int]) -> Iterator[tuple[str, bool]]:
    """The command line of a worker, which is that of the process it was forked from, and whether it need not import."""
    for _ in rows:
        yield Path("/proc/self/cmdline").read_text().replace("\0", " "), "udfs.scan" in sys.modules


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="needs /proc")
def test_workers_are_born_with_our_modules(spark: SparkSession) -> None:
    found = spark.sparkContext.parallelize(range(4), 2).mapPartitions(what_a_worker_has).collect()
    assert len(found) == 4
    for command, imported in found:
        assert "udfs.worker_daemon" in command
        assert imported
