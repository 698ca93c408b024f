"""Where tasks run: in Spark, or in this process, for tests and what reads little. A plan does not know which."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from jobs.spark.options import is_local
from storeformat.errors import WriteFailed
from udfs.failures import Failure, Told

if TYPE_CHECKING:
    from pyspark import SparkContext

Item = TypeVar("Item")
Row = TypeVar("Row")

MOST_TASKS = 10_000
"""Items beyond this share tasks: a task costs some 30 ms, and the driver keeps every task in mind."""


class Runner(Protocol):
    """Runs one callable over many items and returns its rows in the order of the items."""

    def map(self, what: str, task: Callable[[Iterator[Item]], Iterable[Row]], items: Sequence[Item]) -> list[Row]:
        """Returns the rows that ``task`` yields for ``items``; ``what`` is shown to people who watch."""


class TimedRunner:
    """A runner whose ``stages`` are the seconds that each took, by its name; ``parallelism`` tasks run side by side."""

    parallelism = 1

    def __init__(self) -> None:
        self.stages: dict[str, float] = {}

    def setting(self, name: str, default: str) -> str:
        """Returns a setting of Spark's."""
        return default

    def map(self, what: str, task: Callable[[Iterator[Item]], Iterable[Row]], items: Sequence[Item]) -> list[Row]:
        if not items:
            return []
        begun = time.monotonic()
        rows = self._run(what, task, items)
        self.stages[what] = round(self.stages.get(what, 0.0) + time.monotonic() - begun, 3)
        return rows

    def _run(self, what: str, task: Callable[[Iterator[Item]], Iterable[Row]], items: Sequence[Item]) -> list[Row]:
        raise NotImplementedError


class LocalRunner(TimedRunner):
    """Runs everything in this process, one item after the other."""

    def _run(self, what: str, task: Callable[[Iterator[Item]], Iterable[Row]], items: Sequence[Item]) -> list[Row]:
        return list(task(iter(items)))


class SparkRunner(TimedRunner):
    """Runs items as tasks of a Spark job. RDDs, not DataFrames: the first RDD stage costs 1.5 s, the first SQL query
    4.
    """

    def __init__(self, context: SparkContext) -> None:
        super().__init__()
        self._context = context
        self.parallelism = context.defaultParallelism

    def setting(self, name: str, default: str) -> str:
        return str(self._context.getConf().get(name, default))

    def _run(self, what: str, task: Callable[[Iterator[Item]], Iterable[Row]], items: Sequence[Item]) -> list[Row]:
        self._context.setJobDescription(what)
        tasks = min(len(items), MOST_TASKS)
        attempts = 1 if is_local(str(self._context.master)) else int(self.setting("spark.task.maxFailures", "4"))
        told: Any = Told(task, attempts)
        parts: list[list[Any]] = self._context.parallelize(items, tasks).mapPartitions(told).glom().collect()
        if len(parts) != tasks:  # PySpark takes the end of a JVM, while it hands rows over, for the end of the rows
            raise WriteFailed("Spark did not hand over the rows of all tasks", found=len(parts), expected=tasks)
        for part in parts:
            if part and isinstance(part[-1], Failure):
                raise part[-1].error
        return [row for part in parts for row in part]
