"""What becomes of the errors of tasks."""

from __future__ import annotations

import pytest
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

    def test_others_are_nobodys(self) -> None:
        assert spark_errors.raised_by_task([("ValueError", "bad"), ("SparkException", "Job aborted")]) is None


def test_a_cluster_that_ends_spark_is_no_defect_of_ours() -> None:
    said = "org.apache.spark.SparkException: Job 0 cancelled because SparkContext was shut down"
    with pytest.raises(errors.WriteFailed) as raised, spark_errors.plain_errors():
        raise PySparkException(said)
    assert failure_report("rebuild", raised.value).exit_code == 74


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
