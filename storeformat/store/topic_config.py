"""What a store's ``config/`` says that shapes its files: the type of each topic's queues.

``config/topics.json`` is written by fastjson: JSON, except that integer keys of maps are not quoted. A topic whose
attributes say ``queue.type=BatchCQ`` has its queues in ``batchconsumequeue/``; a broker does not start with queues of a
topic in the wrong place (ConsumeQueueStore#queueTypeShouldBe), so the directories say the same.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from storeformat.errors import WrongSettings
from storeformat.storage import files, locations
from storeformat.store.layout import BATCH_CONSUME_QUEUE, CONSUME_QUEUE

TOPICS = "config/topics.json"
_BARE_KEY = re.compile(r"([{,]\s*)(-?\d+)(\s*:)")
_BATCH = "BatchCQ"


def parse_fastjson(text: str) -> Any:
    """Returns what fastjson wrote, with integer keys as text; raises ValueError for what is no such JSON, and
    RecursionError for what nests too deep.
    """
    return json.loads(_BARE_KEY.sub(r'\1"\2"\3', text))


def find_batch_topics(root: str, named: Iterable[str]) -> frozenset[str]:
    """Returns the BatchCQ topics of a store: those named, those of ``config/topics.json``, and those with a directory.

    Raises WrongSettings where such a topic has ordinary queues, too.
    """
    found = set(named) | (configured_batch_topics(root) or set())
    there = files.list_directory(locations.join(root, BATCH_CONSUME_QUEUE)) or []
    found |= {entry.name for entry in there if entry.is_directory}
    for topic in sorted(found):
        ordinary = locations.join(root, CONSUME_QUEUE, topic)
        if files.list_directory(ordinary):
            raise WrongSettings("a topic of type BatchCQ has ordinary consume queues, too", path=ordinary, found=topic)
    return frozenset(found)


def topic_configuration(root: str) -> dict[str, Any] | None:
    """Returns the parsed ``config/topics.json`` of a store, or its backup, as a broker would read it; None without."""
    for path in (locations.join(root, TOPICS), locations.join(root, TOPICS + ".bak")):
        if not files.size_of(path):
            continue
        try:
            found = parse_fastjson(files.read_bytes(path).decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            continue  # the broker falls back to the backup, too
        if isinstance(found, dict) and isinstance(found.get("topicConfigTable"), dict):
            return found
    return None


def configured_batch_topics(root: str) -> set[str] | None:
    """Returns the topics that ``config/topics.json`` says to be of type BatchCQ; None where there is no such file."""
    found = topic_configuration(root)
    if found is None:
        return None
    return {topic for topic, entry in found["topicConfigTable"].items() if _queue_type(entry) == _BATCH}


def _queue_type(entry: Any) -> str | None:
    attributes = entry.get("attributes") if isinstance(entry, dict) else None
    return attributes.get("queue.type") if isinstance(attributes, dict) else None
