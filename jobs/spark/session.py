"""The one Spark of a process, for the length of a job.

An active context (tests, notebooks, spark-submit in cluster mode) is used and left alone. One that starts here comes up
on a thread beside the planning and ends with the block, with its JVM and its Python workers; at once where work fails,
as a running task would write into what the job removes.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from jobs.contract.report import Progress, Reporter
from jobs.spark import launch
from jobs.spark.launch import is_local
from jobs.spark.runner import SparkRunner
from jobs.spark.spark_errors import SparkError, plain_errors
from storeformat.errors import DependencyMissing, StoreFormatError

if TYPE_CHECKING:  # importing pyspark takes 0.3 s, pyspark.sql more
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_TO_START, _TO_END = 60, 300  # seconds; to write a class archive at its end takes a JVM a minute on a busy machine


class Spark:
    """Options of spark-submit, and the SparkContext that they make."""

    def __init__(self, name: str = "", options: Sequence[str] = (), *, debug: bool = False) -> None:
        self._name, self._options, self._debug = name, options, debug
        self._begun = False
        self._up = threading.Event()  # a join that a signal interrupts takes the thread for ended
        self._gateway: Any = None
        self._context: SparkContext | None = None
        self._failed: BaseException | None = None
        self._directory = ""

    def begin(self, *, delta: bool = False, lasts: bool = False) -> None:
        """Start Spark on a thread, unless a context is active."""
        if not self._begun and active_context() is None and self._failed is None:
            self._begun = True
            self._directory = tempfile.mkdtemp(prefix="rocketmq-store-spark-")
            flags = {"delta": delta, "lasts": lasts or not self._name, "debug": self._debug}
            variables = {} if launch.STARTED_BY_SPARK else launch.environment(self._directory, self._options, **flags)
            threading.Thread(target=self._run, args=(variables,), name="start of Spark", daemon=True).start()

    def _run(self, variables: dict[str, str]) -> None:
        try:
            with plain_errors():
                self._context = self._start(variables)
        except BaseException as error:  # noqa: BLE001  (it is raised where the context is asked for)
            self._failed = error
        finally:
            self._up.set()

    def _start(self, variables: dict[str, str]) -> SparkContext:
        from pyspark import SparkConf, SparkContext, __version__
        from pyspark.java_gateway import launch_gateway

        if int(__version__.partition(".")[0]) < 4:
            raise DependencyMissing(f"this is Spark {__version__}, and 4.0 or later is needed")
        before = {name: os.environ.get(name) for name in variables}
        os.environ.update(variables)
        try:  # stdout belongs to the report
            gateway: Any = launch_gateway(popen_kwargs={"stdout": 2})  # type: ignore[no-untyped-call]
        finally:
            for name, value in before.items():
                os.environ.pop(name) if value is None else os.environ.update({name: value})
        self._gateway = gateway if variables else None
        conf = SparkConf(_jvm=gateway.jvm).setAppName(f"rocketmq-store-spark {self._name}".strip())
        master = str(conf.get("spark.master", "local[*]"))
        local = bool(variables) and is_local(master)
        for name, value in launch.defaults(self._directory, local=local).items():
            conf.setIfMissing(name, value)
        context = SparkContext(gateway=gateway, conf=conf)
        if variables:  # on this machine the Python of the driver, whatever PYSPARK_PYTHON is made for
            python = sys.executable if master.startswith("local") else context.pythonExec
            context.pythonExec = conf.get("spark.pyspark.python", python) or python
        if variables and not local:
            context.addPyFile(launch.application_zip(self._directory))
        if context._accumulatorServer:  # it takes the end of its connection for a fault and prints a trace
            context._accumulatorServer.handle_error = lambda *unused: None  # type: ignore[method-assign]
        return context

    @property
    def context(self) -> SparkContext:
        if not self._begun and (active := active_context()) is not None:
            return active  # type: ignore[no-any-return]
        self.begin()
        if self._begun:
            self._up.wait()
        if self._failed is not None or self._context is None:
            raise self._failed or DependencyMissing("Spark has ended")
        return self._context

    @property
    def session(self) -> SparkSession:
        assert self.context
        from pyspark.sql import SparkSession

        return SparkSession.builder.getOrCreate()

    def end(self, *, running: bool) -> None:
        """End Spark; nothing starts again. Without ``running`` tasks or an event log the JVM is killed, which saves a
        second, unless the user's own options may let it write at its end, such as a class archive.
        """
        if not self._begun:
            return
        self._up.wait(_TO_START)
        self._failed = self._failed or DependencyMissing("Spark has ended")
        context, self._context = self._context, None
        with suppress(Exception):  # whatever an unfinished start, or a JVM that has died, has to say
            if context is not None:
                logs = context.getConf().get("spark.eventLog.enabled", "false") == "true"
                if running or logs or self._gateway is None or not is_local(str(context.master)):
                    context.stop()
        if self._gateway is not None:
            process, self._gateway = self._gateway.proc, None
            with suppress(Exception):
                process.stdin.close()
                if "SPARK_SUBMIT_OPTS" not in os.environ:
                    process.kill()
                process.wait(_TO_END)
            _forget()
        shutil.rmtree(self._directory, ignore_errors=True)


def _forget() -> None:
    from pyspark import SparkContext  # the next session of this process starts another JVM

    SparkContext._active_spark_context = SparkContext._gateway = SparkContext._jvm = None
    if "pyspark.sql" in sys.modules:
        sys.modules["pyspark.sql"].SparkSession._instantiatedSession = None


def active_context() -> Any:
    known = getattr(sys.modules.get("pyspark"), "SparkContext", None)  # another thread may be importing it
    return getattr(known, "_active_spark_context", None)


_spark: Spark | None = None


@contextmanager
def shared_spark(name: str = "", options: Sequence[str] = (), *, debug: bool = False) -> Iterator[Spark]:
    """Yield the Spark of this process, which ends with the outermost block."""
    global _spark  # noqa: PLW0603  (as there is one SparkContext in a process)
    outer, running = _spark, True
    _spark = spark = outer or Spark(name, options, debug=debug)
    try:
        with plain_errors():
            yield spark
        running = False
    except StoreFormatError as error:  # all tasks have ended, unless Spark itself could not go on
        running = isinstance(error.__cause__, SparkError)
        raise
    finally:
        if outer is None or running:
            spark.end(running=running)
        _spark = outer


@contextmanager
def spark_session(*, delta: bool = False, lasts: bool = False) -> Iterator[SparkSession]:
    """Yield a SparkSession, starting a JVM if none runs."""
    with shared_spark() as spark:
        spark.begin(delta=delta, lasts=lasts)
        yield spark.session


def on_one_machine() -> bool:
    """True if all tasks run on the driver's machine."""
    return str((_spark or Spark()).context.master).startswith("local")


@contextmanager
def runner_for(reporter: Reporter, what: str, total: int) -> Iterator[SparkRunner]:
    """Yield a runner in Spark; the share of finished tasks is shown as progress on ``total`` bytes."""
    ended = threading.Event()

    def watch(progress: Progress) -> None:
        with suppress(Exception):  # the JVM may end meanwhile
            tracker = runner.context.statusTracker()
            while not ended.wait(0.5):
                stages = [info for number in tracker.getActiveStageIds() if (info := tracker.getStageInfo(number))]
                tasks = sum(stage.numTasks for stage in stages)
                if tasks:
                    progress.update(progress.total * sum(stage.numCompletedTasks for stage in stages) // tasks)

    with shared_spark() as spark:
        runner = SparkRunner(spark.context)
        runner.stages["start of Spark"] = reporter.seconds
        with reporter.progress(what, total) as progress:
            thread = threading.Thread(target=watch, args=(progress,), name="progress", daemon=True)
            thread.start()
            try:
                yield runner
            finally:
                ended.set()
                thread.join(timeout=5)
