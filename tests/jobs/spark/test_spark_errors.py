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
