"""What becomes of the errors of Spark."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException

from jobs.contract.report import failure_report
from jobs.spark import spark_errors
from storeformat import errors

SPARKS = "org.apache.spark.SparkException:"


def said(text: str) -> Exception:
    """Returns what becomes of an error of Spark's with this text."""
    with pytest.raises(Exception) as raised, spark_errors.plain_errors():  # noqa: PT011  (of any kind)
        raise PySparkException(text)
    return raised.value


def test_a_cluster_that_ends_spark_is_no_defect_of_ours() -> None:
    error = said("org.apache.spark.SparkException: Job 0 cancelled because SparkContext was shut down")
    assert failure_report("rebuild", error).exit_code == 74


def test_a_place_from_which_nothing_may_run_is_no_defect_of_ours() -> None:
    error = said(f"{SPARKS} x\nCaused by: java.lang.UnsatisfiedLinkError: /t/z.so: failed to map segment\n\tat x")
    assert str(error) == "Spark failed: /t/z.so: failed to map segment"
    assert failure_report("rebuild", error).exit_code == 69


def test_a_master_that_is_down_is_no_defect_of_ours() -> None:
    report = failure_report(
        "rebuild", said(": java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext.")
    )
    assert (report.exit_code, "does the master answer?" in report.error_lines[1]) == (69, True)


@pytest.mark.parametrize(
    ("text", "helps"),
    [
        (
            "Total size of serialized results of 209 tasks (1028.0 MiB) is bigger than spark.driver.maxResultSize",
            "spark.driver.maxResultSize=0",
        ),
        ("java.lang.OutOfMemoryError: Java heap space", "--driver-memory"),
    ],
)
def test_too_little_memory_is_no_defect_of_ours(text: str, helps: str) -> None:
    report = failure_report("rebuild", said(f"{SPARKS} Job aborted due to stage failure: {text}"))
    assert report["error"].startswith("Spark failed: ")
    assert report.exit_code == 74
    assert helps in "".join(report.error_lines)


def test_an_executor_without_our_dependencies_is_named() -> None:
    error = said(
        f"{SPARKS}\nTraceback (most recent call last):\n  File x\nModuleNotFoundError: No module named 'numpy'\n"
    )
    assert isinstance(error, errors.DependencyMissing)
    assert str(error) == "Spark failed: No module named 'numpy'"
    assert "name one with numpy and pyarrow in PYSPARK_PYTHON" in str(error.advice)


def test_an_executor_without_a_python_is_no_defect_of_ours() -> None:
    text = (
        "org.apache.spark.SparkException: Job aborted due to stage failure: Lost task 0.3 in stage 0.0 (TID 9) (node-2 "
        "executor 1): org.apache.spark.SparkException: \nError from python worker:\n  Python 3.12 is needed on node-2\n"
        "PYTHONPATH was:\n  /x.zip\norg.apache.spark.SparkException: EOFException occurred while reading the port"
    )
    error = said(text)
    assert str(error) == "Spark failed: Python 3.12 is needed on node-2"
    assert failure_report("rebuild", error).exit_code == 69


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


def test_the_reason_is_that_of_the_task_or_sparks_first() -> None:
    trace = "\nTraceback (most recent call last)\n  File x\nValueError: of the task\n"
    for text, reason in (
        ("a.b.SparkException: of Spark" + trace + "KeyError: the last", "KeyError: the last"),
        ("a.b.SparkException: of Spark\na.b.Another: later", "SparkException: of Spark"),
        ("  no class at all\nmore", "no class at all"),
    ):
        error = said(text)
        assert isinstance(error, spark_errors.SparkError)
        assert str(error) == reason
