"""A Spark standalone cluster on loopback: one master and workers with one core each, from the classes of pyspark.

Each worker leads a process group of its own with its executors in it, so that ``kill`` takes both, as a power cut of
its machine would. The Python workers notice that their executor has gone.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from jobs.spark import launch

_PATIENCE = 120
_MASTER, _WORKER = "org.apache.spark.deploy.master.Master", "org.apache.spark.deploy.worker.Worker"
_BOUND = re.compile(r"Starting Spark master at (spark://\S+)")
_REGISTERED = re.compile("Successfully registered with master")


@dataclass(frozen=True)
class Daemon:
    """A master or a worker."""

    process: subprocess.Popen[bytes]

    def kill(self) -> None:
        """Ends it and what it started without a word of warning."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(timeout=_PATIENCE)


@dataclass(frozen=True)
class Cluster:
    """``url`` is what ``--master`` takes."""

    url: str
    workers: list[Daemon]


@contextmanager
def standalone_cluster(directory: Path, workers: int = 2) -> Iterator[Cluster]:
    """Yields a cluster whose logs and work lie in ``directory``; afterwards nothing of it runs."""
    started: list[Daemon] = []
    try:
        master, url = _start(directory, "master", _BOUND, _MASTER, "--host", "127.0.0.1", "--port", "0")
        started.append(master)
        for number in range(workers):
            place = directory / f"worker-{number}"
            worker, _ = _start(
                directory, place.name, _REGISTERED, _WORKER, "--host", "127.0.0.1", "--cores", "1", "--memory", "1g",
                "--work-dir", str(place), url,
            )  # fmt: skip
            started.append(worker)
        yield Cluster(url, started[1:])
    finally:
        for daemon in started:
            if daemon.process.poll() is None:
                daemon.kill()


def _start(directory: Path, name: str, sign: re.Pattern[str], *command: str) -> tuple[Daemon, str]:
    """Returns a daemon that has said its ``sign``, and the first group of it."""
    conf = directory / "conf"
    conf.mkdir(parents=True, exist_ok=True)
    (conf / "log4j2.properties").write_text(
        "rootLogger.level = info\nrootLogger.appenderRef.stderr.ref = stderr\nappender.stderr.type = Console\n"
        "appender.stderr.name = stderr\nappender.stderr.target = SYSTEM_ERR\n"
        "appender.stderr.layout.type = PatternLayout\nappender.stderr.layout.pattern = %c{1}: %m%n%ex\n"
    )
    environment = {
        **{key: value for key, value in os.environ.items() if not key.startswith(("SPARK_", "PYSPARK_", "PYTHON"))},
        "SPARK_HOME": str(launch.spark_home()),
        "SPARK_CONF_DIR": str(conf),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -Dspark.master.ui.port=0 -Dspark.worker.ui.port=0",
        "SPARK_LOG_DIR": str(directory),
    }
    process = subprocess.Popen(
        [str(launch.spark_home() / "bin" / "spark-class"), *command],
        env=environment, cwd=directory, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        start_new_session=True,
    )  # fmt: skip
    assert process.stderr is not None
    late = threading.Timer(_PATIENCE, process.kill)
    late.start()
    said = b""
    for line in process.stderr:
        said += line
        if found := sign.search(line.decode("utf-8", "replace")):
            late.cancel()
            threading.Thread(target=_drain, args=(process, directory / f"{name}.log"), daemon=True).start()
            return Daemon(process), found[1] if found.groups() else ""
    late.cancel()
    process.wait(timeout=_PATIENCE)
    raise AssertionError(f"{name} did not start: {said.decode('utf-8', 'replace')}")


def _drain(process: subprocess.Popen[bytes], log: Path) -> None:
    assert process.stderr is not None
    with process.stderr, log.open("wb") as target:
        shutil.copyfileobj(process.stderr, target)
