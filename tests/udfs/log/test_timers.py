"""Timer messages, as the scan of a log finds them."""

from __future__ import annotations

import pytest
from support.reading import read_segments
from support.store_builder import LogBuilder

from storeformat.record.decode import DISPATCH_PROPERTIES, DecodeRules
from udfs.log.timers import MOST_QUEUES, REAL_PROPERTIES, TIMER_PROPERTIES, TimerEvent

RULES = DecodeRules(properties=tuple(dict.fromkeys((*DISPATCH_PROPERTIES, *TIMER_PROPERTIES))))
TIMER = "rmq_sys_wheel_timer"
WAITS = {"TIMER_OUT_MS": "5000", "UNIQ_KEY": "k", "REAL_TOPIC": "Sold"}


def events(log: LogBuilder, split_size: int = 1 << 30) -> list[TimerEvent]:
    scans = read_segments(log.segments, split_size, decode_rules=RULES).scans
    return [event for scan in scans for event in scan.properties.timers]


@pytest.mark.parametrize("split_size", [pytest.param(1, marks=pytest.mark.thorough), 50, 1 << 30])
def test_what_waits_and_what_ended(split_size: int) -> None:
    log = LogBuilder()
    log.message(topic="Other")
    waits = log.message(topic=TIMER, properties=WAITS)
    log.message(topic=TIMER, properties={**WAITS, "TIMER_DEQUEUE_MS": "7"})
    log.message(topic="Sold", properties={**WAITS, "TIMER_DEQUEUE_MS": "7"})
    log.message(topic=TIMER, properties={**WAITS, "TIMER_DEL_UNIQKEY": "Sold+k"})
    found = events(log, split_size)
    assert [(event.ends, event.waiting is not None) for event in found] == [
        (False, True),
        (True, True),
        (True, False),
        (False, True),
    ]
    first = found[0].waiting
    assert first is not None
    assert (first.offset, first.size, first.queue_offset, first.due) == (waits.offset, waits.size, 0, 5000)
    assert len({event.identity for event in found}) == 1
    assert [event.waiting.recalls for event in found if event.waiting] == [False, False, True]
    assert not read_segments(log.segments, 1 << 30).scans[0].properties.timers


@pytest.mark.parametrize("topic", ["%RETRY%g", "%DLQ%g", "SCHEDULE_TOPIC_XXXX"])
def test_a_copy_for_a_retry_ends_no_wait(topic: str) -> None:
    log = LogBuilder()
    log.message(topic=topic, properties={**WAITS, "TIMER_DEQUEUE_MS": "7"})
    assert events(log) == []


@pytest.mark.parametrize("due", ["", "x", "-5", "9" * 19])
def test_a_time_that_is_none(due: str) -> None:
    log = LogBuilder()
    log.message(topic=TIMER, properties={**WAITS, "TIMER_OUT_MS": due})
    log.message(topic="Sold", properties={**WAITS, "TIMER_OUT_MS": due, "TIMER_DEQUEUE_MS": "7"})
    assert [event.waiting and event.waiting.due for event in events(log)] == [-1]


REAL_RULES = DecodeRules(properties=(*DISPATCH_PROPERTIES, *REAL_PROPERTIES))


@pytest.mark.parametrize(
    ("topic", "number", "found"),
    [
        ("SCHEDULE_TOPIC_XXXX", "5", True),
        ("RMQ_SYS_TRANS_HALF_TOPIC", "0", True),
        ("rmq_sys_wheel_timer", str(MOST_QUEUES - 1), True),
        ("rmq_sys_wheel_timer", str(MOST_QUEUES), False),
        ("rmq_sys_wheel_timer", "-1", False),
        ("rmq_sys_wheel_timer", "x", False),
        ("Ordinary", "5", False),
    ],
)
def test_a_message_that_waits_tells_its_queue(topic: str, number: str, found: bool) -> None:
    log = LogBuilder(4096)
    log.message(topic="Ordinary")
    log.message(topic=topic, properties={"REAL_TOPIC": "Sold", "REAL_QID": number})
    log.message(topic=topic, properties={"REAL_TOPIC": "Sold"})
    log.message(topic=topic, properties={"REAL_QID": "1"})
    for split_size in (50, 1 << 30):
        scans = read_segments(log.segments, split_size, decode_rules=REAL_RULES).scans
        queues = {queue for scan in scans for queue in scan.properties.real_queues}
        assert queues == ({("Sold", int(number))} if found else set())
    assert not any(scan.properties.real_queues for scan in read_segments(log.segments, 1 << 30).scans)
