"""Where tasks run: in Spark, or here and now. A plan does not know which."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from udfs.task_metrics import Metered, TaskCost

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


class MeteringRunner:
    """A runner that knows what it ran: ``stages`` holds the seconds of each by its name, ``task_metrics`` what its
    tasks cost
    where they ran.
    """

    def __init__(self) -> None:
        self.stages: dict[str, float] = {}
        self.costs: dict[str, TaskCost] = {}

    def map(self, what: str, task: Callable[[Iterator[Item]], Iterable[Row]], items: Sequence[Item]) -> list[Row]:
        if not items:
            return []
        begun = time.monotonic()
        rows = self._run(what, Metered(task), items)
        self.stages[what] = round(self.stages.get(what, 0.0) + time.monotonic() - begun, 3)
        costs = [row for row in rows if isinstance(row, TaskCost)]
        self.costs[what] = sum(costs, self.costs.get(what, TaskCost()))
        return [row for row in rows if not isinstance(row, TaskCost)]

    def _run(self, what: str, task: Metered[Item, Row], items: Sequence[Item]) -> list[Row | TaskCost]:
        raise NotImplementedError


class LocalRunner(MeteringRunner):
    """Runs everything in this process, one item after the other."""

    def _run(self, what: str, task: Metered[Item, Row], items: Sequence[Item]) -> list[Row | TaskCost]:
        return list(task(iter(items)))


class SparkRunner(MeteringRunner):
    """Runs items as tasks of a Spark job. RDDs, not DataFrames: the first RDD stage costs 1.5 s, the first SQL query
    4.
    """

    def __init__(self, context: SparkContext) -> None:
        super().__init__()
        self._context = context

    def _run(self, what: str, task: Metered[Item, Row], items: Sequence[Item]) -> list[Row | TaskCost]:
        steps: Any = task
        self._context.setJobDescription(what)
        rows: Any = self._context.parallelize(items, min(len(items), MOST_TASKS)).mapPartitions(steps).collect()
        return list(rows)
