"""Spark for the length of a job, and what runs the job's tasks in it: ``runner_for``.

All are context managers. A context that is there already (tests, notebooks, spark-submit in cluster mode) is used and
left alone; one that is started here is gone when the block ends, with its JVM and its Python workers. A job that stages
files cleans them up *outside* of the block, when no task can write any more.

A command line has one Spark (``shared_spark``), also for jobs in threads. Its JVM may begin before anything else is
done, for nothing takes longer.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from jobs.contract.reporter import Progress, Reporter
from jobs.spark import isolation, jvm, launch
from jobs.spark.execution import STARTED_BY_SPARK, Execution, active_context
from jobs.spark.runner import SparkRunner, TimedRunner
from jobs.spark.signals import deferred_signals
from jobs.spark.spark_errors import SparkError, plain_errors
from storeformat.errors import DependencyMissing
from udfs import hidden_pandas

if TYPE_CHECKING:  # importing pyspark takes 0.3 s, pyspark.sql more
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

OLDEST = 4
"""The first part of the version of Spark that jobs run on at least."""


def started(context: type[SparkContext], **settings: Any) -> SparkContext:
    """Returns a new SparkContext; raises DependencyMissing with Spark's reason where none comes up."""
    try:
        with plain_errors():
            return context(**settings)
    except SparkError as error:
        advice = "look at --master and the settings of Spark; --debug shows all that it said"
        raise DependencyMissing(f"Spark did not start: {error}", advice=advice) from error


def require_version(version: str) -> None:
    """Raises DependencyMissing where somebody else's Spark is too old for this program."""
    if int(version.partition(".")[0]) < OLDEST:
        raise DependencyMissing(f"this is Spark {version}, and {OLDEST}.0 or later is needed")


class SparkOnDemand:
    """Spark that starts when it is first asked for, the SparkContext and the SparkSession each, and ends with
    ``stack``. Threads may share it; one that did not start is not tried again.
    """

    def __init__(self, execution: Execution, stack: ExitStack) -> None:
        self._execution = execution
        self._stack = stack
        self._starting = threading.RLock()
        self._begun: jvm.Jvm | None = None
        self._gateway: Any = None
        self._context: SparkContext | None = None
        self._failed: BaseException | None = None

    def adapt(self, *, delta: bool, lasts: bool) -> None:
        """Says of a JVM that has not begun what it is for."""
        self._execution = replace(self._execution, delta=delta, lasts=lasts)

    def begin(self) -> None:
        """Lets the JVM come up, unless a context is there; raises as ``launch.plan`` and ``jvm.begin``."""
        with self._starting, deferred_signals():
            if self._begun is None and active_context() is None and not STARTED_BY_SPARK:
                self._begun = begun = jvm.begin(launch.plan(self._execution))
                self._stack.callback(isolation.remove_private_directories)
                self._stack.callback(lambda: jvm.end(begun, self._gateway))

    @property
    def context(self) -> SparkContext:
        """The SparkContext."""
        with self._starting:
            if self._failed is not None:
                raise self._failed
            if self._context is None:
                try:
                    self._context = self._start()
                except BaseException as error:
                    self._failed = error
                    raise
            return self._context

    def _start(self) -> SparkContext:
        self.begin()
        from pyspark import SparkConf, SparkContext, __version__

        name = f"rocketmq-store-spark {self._execution.job}"
        active = SparkContext._active_spark_context
        if active is not None:
            return active
        if self._begun is None:
            require_version(__version__)
            # A module in the working directory must not hide one of the standard library.
            conf = SparkConf().setAppName(name).setExecutorEnv("PYTHONSAFEPATH", "1")
            context = started(SparkContext, conf=conf)
            self._stack.callback(context.stop)
            return context
        with deferred_signals():
            gateway = self._gateway = jvm.connect(self._begun)
        context = started(SparkContext, gateway=gateway, conf=SparkConf(_jvm=gateway.jvm).setAppName(name))
        context.pythonExec = self._begun.launch.python or context.pythonExec
        if context._accumulatorServer:  # it takes the end of its connection for a fault and prints a trace
            context._accumulatorServer.handle_error = lambda *unused: None  # type: ignore[method-assign]
        return context

    @cached_property
    def session(self) -> SparkSession:
        """The SparkSession. Its warehouse, which nobody uses, is not in the working directory."""
        hidden_pandas.show()  # mapInArrow wants it
        context = self.context
        from pyspark.sql import SparkSession

        builder = SparkSession.builder
        warehouse = "spark.sql.warehouse.dir"
        if not context.getConf().contains(warehouse):
            kept = tempfile.TemporaryDirectory(prefix="rocketmq-store-spark-", ignore_cleanup_errors=True)
            builder = builder.config(warehouse, self._stack.enter_context(kept))
        return builder.getOrCreate()

    @contextmanager
    def ending(self) -> Iterator[None]:
        """Ends with the block whatever has started, and refuses to start again."""
        with self._stack.pop_all() as self._stack:
            try:
                yield
            finally:
                self.end()

    def close(self) -> None:
        """Ends what has started, now, and refuses to start again."""
        with self.ending():
            pass

    def end(self) -> None:
        """Refuses to start from now on; waits for a start that is under way."""
        with self._starting:
            self._failed = self._failed or RuntimeError("Spark has ended")


