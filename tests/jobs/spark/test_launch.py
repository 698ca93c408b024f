"""What Spark's JVM is started with."""

from __future__ import annotations

import os
import shlex
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from support.patching import stand_in

from jobs.cli import command_line
from jobs.cli.command_line import JOBS
from jobs.contract.report import failure_report
from jobs.spark import launch, spark_errors
from storeformat import errors
from storeformat.errors import DependencyMissing, UsageError


@pytest.fixture(autouse=True)
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "java" / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.touch(0o755)
    for name in ("PYTHONPATH", "SPARK_DRIVER_MEMORY", "SPARK_SUBMIT_OPTS", "SPARK_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    return path


def words(options: list[str], **settings: Any) -> list[str]:
    return shlex.split(launch.environment("/scratch", options, **settings)["PYSPARK_SUBMIT_ARGS"])


def test_options_of_the_user_come_last() -> None:
    given = ["--conf", "spark.x=a b", "--master", "local[3]"]
    assert words(given) == ["--conf", "spark.ui.showConsoleProgress=false", *given, "pyspark-shell"]


@pytest.mark.parametrize("lasts", [False, True])
def test_the_options_of_the_jvm(lasts: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "spark.jsa").touch()
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-Dmine=1")
    found = launch.environment("/scratch", lasts=lasts, debug=not lasts)
    flags = shlex.split(found["SPARK_SUBMIT_OPTS"])
    assert flags[0] == f"-Drocketmq.store.spark.log.level={'off' if lasts else 'info'}"
    assert {"-Djava.io.tmpdir=/scratch", f"-XX:SharedArchiveFile={tmp_path}/spark.jsa"} <= set(flags)
    assert ("-XX:TieredStopAtLevel=1" in flags, flags[-1]) == (not lasts, "-Dmine=1")
    assert (found["PYTHONPATH"], found["SPARK_DRIVER_MEMORY"]) == (str(launch.ROOT), "2g")


def test_delta_comes_with_its_jars_and_those_of_the_user(tmp_path: Path) -> None:
    with pytest.raises(DependencyMissing, match=r"Delta's jars are not there"):
        words([], delta=True)
    packages = ["--packages", "io.delta:delta-spark_4.2_2.13:4.4.0"]
    assert "--jars" not in words(packages, delta=True)
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "d.jar").touch()
    found = words(["--name", "x"], delta=True)
    assert found[found.index("--jars") + 1] == f"{tmp_path}/jars/d.jar"
    assert "spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension" in found
    assert f"{tmp_path}/jars/d.jar,/a.jar" in words(["--jars", "/a.jar"], delta=True)


def test_no_java_is_named(java: Path) -> None:
    java.unlink()
    with pytest.raises(DependencyMissing, match="Spark needs Java 17 or later: there is none"):
        launch.environment("/scratch")


def test_settings_where_the_user_makes_no_choice() -> None:
    cluster, local = launch.defaults("/scratch", local=False), launch.defaults("/scratch", local=True)
    assert cluster.items() < local.items()
    more = {"spark.driver.host": "127.0.0.1", "spark.authenticate": "true", "spark.local.dir": "/scratch"}
    assert more.items() <= local.items()
    assert "spark.master" not in local
    place = "spark.python.unix.domain.socket.dir"
    assert (local[place], launch.defaults("/" + "x" * 90, local=True).get(place)) == ("/scratch", None)


def test_executors_get_the_program_as_a_zip(tmp_path: Path) -> None:
    with zipfile.ZipFile(launch.application_zip(str(tmp_path))) as archive:
        names = set(archive.namelist())
    assert {"jobs/__main__.py", "udfs/log/scan.py", "storeformat/store/settings.csv"} <= names
    assert not any("__pycache__" in name for name in names)


def test_in_cluster_mode_the_process_becomes_spark_submit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    became: list[list[str]] = []
    stand_in(monkeypatch, launch, "os", execv=lambda program, line: became.append(line))
    monkeypatch.setenv("SPARK_HOME", "/spark")
    monkeypatch.setattr(launch, "application_zip", lambda directory: "/ours.zip")
    launch.become_spark_submit(["--deploy-mode", "cluster", "--py-files", "/a.zip"], ["load", "--store", "s"])
    program = ["/spark/bin/spark-submit", "--deploy-mode", "cluster", "--py-files", "/a.zip"]
    assert became == [
        [*program, "--py-files", "/a.zip,/ours.zip", f"{launch.ROOT}/jobs/__main__.py", "load", "--store", "s"]
    ]


def test_a_program_that_makes_its_own_session_is_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYSPARK_SUBMIT_ARGS", "PYSPARK_PYTHON", "PYTHONPATH", "SPARK_DRIVER_MEMORY", "SPARK_SUBMIT_OPTS"):
        monkeypatch.setenv(name, "")  # as it is to be afterwards
    monkeypatch.setattr(launch, "STARTED_BY_SPARK", False)
    launch.prepare(["--name", "x"])
    assert os.environ["PYSPARK_SUBMIT_ARGS"].endswith("--name x pyspark-shell")


