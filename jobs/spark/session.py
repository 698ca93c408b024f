"""Spark for the length of a job: a SparkContext for jobs on RDDs, a SparkSession for jobs on tables.

Both are context managers. A context that is there already (tests, notebooks, spark-submit in cluster mode) is used and
left alone; one that is started here is gone when the block ends, with its JVM and its Python workers. A job that stages
files cleans them up *outside* of the block, when no task can write any more.

Several jobs in threads of one process share one Spark (``shared_spark``).
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

from jobs.contract.reporter import Progress, Reporter
from jobs.spark import hidden_pandas, isolation, jvm, launch
from jobs.spark.runner import LocalRunner, MeteringRunner, ProcessRunner, SparkRunner
from jobs.spark.signals import deferred_signals
from jobs.spark.spark_errors import SparkError, plain_errors
from storeformat.errors import DependencyMissing
from storeformat.storage import locations

if TYPE_CHECKING:  # importing pyspark takes 0.3 s, pyspark.sql more
    from pyspark import SparkContext
    from pyspark.sql import SparkSession


TINY = 64 << 20
"""Bytes of a log that are read before a process for them is forked."""
SMALL = 1 << 30
"""Bytes of a log that one process has read before Spark is up."""
ONE_MACHINE = 1 << 36
"""Bytes of a local log that processes of this machine read: for a larger one the 3 s of Spark's start are nothing, and
one wants to watch in its UI.
"""


def _has_context() -> bool:
    pyspark = sys.modules.get("pyspark")
    return pyspark is not None and pyspark.SparkContext._active_spark_context is not None


@contextmanager
def spark_context(job: str) -> Iterator[SparkContext]:
    """Yields a SparkContext; no SQL is set up, which saves two seconds."""
    with spark_on_demand(job) as spark:
        yield spark.context


@contextmanager
def _own_context(job: str) -> Iterator[SparkContext]:
    hidden_pandas.show()
    from pyspark import SparkConf, SparkContext

    name = f"rocketmq-store-spark {job}"
    active = SparkContext._active_spark_context
    if active is not None:
        with plain_errors():
            yield active
        return
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        context = started(SparkContext, conf=SparkConf().setAppName(name))
        try:
            with plain_errors():
                yield context
        finally:
            context.stop()
        return
    gateway, done = None, False
    try:
        with deferred_signals():
            gateway = jvm.start_jvm()
        with plain_errors():
            yield started(SparkContext, gateway=gateway, conf=SparkConf(_jvm=gateway.jvm).setAppName(name))
        done = True
    finally:
        if gateway is not None:
            jvm.end_jvm(gateway, at_work=not done)
            isolation.remove_private_directories()


def started(context: type[SparkContext], **settings: Any) -> SparkContext:
    """Returns a new SparkContext; raises DependencyMissing with Spark's reason where none comes up."""
    try:
        with plain_errors():
            return context(**settings)
    except SparkError as error:
        advice = "look at --master and the settings of Spark; --debug shows all that it said"
        raise DependencyMissing(f"Spark did not start: {error}", advice=advice) from error


class SparkOnDemand:
    """Spark that starts when it is first asked for, the SparkContext and the SparkSession each, and ends with
    ``stack``. Threads may share it; one that did not start is not tried again.
    """

    def __init__(self, job: str, stack: ExitStack) -> None:
        self._job = job
        self._stack = stack
        self._starting = threading.Lock()
        self._context: SparkContext | None = None
        self._failed: BaseException | None = None

    @property
    def context(self) -> SparkContext:
        """The SparkContext."""
        with self._starting:
            if self._failed is not None:
                raise self._failed
            if self._context is None:
                try:
                    self._context = self._stack.enter_context(_own_context(self._job))
                except BaseException as error:
                    self._failed = error
                    raise
            return self._context

    @cached_property
    def session(self) -> SparkSession:
        """The SparkSession. Its warehouse, which nobody uses, is not in the working directory."""
        from pyspark.sql import SparkSession

        builder = SparkSession.builder
        warehouse = "spark.sql.warehouse.dir"
        if not self.context.getConf().contains(warehouse):
            kept = tempfile.TemporaryDirectory(prefix="rocketmq-store-spark-", ignore_cleanup_errors=True)
            builder = builder.config(warehouse, self._stack.enter_context(kept))
        return builder.getOrCreate()

    def end(self) -> None:
        """Refuses to start from now on; waits for a start that is under way."""
        with self._starting:
            self._failed = self._failed or RuntimeError("Spark has ended")


