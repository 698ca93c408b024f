"""Spark for the length of a job: a SparkContext for jobs on RDDs, a SparkSession for jobs on tables.

Both are context managers. A context that is there already (tests, notebooks, spark-submit in cluster mode) is used and
left alone; one that is started here is gone when the block ends, its JVM and its Python workers, too. A job that stages
files cleans them up *outside* of the block, when no task can write any more.
"""

from __future__ import annotations

import builtins
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from jobs.reporting import Progress, printable
from jobs.spark import launch
from storeformat import errors
from udfs.worker_daemon import EARLY as EARLY_DAEMON

if TYPE_CHECKING:  # importing pyspark takes 0.3 s, pyspark.sql more
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

# What every JVM says that has an incubator module (Spark 4.2 always has one), and the lines of Java's stack traces.
NOISE = (b"WARNING: Using incubator modules", b"\tat ", b"\t... ", b"Caused by: ")
PYTHON_TRACE = b"Traceback (most recent call last)"

TRACE = PYTHON_TRACE.decode()
RAISED = re.compile(r"^(?:\w+\.)*(\w+): (.*)$", re.MULTILINE)
OS_ERROR = re.compile(r"^\[Errno (\d+)\] (.*?)(?:: '(.*)')?$")


@contextmanager
def spark_context(app_name: str) -> Iterator[SparkContext]:
    """Yields a SparkContext; no SQL is set up, which saves two seconds."""
    from pyspark import SparkConf, SparkContext

    active = SparkContext._active_spark_context
    if active is not None:
        with plain_errors():
            yield active
        return
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        context = SparkContext(conf=SparkConf().setAppName(app_name))
        try:
            with plain_errors():
                yield context
        finally:
            context.stop()
        return
    gateway, done = None, False
    try:
        with deferred_signals():
            gateway = start_jvm()
        with plain_errors():
            yield SparkContext(gateway=gateway, conf=SparkConf(_jvm=gateway.jvm).setAppName(app_name))
        done = True
    finally:
        if gateway is not None:
            end_jvm(gateway, at_work=not done)


@contextmanager
def spark_session(app_name: str) -> Iterator[SparkSession]:
    """Yields a SparkSession. Its warehouse, which nobody uses, is not in the working directory."""
    from pyspark.sql import SparkSession

    warehouse = "spark.sql.warehouse.dir"
    with (
        tempfile.TemporaryDirectory(prefix="rocketmq-store-spark-", ignore_cleanup_errors=True) as directory,
        spark_context(app_name) as context,
    ):
        builder = SparkSession.builder.appName(app_name)
        if not context.getConf().contains(warehouse):
            builder = builder.config(warehouse, directory)
        yield builder.getOrCreate()


@contextmanager
def deferred_signals() -> Iterator[None]:
    """Lets signals that end the program wait for the end of the block: a JVM that nobody holds yet cannot be ended."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    arrived: list[int] = []
    numbers: tuple[int, ...] = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, lambda number, frame: arrived.append(number)) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for number in arrived[:1]:
            signal.raise_signal(number)


def start_jvm() -> Any:
    """Returns the py4j gateway to a new JVM, whose every output goes to our stderr."""
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway

    if "PYSPARK_SUBMIT_ARGS" not in os.environ:
        launch.prepare()
    said, output = os.pipe()
    early = start_early_daemon(output)
    ending = threading.Event()
    pump = threading.Thread(target=forward, args=(os.fdopen(said, "rb"), ending), name="spark's stderr", daemon=True)
    pump.start()
    try:
        gateway: Any = launch_gateway(popen_kwargs={"stdout": output, "stderr": output})  # type: ignore[no-untyped-call]
    except PySparkRuntimeError as error:
        end_early_daemon(early)
        raise errors.DependencyMissing("Spark's JVM did not start", advice="--debug shows what it said") from error
    finally:
        os.close(output)
    gateway.pump, gateway.ending, gateway.early = pump, ending, early
    return gateway


def start_early_daemon(output: int) -> subprocess.Popen[bytes] | None:
    """Returns the process that Python workers will be forked from, which imports while the JVM starts; None where they
    come from elsewhere.
    """
    os.environ.pop(EARLY_DAEMON, None)
    if launch.WORKER_ENVIRONMENT not in os.environ or os.environ["PYSPARK_PYTHON"] != sys.executable:
        return None
    path = str(Path(tempfile.mkdtemp(prefix="rocketmq-store-spark-"), "early"))
    if len(os.fsencode(path)) > launch.LONGEST_SOCKET_PATH:
        shutil.rmtree(Path(path).parent)
        return None
    os.environ[EARLY_DAEMON] = path
    return subprocess.Popen(
        [sys.executable, "-m", launch.WORKER_DAEMON, "--early"],
        env={**os.environ, **json.loads(os.environ[launch.WORKER_ENVIRONMENT])},
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=output,
    )


def end_early_daemon(early: subprocess.Popen[bytes] | None) -> None:
    """Returns when that process has gone; it goes when Spark has gone, or nobody took it."""
    directory = os.environ.pop(EARLY_DAEMON, None)
    if early is not None and early.stdin is not None:
        early.stdin.close()
        try:
            early.wait(timeout=5)
        except subprocess.TimeoutExpired:
            early.kill()
            early.wait()
    if directory is not None:
        shutil.rmtree(Path(directory).parent, ignore_errors=True)


def forward(source: BinaryIO, ending: threading.Event) -> None:
    """Copies lines to stderr until the last writer has gone: all of them with ``--debug``, else only what is no noise.

    What is said after ``ending`` is noise: workers complain that the JVM they talk to has gone.
    """
    with source:
        for line in source if os.environ.get(launch.DEBUG) == "1" else without_noise(source):
            if not ending.is_set():
                sys.stderr.write(printable(line.decode("utf-8", "replace").rstrip().expandtabs()) + "\n")
                sys.stderr.flush()


def without_noise(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Yields the lines that are neither known noise nor part of a stack trace.

    What matters comes to the driver as an exception; the other traces are those of workers that the JVM has hung up on,
    because it needs no more rows. Traces of several workers come mixed: behind the end of one, lines of another go on.
    """
    in_python_trace = seen = False
    for line in lines:
        begins = line.startswith(PYTHON_TRACE) or (seen and line.startswith(b"  "))
        seen = seen or begins
        if in_python_trace and not (begins or line[:1].isspace()):
            in_python_trace = False  # this line names the exception, and is the last
            continue
        in_python_trace = in_python_trace or begins
        if not (in_python_trace or line.startswith(NOISE)):
            yield line


