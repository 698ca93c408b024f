"""Which queues ``TOPIC`` and ``TOPIC:QUEUE`` name."""

from __future__ import annotations

import numpy as np
import pytest

from storeformat.queues.topic_filter import TopicFilter, selected, selects


@pytest.mark.parametrize(
    ("text", "topic", "queue_id"),
    [("T", "T", None), ("T:7", "T", 7), ("a:b", "a:b", None), ("a:b:0", "a:b", 0), ("T:", "T:", None),
     ("T:-1", "T:-1", None), ("T:\u0663", "T:\u0663", None)],
)  # fmt: skip
def test_a_number_after_the_last_colon_is_a_queue(text: str, topic: str, queue_id: int | None) -> None:
    found = TopicFilter.parse(text)
    assert (found.topic, found.queue_id, str(found)) == (topic, queue_id, text)


def test_a_queue_is_asked_for_by_itself_by_its_topic_or_by_nothing() -> None:
    filters = (TopicFilter("A"), TopicFilter("B", 2))
    asked = {("A", 0): True, ("A", 9): True, ("B", 2): True, ("B", 3): False, ("C", 2): False}
    assert {queue: selects(filters, *queue) for queue in asked} == asked
    assert selects((), "C", 2)
    codes, ids = np.array([0, 0, 1, 1, 2], np.int32), np.array([0, 9, 2, 3, 2], np.int32)
    rows = selected(filters, [b"A", b"B", b"C"], codes, ids)
    assert rows.tolist() == list(asked.values())
    assert selected((TopicFilter("missing"),), [b"A", b"B", b"C"], codes, ids).tolist() == [False] * 5
