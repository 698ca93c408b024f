"""The JVM that Spark runs in: its start, what it says, and its end with everything that it started.

It begins long before it is needed (``begin``), for nothing takes longer; Python imports, opens the store and plans
meanwhile, and then connects (``connect``). The process from which Python workers are forked is started beside it
(``udfs.worker_daemon``), so that its imports take no time of their own.
"""

from __future__ import annotations

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
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from jobs.contract.report import printable
from jobs.spark import jvm_command
from jobs.spark.launch import LONGEST_SOCKET_PATH, WORKER_DAEMON, Launch
from storeformat.errors import DependencyMissing
from udfs.worker_daemon import EARLY as EARLY_DAEMON

# Lines that every JVM with an incubator module writes (Spark 4.2 always has one), and the lines of Java's stack traces.
NOISE = (b"WARNING: Using incubator modules", b"Could not import runpy module", b"\tat ", b"\t... ", b"Caused by: ")
PYTHON_TRACE = b"Traceback (most recent call last)"

_IMPORTS = (
    "org.apache.spark.SparkConf",
    "org.apache.spark.api.java.*",
    "org.apache.spark.api.python.*",
    "org.apache.spark.ml.python.*",
    "org.apache.spark.mllib.api.python.*",
    "org.apache.spark.resource.*",
    "org.apache.spark.sql.Encoders",
    "org.apache.spark.sql.OnSuccessCall",
    "org.apache.spark.sql.functions",
    "org.apache.spark.sql.classic.*",
    "org.apache.spark.sql.api.python.*",
    "org.apache.spark.sql.hive.*",
    "scala.Tuple2",
)
"""What PySpark calls by its short name: pyspark.java_gateway.launch_gateway (4.2.0)."""


@dataclass(frozen=True)
class Jvm:
    """A JVM that has begun, and what was started with it. Its output goes to our stderr, through ``pump``; what is said
    when it is ``ending`` does not.
    """

    launch: Launch
    process: subprocess.Popen[bytes]
    told_in: Path
    """Where the JVM writes the port and the secret to connect with."""
    early: subprocess.Popen[bytes] | None
    early_directory: Path | None
    pump: threading.Thread
    ending: threading.Event


def begin(launch: Launch) -> Jvm:
    """Returns a JVM that comes up; raises DependencyMissing where there is no Java."""
    command = jvm_command.command_of(launch)
    told_in = Path(tempfile.mkdtemp(prefix="rocketmq-store-spark-", dir=launch.directory), "connect")
    environment = {
        **launch.environment,
        "PYTHONHASHSEED": "0",
        "SPARK_CONNECT_MODE": "0",
        "SPARK_SCALA_VERSION": "2.13",
        "_PYSPARK_DRIVER_CONN_INFO_PATH": str(told_in),
    }
    place = _early_place(launch)
    if place is not None:
        environment[EARLY_DAEMON] = str(place / "early")
    said, output = os.pipe()
    try:
        process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.PIPE,  # the JVM ends when this end of it is closed, or has gone
            stdout=output,
            stderr=output,
            preexec_fn=_ignore_interrupts,  # noqa: PLW1509  (as pyspark does: Ctrl-C is for the driver)
        )
        early = None
        if place is not None:
            early = subprocess.Popen(
                [str(launch.python), "-m", WORKER_DAEMON, "--early"],
                env={**environment, **(launch.worker_environment or {})},
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=output,
            )
    finally:
        os.close(output)
    ending = threading.Event()
    pump = threading.Thread(
        target=forward, args=(os.fdopen(said, "rb"), ending, launch.debug), name="spark's stderr", daemon=True
    )
    pump.start()
    return Jvm(launch, process, told_in, early, place, pump, ending)


def _ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _early_place(launch: Launch) -> Path | None:
    """Returns a new directory for the socket of the early daemon, None where workers come from elsewhere or the path of
    the socket would be too long.
    """
    if launch.worker_environment is None:
        return None
    place = Path(tempfile.mkdtemp(prefix="rocketmq-store-spark-"))
    if len(os.fsencode(place / "early")) > LONGEST_SOCKET_PATH:
        shutil.rmtree(place)
        return None
    return place


