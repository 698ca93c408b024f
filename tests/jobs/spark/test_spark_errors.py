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
