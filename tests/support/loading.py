"""``load`` whose tasks run in this process, without a JVM: as a function, and as a program that dies where it is told.

python tests/support/loading.py STEP STORE TABLE [BROKER]
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from deltalake import DeltaTable  # noqa: E402
from support.here import tasks_here  # noqa: E402
from support.store_builder import LogBuilder  # noqa: E402

from jobs.contract.options import LoadOptions  # noqa: E402
from jobs.contract.report import Report, Reporter  # noqa: E402
from jobs.table import load  # noqa: E402
from jobs.table.commits import Drafts  # noqa: E402
from jobs.table.messages_table import MessagesTable  # noqa: E402
from udfs.table.parquet_files import DraftTask  # noqa: E402

SEGMENT = 1 << 16
STEPS = ("drafting", "drafted", "judged", "committed")
"""Where a load dies: with the first split drafted, with all of them, before its commit, and right after it."""


def load_here(store: Path, table: Path | str, **more: Any) -> Report:
    """Returns the report of a load that runs in this process alone."""
    options = LoadOptions(**{"store": str(store), "table": str(table), "cluster": "c", "broker": "b", **more})
    with tasks_here():
        return load.run(options, Reporter(quiet=True))


class Bench:
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
        return load_here(root, **{"table": self.table, **options})

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


def die(*unused: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _after(found: Callable[..., Any]) -> Callable[..., Any]:
    def run(*given: Any, **named: Any) -> Any:
        done = found(*given, **named)
        if hasattr(done, "__next__"):
            next(done)
        die()

    return run


def main(step: str, store: str, table: str, broker: str = "b") -> None:
    if step == "drafting":
        DraftTask.__call__ = _after(DraftTask.__call__)  # type: ignore[method-assign]
    elif step == "drafted":
        Drafts.map = _after(Drafts.map)  # type: ignore[method-assign]
    elif step == "judged":
        MessagesTable.append = die  # type: ignore[assignment,method-assign]
    elif step == "committed":
        MessagesTable.append = _after(MessagesTable.append)  # type: ignore[method-assign]
    report = load_here(Path(store), table, split_size=100_000, broker=broker)
    sys.stdout.write(f"{report['rows']} {report['skipped']}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
