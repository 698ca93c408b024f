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
from pyspark import SparkContext
from pyspark.sql import SparkSession, SQLContext
from support.patching import stand_in

from jobs.spark import jvm, jvm_command
from jobs.spark.launch import Launch
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

    @pytest.mark.parametrize("debug", [False, True])
    def test_no_line_of_it_holds_a_secret_or_what_a_terminal_obeys(
        self, capsys: pytest.CaptureFixture[str], debug: bool
    ) -> None:
        said = b"lost s3://KEY:SECRET@bucket/x?token=SECRET \x1b[2J\r\n\xff two\n"
        jvm.forward(io.BytesIO(said), threading.Event(), debug)
        assert capsys.readouterr().err == "lost s3://***@bucket/x?token=*** \\x1b[2J\n\ufffd two\n"


def planned(**more: Any) -> Launch:
    """What a local Spark is started with, less what a test says otherwise."""
    given = {
        "arguments": (), "own": (), "environment": dict(os.environ), "worker_environment": None, "directory": None,
        "python": sys.executable, "nothing_to_write": False, "debug": True,
    }  # fmt: skip
    return Launch(**{**given, **more})


def a_jvm(process: Any, early: Any = None, place: Path | None = None, **more: Any) -> jvm.Jvm:
    pump = threading.Thread(target=lambda: None)
    pump.start()
    return jvm.Jvm(planned(**more), process, Path("/nonexistent/connect"), early, place, pump, threading.Event())


