"""A task tells what it cost, after its rows."""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np

from udfs.task_metrics import Metered, TaskCost


def touch(sizes: Iterator[int]) -> Iterator[int]:
    for size in sizes:
        yield int(np.ones(size, np.uint8).sum())


def test_rows_come_first_and_the_cost_is_that_of_the_task() -> None:
    *rows, cost = Metered(touch)(iter([1, 64 << 20]))
    assert rows == [1, 64 << 20]
    assert isinstance(cost, TaskCost)
    assert cost.tasks == 1
    assert cost.user_seconds + cost.system_seconds > 0
    assert 0 < cost.seconds < 60
    assert cost.user_seconds < 60
    assert cost.system_seconds < 60
    assert cost.page_faults > 0
    assert 64 << 20 < cost.peak_memory < 64 << 30


def test_costs_add_up_and_memory_is_the_largest() -> None:
    one, other = TaskCost(1, 0.5, 0.25, 0.125, 10, 300), TaskCost(2, 1.5, 0.75, 0.375, 20, 200)
    assert one + other == sum([one, other], TaskCost()) == TaskCost(3, 2.0, 1.0, 0.5, 30, 300)
    assert json.loads(json.dumps((one + other).as_row()))["peak_memory"] == 300
