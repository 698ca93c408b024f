"""The outcome of any job, as a monitoring system reads it: also of one that failed."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from jobs.cli import command_line
from jobs.contract import metrics
from jobs.contract.report import Report


def values(path: Path) -> dict[str, float]:
    families = text_string_to_metric_families(path.read_text())
    return {sample.name: sample.value for family in families for sample in family.samples}


def test_each_number_of_the_report_is_a_gauge(tmp_path: Path) -> None:
    report = Report("load", rows=4741, from_offset=0, skipped=False, table="/t", notes=["a"], seconds=2.5)
    metrics.write_report(str(tmp_path / "load.prom"), report, "s3://KEY:SECRET@bucket/store")
    told = values(tmp_path / "load.prom")
    assert told.pop("rocketmq_store_load_time_seconds") > 1.7e9
    assert told == {
        "rocketmq_store_load_rows": 4741,
        "rocketmq_store_load_from_offset": 0,
        "rocketmq_store_load_duration_seconds": 2.5,
        "rocketmq_store_load_ok": 1,
        "rocketmq_store_load_exit_code": 0,
    }
    assert "SECRET" not in (tmp_path / "load.prom").read_text()


def test_brokers_of_a_table_are_no_fleet(tmp_path: Path) -> None:
    metrics.write_report(str(tmp_path / "m"), Report("report", brokers=["c/b"], messages=5), "/t")
    assert values(tmp_path / "m")["rocketmq_store_report_messages"] == 5


@pytest.mark.parametrize("job", ["restore", "verify"])
def test_a_failure_is_told_in_place_of_an_earlier_success(
    job: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = tmp_path / "job.prom"
    told.write_text("rocketmq_store_job_ok 1\n")
    code = command_line.main([job, "--store", str(tmp_path / "absent"), "--metrics", str(told)])
    assert code == 66, capsys.readouterr().err
    assert values(told)[f"rocketmq_store_{job}_ok"] == 0
    assert values(told)[f"rocketmq_store_{job}_exit_code"] == 66


def test_metrics_that_cannot_be_written_fail_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    line = ["preflight", "--store", str(tmp_path / "absent"), "--metrics", str(tmp_path / "file" / "x.prom")]
    assert command_line.main(line) == 66
    assert "error: metrics: cannot be written: File exists (" in capsys.readouterr().err
