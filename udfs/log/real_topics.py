"""The topics of messages that wait under topics of the broker's own, inside a Spark task.

They are delivered to REAL_TOPIC, queue REAL_QID: a topic may have such messages alone (``storeformat.record.pending``).
"""

from __future__ import annotations

import numpy as np

from storeformat.javacompat import parse_int
from storeformat.record.decode import RecordBlock, span_texts
from storeformat.record.pending import HOLDING_TOPICS

REAL_PROPERTIES = (b"REAL_TOPIC", b"REAL_QID")
MOST_QUEUES = 1 << 16
"""A larger number in REAL_QID is not believed: a broker would make so many queues."""


def real_queues(block: RecordBlock) -> set[tuple[str, int]]:
    """Returns topic and queue id of the messages that wait in a block decoded with ``REAL_PROPERTIES``."""
    codes = [code for code, topic in enumerate(block.topics) if topic.decode(errors="replace") in HOLDING_TOPICS]
    topics, queues = (block.properties[name] for name in REAL_PROPERTIES)
    named = (topics.lengths > 0) & (queues.lengths > 0)
    rows = np.flatnonzero(~block.foreign & named & np.isin(block.topic_codes, codes))
    names, ids = span_texts(block.buffer, topics, rows), span_texts(block.buffer, queues, rows)
    pairs = ((name, parse_int(text)) for name, text in zip(names, ids, strict=True))
    return {(name, queue_id) for name, queue_id in pairs if queue_id is not None and 0 <= queue_id < MOST_QUEUES}
