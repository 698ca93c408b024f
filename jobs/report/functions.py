"""SQL functions of ``udfs.functions.scalar``: ``register(spark)``, then ``SELECT rmq_java_hash(...)``."""

from __future__ import annotations

import re
from importlib import resources
from typing import TYPE_CHECKING, Any

from udfs.functions.scalar import FUNCTIONS
from udfs.table import schemas

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_COMMENT = re.compile(r"^\s*--.*\n?", re.MULTILINE)
_NAME = re.compile(r"FUNCTION (\w+)")


def register(spark: SparkSession) -> list[str]:
    """Register the functions in this session and return their names."""
    from pyspark.sql.pandas.functions import arrow_udf  # noqa: PLC0415  (for the reading of the file alone no Spark is needed)

    make: Any = arrow_udf  # its declared overloads want column types written out
    for name, (function, returned) in FUNCTIONS.items():
        spark.udf.register(f"_rmq_{name}", make(function, schemas.spark_type(returned)))
    return [name for statement in run(spark, "functions.sql") for name in _NAME.findall(statement)[:1]]


def run(spark: SparkSession, *path: str) -> list[str]:
    """Run the statements of a file below ``jobs/report/sql``, and return them."""
    found = statements(sql_text(*path))
    for statement in found:
        spark.sql(statement)
    return found


def sql_text(*path: str) -> str:
    """Text of a file below ``jobs/report/sql``; works from a zip, too."""
    return resources.files("jobs.report").joinpath("sql", *path).read_text(encoding="utf-8")


def statements(text: str) -> list[str]:
    """SQL statements without comment lines; a statement ends with a semicolon at a line's end."""
    return [part.strip() for part in re.split(r";\s*(?:\n|$)", _COMMENT.sub("", text)) if part.strip()]
