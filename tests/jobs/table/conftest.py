"""What the tests of loads share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:  # some of these tests run without pyspark
    from pyspark.sql import SparkSession
    from support.table_bench import Bench


@pytest.fixture
def bench(spark: SparkSession, tmp_path: Path) -> Bench:
    from support.table_bench import Bench

    return Bench(spark, tmp_path)