_shared: SparkOnDemand | None = None


@contextmanager
def shared_spark(execution: Execution, *, early: bool = False) -> Iterator[SparkOnDemand]:
    """Yields the Spark of all jobs within the block, in any thread. It starts when one asks for it, its JVM at once if
    ``early``, and ends with the block.
    """
    global _shared  # noqa: PLW0603  (as there is one SparkContext in a process)
    if _shared is not None:  # that of the command line, which ends with this block then
        with _shared.ending():
            yield _shared
        return
    with ExitStack() as stack:
        _shared = shared = SparkOnDemand(execution, stack)
        try:
            if early:
                shared.begin()
            yield shared
        finally:
            shared.end()
            _shared = None


@contextmanager
def spark_on_demand(execution: Execution) -> Iterator[SparkOnDemand]:
    """Yields Spark that has not started; what was asked for ends with the block, or with ``shared_spark``. It ends at
    once where it was given up: a task that still runs would write into what the job is about to remove.
    """
    with ExitStack() as stack:
        spark = _shared or SparkOnDemand(execution, stack)
        try:
            with plain_errors():
                yield spark
        except BaseException as error:
            gave_up = isinstance(error, (KeyboardInterrupt, SparkError, ConnectionError, EOFError))
            if gave_up or isinstance(error.__cause__, SparkError):
                spark.close()
            raise


@contextmanager
def spark_session(execution: Execution, *, delta: bool = False, lasts: bool = False) -> Iterator[SparkSession]:
    """Yields a SparkSession; if a JVM begins for it, it is for Delta tables, and for work that ``lasts``, or not."""
    with spark_on_demand(execution) as spark:
        spark.adapt(delta=delta or execution.delta, lasts=lasts)
        yield spark.session


@contextmanager
def runner_for(execution: Execution, reporter: Reporter, what: str, total: int) -> Iterator[TimedRunner]:
    """Yields what runs the tasks of a job in Spark, whose progress on ``total`` bytes is shown as ``what``."""
    with spark_on_demand(execution) as spark, watched(spark.context, reporter, what, total) as runner:
        runner.stages["start of Spark"] = reporter.seconds
        yield runner


@contextmanager
def watched(context: SparkContext, reporter: Reporter, what: str, total: int) -> Iterator[SparkRunner]:
    """Yields a runner; within, progress shows which share of the running stages' tasks is done, as one of ``total``."""
    ended = threading.Event()

    def watch(progress: Progress) -> None:
        with suppress(Exception):  # the JVM may end meanwhile
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
