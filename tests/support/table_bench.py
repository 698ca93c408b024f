"""A log, a table, and loads of the one into the other: tasks run in this process, and what Delta must do in Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from pyarrow.dataset import field
from pyspark.sql import SparkSession
from support.here import tasks_here
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
        with tasks_here():
            return load.run(LoadOptions(**given), Reporter(quiet=True))

    def rows(self, broker: str = "b") -> list[int]:
        """Offsets of a broker's rows, twice where they are there twice."""
        found = DeltaTable(self.table).to_pyarrow_dataset()
        rows = found.to_table(columns=["commit_log_offset"], filter=field("broker") == broker)
        return sorted(rows["commit_log_offset"].to_pylist())

    @property
    def expected(self) -> list[int]:
        return [placed.offset for placed in self.log.records]

    def metadata(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(DeltaTable(self.table).history(1)[0]["userMetadata"])
        return found
