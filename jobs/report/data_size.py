"""Settings of a session by the size of its data: a shuffle of a few rows in many tasks costs more than its work."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"
OUR_DEFAULT = "8"
"""What conf/spark-defaults.conf says; any other value is the user's and stays."""
_BYTES_A_PARTITION = 16 << 20
"""Of files of a Delta table: some 250,000 messages without bodies."""
_MOST_PARTITIONS = 2000
_UNKNOWN = 1 << 60
"""Where a source knows no size, Spark takes the largest number of bytes there is."""


def shuffle_partitions(size: int) -> int:
    """Returns how many tasks a shuffle of a table of so many bytes is worth."""
    return max(1, min(-(-size // _BYTES_A_PARTITION), _MOST_PARTITIONS))


def fit_session(spark: SparkSession, size: int) -> None:
    """Sets a session's shuffle partitions by the bytes it is to query, unless the user has set them."""
    if spark.sparkContext.getConf().get(SHUFFLE_PARTITIONS, OUR_DEFAULT) == OUR_DEFAULT and size < _UNKNOWN:
        spark.conf.set(SHUFFLE_PARTITIONS, shuffle_partitions(size))


def estimated_size(rows: DataFrame) -> int:
    """Returns the bytes of the files that a DataFrame reads, as Spark estimates them."""
    plan = rows._jdf.queryExecution().optimizedPlan()
    return int(str(plan.stats().sizeInBytes()))