class TestEarlyDaemon:
    def test_its_directory_is_removed_when_spark_never_took_it(self, tmp_path: Path) -> None:
        directory = tempfile.mkdtemp(dir=tmp_path)
        ended = subprocess.Popen([sys.executable, "-c", "raise SystemExit"], stdin=subprocess.PIPE)
        jvm._end_early_daemon(a_jvm(None, ended, Path(directory)))
        assert list(tmp_path.iterdir()) == []
        assert ended.returncode == 0

    def test_one_that_does_not_end_is_killed(self) -> None:
        waited: list[float | None] = []

        class Deaf:
            stdin = io.BytesIO()

            def wait(self, timeout: float | None = None) -> None:
                waited.append(timeout)
                if timeout is not None:
                    raise subprocess.TimeoutExpired("python", timeout)

            def kill(self) -> None:
                waited.append(0)

        daemon = Deaf()
        jvm._end_early_daemon(a_jvm(None, daemon))
        jvm._end_early_daemon(a_jvm(None))
        assert (waited, daemon.stdin.closed) == ([5, 0, None], True)

    def test_it_is_not_there_where_its_socket_would_not_fit(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        monkeypatch.setattr(jvm, "LONGEST_SOCKET_PATH", 10_000)
        place = jvm._early_place(planned(worker_environment={}))
        assert place is not None
        assert place.parent == tmp_path
        longest = len(os.fsencode(place / "early"))
        for length, there in ((longest, True), (longest - 1, False)):
            monkeypatch.setattr(jvm, "LONGEST_SOCKET_PATH", length)
            assert (jvm._early_place(planned(worker_environment={})) is not None) is there
        assert jvm._early_place(planned()) is None, "workers come from elsewhere"
        assert len(list(tmp_path.iterdir())) == 2


def test_what_comes_after_the_end_is_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    ending = threading.Event()
    ending.set()
    jvm.forward(io.BytesIO(b"a worker complains\n"), ending, True)
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
    monkeypatch.setattr(SparkSession, "_instantiatedSession", None)  # that of other tests comes back
    monkeypatch.setattr(SQLContext, "_instantiatedContext", None)
    return server


@pytest.mark.skipif(shutil.which("ps") is None, reason="there is no ps")
@pytest.mark.parametrize("at_work", [pytest.param(True, marks=pytest.mark.thorough), False])
def test_workers_that_are_at_work_end_with_the_jvm(
    at_work: bool, spark_context: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = f"sleep 600 >&- & echo $!; read line; {'wait' if at_work else ':'}"
    process = subprocess.Popen(["sh", "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    early = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
    assert process.stdout is not None
    worker = int(process.stdout.readline())
    process.stdout.close()
    children_of = jvm.children_of

    def seen(parent: int) -> list[int]:
        found = children_of(parent)
        process.terminate()
        return found

    monkeypatch.setattr(jvm, "children_of", seen)
    said: list[str] = []
    started = a_jvm(process, early)
    jvm.end(started, SimpleNamespace(shutdown=lambda: said.append("shutdown")), at_work=at_work)
    assert process.returncode == (-signal.SIGTERM if at_work else 0)
    assert (started.ending.is_set(), said) == (True, ["shutdown"])
    assert early.returncode == (-signal.SIGKILL if at_work else 0)
    assert spark_context.handle_error(1, 2) is None
    assert (SparkContext._active_spark_context, SparkContext._gateway, SparkContext._jvm) == (None, None, None)
    if not at_work:
        os.kill(worker, signal.SIGKILL)  # it is there
    assert_gone(worker)


def assert_gone(process: int) -> None:
    """Waits until a process has gone; it may be a zombie that nobody waits for."""
    deadline, state = time.monotonic() + 120, Path(f"/proc/{process}/stat")
    with suppress(FileNotFoundError):
        while state.read_text().rpartition(")")[2].split()[0] != "Z":
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_a_jvm_with_nothing_to_write_is_not_waited_for(spark_context: Any) -> None:
    process, early = (subprocess.Popen(["sleep", "120"], stdin=subprocess.PIPE) for _ in range(2))
    jvm.end(a_jvm(process, early, nothing_to_write=True), SimpleNamespace(shutdown=lambda: None), at_work=False)
    assert (process.returncode, early.returncode) == (-signal.SIGKILL, -signal.SIGKILL)


class TestBegin:
    """What is begun, with a shell in Java's place."""

    @pytest.fixture(autouse=True)
    def _here(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        monkeypatch.setattr(jvm, "LONGEST_SOCKET_PATH", 10_000)

    @staticmethod
    def begin(program: str, monkeypatch: pytest.MonkeyPatch, **more: Any) -> jvm.Jvm:
        monkeypatch.setattr(jvm_command, "command_of", lambda launch: ["sh", "-c", program])
        return jvm.begin(planned(**more))

    def test_its_output_comes_to_stderr(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
    ) -> None:
        begun = self.begin("echo of the JVM; echo $PYTHONHASHSEED $SPARK_CONNECT_MODE", monkeypatch)
        begun.process.wait(timeout=120)
        begun.pump.join(timeout=120)
        assert capsys.readouterr().err == "of the JVM\n0 0\n"
        assert begun.early is None
        with pytest.raises(DependencyMissing) as error:
            jvm.connect(begun)
        assert str(error.value) == "Spark's JVM did not start"
        assert error.value.advice == "is Java older than 17? --debug shows what it said"
        jvm.end(begun, at_work=True)
        assert list(tmp_path.iterdir()) == []

    def test_the_port_and_the_secret_are_what_it_wrote(self, monkeypatch: pytest.MonkeyPatch) -> None:
        client = SimpleNamespace(jvm="the JVM")
        given: list[Any] = []
        monkeypatch.setattr("py4j.clientserver.ClientServer", lambda **named: given.append(named) or client)
        monkeypatch.setattr("py4j.java_gateway.java_import", lambda *words: given.append(words))
        begun = self.begin(
            'printf "\\000\\000\\236\\100\\000\\000\\000\\003abc" >$_PYSPARK_DRIVER_CONN_INFO_PATH.x;'
            "mv $_PYSPARK_DRIVER_CONN_INFO_PATH.x $_PYSPARK_DRIVER_CONN_INFO_PATH; read line",
            monkeypatch,
        )
        gateway = jvm.connect(begun)
        parameters = given[0]["java_parameters"]
        assert (parameters.port, parameters.auth_token, parameters.auto_convert) == (40512, "abc", True)
        assert ("the JVM", "org.apache.spark.api.python.*") in given
        assert gateway.proc is begun.process
        jvm.end(begun, at_work=False)
        assert not begun.told_in.parent.exists()

    def test_an_early_daemon_has_the_environment_of_workers(self, monkeypatch: pytest.MonkeyPatch) -> None:
        begun: list[Any] = []
        popen = subprocess.Popen

        def start(command: list[str], **settings: Any) -> Any:
            begun.append((command, settings["env"]))
            return popen(["cat"], **{**settings, "preexec_fn": None})

        stand_in(monkeypatch, jvm, "subprocess", Popen=start)
        started = self.begin("", monkeypatch, worker_environment={"HOME": "/elsewhere"})
        (_, of_java), (command, of_early) = begun
        assert command == [sys.executable, "-m", "udfs.worker_daemon", "--early"]
        assert of_early == {**of_java, "HOME": "/elsewhere"}
        assert of_java[jvm.EARLY_DAEMON] == str(started.early_directory) + "/early"
        jvm.end(started, at_work=False)
        assert started.early_directory is not None
        assert not started.early_directory.exists()
