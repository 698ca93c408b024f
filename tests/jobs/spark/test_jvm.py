"""The JVM's output, and what is left after its end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession, SQLContext
from support.patching import stand_in

from jobs.spark import jvm
from jobs.spark.launch import Launch
from storeformat.errors import DependencyMissing


def planned(**more: Any) -> Launch:
    """What a local Spark is started with, less what a test says otherwise."""
    given = {
        "arguments": (), "environment": dict(os.environ), "directory": None, "python": sys.executable,
        "may_be_killed": False, "worker_environment": None,
    }  # fmt: skip
    return Launch(**{**given, **more})


@pytest.fixture
def spark_context(monkeypatch: pytest.MonkeyPatch) -> Any:
    """PySpark's class as it is while a context runs, with a server for accumulators."""
    ended: list[str] = []
    server = SimpleNamespace(shutdown=lambda: ended.append("accumulators"), ended=ended)
    for name, value in (
        ("_active_spark_context", SimpleNamespace(_accumulatorServer=server)), ("_gateway", "one"), ("_jvm", "one"),
    ):  # fmt: skip
        monkeypatch.setattr(SparkContext, name, value)
    monkeypatch.setattr(SparkSession, "_instantiatedSession", None)  # that of other tests comes back
    monkeypatch.setattr(SQLContext, "_instantiatedContext", None)
    return server


