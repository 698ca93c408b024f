"""Failures of tasks, as values: Spark hands an exception of a task to the driver as text, and without its fields."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from storeformat.errors import StoreFormatError, WriteFailed


@dataclass(frozen=True)
class Failure:
    """The last row of a task that could not go on, and why."""

    error: StoreFormatError | OSError


@dataclass(frozen=True)
class Told:
    """A task whose failures are rows, but for those of reading and writing that Spark is to try again elsewhere:
    ``attempts`` is how often it tries a task. Defects stay exceptions.
    """

    task: Callable[[Iterator[Any]], Iterable[Any]]
    attempts: int

    def __call__(self, items: Iterator[Any]) -> Iterator[Any]:
        try:
            yield from self.task(items)
        except (StoreFormatError, OSError) as error:
            if isinstance(error, (OSError, WriteFailed)) and _attempt() < self.attempts:
                raise
            yield Failure(error)


def _attempt() -> int:
    """Returns which attempt of this task is running, from 1."""
    from pyspark import TaskContext  # noqa: PLC0415  (only where something failed)

    context = TaskContext.get()
    return 1 if context is None else context.attemptNumber() + 1
