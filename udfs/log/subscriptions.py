"""Which groups read which topics, by retried and dead messages, inside a Spark task.

A record in ``%RETRY%GROUP`` or ``%DLQ%GROUP``, or a record that waits for ``%RETRY%GROUP``, proves that the group had a
message of the topic in RETRY_TOPIC or DLQ_ORIGIN_TOPIC; it proves nothing about earlier ones.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from storeformat.message import SCHEDULE_TOPIC
from storeformat.record.decode import RecordBlock
from storeformat.record.dispatch import DEAD_PREFIX, PREFIXES, RETRY_PREFIX
from udfs.log.timers import texts_of

SUBSCRIPTION_PROPERTIES = (b"RETRY_TOPIC", b"DLQ_ORIGIN_TOPIC", b"REAL_TOPIC")

Subscription = tuple[str, str]  # topic and group


def subscriptions_in(block: RecordBlock) -> Iterator[Subscription]:
    """Subscriptions shown by a block decoded with ``SUBSCRIPTION_PROPERTIES``."""
    names = [topic.decode("utf-8", "replace") for topic in block.topics]
    holders = [code for code, name in enumerate(names) if name.startswith(PREFIXES) or name == SCHEDULE_TOPIC]
    rows = np.flatnonzero(~block.foreign & np.isin(block.topic_codes, holders))
    texts = [texts_of(block, name, rows) for name in SUBSCRIPTION_PROPERTIES]
    for row, origin, dead_origin, real in zip(rows.tolist(), *texts, strict=True):
        own = names[block.topic_codes[row]]
        holder = real if own == SCHEDULE_TOPIC else own
        if not holder.startswith(PREFIXES):
            continue
        group = holder.removeprefix(RETRY_PREFIX).removeprefix(DEAD_PREFIX)
        group, of_pop, popped_topic = group.partition("+")
        topic = origin or dead_origin or popped_topic
        if group and topic and not topic.startswith(PREFIXES):
            yield topic, group
        if group and holder.startswith(RETRY_PREFIX) and (origin or of_pop):
            yield holder, group
