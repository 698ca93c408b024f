"""The line of each broker, and what is said of all."""

from __future__ import annotations

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