class TestSplittingOffSparksOptions:
    @pytest.mark.parametrize(
        ("line", "options"),
        [
            ("rebuild --store demo", ""),
            ("--master local[2] rebuild --store S", "--master local[2]"),
            ("--name demo --conf spark.x=report -v rebuild", "--name demo --conf spark.x=report -v"),
            ("--master=yarn --deploy-mode client verify --store S", "--master=yarn --deploy-mode client"),
            ("-c a=b load", "-c a=b"),
            ("nonsense rebuild", ""),
            ("--help", ""),
            ("", ""),
        ],
    )
    def test_up_to_the_first_word_that_is_a_job_and_no_value(self, line: str, options: str) -> None:
        words = line.split()
        assert command_line.split_command_line(words, JOBS) == (options.split(), words[len(options.split()) :])

    def test_an_unknown_option_before_the_job_is_named(self) -> None:
        for words in (["--store", "S", "rebuild"], ["-v", "--store=S", "rebuild"], ["--verbose=1", "rebuild"]):
            word = next(word for word in words if word not in command_line.SWITCHES)
            with pytest.raises(UsageError, match=f"^{word} is not an option of spark-submit$"):
                command_line.split_command_line(words, JOBS)
        assert command_line.split_command_line(["--store", "S"], JOBS) == ([], ["--store", "S"])
        assert command_line.split_command_line(["--master"], JOBS) == (["--master"], [])

    def test_values_of_options(self) -> None:
        line = "--jars c --jars=d --name --conf --jarsx x --jarsa=b --jars"
        assert launch.values_of(line.split(), "--jars") == ["c", "d"]


# --------------------------------------------------------------------------------- What becomes of the errors of Spark
SPARKS = "org.apache.spark.SparkException:"


def said(text: str) -> Exception:
    """Returns what becomes of an error of Spark's with this text."""
    with pytest.raises(Exception) as raised, spark_errors.plain_errors():  # noqa: PT011  (of any kind)
        raise PySparkException(text)
    return raised.value


TRACE = "\nTraceback (most recent call last):\n  File x\n"


@pytest.mark.parametrize(
    ("text", "exit_code", "reason", "helps"),
    [
        (f"{SPARKS} Job 0 cancelled because SparkContext was shut down", 74, "was shut down", ""),
        (f"{SPARKS} x\nCaused by: java.lang.UnsatisfiedLinkError: /t/z.so: failed to map segment\n\tat x",
         69, "Spark failed: /t/z.so: failed to map segment", ""),
        (": java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext.",
         69, "", "does the master answer?"),
        ((f"{SPARKS} Job aborted due to stage failure: Total size of serialized results of 209 tasks (1028.0 MiB) is "
         "bigger than spark.driver.maxResultSize"), 74, "Spark failed: ", "spark.driver.maxResultSize=0"),
        (f"{SPARKS} Job aborted due to stage failure: java.lang.OutOfMemoryError: Java heap space",
         74, "Spark failed: ", "--driver-memory"),
        (f"{SPARKS}{TRACE}ModuleNotFoundError: No module named 'numpy'\n",
         69, "Spark failed: No module named 'numpy'", "name one with numpy and pyarrow in PYSPARK_PYTHON"),
        ((f"{SPARKS} Job aborted: Lost task 0.3 in stage 0.0 (TID 9) (node-2 executor 1): {SPARKS} "
         "\nError from python worker:\n  Python 3.12 is needed on node-2\nPYTHONPATH was:\n  /x.zip\n"
         "org.apache.spark.SparkException: EOFException occurred while reading the port"),
         69, "Spark failed: Python 3.12 is needed on node-2", ""),
        (f"a.b.SparkException: of Spark{TRACE}ValueError: of the task\nKeyError: the last",
         None, "KeyError: the last", ""),
        ("a.b.SparkException: of Spark\na.b.Another: later", None, "SparkException: of Spark", ""),
        ("  no class at all\nmore", None, "no class at all", ""),
    ],
)  # fmt: skip
def test_what_the_cluster_did_is_no_defect_of_ours(text: str, exit_code: int | None, reason: str, helps: str) -> None:
    error = said(text)
    assert reason in str(error)
    if exit_code is None:
        assert isinstance(error, spark_errors.SparkError)
        return
    report = failure_report("rebuild", error)
    assert report.exit_code == exit_code
    assert helps in "".join(report.error_lines)


def test_a_jvm_that_has_gone_is_named() -> None:
    for error in (ConnectionError("gone"), EOFError("gone")):
        with pytest.raises(errors.WriteFailed, match="Connection refused: gone") as raised, spark_errors.plain_errors():
            raise error
        assert "Spark's JVM has ended" in str(raised.value.advice)


def test_what_fails_after_an_interruption_is_that_interruption() -> None:
    def failing() -> None:
        try:
            raise KeyboardInterrupt("first")
        finally:
            raise ConnectionError("gone")

    with pytest.raises(KeyboardInterrupt, match="first"), spark_errors.plain_errors():
        failing()
