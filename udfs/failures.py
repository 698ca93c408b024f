"""Failures of tasks as values: Spark passes an exception to the driver as text, without its fields."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from storeformat.errors import StoreFormatError, WriteFailed


@dataclass(frozen=True)
class Failure:
    """The last row of a failed task."""

    error: StoreFormatError | OSError


@dataclass(frozen=True)
class FailuresAsRows:
    """A task whose failures become rows. I/O errors are raised until the last of Spark's attempts, defects always."""

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
    """Number of this task's attempt, from 1."""
    from pyspark import TaskContext  # noqa: PLC0415  (only where something failed)

    context = TaskContext.get()
    return 1 if context is None else context.attemptNumber() + 1
