"""Workers of a local Spark are forked from a process that holds all that our tasks import."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from udfs.worker_daemon import EARLY, print_trace

ROOT = Path(__file__).resolve().parents[2]


def what_a_worker_has(rows: Iterator[int]) -> Iterator[tuple[str, bool]]:
    """The command line of a worker, which is that of the process it was forked from, and whether it need not import."""
    for _ in rows:
        yield Path("/proc/self/cmdline").read_text().replace("\0", " "), "udfs.log.scan" in sys.modules


@pytest.mark.spark
@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="needs /proc")
def test_workers_are_born_with_our_modules(spark: SparkSession) -> None:
    found = spark.sparkContext.parallelize(range(4), 2).mapPartitions(what_a_worker_has).collect()
    assert len(found) == 4
    for command, imported in found:
        assert "udfs.worker_daemon" in command
        assert imported


@pytest.mark.parametrize(
    ("error", "said"), [(BrokenPipeError(), ""), (ConnectionResetError(), ""), (ValueError("odd"), "ValueError: odd\n")]
)
def test_a_worker_whose_jvm_has_hung_up_says_nothing(
    capsys: pytest.CaptureFixture[str], error: Exception, said: str
) -> None:
    try:
        raise error
    except (OSError, ValueError):
        print_trace()
    err = capsys.readouterr().err
    assert err.endswith(said)
    assert bool(err) == bool(said)


HANGS_UP = """
import os, sys
from collections.abc import Iterator
from pyspark.sql import SparkSession
from jobs.spark import launch

launch.prepare(["--master", "local[1]"])
spark = SparkSession.builder.getOrCreate()

place = sys.argv[1]
os.mkfifo(place)
worker = os.open(place, os.O_RDONLY | os.O_NONBLOCK)

def endless(batches: Iterator) -> Iterator:
    os.open(place, os.O_WRONLY)  # until this process ends
    batch = next(batches)
    while True:
        yield batch

assert len(spark.range(1000).mapInArrow(endless, "id long").limit(1).collect()) == 1
os.set_blocking(worker, True)
assert os.read(worker, 1) == b""
spark.stop()
"""


@pytest.mark.slow
@pytest.mark.spark
def test_a_query_that_needs_no_more_rows_shows_no_trace(tmp_path: Path) -> None:
    """In a session of one's own, as notebooks have it."""
    command = [sys.executable, "-c", HANGS_UP, str(tmp_path / "fifo")]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert "Traceback" not in ran.stderr
    assert "BrokenPipe" not in ran.stderr


class Daemon:
    """This module as Spark starts it, or beside the JVM."""

    def __init__(self, work: Path, *arguments: str, **settings: str) -> None:
        environment = {
            **os.environ, "PYTHONPATH": str(ROOT), EARLY: str(work / "early"), "SPARK_REUSE_WORKER": "1",
            "PYTHON_UNIX_DOMAIN_ENABLED": "true", "PYTHON_WORKER_FACTORY_SOCK_DIR": str(work), **settings,
        }  # fmt: skip
        self.process = subprocess.Popen(
            [sys.executable, "-m", "udfs.worker_daemon", *arguments],
            env=environment, cwd=work, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        assert self.process.stdout is not None
        assert self.process.stdin is not None
        self.said, self.told = self.process.stdout, self.process.stdin

    def parent_of_a_worker(self) -> int:
        """Has a worker forked, as Spark does, and returns who forked it."""
        path = self.said.read(int.from_bytes(self.said.read(4), "big")).decode()
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(path)
            worker = int.from_bytes(connection.recv(4), "big")
            return int(Path(f"/proc/{worker}/stat").read_text().rpartition(") ")[2].split()[1])

    def end(self) -> None:
        """Ends it as the end of Spark does."""
        self.told.close()
        self.said.close()
        self.process.wait(timeout=120)


@pytest.fixture
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory whose name is short enough for a socket."""
    return tmp_path_factory.mktemp("d")


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
class TestEarly:
    def test_it_takes_the_place_of_the_one_that_spark_starts(self, place: Path) -> None:
        early = Daemon(place, "--early")
        while not (place / "early").exists():
            assert early.process.poll() is None
        late = Daemon(place, "pyspark.worker", ONLY_SPARK_KNOWS="1")
        assert late.parent_of_a_worker() == early.process.pid
        late.end()
        early.end()

    def test_it_ends_with_the_driver(self, place: Path) -> None:
        Daemon(place, "--early").end()

    def test_it_ends_with_one_that_goes_while_it_hands_over(self, place: Path) -> None:
        early = Daemon(place, "--early")
        while not (place / "early").exists():
            assert early.process.poll() is None
        with socket.socket(socket.AF_UNIX) as connection:
            while connection.connect_ex(str(place / "early")):  # the file is there before anybody listens
                assert early.process.poll() is None
            socket.send_fds(connection, [b" "], [0, 1, 2])
        early.process.wait(timeout=120)
        early.end()

    def test_nobody_is_there(self, place: Path) -> None:
        late = Daemon(place)
        assert late.parent_of_a_worker() == late.process.pid
        late.end()
