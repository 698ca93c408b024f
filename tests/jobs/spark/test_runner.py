"""A runner gives all rows of all tasks in the order of the items, or fails."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from jobs.spark import runner as runners
from jobs.spark.runner import Runner, SparkRunner
from storeformat.errors import DamagedLog, WriteFailed

ROOT = Path(__file__).resolve().parents[3]


def squares(items: Iterator[int]) -> Iterable[tuple[int, bool]]:
    for item in items:
        yield item * item, os.getpid() == DRIVER


DRIVER = os.getpid()


def test_stages_of_one_name_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([10.0, 11.25, 20.0, 20.5004])
    monkeypatch.setattr(runners, "time", SimpleNamespace(monotonic=lambda: next(times)))
    runner = Runner()
    assert runner.map("none", squares, []) == []
    for _ in range(2):
        assert runner.map("squares", squares, [2]) == [(4, True)]
    assert runner.stages == {"squares": 1.75}
    assert (runner.setting("a", "b"), runner.parallelism) == ("b", 1)


class ContextThatLosesRows:
    """What a SparkRunner needs of a Spark context: runs tasks here and hands over all rows but those of the last ones,
    as PySpark does when the JVM dies meanwhile.
    """

    defaultParallelism = 3  # noqa: N815
    master = "local[3]"

    def __init__(self, lost: int) -> None:
        self._lost, self.tasks, self.description = lost, 0, ""

    def setJobDescription(self, what: str) -> None:  # noqa: N802
        self.description = what

    def parallelize(self, items: Any, tasks: int) -> ContextThatLosesRows:
        self.tasks = tasks
        self._parts = [items[len(items) * n // tasks : len(items) * (n + 1) // tasks] for n in range(tasks)]
        return self

    def mapPartitions(self, task: Any) -> ContextThatLosesRows:  # noqa: N802
        self._parts = [list(task(iter(part))) for part in self._parts]
        return self

    def glom(self) -> ContextThatLosesRows:
        return self

    def collect(self) -> list[Any]:
        return self._parts[: len(self._parts) - self._lost]


def failing(items: Iterator[int]) -> Iterable[int]:
    for item in items:
        if item:
            yield item
        else:
            raise DamagedLog("bad size", path="/log", offset=7, advice="salvage")


def test_a_failure_is_raised_whole_and_the_first_counts(spark: SparkSession) -> None:
    with pytest.raises(DamagedLog) as raised:
        SparkRunner(spark.sparkContext).map("fail", failing, [1, 0, 2, 0])
    assert (str(raised.value), raised.value.advice) == ("bad size (/log, offset 7)", "salvage")


@pytest.mark.parametrize("most", [10_000, 5, 2])
def test_all_rows_of_all_tasks_of_spark(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runners, "MOST_TASKS", most)
    context: Any = ContextThatLosesRows(0)
    runner = SparkRunner(context)
    assert [square for square, _ in runner.map("squares", squares, range(5))] == [0, 1, 4, 9, 16]
    assert (context.description, context.tasks, runner.parallelism) == ("squares", min(most, 5), 3)


@pytest.mark.parametrize("lost", [1, 5])
def test_rows_that_spark_did_not_hand_over(lost: int) -> None:
    context: Any = ContextThatLosesRows(lost)
    with pytest.raises(WriteFailed, match="did not hand over") as ended:
        SparkRunner(context).map("squares", squares, range(5))
    assert ended.value.exit_code == 74
    assert (ended.value.found, ended.value.expected) == (5 - lost, 5)