def connect(jvm: Jvm) -> Any:
    """Returns the py4j gateway to a JVM, when it is up; raises DependencyMissing if it ends before."""
    from py4j.clientserver import ClientServer, JavaParameters, PythonParameters
    from py4j.java_gateway import java_import

    while not jvm.told_in.is_file():
        if jvm.process.poll() is not None:
            raise DependencyMissing(
                "Spark's JVM did not start", advice="is Java older than 17? --debug shows what it said"
            )
        time.sleep(0.005)
    told = jvm.told_in.read_bytes()  # two ints of Java, the port and the length of the secret, then the secret
    port, length = (int.from_bytes(told[at : at + 4], "big") for at in (0, 4))
    secret = told[8 : 8 + length].decode()
    shutil.rmtree(jvm.told_in.parent, ignore_errors=True)
    gateway: Any = ClientServer(
        java_parameters=JavaParameters(port=port, auth_token=secret, auto_convert=True),
        python_parameters=PythonParameters(port=0, eager_load=False),
    )
    gateway.proc = jvm.process
    for name in _IMPORTS:
        java_import(gateway.jvm, name)
    return gateway


def forward(source: BinaryIO, ending: threading.Event, debug: bool) -> None:
    """Copies lines to stderr until the last writer has gone: all of them for ``debug``, else only what is not noise.

    What is said after ``ending`` is noise: workers complain that the JVM they talk to has gone.
    """
    with source:
        for line in source if debug else without_noise(source):
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


def end(jvm: Jvm, gateway: Any = None, *, at_work: bool) -> None:
    """Ends a JVM with everything it started, and waits until it has gone.

    ``SparkContext.stop`` would do the same more slowly: first the JVM's half, then the server for accumulators, which
    looks up every half second. A JVM that has nothing to write is killed: its directories are ours and go with us.
    Workers that are ``at_work`` are ended by force: one that is being forked just now would not hear that it should go.
    """
    jvm.ending.set()
    if gateway is not None:
        _end_accumulators()
    assert jvm.process.stdin is not None
    workers = {jvm.early.pid} if jvm.early and (at_work or jvm.launch.nothing_to_write) else set()
    if jvm.launch.nothing_to_write:
        workers.update(children_of(jvm.process.pid) if at_work or gateway is None else ())
        jvm.process.kill()
    jvm.process.stdin.close()
    patience = time.monotonic() + 300  # making the class archive takes a minute on a busy machine
    while jvm.process.poll() is None:
        if at_work and not jvm.launch.nothing_to_write:  # the JVM may start more of them while it ends
            workers.update(children_of(jvm.process.pid))
        if time.monotonic() > patience:
            jvm.process.kill()
        time.sleep(0.002)
    for daemon in workers:
        for kill in (os.kill, os.killpg):  # itself, and the group that it leads
            with suppress(ProcessLookupError, PermissionError):
                kill(daemon, signal.SIGKILL)
    _end_early_daemon(jvm)
    shutil.rmtree(jvm.told_in.parent, ignore_errors=True)
    if gateway is not None:
        gateway.shutdown()
        forget_session()
    jvm.pump.join(timeout=1)


def _end_accumulators() -> None:
    """Tells the server for accumulators to end, which it does within half a second; nobody waits for that."""
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    server = context and context._accumulatorServer
    if server:
        # It takes the end of its connection for a fault and prints a trace.
        server.handle_error = lambda *unused: None  # type: ignore[method-assign]
        threading.Thread(target=server.shutdown, name="accumulators end", daemon=True).start()


def forget_session() -> None:
    """Lets PySpark forget the JVM that has gone, so that the next session of this process gets a new one."""
    from pyspark import SparkContext

    SparkContext._active_spark_context = None
    SparkContext._gateway = None
    SparkContext._jvm = None
    if "pyspark.sql" in sys.modules:
        from pyspark.sql import SparkSession, SQLContext

        SparkSession._instantiatedSession = None
        SQLContext._instantiatedContext = None


def _end_early_daemon(jvm: Jvm) -> None:
    """Returns when that process has gone; it goes when Spark has gone, or nobody took it."""
    if jvm.early is not None and jvm.early.stdin is not None:
        jvm.early.stdin.close()
        try:
            jvm.early.wait(timeout=5)
        except subprocess.TimeoutExpired:
            jvm.early.kill()
            jvm.early.wait()
    if jvm.early_directory is not None:
        shutil.rmtree(jvm.early_directory, ignore_errors=True)


def children_of(parent: int) -> list[int]:
    """Returns the processes that a process has started; of the JVM these are daemons, each leading its workers."""
    try:
        listed = subprocess.run(["ps", "-e", "-o", "pid=", "-o", "ppid="], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return []
    pairs = (line.split() for line in listed.stdout.splitlines())
    return [int(child) for child, its_parent in pairs if int(its_parent) == parent]
