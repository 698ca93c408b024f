"""The JVM that Spark runs in: its start, what it says, and its end with everything that it started.

The process from which Python workers are forked is started beside the JVM (``udfs.worker_daemon``), so that its imports
take no time of their own.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from jobs.contract.report import printable
from jobs.spark import isolation, launch
from storeformat.errors import DependencyMissing
from udfs.worker_daemon import EARLY as EARLY_DAEMON

# Lines that every JVM with an incubator module writes (Spark 4.2 always has one), and the lines of Java's stack traces.
NOISE = (b"WARNING: Using incubator modules", b"Could not import runpy module", b"\tat ", b"\t... ", b"Caused by: ")
PYTHON_TRACE = b"Traceback (most recent call last)"


def start_jvm() -> Any:
    """Returns the py4j gateway to a new JVM, whose output goes to our stderr; raises DependencyMissing if it ends."""
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
        raise DependencyMissing("Spark's JVM did not start", advice="--debug shows what it said") from error
    finally:
        os.close(output)
    gateway.pump, gateway.ending, gateway.early = pump, ending, early
    return gateway


def start_early_daemon(output: int) -> subprocess.Popen[bytes] | None:
    """Returns the process that Python workers will be forked from, which imports while the JVM starts; None where they
    come from elsewhere.
    """
    os.environ.pop(EARLY_DAEMON, None)
    python = os.environ["PYSPARK_PYTHON"]
    if launch.WORKER_ENVIRONMENT not in os.environ or not (python == sys.executable or isolation.is_private(python)):
        return None
    path = str(Path(tempfile.mkdtemp(prefix="rocketmq-store-spark-"), "early"))
    if len(os.fsencode(path)) > launch.LONGEST_SOCKET_PATH:
        shutil.rmtree(Path(path).parent)
        return None
    os.environ[EARLY_DAEMON] = path
    return subprocess.Popen(
        [python, "-m", launch.WORKER_DAEMON, "--early"],
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
    """Copies lines to stderr until the last writer has gone: all of them with ``--debug``, else only what is not noise.

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
    because it needs no more rows. Traces of several workers come mixed: after the end of one, lines of another go on.
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
