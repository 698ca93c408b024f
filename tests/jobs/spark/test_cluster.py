"""A cluster of machines, played by processes: executors get code and Python from the start script, and may be lost."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from support import golden, packing
from support.golden import GoldenStore
from support.golden_differences import index_differences, queue_differences
from support.rebuilding import SETTINGS

from jobs.spark import launch

pytestmark = [pytest.mark.spark, pytest.mark.golden]


_PATIENCE = 120
_MASTER, _WORKER = "org.apache.spark.deploy.master.Master", "org.apache.spark.deploy.worker.Worker"
_BOUND = re.compile(r"Starting Spark master at (spark://\S+)")
_REGISTERED = re.compile("Successfully registered with master")


@dataclass(frozen=True)
class Daemon:
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


ROOT = Path(__file__).resolve().parents[3]
SPLIT = 100_000


def start(cluster: Cluster, store: GoldenStore, root: Path, output: Path, *options: str) -> subprocess.Popen[str]:
    settings = [word for key in SETTINGS if key in store.settings for word in ("--set", f"{key}={store.settings[key]}")]
    properties = ROOT / "conf" / "standalone.properties"
    line = [
        sys.executable, str(ROOT / "jobs" / "__main__.py"), "--properties-file", str(properties),
        "--master", cluster.url, "--conf", "spark.driver.host=127.0.0.1", *options,
        "rebuild", "--store", str(root), "--output", str(output), "--split-size", str(SPLIT), "--json", *settings,
    ]  # fmt: skip
    hidden = ("PYSPARK_", "PYTHON", "SPARK_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    return subprocess.Popen(
        line, env=environment, cwd=output.parent, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def finished(process: subprocess.Popen[str], store: GoldenStore, root: Path, output: Path) -> dict[str, object]:
    """The report of a run that has made the broker's own files."""
    said, complaint = process.communicate(timeout=300)
    assert process.returncode == 0, complaint
    assert queue_differences(root, output, store) + index_differences(root, output, store) == []
    assert [path.name for path in output.parent.iterdir() if "staging" in path.name] == []
    report: dict[str, object] = json.loads(said)
    return report


@pytest.mark.slow
def test_a_worker_is_lost_in_mid_job(tmp_path: Path) -> None:
    (store,) = golden.stores("base-larger-5.3.3")
    root, output = golden.unpack(store), tmp_path / "out"
    with standalone_cluster(tmp_path / "cluster") as cluster:
        process = start(cluster, store, root, output, "--conf", f"spark.pyspark.python={sys.executable}")
        deadline = time.monotonic() + 200
        while len(list(tmp_path.glob(".out.*/runs/*.entries"))) < 4:
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        scanned = len(list(tmp_path.glob(".out.*/runs/*.entries")))
        assert list((tmp_path / "cluster" / "worker-0").glob("app-*/*")), "it had an executor of this job"
        cluster.workers[0].kill()
        report = finished(process, store, root, output)
    assert report["messages"] == store.entry["counts"]["messages"]
    assert scanned < store.end_offset // SPLIT, "it was lost before everything was scanned"


@pytest.mark.slow
def test_executors_take_the_python_that_comes_with_the_job(tmp_path: Path) -> None:
    (store,) = golden.stores("base-larger-5.3.3")
    root, output = golden.unpack(store), tmp_path / "out"
    packed = tmp_path / "python.tar.gz"
    packing.pack(packed)
    with tarfile.open(packed) as archive:
        names = archive.getnames()
    assert {"numpy", "pyarrow", "deltalake", "numba"} <= {name.split("/")[-1] for name in names}
    assert not [name for name in names if "site-packages/pyspark" in name or name.endswith(".pyc")]
    with standalone_cluster(tmp_path / "cluster", workers=1) as cluster:
        shipped = ("spark.archives", f"{packed}#environment"), ("spark.pyspark.python", "./environment/bin/python")
        options = [word for name, value in shipped for word in ("--conf", f"{name}={value}")]
        report = finished(start(cluster, store, root, output, *options), store, root, output)
    assert report["messages"] == store.entry["counts"]["messages"]
