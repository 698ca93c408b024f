"""Selection of queues by topic and optional queue id; no filter selects all. Does not import numpy, so that help and
usage errors work before anything is installed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from storeformat.arrays import Bools, Int32s


@dataclass(frozen=True)
class TopicFilter:
    """A topic, or one queue of it."""

    topic: str
    queue_id: int | None = None

    @staticmethod
    def parse(text: str) -> TopicFilter:
        """Parse ``TOPIC`` or ``TOPIC:QUEUE``."""
        topic, colon, queue = text.rpartition(":")
        if colon and queue.isascii() and queue.isdigit() and len(queue) < 19:
            return TopicFilter(topic, int(queue))
        return TopicFilter(text)

    def __str__(self) -> str:
        return self.topic if self.queue_id is None else f"{self.topic}:{self.queue_id}"


def selects(filters: Iterable[TopicFilter], topic: str, queue_id: int) -> bool:
    """True if a filter matches a queue, or without filters."""
    filters = tuple(filters)
    return not filters or any(item.topic == topic and item.queue_id in (None, queue_id) for item in filters)


def selected(filters: Iterable[TopicFilter], topics: Sequence[bytes], topic_codes: Int32s, queue_ids: Int32s) -> Bools:
    """Which rows belong to a selected queue; ``topic_codes`` index ``topics``."""
    keep: Bools = topic_codes < 0
    names = [topic.decode(errors="replace") for topic in topics]
    for item in filters:
        if item.topic in names:
            mine = topic_codes == names.index(item.topic)
            keep |= mine if item.queue_id is None else mine & (queue_ids == item.queue_id)
    return keep
