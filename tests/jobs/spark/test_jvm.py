"""The JVM's output, and what is left after its end."""

from __future__ import annotations

import io
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import SparkContext, java_gateway
from pyspark.errors import PySparkRuntimeError

from jobs.spark import jvm, launch
from storeformat.errors import DependencyMissing


class TestWhatSparkSays:
    def test_traces_and_known_noise_are_left_out_and_nothing_else(self) -> None:
        said = b"""WARNING: Using incubator modules: jdk.incubator.vector
one
Traceback (most recent call last):
  File "daemon.py", line 262, in manager
    outfile.flush()
BrokenPipeError: [Errno 32] Broken pipe
two
Exception in thread "main" java.lang.OutOfMemoryError: Java heap space
\tat java.base/java.util.Arrays.copyOf(Arrays.java:3537)
Caused by: java.io.IOException
\t... 3 more
three
Traceback (most recent call last):
Traceback (most recent call last):
  x
KeyError: 1
  File "daemon.py", line 262, in manager
           ^^^^^^^^^^^^^^^
BrokenPipeError: [Errno 32] Broken pipe
four
"""
        assert b"".join(jvm.without_noise(said.splitlines(keepends=True))).decode().split("\n") == [
            "one",
            "two",
            'Exception in thread "main" java.lang.OutOfMemoryError: Java heap space',
            "three",
            "four",
            "",
        ]

    @pytest.mark.parametrize("debug", ["0", "1"])
    def test_no_line_of_it_holds_a_secret_or_what_a_terminal_obeys(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], debug: str
    ) -> None:
        monkeypatch.setenv(launch.DEBUG, debug)
        said = b"lost s3://KEY:SECRET@bucket/x?token=SECRET \x1b[2J\r\n\xff two\n"
        jvm.forward(io.BytesIO(said), threading.Event())
        assert capsys.readouterr().err == "lost s3://***@bucket/x?token=*** \\x1b[2J\n\ufffd two\n"


