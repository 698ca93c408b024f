"""``load`` whose tasks run in this process, without a JVM: as a function, and as a program that dies where it is told.

python tests/support/loading.py STEP STORE TABLE [BROKER]
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from support.here import tasks_here  # noqa: E402

from jobs.contract.options import LoadOptions  # noqa: E402
from jobs.contract.report import Report  # noqa: E402
from jobs.contract.reporter import Reporter  # noqa: E402
from jobs.table import load  # noqa: E402
from jobs.table.drafts import Drafts  # noqa: E402
from jobs.table.messages_table import MessagesTable  # noqa: E402
from udfs.table.parquet_files import DraftTask  # noqa: E402

STEPS = ("drafting", "drafted", "judged", "committed")
"""Where a load dies: with the first split drafted, with all of them, before its commit, and right after it."""


def load_here(store: Path, table: Path | str, **more: Any) -> Report:
    """Returns the report of a load that runs in this process alone."""
    options = LoadOptions(**{"store": str(store), "table": str(table), "cluster": "c", "broker": "b", **more})
    with tasks_here():
        return load.run(options, Reporter(quiet=True))


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
