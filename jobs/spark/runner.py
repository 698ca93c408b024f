"""Where tasks run: in Spark, in processes of this machine, or here and now. A plan does not know which."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from storeformat.errors import WriteFailed
from udfs.task_metrics import Metered, TaskCost
from udfs.worker_daemon import import_tasks

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
    tasks cost where they ran. ``parallelism`` is how many of them run side by side.
    """

    parallelism = 1

    def __init__(self) -> None:
        self.stages: dict[str, float] = {}
        self.costs: dict[str, TaskCost] = {}

    def setting(self, name: str, default: str) -> str:
        """Returns a setting of Spark's."""
        return default

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


class ProcessRunner(MeteringRunner):
    """Runs items in processes that are forked from this one, as many side by side as it may use cores.

    They have what was imported here, compiled kernels too, what tasks that make ``rows`` need if they do, and end with
    their stage. ``progress`` gets the share of items that are done. Not for files of object stores, whose clients do
    not survive a fork.
    """

    def __init__(self, progress: Callable[[float], None], *, rows: bool = False) -> None:
        super().__init__()
        self._progress = progress
        self._rows = rows
        self.parallelism = usable_cores()

    def _run(self, what: str, task: Metered[Item, Row], items: Sequence[Item]) -> list[Row | TaskCost]:
        processes = min(self.parallelism, len(items))
        if processes < 2:
            return list(task(iter(items)))
        import_tasks(rows=self._rows)
        length = -(-len(items) // (_MOST_PARTS * processes))
        parts = [items[at : at + length] for at in range(0, len(items), length)]
        rows: list[Row | TaskCost] = []
        with _forked(processes, task) as pool:
            for done, made in enumerate(pool.map(_work, parts), start=1):
                rows += made
                self._progress(done / len(parts))
        return rows


_MOST_PARTS = 100
"""Parts of a stage for each process: to hand over one costs some 0.1 ms."""

_task: Any = None
"""In a worker of a ProcessRunner: what it runs."""


def usable_cores(quota: str = "/sys/fs/cgroup/cpu.max") -> int:
    """Returns how many cores this process may use, at least one: those of its affinity, fewer where its container has
    less time.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with suppress(OSError, ValueError):  # not a container, or one whose file says "max"
        allowed, period = map(int, Path(quota).read_text(encoding="ascii").split())
        cores = min(cores, allowed // period)
    return max(cores, 1)


@contextmanager
def _forked(processes: int, task: object) -> Iterator[ProcessPoolExecutor]:
    """Yields workers, which are gone when the block ends, at once if it fails; raises WriteFailed if one was killed."""
    context = multiprocessing.get_context("fork")
    pool = ProcessPoolExecutor(processes, context, _start_worker, (task, os.getpid()))
    try:
        with warnings.catch_warnings():  # of a fork beside threads: none of ours holds what a task needs
            warnings.simplefilter("ignore", DeprecationWarning)
            yield pool
    except BaseException as error:
        for worker in multiprocessing.active_children():
            worker.kill()
        if isinstance(error, BrokenProcessPool):
            advice = "short of memory? fewer cores need less: taskset -c 0 ./spark-submit.sh ..."
            raise WriteFailed("a process that worked on the log was killed", advice=advice) from None
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _start_worker(task: object, driver: int) -> None:
    """Makes a forked process a worker. Signals are for the driver, which ends its workers; they end when it is gone."""
    global _task  # noqa: PLW0603
    _task = task
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(driver,), daemon=True).start()


def _end_with(driver: int) -> None:
    while os.getppid() == driver:
        time.sleep(0.5)
    os._exit(1)


def _work(items: Sequence[Any]) -> list[Any]:
    return list(_task(iter(items)))


class SparkRunner(MeteringRunner):
    """Runs items as tasks of a Spark job. RDDs, not DataFrames: the first RDD stage costs 1.5 s, the first SQL query
    4.
    """

    def __init__(self, context: SparkContext) -> None:
        super().__init__()
        self._context = context
        self.parallelism = context.defaultParallelism

    def setting(self, name: str, default: str) -> str:
        return str(self._context.getConf().get(name, default))

    def _run(self, what: str, task: Metered[Item, Row], items: Sequence[Item]) -> list[Row | TaskCost]:
        steps: Any = task
        self._context.setJobDescription(what)
        tasks = min(len(items), MOST_TASKS)
        rows: Any = self._context.parallelize(items, tasks).mapPartitions(steps).collect()
        ended = sum(isinstance(row, TaskCost) for row in rows)
        if ended != tasks:  # PySpark takes the end of a JVM, while it hands rows over, for the end of the rows
            raise WriteFailed("Spark did not hand over the rows of all tasks", found=ended, expected=tasks)
        return list(rows)