@pytest.mark.parametrize(("harmless", "code"), [(True, -signal.SIGKILL), (False, 0)])
def test_only_a_jvm_with_nothing_to_write_is_killed(
    harmless: bool, code: int, spark_context: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    process, daemon = (
        subprocess.Popen(["sh", "-c", program], stdin=subprocess.PIPE, preexec_fn=os.setpgrp)  # noqa: PLW1509
        for program in ("read line; exit 0", "sleep 600")
    )
    said: list[str] = []
    monkeypatch.setattr(SparkContext, "_gateway", SimpleNamespace(proc=process))
    alive, held = os.pipe()
    os.close(held)
    begun = jvm.Jvm(planned(may_be_killed=harmless), process, Path("/nonexistent/connect"), daemon, alive)
    jvm.end(begun, SimpleNamespace(shutdown=lambda: said.append("shutdown")))
    assert (process.returncode, daemon.returncode, said) == (code, -signal.SIGKILL, ["shutdown"])
    assert (SparkContext._active_spark_context, SparkContext._gateway, SparkContext._jvm) == (None, None, None)


def test_one_that_does_not_end_is_killed(monkeypatch: pytest.MonkeyPatch, spark_context: Any) -> None:
    """And what PySpark knows of another JVM stays."""
    monkeypatch.setattr(jvm, "_PATIENCE", 0)
    process = subprocess.Popen(["sleep", "600"], stdin=subprocess.PIPE)
    jvm.end(jvm.Jvm(planned(), process, Path("/nonexistent/connect"), None, os.open(os.devnull, os.O_RDONLY)))
    assert (process.returncode, SparkContext._gateway) == (-signal.SIGKILL, "one")


def test_the_end_is_that_of_the_last_worker(tmp_path: Path) -> None:
    """A worker that is still being killed would write into what the job is about to remove."""
    alive, held = os.pipe()
    daemon = subprocess.Popen(["true"], stdin=subprocess.PIPE)
    worker = subprocess.Popen(["sh", "-c", "sleep 0.3; touch written"], pass_fds=[held], cwd=tmp_path)
    os.close(held)
    process = subprocess.Popen(["true"], stdin=subprocess.PIPE)
    jvm.end(jvm.Jvm(planned(), process, Path("/nonexistent/connect"), daemon, alive))
    assert (tmp_path / "written").exists()
    assert worker.wait(timeout=60) == 0


class TestBegin:
    """What is begun, with a shell in Java's place."""

    @pytest.fixture(autouse=True)
    def _here(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        monkeypatch.setattr(jvm, "LONGEST_SOCKET_PATH", 10_000)

    @staticmethod
    def begin(program: str, monkeypatch: pytest.MonkeyPatch, **more: Any) -> jvm.Jvm:
        submit = Path(tempfile.gettempdir(), "bin", "spark-submit")
        submit.parent.mkdir()
        submit.write_text(f"#!/bin/sh\n{program}\n")
        submit.chmod(0o700)
        environment = {**os.environ, "SPARK_HOME": tempfile.gettempdir()}
        return jvm.begin(planned(environment=environment, **more))

    def test_its_output_comes_to_stderr(
        self, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
    ) -> None:
        begun = self.begin("echo of the JVM; echo $PYTHONHASHSEED $SPARK_CONNECT_MODE >&2", monkeypatch)
        begun.process.wait(timeout=120)
        assert capfd.readouterr() == ("", "of the JVM\n0 0\n")
        assert begun.daemon is None
        with pytest.raises(DependencyMissing) as error:
            jvm.connect(begun)
        assert str(error.value) == "Spark's JVM did not start (exit code 0)"
        assert error.value.advice == "what it said is above"
        jvm.end(begun)
        assert [path.name for path in tmp_path.iterdir()] == ["bin"]

    def test_the_port_and_the_secret_are_what_it_wrote(
        self, monkeypatch: pytest.MonkeyPatch, spark_context: Any
    ) -> None:
        client = SimpleNamespace(jvm="the JVM")
        given: list[Any] = []
        monkeypatch.setattr("pyspark.java_gateway.ClientServer", lambda **named: given.append(named) or client)
        monkeypatch.setattr("pyspark.java_gateway.java_import", lambda *words: given.append(words))
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
        assert not [name for name in os.environ if name.startswith("PYSPARK_GATEWAY")], "the secret"
        assert (SparkContext._gateway, SparkContext._jvm) == (gateway, "the JVM"), "where PySpark looks for them"
        assert not begun.told_in.exists(), "the secret"
        jvm.end(begun)
        assert not begun.told_in.parent.exists()

    @pytest.mark.parametrize("room", [True, False])
    def test_a_daemon_begins_beside_it_where_its_socket_fits(self, room: bool, monkeypatch: pytest.MonkeyPatch) -> None:
        begun: list[Any] = []
        popen = subprocess.Popen

        def start(command: list[str], **settings: Any) -> Any:
            begun.append((command, settings["env"]))
            return popen(["cat"], **settings)

        stand_in(monkeypatch, jvm, "subprocess", Popen=start)
        if not room:
            monkeypatch.setattr(jvm, "LONGEST_SOCKET_PATH", 10)
        started = self.begin("", monkeypatch, worker_environment={"HOME": "/elsewhere"})
        if room:
            (_, of_java), (command, of_daemon) = begun
            assert command == [sys.executable, "-m", "udfs.worker_daemon", "--early"]
            assert of_daemon == {**of_java, "HOME": "/elsewhere"}
            assert of_java[jvm.EARLY] == str(started.told_in.with_name("daemon"))
        else:
            ((_, of_java),) = begun
            assert jvm.EARLY not in of_java
        jvm.end(started)
        assert not started.told_in.parent.exists()


class TestWhatItNeeds:
    @pytest.mark.parametrize(
        ("said", "found"),
        [(None, "missing"), ("Not Java", "no Java"), ('version "1.8.0_392"', "8"), ('version "16.0.2"', "16")],
    )
    def test_no_java_or_an_older_one(
        self, said: str | None, found: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("JAVA_HOME", str(tmp_path))
        java = tmp_path / "bin" / "java"
        java.parent.mkdir()
        if said is not None:
            java.write_text(f"#!/bin/sh\necho '{said}' >&2\n")
            java.chmod(0o700)
        with pytest.raises(DependencyMissing) as error:
            jvm.require_java()
        assert str(error.value) == f"Spark needs Java 17 or later: {java} is {found}"
        assert error.value.advice == "install it, or set JAVA_HOME"

    def test_a_user_id_without_a_name(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """As containers have them: Hadoop's login would end the JVM after a second with a trace."""

        def unknown(number: int) -> None:
            raise KeyError(number)

        stand_in(monkeypatch, jvm, "pwd", getpwuid=unknown)
        with pytest.raises(
            DependencyMissing, match=r"^Spark needs a user with a name, and user id \d+ has no passwd entry$"
        ):
            jvm.begin(planned())
