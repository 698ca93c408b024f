"""The JVM that Spark runs in: its start, and its end with everything that it started.

It begins long before it is needed (``begin``), for nothing takes longer; Python imports, opens the store and plans
meanwhile, and then connects (``connect``). The process from which Python workers are forked is started beside it
(``udfs.worker_daemon``), so that its imports take no time of their own.

Where the user said nothing that asks the JVM to write something at its end, it is killed when its work is done. Its
directories are ours and go with us. When it has ended, no worker on this machine runs any more: what tasks staged can
be removed.

Of an ``inspect`` that takes 2.1 s (one segment, two cores), each without the others: the daemon beside the JVM saves
1.1 s, the kill in place of ``SparkContext.stop`` 1.0 s.
"""

from __future__ import annotations

import os
import pwd
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jobs.spark.launch import LONGEST_SOCKET_PATH, WORKER_DAEMON, Launch
from storeformat.errors import DependencyMissing
from udfs.worker_daemon import EARLY

_PATIENCE = 300
"""Seconds that a JVM may take to end: making the class archive takes a minute on a busy machine."""
_TO_DIE = 10
"""Seconds that killed workers may take to die."""
_OLDEST_JAVA = 17


@dataclass(frozen=True)
class Jvm:
    """A JVM that has begun, and the process that workers will be forked from, where that began, too."""

    launch: Launch
    process: subprocess.Popen[bytes]
    told_in: Path
    """Where the JVM writes the port and the secret to connect with."""
    daemon: subprocess.Popen[bytes] | None
    alive: int
    """A pipe that ends when the daemon and all its workers have."""


def begin(launch: Launch) -> Jvm:
    """Returns a JVM that comes up; raises DependencyMissing for a user whom Hadoop's login would refuse."""
    _require_account()
    told_in = Path(tempfile.mkdtemp(prefix="rocketmq-store-spark-", dir=launch.directory), "connect")
    environment = {
        **launch.environment,
        "PYTHONHASHSEED": "0",
        "SPARK_CONNECT_MODE": "0",
        "_PYSPARK_DRIVER_CONN_INFO_PATH": str(told_in),
    }
    place = told_in.with_name("daemon")
    early = launch.worker_environment is not None and len(os.fsencode(place)) <= LONGEST_SOCKET_PATH
    if early:
        environment[EARLY] = str(place)
    process = subprocess.Popen(
        [str(Path(launch.environment["SPARK_HOME"], "bin", "spark-submit")), *launch.arguments, "pyspark-shell"],
        env=environment,
        stdin=subprocess.PIPE,  # the JVM ends when this end of it is closed, or has gone
        stdout=2,  # stdout belongs to the report
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),  # noqa: PLW1509  (Ctrl-C is for the driver)
    )
    daemon = None
    alive, held = os.pipe()
    if early:
        daemon = subprocess.Popen(
            [str(launch.python), "-m", WORKER_DAEMON, "--early"],
            env={**environment, **(launch.worker_environment or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            pass_fds=[held],
            preexec_fn=os.setpgrp,  # noqa: PLW1509  (its workers are ended with it)
        )
    os.close(held)
    return Jvm(launch, process, told_in, daemon, alive)


def _require_account() -> None:
    """Raises DependencyMissing for a user id without a name, with which Hadoop's login fails in the JVM."""
    try:
        pwd.getpwuid(os.geteuid())
    except KeyError:
        raise DependencyMissing(
            f"Spark needs a user with a name, and user id {os.geteuid()} has no passwd entry",
            advice="add a line to /etc/passwd, or use nss_wrapper; preflight, publish, restore and query need none",
        ) from None


def require_java() -> None:
    """Raises DependencyMissing where there is no Java that Spark takes."""
    home = os.environ.get("JAVA_HOME")
    java = f"{home}/bin/java" if home else "java"
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    except OSError:
        found = "missing"
    else:
        version = re.search(r'version "(?:1\.)?(\d+)', said.stderr + said.stdout)
        found = version[1] if version else "no Java"
    if not (found.isdigit() and int(found) >= _OLDEST_JAVA):
        raise DependencyMissing(
            f"Spark needs Java {_OLDEST_JAVA} or later: {java} is {found}", advice="install it, or set JAVA_HOME"
        )


def connect(jvm: Jvm) -> Any:
    """Returns the py4j gateway to a JVM, when it is up; raises DependencyMissing if it ends before."""
    from pyspark import SparkContext
    from pyspark.java_gateway import launch_gateway

    while not jvm.told_in.is_file():
        if (code := jvm.process.poll()) is not None:
            require_java()
            raise DependencyMissing(f"Spark's JVM did not start ({ending(code)})", advice="what it said is above")
        time.sleep(0.005)
    told = jvm.told_in.read_bytes()  # two ints of Java, the port and the length of the secret, then the secret
    port, length = (int.from_bytes(told[at : at + 4], "big") for at in (0, 4))
    jvm.told_in.unlink()
    os.environ.update(PYSPARK_GATEWAY_PORT=str(port), PYSPARK_GATEWAY_SECRET=told[8 : 8 + length].decode())
    try:
        gateway: Any = launch_gateway()  # type: ignore[no-untyped-call]
    finally:
        del os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"]
    gateway.proc = jvm.process
    SparkContext._gateway, SparkContext._jvm = gateway, gateway.jvm
    return gateway


def ending(code: int) -> str:
    """Returns how a process has ended, by what ``subprocess`` says of it."""
    return f"exit code {code}" if code >= 0 else signal.Signals(-code).name


def end(jvm: Jvm, gateway: Any = None) -> None:
    """Ends a JVM with everything it started, and waits until it has gone."""
    if gateway is not None:
        _end_accumulators()
    assert jvm.process.stdin is not None
    if jvm.launch.may_be_killed:
        jvm.process.kill()
    jvm.process.stdin.close()
    try:
        jvm.process.wait(_PATIENCE)
    except subprocess.TimeoutExpired:
        jvm.process.kill()
        jvm.process.wait()
    if jvm.daemon is not None and jvm.daemon.stdin is not None:
        jvm.daemon.stdin.close()
        with suppress(ProcessLookupError):
            os.killpg(jvm.daemon.pid, signal.SIGKILL)
        jvm.daemon.wait()
        select.select([jvm.alive], [], [], _TO_DIE)
    os.close(jvm.alive)
    shutil.rmtree(jvm.told_in.parent, ignore_errors=True)
    if gateway is not None:
        gateway.shutdown()
    if "pyspark" in sys.modules:
        forget_session(jvm.process)


def _end_accumulators() -> None:
    """Tells the server for accumulators to end, which it does within half a second; nobody waits for that."""
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    server = getattr(context, "_accumulatorServer", None)  # one that is still being made has none
    if server:
        threading.Thread(target=server.shutdown, name="accumulators end", daemon=True).start()


def forget_session(process: subprocess.Popen[bytes]) -> None:
    """Lets PySpark forget a JVM that has gone, so that the next session of this process gets a new one."""
    from pyspark import SparkContext

    if getattr(SparkContext._gateway, "proc", None) is not process:
        return
    SparkContext._active_spark_context = None
    SparkContext._gateway = None
    SparkContext._jvm = None
    if "pyspark.sql" in sys.modules:
        from pyspark.sql import SparkSession, SQLContext

        SparkSession._instantiatedSession = None
        SQLContext._instantiatedContext = None
