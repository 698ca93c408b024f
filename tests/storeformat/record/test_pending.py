"""What a stored message waits for, by its topic and properties."""

from __future__ import annotations

from typing import Any

import pytest

from storeformat.record.pending import Pending, belongs_to, may_hold, pending

REAL = {"REAL_TOPIC": "T", "REAL_QID": "3"}


@pytest.mark.parametrize(
    ("topic", "tags_code", "properties", "expected"),
    [
        ("SCHEDULE_TOPIC_XXXX", 1_000, {**REAL, "DELAY": "4"}, Pending("delayed", ("T",), 3, 1_000)),
        ("SCHEDULE_TOPIC_XXXX", 77, REAL, Pending("delayed", ("T",), 3)),
        ("SCHEDULE_TOPIC_XXXX", 5, {"REAL_TOPIC": "%RETRY%g", "REAL_QID": "0", "RETRY_TOPIC": "T", "DELAY": "3"},
         Pending("retried", ("%RETRY%g", "T"), 0, 5)),
        ("rmq_sys_wheel_timer", 9, {**REAL, "TIMER_OUT_MS": "2000"}, Pending("timer", ("T",), 3, 2_000)),
        ("RMQ_SYS_TRANS_HALF_TOPIC", None, REAL, Pending("half", ("T",), 3)),
        ("RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC", None, REAL, Pending("half", ("T",), 3)),
        ("%RETRY%g", None, {"RETRY_TOPIC": "T"}, Pending("retried", ("T",))),
        ("%DLQ%g", None, {"RETRY_TOPIC": "T", "DLQ_ORIGIN_TOPIC": "T"}, Pending("dead", ("T",))),
        ("%DLQ%g", None, {"DLQ_ORIGIN_TOPIC": "T", "RETRY_TOPIC": "U", "REAL_TOPIC": "V"},
         Pending("dead", ("T", "U", "V"))),
        ("%DLQ%g", None, {"REAL_TOPIC": "%DLQ%g", "RETRY_TOPIC": ""}, Pending("dead", ())),
        ("%DLQ%g", None, {}, Pending("dead", ())),
        ("T", None, {**REAL, "DELAY": "4"}, None),
        ("SCHEDULE_TOPIC_XXXX", 77, {}, None),
        ("rmq_sys_wheel_timer", 9, {**REAL, "TIMER_DEL_UNIQKEY": "T+1"}, None),
        ("rmq_sys_wheel_timer", 9, {**REAL, "REAL_QID": "x", "TIMER_OUT_MS": "-1"}, Pending("timer", ("T",))),
    ],
)  # fmt: skip
def test_what_a_message_waits_for(
    topic: str, tags_code: int | None, properties: dict[str, str], expected: Pending | None
) -> None:
    assert pending(topic, tags_code, properties) == expected
    assert may_hold(topic) == (topic != "T")


@pytest.mark.parametrize(
    ("topic", "properties", "asked", "belongs"),
    [
        ("%RETRY%g", {"RETRY_TOPIC": "T"}, "T", True),
        ("%RETRY%g", {"RETRY_TOPIC": "T"}, "U", False),
        ("%RETRY%g+T", {}, "T", True),
        ("%RETRY%g_T", {}, "T", True),
        ("%RETRY%gT", {}, "T", False),
    ],
)
def test_to_which_topic_it_belongs(topic: str, properties: dict[str, Any], asked: str, belongs: bool) -> None:
    waiting = pending(topic, None, properties)
    assert waiting is not None
    assert belongs_to(topic, waiting, asked) == belongs
