"""Spark for the length of a job: a SparkContext for jobs on RDDs, a SparkSession for jobs on tables.

Both are context managers. A context that is there already (tests, notebooks, spark-submit in cluster mode) is used and
left alone; one that is started here is gone when the block ends, with its JVM and its Python workers. A job that stages
files cleans them up *outside* of the block, when no task can write any more.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from jobs.contract.reporter import Progress, Reporter
from jobs.spark import isolation, jvm
from jobs.spark.runner import SparkRunner
from jobs.spark.signals import deferred_signals
from jobs.spark.spark_errors import SparkError, plain_errors
from storeformat.errors import DependencyMissing

if TYPE_CHECKING:  # importing pyspark takes 0.3 s, pyspark.sql more
    from pyspark import SparkContext
    from pyspark.sql import SparkSession


@contextmanager
def spark_context(job: str) -> Iterator[SparkContext]:
    """Yields a SparkContext; no SQL is set up, which saves two seconds."""
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


@contextmanager
def spark_session(job: str) -> Iterator[SparkSession]:
    """Yields a SparkSession. Its warehouse, which nobody uses, is not in the working directory."""
    from pyspark.sql import SparkSession

    warehouse = "spark.sql.warehouse.dir"
    with (
        tempfile.TemporaryDirectory(prefix="rocketmq-store-spark-", ignore_cleanup_errors=True) as directory,
        spark_context(job) as context,
    ):
        builder = SparkSession.builder
        if not context.getConf().contains(warehouse):
            builder = builder.config(warehouse, directory)
        yield builder.getOrCreate()


@contextmanager
def spark_runner(job: str, reporter: Reporter, total: int) -> Iterator[SparkRunner]:
    """Yields a runner on a SparkContext for one job, whose progress on ``total`` bytes is shown."""
    with spark_context(job) as context, watched(context, reporter, job, total) as runner:
        yield runner


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
