"""Tasks in Spark, or in this process for tests and short reads. A plan does not know which."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from jobs.spark.launch import is_local
from storeformat.errors import WriteFailed
from udfs.failures import Failure, FailuresAsRows

if TYPE_CHECKING:
    from pyspark import SparkContext

Item = TypeVar("Item")
Row = TypeVar("Row")

MOST_TASKS = 10_000  # a task costs some 30 ms, and memory of the driver; more items share tasks


class Runner:
    """Runs one callable over many items, in this process; ``stages`` has the seconds of each by its name."""

    parallelism = 1

    def __init__(self) -> None:
        self.stages: dict[str, float] = {}

    def setting(self, name: str, default: str) -> str:
        """A setting of Spark."""
        return default

    def map(self, what: str, task: Callable[[Iterator[Item]], Iterable[Row]], items: Sequence[Item]) -> list[Row]:
        """The rows that ``task`` yields for ``items``, in their order; ``what`` names the stage."""
        if not items:
            return []
        begun = time.monotonic()
        rows = self._run(what, task, items)
        self.stages[what] = round(self.stages.get(what, 0.0) + time.monotonic() - begun, 3)
        return rows

    def _run(self, what: str, task: Callable[[Iterator[Item]], Iterable[Row]], items: Sequence[Item]) -> list[Row]:
        return list(task(iter(items)))


class SparkRunner(Runner):
    """Items as tasks of a Spark job. RDDs, not DataFrames: the first RDD stage costs 1.5 s, the first SQL query 4."""

    def __init__(self, context: SparkContext) -> None:
        super().__init__()
        self.context = context
        self.parallelism = context.defaultParallelism

    def setting(self, name: str, default: str) -> str:
        return str(self.context.getConf().get(name, default))

    def _run(self, what: str, task: Callable[[Iterator[Item]], Iterable[Row]], items: Sequence[Item]) -> list[Row]:
        self.context.setJobDescription(what)
        tasks = min(len(items), MOST_TASKS)
        attempts = 1 if is_local(str(self.context.master)) else int(self.setting("spark.task.maxFailures", "4"))
        caught: Any = FailuresAsRows(task, attempts)
        parts: list[list[Any]] = self.context.parallelize(items, tasks).mapPartitions(caught).glom().collect()
        if len(parts) != tasks:  # PySpark takes the end of a JVM, while it hands rows over, for the end of the rows
            raise WriteFailed("Spark did not hand over the rows of all tasks", found=len(parts), expected=tasks)
        for part in parts:
            if part and isinstance(part[-1], Failure):
                raise part[-1].error
        return [row for part in parts for row in part]
