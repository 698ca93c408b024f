"""What records say of who read what, as the scan of a log finds it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.reading import read_segments
from support.store_builder import LogBuilder

from storeformat.record.decode import DISPATCH_PROPERTIES, DecodeRules
from udfs.log.consumption import CONSUMPTION_PROPERTIES, NONE, Consumption, HandedOut, joined

RULES = DecodeRules(properties=(*DISPATCH_PROPERTIES, *CONSUMPTION_PROPERTIES))
TIMER_TOPIC = "rmq_sys_wheel_timer"
REVIVE = "rmq_sys_REVIVE_LOG_DefaultCluster"
CHECKPOINT = {"so": 4, "n": 3, "q": 1, "t": "T", "c": "g", "bm": 0, "pt": 1, "it": 60000, "d": [0, 1, 2]}


def found_in(log: LogBuilder, split_size: int = 1 << 30) -> Consumption:
    return joined(
        scan.properties.consumption for scan in read_segments(log.segments, split_size, decode_rules=RULES).scans
    )


@pytest.mark.parametrize(
    ("topic", "properties", "found"),
    [
        ("%RETRY%g", {"RETRY_TOPIC": "T"}, {("T", "g"), ("%RETRY%g", "g")}),
        ("%RETRY%g", {}, set()),
        ("%RETRY%g+T", {}, {("T", "g"), ("%RETRY%g+T", "g")}),
        ("%DLQ%g", {"DLQ_ORIGIN_TOPIC": "T"}, {("T", "g")}),
        ("SCHEDULE_TOPIC_XXXX", {"REAL_TOPIC": "%RETRY%g", "RETRY_TOPIC": "T"}, {("T", "g"), ("%RETRY%g", "g")}),
        ("SCHEDULE_TOPIC_XXXX", {"REAL_TOPIC": "T"}, set()),
        ("T", {"RETRY_TOPIC": "U"}, set()),
    ],
)
def test_a_retried_message_names_group_and_topic(topic: str, properties: dict[str, str], found: set[Any]) -> None:
    log = LogBuilder(4096)
    log.message(topic="T")
    log.message(topic=topic, properties=properties)
    log.message(topic=topic)
    for split_size in (50, 1 << 30):
        assert found_in(log, split_size).subscriptions == found
    assert read_segments(log.segments, 1 << 30).scans[0].properties.consumption is NONE


@pytest.mark.parametrize(
    ("changes", "end"),
    [
        ({}, 7),
        ({"d": []}, 7),
        ({"d": [0, 2, 9]}, 14),  # others between were not for the group
        ({"d": ["x"]}, None),
        ({"n": None}, None),  # an acknowledgement
        ({"n": 0, "d": [5]}, None),
        ({"n": 1, "d": [-1]}, None),
        ({"so": -1}, None),
        ({"q": "1"}, None),
        ({"t": 5}, None),
        ({"pt": None}, None),
    ],
)
def test_a_checkpoint_tells_what_was_handed_out(changes: dict[str, Any], end: int | None) -> None:
    log = LogBuilder(4096)
    log.message(topic=REVIVE, body=json.dumps({**CHECKPOINT, **changes}).encode())
    log.message(topic="Other", body=json.dumps(CHECKPOINT).encode())
    assert found_in(log).handed_out == ({} if end is None else {("T", "g", 1): HandedOut(((4, end),), end, 1)})


def test_half_a_pair_in_the_name_of_a_group() -> None:
    log = LogBuilder(4096)
    log.message(topic=REVIVE, body=json.dumps({**CHECKPOINT, "c": "\ud800"}).encode())
    assert list(found_in(log).handed_out) == [("T", "?", 1)]


def test_bodies_that_are_no_checkpoint() -> None:
    log = LogBuilder()
    for body in (b"", b"{", b"[1]", b"\xff", b"[" * 5000):
        log.message(topic=REVIVE, body=body)
    assert found_in(log) == NONE


@pytest.mark.parametrize("split_size", [50, 300, 1 << 30])
def test_pieces_are_joined_where_they_touch(split_size: int) -> None:
    log = LogBuilder(4096)
    for time, (begin, count) in enumerate(((0, 2), (2, 3), (8, 2), (5, 1), (3, 2))):
        body = {**CHECKPOINT, "so": begin, "n": count, "pt": time, "d": None}
        log.message(topic=REVIVE, body=json.dumps(body).encode())
    assert found_in(log, split_size).handed_out == {("T", "g", 1): HandedOut(((0, 6), (8, 10)), 5, 4)}


@pytest.mark.parametrize("split_size", [50, 1 << 30])
def test_a_checkpoint_that_waits_as_a_timer_counts_and_the_newest_is_the_one_handed_out_last(split_size: int) -> None:
    """The third is stored as a timer, and its topic gets the first meanwhile; other timers hand out nothing."""
    log = LogBuilder(4096)
    for time, begin, topic in ((1, 0, TIMER_TOPIC), (2, 3, TIMER_TOPIC), (1, 0, REVIVE)):
        body = json.dumps({**CHECKPOINT, "so": begin, "pt": time}).encode()
        log.message(topic=topic, body=body, properties={"REAL_TOPIC": REVIVE} if topic == TIMER_TOPIC else {})
    log.message(topic=TIMER_TOPIC, body=json.dumps({**CHECKPOINT, "so": 6}).encode(), properties={"REAL_TOPIC": "T"})
    assert found_in(log, split_size).handed_out == {("T", "g", 1): HandedOut(((0, 6),), 6, 2)}
