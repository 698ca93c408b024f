"""The outcome of any job, as a monitoring system reads it: also of one that failed."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from support.here import tasks_here
from support.patching import stand_in

from jobs.cli import command_line
from jobs.contract import metrics
from jobs.contract.report import Report
from storeformat.errors import DependencyMissing


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


@pytest.mark.parametrize("job", ["restore", "verify"])
def test_a_failure_is_told_in_place_of_an_earlier_success(
    job: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = tmp_path / "job.prom"
    told.write_text("rocketmq_store_job_ok 1\n")
    with tasks_here():
        code = command_line.main([job, "--store", str(tmp_path / "absent"), "--metrics", str(told)])
    assert code == 66, capsys.readouterr().err
    assert values(told)[f"rocketmq_store_{job}_ok"] == 0
    assert values(told)[f"rocketmq_store_{job}_exit_code"] == 66


def test_metrics_that_cannot_be_written_fail_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    line = ["preflight", "--store", str(tmp_path / "absent"), "--metrics", str(tmp_path / "file" / "x.prom")]
    assert command_line.main(line) == 66
    said = capsys.readouterr().err  # root opens the directory first, others make it
    assert re.search(r"error: metrics: cannot be written: (File exists|Not a directory) \(", said)


def test_the_whole_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reasons and differences by what they are of."""
    stand_in(monkeypatch, metrics, "time", time=lambda: 1_700_000_000.5)
    reasons = [{"rule": "r", "unsafe": True}, {"rule": "r", "unsafe": True}, {"rule": "s", "unsafe": False}]
    facts = {"some_rows": 5, "flag": True, "answer": "not safe to start", "reasons": reasons, "counts": {"gone": 7}}
    report = Report("verify", "differences", seconds=2, brokers=["c/b"], **facts)
    metrics.write_report(str(tmp_path / "m"), report, "s3://K:S@b/s")
    store = 'store="s3://***@b/s"'
    expected = {
        ("duration_seconds", "How long it took"): {store: 2.0},
        ("some_rows", "The report's some rows"): {store: 5.0},
        ("safe", "1 where the broker may be started, 0 where not"): {store: 0.0},
        ("ok", "1 where the status is ok, 0 where not"): {store: 0.0},
        ("exit_code", "What the process ended with"): {store: 1.0},
        ("time_seconds", "When this was found out, in seconds since 1970"): {store: 1_700_000_000.5},
        ("reasons", "What was found"): {
            f'rule="r",severity="unsafe",{store}': 2.0,
            f'rule="s",severity="note",{store}': 1.0,
        },
        ("differences", "What was found"): {f'cause="gone",{store}': 7.0},
    }
    found: dict[tuple[str, str], dict[str, float]] = {}
    for family in text_string_to_metric_families((tmp_path / "m").read_text()):
        name = family.name.removeprefix("rocketmq_store_verify_")
        for sample in family.samples:
            labels = ",".join(f'{key}="{value}"' for key, value in sorted(sample.labels.items()))
            found.setdefault((name, family.documentation), {})[labels] = sample.value
    assert found == expected


def test_a_store_that_was_not_named_has_an_empty_label(tmp_path: Path) -> None:
    metrics.write_report(str(tmp_path / "m"), Report("demo"), "")
    assert 'rocketmq_store_demo_ok{store=""} 1.0' in (tmp_path / "m").read_text().splitlines()
    metrics.write_report(str(tmp_path / "m"), Report("demo"), "here")
    assert f'rocketmq_store_demo_ok{{store="{Path.cwd()}/here"}} 1.0' in (tmp_path / "m").read_text().splitlines()


def test_a_path_that_is_not_utf8_is_a_label_too(tmp_path: Path) -> None:
    metrics.write_report(str(tmp_path / "m"), Report("demo"), "/t\udcff\n")
    assert 'rocketmq_store_demo_ok{store="/t?\\n"} 1.0' in (tmp_path / "m").read_text().splitlines()


def test_metrics_need_their_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(DependencyMissing) as caught:
        metrics.write_report(str(tmp_path / "m"), Report("demo"), "")
    assert str(caught.value) == "--metrics needs the package prometheus-client"
    assert caught.value.advice == "./spark-submit.sh --setup installs it"
