"""Shuffle partitions by data size: a shuffle of a few rows in many tasks costs more than its work."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"
OUR_DEFAULT = "8"
"""Value in conf/spark-defaults.conf; any other value is the user's and stays."""
_BYTES_A_PARTITION = 16 << 20
"""Bytes of Delta files, about 250,000 messages without bodies."""
_MOST_PARTITIONS = 2000
_UNKNOWN = 1 << 60
"""Spark uses the largest number where a source knows no size."""


def shuffle_partitions(size: int) -> int:
    """Partitions for a shuffle of a table of ``size`` bytes."""
    return max(1, min(-(-size // _BYTES_A_PARTITION), _MOST_PARTITIONS))


def fit_session(spark: SparkSession, size: int) -> None:
    """Set the session's shuffle partitions, unless the user has set them."""
    if spark.sparkContext.getConf().get(SHUFFLE_PARTITIONS, OUR_DEFAULT) == OUR_DEFAULT and size < _UNKNOWN:
        spark.conf.set(SHUFFLE_PARTITIONS, shuffle_partitions(size))


def estimated_size(rows: DataFrame) -> int:
    """Spark's estimate of the bytes that a DataFrame reads."""
    plan = rows._jdf.queryExecution().optimizedPlan()
    return int(str(plan.stats().sizeInBytes()))
