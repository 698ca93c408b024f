"""Which groups read which topics, as the scan of a log finds it."""

from __future__ import annotations

from typing import Any

import pytest
from support.reading import read_segments
from support.store_builder import LogBuilder

from storeformat.record.decode import DISPATCH_PROPERTIES, DecodeRules
from udfs.log.subscriptions import SUBSCRIPTION_PROPERTIES, Subscription

RULES = DecodeRules(properties=(*DISPATCH_PROPERTIES, *SUBSCRIPTION_PROPERTIES))


def found_in(log: LogBuilder, split_size: int = 1 << 30) -> set[Subscription]:
    scans = read_segments(log.segments, split_size, decode_rules=RULES).scans
    return {found for scan in scans for found in scan.properties.subscriptions}


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
        assert found_in(log, split_size) == found
    assert read_segments(log.segments, 1 << 30).scans[0].properties.subscriptions == frozenset()
