"""What a report says to a terminal."""

from __future__ import annotations

from datetime import timedelta

import pytest
from support.report_facts import ABOUT, facts, group, pictures

from jobs.contract.options import ReportOptions
from jobs.contract.reporter import Reporter
from jobs.report import page, report
from jobs.report.facts import CHECKS, to_text, with_rates


def test_messages_without_a_time() -> None:
    timeless = {"cluster": "c", "broker": "b", "messages": 1, "bytes": 9, "first_stored": None, "last_stored": None}
    groups = [group("t", 1, 9) | {"first_stored": None, "last_stored": None}]
    without = facts(brokers=[timeless], groups=groups)
    drawn = page.render(without, page.Pictures(timedelta(minutes=1), [], pictures().sizes), ABOUT)
    assert "No message has a store time" in drawn
    assert "1 messages" in to_text(without, report.SHOWN)


def test_text_shows_the_groups_and_what_the_checks_found() -> None:
    gaps = [{"broker": "b", "topic": "t", "queue_id": 0, "kind": "gap", "places": 2, "missing": 1234}]
    text = to_text(facts(checks={name: gaps if name == "gaps" else [] for name in CHECKS}), report.SHOWN)
    assert text.startswith("21 messages, 2.1 kB, 2024-05-30 07:00:00 to 2024-05-30 09:00:00 (2.0 h); c/b&b\n")
    assert "orders  (none)" in text
    assert "1,234 messages are missing in queues" in text
    assert "retries       none" in text


def test_numbers_given_twice_are_told_where_none_is_missing() -> None:
    again = [{"broker": "b", "topic": "t", "queue_id": 0, "kind": "repeat", "places": 3, "missing": 0}]
    text = to_text(facts(checks={name: again if name == "gaps" else [] for name in CHECKS}), report.SHOWN)
    assert "at 3 places offsets restart or occur twice" in text
    assert "are consecutive" not in text


def test_messages_that_came_before_they_were_due() -> None:
    """Nothing comes too early: the table was loaded with another broker's levels."""
    level = {"level": 3, "scheduled": 5, "delivered": 5, "waiting": 0, "overdue": 0, "median_late_ms": -7_950.0}
    for latest, said in (
        (-7_901, "5 delayed messages, 0 overdue; up to 8,000 ms too early"),
        (7, "at most 7 ms late; up"),
    ):
        rows = [level | {"min_late_ms": -8_000, "max_late_ms": latest}]
        text = to_text(facts(checks={name: rows if name == "delays" else [] for name in CHECKS}), report.SHOWN)
        assert said in text
        assert "messageDelayLevel" in text


def test_a_terminal_obeys_no_tag() -> None:
    text = to_text(facts(groups=[group("a\x1b[2J\nb", 1, 100)]), report.SHOWN)
    assert "a\\x1b[2J\\x0ab" in text


def test_text_of_many_groups_says_how_many_it_leaves_out() -> None:
    many = [group(f"t{at}", 1, 100) for at in range(report.SHOWN + 5)]
    assert "... and 5 more" in to_text(facts(groups=many), report.SHOWN)


def test_an_empty_table_has_a_report() -> None:
    empty = facts(brokers=[], groups=[], checks={})
    assert to_text(empty, report.SHOWN) == "The table is empty."
    assert "The table is empty." in page.render(empty, page.Pictures(timedelta(minutes=1), [], []), ABOUT)
    assert report.to_csv(empty).splitlines()[0].startswith("topic,tags,messages,bytes")


@pytest.mark.parametrize(("by", "seconds"), [("tag", 7200), ("hour", 3600), ("date", 86400)])
def test_rates_are_those_of_the_whole_time_or_of_the_hour_or_day_itself(by: str, seconds: int) -> None:
    groups = [group("a", 30, 300), group("b", 10, 1200)]
    for one in groups:
        del one["share"], one["messages_per_second"], one["bytes_per_second"]
    found = with_rates(facts(by=by, groups=groups)).groups
    assert [one["share"] for one in found] == [300 / 2100, 1200 / 2100]
    assert [one["messages_per_second"] for one in found] == [30 / seconds, 10 / seconds]
    assert [one["bytes_per_second"] for one in found] == [300 / seconds, 1200 / seconds]


def test_the_text_of_a_report_is_that_of_its_facts(monkeypatch: pytest.MonkeyPatch) -> None:
    found = facts()
    monkeypatch.setattr(report, "without_spark", lambda *_: found)
    made = report.run(ReportOptions(table="messages"), Reporter(quiet=True))
    assert made.to_text().startswith(to_text(found, report.SHOWN).splitlines()[0])
    assert (made["table"], made["messages"]) == ("messages", 21)
