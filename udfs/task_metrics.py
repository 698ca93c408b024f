"""What a task costs the machine it runs on: its own view, which the driver cannot have.

=================  =================================================================================================
``seconds``        from its first item to its last row; two tasks side by side count twice
``user_seconds``   of the processor in this program
``system_seconds`` of the processor in the kernel for it: reading, writing, page faults
``page_faults``    pages that had to be mapped, none of them read from a disk (``ru_minflt``)
``peak_memory``    most bytes that the process of the task ever held (``ru_maxrss``), what it imports included
=================  =================================================================================================
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

Item = TypeVar("Item")
Row = TypeVar("Row")

_MAXRSS_UNIT = 1 if sys.platform == "darwin" else 1024


@dataclass(frozen=True)
class TaskCost:
    """What ``tasks`` tasks cost together; of the memory, what the largest did."""

    tasks: int = 0
    seconds: float = 0.0
    user_seconds: float = 0.0
    system_seconds: float = 0.0
    page_faults: int = 0
    peak_memory: int = 0

    def __add__(self, other: TaskCost) -> TaskCost:
        return TaskCost(
            self.tasks + other.tasks,
            self.seconds + other.seconds,
            self.user_seconds + other.user_seconds,
            self.system_seconds + other.system_seconds,
            self.page_faults + other.page_faults,
            max(self.peak_memory, other.peak_memory),
        )

    def as_row(self) -> dict[str, Any]:
        """Returns it for a report, seconds rounded to milliseconds."""
        return {name: round(value, 3) if isinstance(value, float) else value for name, value in vars(self).items()}


@dataclass(frozen=True)
class Metered(Generic[Item, Row]):
    """A task that yields the rows of ``task``, and then what they cost."""

    task: Callable[[Iterator[Item]], Iterable[Row]]

    def __call__(self, items: Iterator[Item]) -> Iterator[Row | TaskCost]:
        begun, before = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF)
        yield from self.task(items)
        after = resource.getrusage(resource.RUSAGE_SELF)
        yield TaskCost(
            tasks=1,
            seconds=time.monotonic() - begun,
            user_seconds=after.ru_utime - before.ru_utime,
            system_seconds=after.ru_stime - before.ru_stime,
            page_faults=after.ru_minflt - before.ru_minflt,
            peak_memory=after.ru_maxrss * _MAXRSS_UNIT,
        )