def end_jvm(gateway: Any, *, at_work: bool) -> None:
    """Lets the JVM end, which stops Spark and everything it started, and waits until it has.

    ``SparkContext.stop`` would do the same more slowly: first the JVM's half, then the server for accumulators, which
    looks up every half second. Workers that are ``at_work`` are ended by force: one that is being forked just now would
    not hear that it should go.
    """
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    server = context and context._accumulatorServer
    gateway.ending.set()
    if server:
        # It takes the end of its connection for a fault and prints a trace.
        server.handle_error = lambda *unused: None  # type: ignore[method-assign]
        server_ends = threading.Thread(target=server.shutdown, name="accumulators end", daemon=True)
        server_ends.start()
    gateway.proc.stdin.close()
    workers: set[int] = {gateway.early.pid} if gateway.early and at_work else set()
    patience = time.monotonic() + 300  # making the class archive takes a minute on a busy machine
    while gateway.proc.poll() is None:
        if at_work:  # the JVM may start more of them while it ends
            workers.update(children_of(gateway.proc.pid))
        if time.monotonic() > patience:
            gateway.proc.kill()
        time.sleep(0.01)
    for daemon in workers:
        for kill in (os.kill, os.killpg):  # itself, and the group that it leads
            with suppress(ProcessLookupError, PermissionError):
                kill(daemon, signal.SIGKILL)
    end_early_daemon(gateway.early)
    gateway.shutdown()
    if server:
        server_ends.join(timeout=5)
    SparkContext._active_spark_context = None
    SparkContext._gateway = None
    SparkContext._jvm = None
    gateway.pump.join(timeout=1)


def children_of(parent: int) -> list[int]:
    """Returns the processes that a process has started; of the JVM these are daemons, each leading its workers."""
    try:
        listed = subprocess.run(["ps", "-e", "-o", "pid=", "-o", "ppid="], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return []
    pairs = (line.split() for line in listed.stdout.splitlines())
    return [int(child) for child, its_parent in pairs if int(its_parent) == parent]


class SparkError(Exception):
    """Spark could not do what it was told; the message is Spark's own."""


@contextmanager
def plain_errors() -> Iterator[None]:
    """Turns what Spark raises within it into the exception that a task raised, or into SparkError.

    Spark's own exceptions ask the JVM for their text, and the JVM is gone by the time somebody prints them.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (Py4JError, PySparkException) as error:
        if (interruption := interruption_behind(error)) is not None:
            raise interruption from None
        text = str(error)
        raised = RAISED.findall(text, max(text.rfind(TRACE), 0))
        by_task = TRACE in text
        cause = raised_by_task(raised) if by_task else None
        reason = ": ".join(raised[-1 if by_task else 0]) if raised else text.strip().split("\n", 1)[0]
        raise cause or SparkError(reason) from SparkError(text)


def interruption_behind(error: BaseException) -> KeyboardInterrupt | None:
    """Returns the Ctrl-C or signal in whose wake an error came: calls that clean up after it fail, too."""
    cause = error.__context__
    while cause is not None and not isinstance(cause, KeyboardInterrupt):
        cause = cause.__context__
    return cause


def raised_by_task(raised: list[tuple[str, str]]) -> Exception | None:
    """Returns the exception of ours, or the OSError, that ended a task, or None.

    Spark hands the driver the task's Python traceback as text, whose last ``module.Class: message`` line names it. Its
    ``advice`` does not survive the way.
    """
    for name, message in reversed(raised):
        if name == "ModuleNotFoundError":
            return errors.DependencyMissing(
                f"the executors' Python cannot run this program: {message}",
                advice="name one with numpy and pyarrow in PYSPARK_PYTHON, or ship one: --archives env.tar.gz#env",
            )
        kind = getattr(errors, name, None) or getattr(builtins, name, None)
        if isinstance(kind, type) and issubclass(kind, errors.StoreFormatError):
            return kind(message)
        if isinstance(kind, type) and issubclass(kind, OSError) and (match := OS_ERROR.match(message)):
            return OSError(int(match[1]), match[2], match[3])
    return None


@contextmanager
def watching(context: SparkContext, progress: Progress) -> Iterator[None]:
    """Within it ``progress`` hears which share of the running stages' tasks is done, as that share of its total."""
    ended = threading.Event()

    def watch() -> None:
        tracker = context.statusTracker()
        while not ended.wait(0.5):
            stages = [info for number in tracker.getActiveStageIds() if (info := tracker.getStageInfo(number))]
            tasks = sum(stage.numTasks for stage in stages)
            if tasks:
                progress.update(progress.total * sum(stage.numCompletedTasks for stage in stages) // tasks)

    thread = threading.Thread(target=watch, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(timeout=5)
