"""A log, a table, and loads of the one into the other, whose tasks run in this process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from support.here import tasks_here
from support.store_builder import LogBuilder

from jobs.contract.options import LoadOptions
from jobs.contract.report import Report
from jobs.contract.reporter import Reporter
from jobs.table import load

SEGMENT = 1 << 16


class Bench:
    """A log, a table, and loads of the one into the other."""

    def __init__(self, work: Path) -> None:
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
        return self.load_of(self.log.write(self.work / name), **options)

    def load_of(self, root: Path, **options: Any) -> Report:
        given = {"cluster": "c", "broker": "b", "store": str(root), "table": self.table, **options}
        with tasks_here():
            return load.run(LoadOptions(**given), Reporter(quiet=True))

    def rows(self, broker: str = "b") -> list[int]:
        """Offsets of a broker's rows, twice where they are there twice."""
        return sorted(row["commit_log_offset"] for row in self.table_rows("broker") if row["broker"] == broker)

    def table_rows(self, *columns: str) -> list[dict[str, Any]]:
        """All rows by their offset, with these columns."""
        found = DeltaTable(self.table).to_pyarrow_dataset().to_table(columns=["commit_log_offset", *columns])
        return sorted(found.to_pylist(), key=lambda row: row["commit_log_offset"])

    @property
    def expected(self) -> list[int]:
        return [placed.offset for placed in self.log.records]

    def metadata(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(DeltaTable(self.table).history(1)[0]["userMetadata"])
        return found
