"""A log, a table, and loads of the one into the other in a Spark session."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from delta.tables import DeltaTable
from pyspark.sql import SparkSession
from support.store_builder import LogBuilder

from jobs.contract.options import LoadOptions
from jobs.contract.report import Report
from jobs.contract.reporter import Reporter
from jobs.table import load

SEGMENT = 1 << 16


class Bench:
    """A log, a table, and loads of the one into the other."""

    def __init__(self, spark: SparkSession, work: Path) -> None:
        self.spark = spark
        self.work = work
        self.log = LogBuilder(SEGMENT)
        self.table = str(work / "messages")

    def messages(self, count: int, **fields: Any) -> None:
        for number in range(count):
            self.log.clock += 1000
            self.log.message(
                topic=f"T{number % 3}", queue_id=number % 2, body=b"x" * (number % 50), keys=f"k{number}", **fields
            )

    def load(self, name: str = "store", **options: Any) -> Report:
        root = self.log.write(self.work / name)
        given = {"cluster": "c", "broker": "b", "store": str(root), "table": self.table, **options}
        return load.run(LoadOptions(**given), Reporter(quiet=True))

    def rows(self, broker: str = "b") -> list[int]:
        """Offsets of a broker's rows, twice where they are there twice."""
        rows = self.spark.read.format("delta").load(self.table).where(f"broker = '{broker}'")
        return sorted(row[0] for row in rows.select("commit_log_offset").collect())

    @property
    def expected(self) -> list[int]:
        return [placed.offset for placed in self.log.records]

    def metadata(self) -> dict[str, Any]:
        row = DeltaTable.forPath(self.spark, self.table).history(1).select("userMetadata").first()
        assert row is not None
        found: dict[str, Any] = json.loads(row[0])
        return found
