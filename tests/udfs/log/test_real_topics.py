"""Topics of messages that wait under topics of the broker's own, as the scan of a log finds them."""

from __future__ import annotations

import pytest
from support.reading import read_segments
from support.store_builder import LogBuilder

from storeformat.record.decode import DISPATCH_PROPERTIES, DecodeRules
from udfs.log.real_topics import MOST_QUEUES, REAL_PROPERTIES

RULES = DecodeRules(properties=(*DISPATCH_PROPERTIES, *REAL_PROPERTIES))


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
        scans = read_segments(log.segments, split_size, decode_rules=RULES).scans
        queues = {queue for scan in scans for queue in scan.properties.real_queues}
        assert queues == ({("Sold", int(number))} if found else set())
    assert not any(scan.properties.real_queues for scan in read_segments(log.segments, 1 << 30).scans)