_shared: SparkOnDemand | None = None


@contextmanager
def shared_spark(job: str) -> Iterator[None]:
    """Within it the jobs of all threads have one Spark, which starts when one asks for it and ends with the block."""
    global _shared  # noqa: PLW0603  (as there is one SparkContext in a process)
    with ExitStack() as stack:
        _shared = shared = SparkOnDemand(job, stack)
        try:
            yield
        finally:
            shared.end()
            _shared = None


@contextmanager
def spark_on_demand(job: str) -> Iterator[SparkOnDemand]:
    """Yields Spark that has not started; what was asked for ends with the block."""
    if _shared is not None:
        with plain_errors():
            yield _shared
        return
    with ExitStack() as stack:
        yield SparkOnDemand(job, stack)


@contextmanager
def spark_session(job: str) -> Iterator[SparkSession]:
    """Yields a SparkSession."""
    with spark_on_demand(job) as spark:
        yield spark.session


def does_without_spark(total: int, *places: str) -> bool:
    """Returns whether tasks that read ``total`` bytes run on this machine alone: the user said nothing of Spark, none
    has started, and all ``places`` are local.
    """
    limit = ONE_MACHINE if sys.platform == "linux" and all(map(locations.is_local, places)) else SMALL
    return total <= limit and launch.spark_is_optional() and not (_shared or _has_context())


@contextmanager
def local_runner(reporter: Reporter, what: str, total: int, *places: str) -> Iterator[MeteringRunner]:
    """Yields a runner of tasks that read ``total`` bytes: in processes of this machine, or in this one where there is
    little to read, or where a forked process could not read it.
    """
    with reporter.progress(what, total) as progress:
        if total <= TINY or not all(map(locations.is_local, places)) or sys.platform != "linux":
            yield LocalRunner()
        else:
            yield ProcessRunner(lambda share: progress.update(int(share * total)))


@contextmanager
def spark_runner(job: str, reporter: Reporter, total: int, *places: str) -> Iterator[MeteringRunner]:
    """Yields a runner for one job, whose progress on ``total`` bytes is shown: on a SparkContext, or without one where
    it can do without. ``places`` are the directories that tasks read and write.
    """
    if does_without_spark(total, *places):
        with local_runner(reporter, job, total, *places) as runner:
            yield runner
    else:
        with spark_context(job) as context, watched(context, reporter, job, total) as spark:
            yield spark


@contextmanager
def watched(context: SparkContext, reporter: Reporter, what: str, total: int) -> Iterator[SparkRunner]:
    """Yields a runner; within, progress shows which share of the running stages' tasks is done, as one of ``total``."""
    ended = threading.Event()

    def watch(progress: Progress) -> None:
        tracker = context.statusTracker()
        while not ended.wait(0.5):
            stages = [info for number in tracker.getActiveStageIds() if (info := tracker.getStageInfo(number))]
            tasks = sum(stage.numTasks for stage in stages)
            if tasks:
                progress.update(progress.total * sum(stage.numCompletedTasks for stage in stages) // tasks)

    with reporter.progress(what, total) as progress:
        thread = threading.Thread(target=watch, args=(progress,), name="progress", daemon=True)
        thread.start()
        try:
            yield SparkRunner(context)
        finally:
            ended.set()
            thread.join(timeout=5)
