"""What becomes of the errors of tasks."""

from __future__ import annotations

import subprocess
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import SparkContext
from pyspark.errors import PySparkException

from jobs.contract.report import failure_report
from jobs.spark import spark_errors
from storeformat import errors


class TestErrorsOfTasks:
    def test_ours_keep_their_class(self) -> None:
        text = 'x\n  File "a.py", line 1\nstoreformat.errors.DamagedLog: bad size (/log, offset 7)\n\n\tat org.apache'
        cause = spark_errors.raised_by_task(spark_errors.RAISED.findall(text))
        assert type(cause) is errors.DamagedLog
        assert failure_report("rebuild", cause).error_lines == ["error: bad size (/log, offset 7)"]

    def test_a_full_disk_is_a_full_disk(self) -> None:
        text = "OSError: [Errno 28] No space left on device: '/full/x'\n"
        cause = spark_errors.raised_by_task(spark_errors.RAISED.findall(text))
        assert isinstance(cause, OSError)
        assert failure_report("rebuild", cause).exit_code == 74
        assert failure_report("rebuild", cause)["path"] == "/full/x"

    def test_an_executor_without_our_dependencies_is_named(self) -> None:
        cause = spark_errors.raised_by_task([("ModuleNotFoundError", "No module named 'numpy'")])
        assert isinstance(cause, errors.DependencyMissing)
        assert str(cause) == "the executors' Python cannot run this program: No module named 'numpy'"
        assert cause.advice == (
            "name one with numpy and pyarrow in PYSPARK_PYTHON, or ship one: --archives env.tar.gz#env"
        )

    def test_the_last_that_is_ours_counts(self) -> None:
        cause = spark_errors.raised_by_task([("Refused", "one"), ("DamagedLog", "two"), ("KeyError", "three")])
        assert (type(cause), str(cause)) == (errors.DamagedLog, "two")
        cause = spark_errors.raised_by_task([("FileNotFoundError", "[Errno 2] No such file: '/a'"), ("OSError", "odd")])
        assert isinstance(cause, OSError)
        assert (cause.errno, cause.strerror, cause.filename) == (2, "No such file", "/a")
        assert spark_errors.raised_by_task([("annotations", "no class"), ("print", "no class")]) is None

    def test_others_are_nobodys(self) -> None:
        assert spark_errors.raised_by_task([("ValueError", "bad"), ("SparkException", "Job aborted")]) is None


def test_a_cluster_that_ends_spark_is_no_defect_of_ours() -> None:
    said = "org.apache.spark.SparkException: Job 0 cancelled because SparkContext was shut down"
    with pytest.raises(errors.WriteFailed) as raised, spark_errors.plain_errors():
        raise PySparkException(said)
    assert failure_report("rebuild", raised.value).exit_code == 74


@pytest.mark.parametrize(
    ("said", "helps"),
    [
        (
            "Total size of serialized results of 209 tasks (1028.0 MiB) is bigger than spark.driver.maxResultSize",
            "spark.driver.maxResultSize=0",
        ),
        ("java.lang.OutOfMemoryError: Java heap space", "--driver-memory"),
    ],
)
def test_too_little_memory_is_no_defect_of_ours(said: str, helps: str) -> None:
    with pytest.raises(errors.WriteFailed, match="Spark has not enough memory") as raised, spark_errors.plain_errors():
        raise PySparkException(f"org.apache.spark.SparkException: Job aborted due to stage failure: {said}")
    report = failure_report("rebuild", raised.value)
    assert report.exit_code == 74
    assert helps in "".join(report.error_lines)


def test_an_executor_without_a_python_is_no_defect_of_ours() -> None:
    said = (
        "org.apache.spark.SparkException: Job aborted due to stage failure: Lost task 0.3 in stage 0.0 (TID 9) (node-2 "
        "executor 1): org.apache.spark.SparkException: \nError from python worker:\n  Python 3.12 is needed on node-2\n"
        "PYTHONPATH was:\n  /x.zip\norg.apache.spark.SparkException: EOFException occurred while reading the port"
    )
    with pytest.raises(errors.DependencyMissing) as raised, spark_errors.plain_errors():
        raise PySparkException(said)
    assert str(raised.value).startswith(
        "the executors' Python cannot run this program: Python 3.12 is needed on node-2"
    )
    assert failure_report("rebuild", raised.value).exit_code == 69


class Ended:
    """A JVM as subprocess knows it."""

    def __init__(self, code: int | None) -> None:
        self.code = code
        self.patience: float = 0

    def wait(self, timeout: float) -> int:
        self.patience = timeout
        if self.code is None:
            raise subprocess.TimeoutExpired("java", timeout)
        return self.code


@pytest.mark.parametrize(
    ("code", "said"), [(None, None), (0, "exit code 0"), (1, "exit code 1"), (-9, "SIGKILL"), (-1, "SIGHUP")]
)
def test_how_a_jvm_has_ended(code: int | None, said: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    process = Ended(code)
    monkeypatch.setattr(SparkContext, "_gateway", SimpleNamespace(proc=process))
    assert spark_errors.exit_code_of_jvm() == said
    assert process.patience == 3
    if said is not None:
        with pytest.raises(errors.WriteFailed) as raised, spark_errors.plain_errors():
            raise ConnectionError("gone")
        assert str(raised.value) == f"Spark's JVM has ended ({said})"
        assert raised.value.advice == "short of memory? --driver-memory gives it more"


@pytest.mark.parametrize("gateway", [None, SimpleNamespace()])
def test_a_jvm_of_somebody_else(gateway: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkContext, "_gateway", gateway)
    assert spark_errors.exit_code_of_jvm() is None
    with pytest.raises(EOFError, match="gone"), spark_errors.plain_errors():
        raise EOFError("gone")


def test_what_fails_after_an_interruption_is_that_interruption() -> None:
    def failing() -> None:
        try:
            try:
                raise KeyboardInterrupt("first")
            finally:
                raise ValueError("in between")
        finally:
            raise ConnectionError("gone")

    with pytest.raises(KeyboardInterrupt, match="first"), spark_errors.plain_errors():
        failing()
    assert spark_errors.interruption_that_caused(ValueError()) is None


def test_the_reason_is_that_of_the_task_or_sparks_first() -> None:
    trace = "\nTraceback (most recent call last)\n  File x\nValueError: of the task\n"
    for said, reason in (
        ("a.b.SparkException: of Spark" + trace + "KeyError: the last", "KeyError: the last"),
        ("a.b.SparkException: of Spark\na.b.Another: later", "SparkException: of Spark"),
        ("  no class at all\nmore", "no class at all"),
    ):
        with pytest.raises(spark_errors.SparkError) as raised, spark_errors.plain_errors():
            raise PySparkException(said)
        assert str(raised.value) == reason