class TestEarlyDaemon:
    def test_its_directory_is_removed_when_spark_never_took_it(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        directory = tempfile.mkdtemp(dir=tmp_path)
        monkeypatch.setenv(jvm.EARLY_DAEMON, str(Path(directory, "early")))
        killed = subprocess.Popen([sys.executable, "-c", "raise SystemExit"], stdin=subprocess.PIPE)
        jvm.end_early_daemon(killed)
        assert list(tmp_path.iterdir()) == []
        assert killed.returncode == 0
        assert jvm.EARLY_DAEMON not in os.environ

    def test_one_that_does_not_end_is_killed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        waited: list[float | None] = []

        class Deaf:
            stdin = io.BytesIO()

            def wait(self, timeout: float | None = None) -> None:
                waited.append(timeout)
                if timeout is not None:
                    raise subprocess.TimeoutExpired("python", timeout)

            def kill(self) -> None:
                waited.append(0)

        monkeypatch.delenv(jvm.EARLY_DAEMON, raising=False)
        daemon: Any = Deaf()
        jvm.end_early_daemon(daemon)
        jvm.end_early_daemon(None)
        assert (waited, daemon.stdin.closed) == ([5, 0, None], True)

    @pytest.fixture
    def begun(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = []
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        monkeypatch.setattr(launch, "LONGEST_SOCKET_PATH", len(os.fsencode(tmp_path)) + 50)
        monkeypatch.setattr(jvm.subprocess, "Popen", lambda *given, **named: found.append((*given, named)) or "begun")
        monkeypatch.setenv(jvm.EARLY_DAEMON, "of an earlier one")
        monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
        monkeypatch.setenv(launch.WORKER_ENVIRONMENT, '{"PYTHONHASHSEED": "0", "HOME": "/elsewhere"}')
        return found

    def test_what_it_is_started_with(self, begun: list[tuple[Any, ...]], tmp_path: Path) -> None:
        started: Any = jvm.start_early_daemon(7)
        assert started == "begun"
        ((command, settings),) = begun
        path = Path(os.environ[jvm.EARLY_DAEMON])
        assert (path.parent.parent, path.name) == (tmp_path, "early")
        assert path.parent.name.startswith("rocketmq-store-spark-")
        assert command == [sys.executable, "-m", launch.WORKER_DAEMON, "--early"]
        environment = settings.pop("env")
        assert environment == {**os.environ, "PYTHONHASHSEED": "0", "HOME": "/elsewhere"}
        assert settings == {"stdin": subprocess.PIPE, "stdout": subprocess.DEVNULL, "stderr": 7}

    def test_it_is_not_there_where_workers_come_from_elsewhere(
        self, begun: list[tuple[Any, ...]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PYSPARK_PYTHON", "/another/python")
        assert jvm.start_early_daemon(7) is None
        monkeypatch.setenv("PYSPARK_PYTHON", "/tmp/rocketmq-store-spark-x/python")
        assert jvm.start_early_daemon(7) is not None
        monkeypatch.setattr(launch, "LONGEST_SOCKET_PATH", len(os.environ[jvm.EARLY_DAEMON]))
        assert jvm.start_early_daemon(7) is not None
        monkeypatch.setattr(launch, "LONGEST_SOCKET_PATH", len(os.environ[jvm.EARLY_DAEMON]) - 1)
        assert jvm.start_early_daemon(7) is None
        monkeypatch.delenv(launch.WORKER_ENVIRONMENT)
        assert jvm.start_early_daemon(7) is None
        assert jvm.EARLY_DAEMON not in os.environ
        assert len(begun) == len(list(tmp_path.iterdir())) == 2


def test_what_comes_after_the_end_is_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    ending = threading.Event()
    ending.set()
    jvm.forward(io.BytesIO(b"a worker complains\n"), ending)
    assert capsys.readouterr().err == ""


@pytest.mark.skipif(shutil.which("ps") is None, reason="there is no ps")
def test_children_are_those_of_the_process() -> None:
    child = subprocess.Popen(["sleep", "60"])
    try:
        assert child.pid in jvm.children_of(os.getpid())
        assert jvm.children_of(child.pid) == []
    finally:
        child.kill()
        child.wait()


def test_without_ps_no_children_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert jvm.children_of(os.getpid()) == []


@pytest.fixture
def spark_context(monkeypatch: pytest.MonkeyPatch) -> Any:
    """PySpark's class as it is while a context runs, with a server for accumulators."""
    ended: list[str] = []
    server = SimpleNamespace(shutdown=lambda: ended.append("accumulators"), handle_error=None, ended=ended)
    for name, value in (
        ("_active_spark_context", SimpleNamespace(_accumulatorServer=server)), ("_gateway", "one"), ("_jvm", "one"),
    ):  # fmt: skip
        monkeypatch.setattr(SparkContext, name, value)
    monkeypatch.delenv(jvm.EARLY_DAEMON, raising=False)
    return server


@pytest.mark.skipif(shutil.which("ps") is None, reason="there is no ps")
@pytest.mark.parametrize("at_work", [pytest.param(True, marks=pytest.mark.thorough), False])
def test_workers_that_are_at_work_end_with_the_jvm(at_work: bool, spark_context: Any) -> None:
    program = f"sleep 60 >&- & echo $!; read line; sleep {2 if at_work else 0}"  # time enough to see the worker
    process = subprocess.Popen(["sh", "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    early = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
    assert process.stdout is not None
    worker = int(process.stdout.readline())
    process.stdout.close()
    said: list[str] = []
    pump = threading.Thread(target=said.append, args=("pumped",))
    pump.start()
    gateway = SimpleNamespace(
        proc=process, early=early, ending=threading.Event(), pump=pump, shutdown=lambda: said.append("shutdown")
    )
    jvm.end_jvm(gateway, at_work=at_work)
    assert (process.returncode, gateway.ending.is_set(), said) == (0, True, ["pumped", "shutdown"])
    assert early.returncode == (-signal.SIGKILL if at_work else 0)
    assert (spark_context.ended, spark_context.handle_error(1, 2)) == (["accumulators"], None)
    assert (SparkContext._active_spark_context, SparkContext._gateway, SparkContext._jvm) == (None, None, None)
    if not at_work:
        os.kill(worker, signal.SIGKILL)  # it is there
    deadline, state = time.monotonic() + 20, Path(f"/proc/{worker}/stat")
    with suppress(FileNotFoundError):  # it may be a zombie that nobody waits for
        while state.read_text().rpartition(")")[2].split()[0] != "Z":
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_what_a_jvm_is_started_with(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Its output and that of the early daemon come to stderr; where it does not start, the daemon ends."""
    begun: list[Any] = []
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "pyspark-shell")
    monkeypatch.setenv(launch.DEBUG, "1")
    monkeypatch.setattr(jvm, "start_early_daemon", lambda output: begun.append(output) or "early")
    monkeypatch.setattr(jvm, "end_early_daemon", begun.append)

    def launch_gateway(popen_kwargs: dict[str, int]) -> Any:
        assert popen_kwargs == {"stdout": begun[0], "stderr": begun[0]}
        os.write(begun[0], b"of the JVM\n")
        return SimpleNamespace()

    monkeypatch.setattr(java_gateway, "launch_gateway", launch_gateway)
    gateway = jvm.start_jvm()
    gateway.pump.join(timeout=20)
    assert (gateway.early, gateway.ending.is_set(), len(begun)) == ("early", False, 1)
    assert capsys.readouterr().err == "of the JVM\n"

    def failing(popen_kwargs: dict[str, int]) -> Any:
        raise PySparkRuntimeError("no Java")

    monkeypatch.setattr(java_gateway, "launch_gateway", failing)
    with pytest.raises(DependencyMissing) as error:
        jvm.start_jvm()
    assert (str(error.value), error.value.advice) == ("Spark's JVM did not start", "--debug shows what it said")
    assert begun[2:] == ["early"]
