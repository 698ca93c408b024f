"""What a report says to a terminal."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from typing import Any

import pytest
from support.report_facts import ABOUT, BEGIN, facts, group, pictures

from jobs.contract.options import ReportOptions
from jobs.contract.reporter import Reporter
from jobs.report import page, report
from jobs.report.facts import CHECKS, key_text, moment, number_text, sentences, to_lines, with_rates


def test_messages_without_a_time() -> None:
    timeless = {"cluster": "c", "broker": "b", "messages": 1, "bytes": 9, "first_stored": None, "last_stored": None}
    groups = [group("t", 1, 9) | {"first_stored": None, "last_stored": None}]
    without = facts(brokers=[timeless], groups=groups)
    drawn = page.render(without, page.Pictures(timedelta(minutes=1), [], pictures().sizes), *ABOUT)
    assert "No message has a store time" in drawn
    assert "1 messages" in to_lines(without, report.SHOWN)[0]


NOTHING = {
    "retries": "none",
    "duplicates": "none",
    "transactions": "none",
    "delays": "none",
    "gaps": "none: queue offsets are consecutive",
    "clocks": "no step back, no producer ahead",
}


def level(scheduled: int, overdue: int, least: int | None, most: int | None) -> dict[str, Any]:
    return {"level": 3, "scheduled": scheduled, "overdue": overdue, "min_late_ms": least, "max_late_ms": most}


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ({}, {}),
        (
            {
                "retries": [
                    {"consumer_group": "a", "kind": "retry", "messages": 1200},
                    {"consumer_group": "a", "kind": "dlq", "messages": 3},
                    {"consumer_group": "b", "kind": "retry", "messages": 34},
                ]
            },
            {"retries": "1,234 retries and 3 dead letters; consumer groups: 2"},
        ),
        (
            {"duplicates": [{"surplus": 1200}, {"surplus": 34}]},
            {"duplicates": "1,234 messages more than unique keys"},
        ),
        (
            {
                "transactions": [
                    {"outcome": "open", "transactions": 1000},
                    {"outcome": "committed", "transactions": 5},
                    {"outcome": "open", "transactions": 7},
                ]
            },
            {"transactions": "5 committed, 1,007 open"},
        ),
        ({"delays": [level(5, 2, None, None)]}, {"delays": "5 delayed messages, 2 overdue"}),
        (
            {"delays": [level(1000, 1000, None, None), level(5, 2, 0, 0)]},
            {"delays": "1,005 delayed messages, 1,002 overdue, at most 0 ms late"},
        ),
        (
            {"delays": [level(5, 0, -8_000, -1), level(2, 0, -9, -3)]},
            {
                "delays": "7 delayed messages, 0 overdue; up to 8,000 ms too early: was the broker's messageDelayLevel "
                "given to load?"
            },
        ),
        (
            {"delays": [level(5, 0, -1, 1_007), level(2, 0, 4, 9)]},
            {
                "delays": "7 delayed messages, 0 overdue, at most 1,007 ms late; up to 1 ms too early: was the "
                "broker's messageDelayLevel given to load?"
            },
        ),
        ({"gaps": [{"kind": "gap", "places": 2, "missing": 1234}]}, {"gaps": "1,234 messages are missing in queues"}),
        (
            {
                "gaps": [
                    {"kind": "gap", "places": 2, "missing": 4},
                    {"kind": "repeat", "places": 1000, "missing": 0},
                    {"kind": "restart", "places": 3, "missing": 0},
                ]
            },
            {"gaps": "4 messages are missing in queues; at 1,003 places offsets restart or occur twice"},
        ),
        (
            {"clock_steps": [{"steps": 1000}, {"steps": 2}], "clocks_ahead": []},
            {"clocks": "the broker's clock went back 1,002 times; 0 producers' clocks are ahead of it"},
        ),
        (
            {"clock_steps": [], "clocks_ahead": [{"host": "a"}, {"host": "b"}]},
            {"clocks": "the broker's clock went back 0 times; 2 producers' clocks are ahead of it"},
        ),
    ],
)
def test_what_the_checks_found_in_sentences(found: dict[str, list[dict[str, Any]]], said: dict[str, str]) -> None:
    assert sentences({**{name: [] for name in CHECKS}, **found}) == NOTHING | said


def test_the_whole_text() -> None:
    groups = [
        {**group("a long tag", 1500, 1_500_000), "share": 0.75, "messages_per_second": 1500.0, "bytes_per_second": 7.0},
        {**group(None, 5, 500), "share": 0.0025, "messages_per_second": 0.012345, "bytes_per_second": 12_345.0},
        {**group("not shown", 1, 1), "share": 0.0, "messages_per_second": 0.0, "bytes_per_second": 0.0},
    ]
    one = facts().brokers[0] | {"messages": 251, "bytes": 333_500}
    brokers = [{**one, "broker": f"b{number}"} for number in range(6)]
    found = facts(brokers=brokers, groups=groups, groups_in_all=1236)
    head = (
        "1,506 messages, 2.0 MB, 2024-05-30 07:00:00 to 2024-05-30 09:00:00 (2.0 h); c/b0, c/b1, c/b2, c/b3, c/b4 and "
        "1 more"
    )
    assert to_lines(found, 2, " (elsewhere)") == [
        head,
        "",
        "topic   tags        messages   bytes  share  messages/s       rate",
        "orders  a long tag     1,500  1.5 MB  75.0%       1,500      7 B/s",
        "orders  (none)             5   500 B   0.2%      0.0123  12.3 kB/s",
        "... and 1,234 more (elsewhere)",
        "",
        "retries       none",
        "duplicates    none",
        "transactions  none",
        "delays        none",
        "gaps          none: queue offsets are consecutive",
        "clocks        no step back, no producer ahead",
    ]
    short = facts(brokers=brokers[:5], groups=groups[:2], checks={})
    assert to_lines(short, 2)[1:] == ["", *to_lines(found, 2)[2:5]]
    assert to_lines(short, 2)[0].endswith("; c/b0, c/b1, c/b2, c/b3, c/b4")


@pytest.mark.parametrize(
    ("value", "digits", "shown"),
    [
        (0.0, 3, "0"), (0.00012345, 3, "0.000123"), (1.5, 3, "1.5"), (99.94, 3, "99.9"), (100.4, 3, "100"),
        (1500.4, 3, "1,500"), (1_234_567.8, 3, "1,234,568"), (-1500.4, 3, "-1,500"), (999.44, 4, "999.4"),
        (1000.4, 4, "1,000"),
    ],
)  # fmt: skip
def test_a_number_for_a_person(value: float, digits: int, shown: str) -> None:
    assert number_text(value, digits) == shown


@pytest.mark.parametrize(
    ("key", "shown"),
    [
        (None, "(none)"),
        (datetime(2024, 5, 3, 7, 8, 9), "2024-05-03 07:08"),
        (date(2024, 5, 3), "2024-05-03"),
        (7, "7"),
        ("a\nb", "a\\x0ab"),
    ],
)
def test_the_key_of_a_group_for_a_person(key: Any, shown: str) -> None:
    assert key_text(key) == shown


def test_times_from_the_first_broker_to_the_last() -> None:
    broker = facts().brokers[0]
    assert (moment(None), moment(BEGIN)) == ("?", "2024-05-30 07:00:00")
    brokers = [
        broker | {"first_stored": None, "last_stored": None},
        broker | {"last_stored": BEGIN + timedelta(milliseconds=500)},
        broker | {"first_stored": BEGIN + timedelta(seconds=9), "last_stored": BEGIN + timedelta(seconds=10)},
    ]
    found = facts(brokers=brokers)
    assert (found.first_stored, found.last_stored, found.span) == (BEGIN, BEGIN + timedelta(seconds=10), 10.0)
    assert facts(brokers=brokers[:2]).span == 1.0
    timeless = facts(brokers=brokers[:1])
    assert (timeless.first_stored, timeless.last_stored, timeless.span) == (None, None, 1.0)
    nothing = facts(brokers=[broker | {"bytes": 0}], groups=[group("a", 0, 0)])
    assert with_rates(nothing).groups[0]["share"] == 0


def test_a_terminal_obeys_no_tag() -> None:
    text = "\n".join(to_lines(facts(groups=[group("a\x1b[2J\nb", 1, 100)]), report.SHOWN))
    assert "a\\x1b[2J\\x0ab" in text


def test_a_long_tag_does_not_fill_a_terminal() -> None:
    lines = to_lines(facts(groups=[group("x" * 5000, 1, 100)]), report.SHOWN)
    assert max(map(len, lines)) < 250


def test_text_of_many_groups_says_how_many_it_leaves_out() -> None:
    many = [group(f"t{at}", 1, 100) for at in range(report.SHOWN + 5)]
    assert "... and 5 more" in to_lines(facts(groups=many), report.SHOWN)


def test_an_empty_table_has_a_report() -> None:
    empty = facts(brokers=[], groups=[], checks={})
    assert to_lines(empty, report.SHOWN) == ["The table is empty."]
    assert "The table is empty." in page.render(empty, page.Pictures(timedelta(minutes=1), [], []), *ABOUT)
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
    monkeypatch.setattr(report, "measured", lambda *_: found)
    made = report.run(ReportOptions(table="messages"), Reporter(quiet=True))
    assert made.to_text().startswith(to_lines(found, report.SHOWN)[0])
    assert (made["table"], made["messages"]) == ("messages", 21)
