"""The line of each broker, and what is said of all."""

from __future__ import annotations

from typing import Any

import pytest

from jobs.cli.fleet_answer import answer, outcome
from jobs.cli.fleet_stores import Member
from jobs.contract.options import VerifyOptions
from jobs.contract.report import Report
from jobs.contract.reporter import Reporter


def test_a_line_has_what_matters() -> None:
    assert outcome(Report("load", rows=1234, skipped=False, seconds=2.04)) == "ok, 1,234 rows, 2.0 s"
    assert outcome(Report("load", rows=0, skipped=True, seconds=0.5)) == "ok, nothing new, 0.5 s"
    damaged = Report("inspect", "damaged", messages=5, lost_messages_at_least=2, damaged_ranges=[{}], seconds=1)
    assert outcome(damaged) == "damaged, 5 messages, 2 lost at least, 1 damaged ranges, 1.0 s"
    differing = Report(
        "verify", "differences", messages=5, counts={"missing_unit": 7}, hazard_counts={"index_order": 1}
    )
    assert outcome(differing) == "differences, 5 messages, 7 missing_unit, 1 index_order"
    assert outcome(Report("verify", "error", error="gone (/s)")) == "error, gone (/s)"


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({}, "ok"),
        ({"rows": 0, "messages": 7}, "ok, 0 rows"),
        ({"messages": 0}, "ok, 0 messages"),
        ({"messages": 12, "lost_messages": 0, "lost_messages_at_least": 0, "damaged_ranges": []}, "ok, 12 messages"),
        ({"messages": 1234}, "ok, 1,234 messages"),
        ({"lost_messages": 1234, "lost_messages_at_least": 2345}, "ok, 1,234 lost, 2,345 lost at least"),
        ({"counts": {"a": 1234, "b": 1}, "hazard_counts": {"c": 2345}}, "ok, 1,234 a, 1 b, 2,345 c"),
        ({"counts": None, "hazard_counts": None, "damaged_ranges": None}, "ok"),
        ({"damaged_ranges": [{}] * 1234}, "ok, 1,234 damaged ranges"),
        ({"seconds": 0.06}, "ok, 0.1 s"),
        ({"seconds": 2.0, "error": "gone"}, "ok, gone"),
    ],
)  # fmt: skip
def test_what_is_not_there_is_not_said(facts: dict[str, Any], said: str) -> None:
    assert outcome(Report("verify", **facts)) == said


def test_all_of_a_report() -> None:
    members = [Member(VerifyOptions(store="/s/a"), "east", "a"), Member(VerifyOptions(store="/s/b"), None, None)]
    reports = [
        Report("verify", bytes=5, messages=4, lost_messages=None, cluster="x", broker="y", store="/z"),
        Report("verify", "differences", bytes=7, lost_messages=2),
    ]
    report = answer("verify", list(zip(members, reports, strict=True)), Reporter(quiet=True))
    report.pop("seconds")
    assert report == {
        "job": "verify", "status": "differences", "statuses": {"ok": 1, "differences": 1}, "bytes": 12, "messages": 4,
        "lost_messages": 2, "notes": [], "brokers": [
            {"cluster": "east", "broker": "a", "store": "/s/a", "exit_code": 0, "status": "ok", "bytes": 5,
             "messages": 4, "lost_messages": None},
            {"cluster": None, "broker": None, "store": "/s/b", "exit_code": 1, "status": "differences", "bytes": 7,
             "lost_messages": 2},
        ],
    }  # fmt: skip
    assert report.exit_code == 1
    assert report.to_text().splitlines() == [
        "verify: 2 brokers, 1 ok, 1 differences", "east/a  ok, 4 messages", "/s/b    differences, 2 lost",
    ]  # fmt: skip


def test_the_largest_exit_code_counts() -> None:
    reports = [
        Report("load", rows=3, messages=4, cluster="x", store="/elsewhere"),
        Report("load", "refused", error="no"),
        Report("load", "damaged", rows=2, messages=2),
    ]
    members = [Member(VerifyOptions(store=f"/s/{number}"), None, f"b{number}") for number in range(3)]
    report = answer("load", list(zip(members, reports, strict=True)), Reporter(quiet=True))
    assert (report["status"], report.exit_code, report["rows"], report["messages"]) == ("refused", 2, 5, 6)
    assert report["brokers"][0] == {
        "cluster": None, "broker": "b0", "store": "/s/0", "exit_code": 0, "status": "ok", "rows": 3, "messages": 4,
    }  # fmt: skip
    assert report.to_text().splitlines()[1:] == ["b0  ok, 3 rows", "b1  refused, no", "b2  damaged, 2 rows"]
