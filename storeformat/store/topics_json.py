"""``config/topics.json`` out of the log alone: so that a broker serves its topics whose configuration was lost, too.

A broker keeps queues of topics that it has no configuration of, but tells nobody of them. What the log proves is how
many queues a topic had, and that a topic's queues are batch queues; the rest is what a new topic gets:

===================================  ===================================================================
field                                value
===================================  ===================================================================
``readQueueNums, writeQueueNums``    the highest queue id of the topic's messages, and one
``perm``                             6, to be read and written
``attributes``                       ``queue.type`` of BatchCQ topics; other attributes leave no trace
``order, topicFilterType, ...``      those of a new topic
===================================  ===================================================================

Mirrors TopicConfigManager#encode and TopicConfig (4.6 to 5.5); integer keys, which fastjson writes bare, do not occur.
Entries that a store still has stay as they are. Left out are the topics that a broker makes itself when it starts
(TopicConfigManager#init, with its own number of queues), and light queues, which are no topics.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from storeformat.record.light_queues import LIGHT_PREFIX

READ_AND_WRITE = 6
_MADE_BY_BROKER = frozenset(
    (
        "TBW102", "SCHEDULE_TOPIC_XXXX", "BenchmarkTest", "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT", "CHECKPOINT_TOPIC",
        "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC",
        "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC", "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC",
    )
)  # fmt: skip
_SYSTEM_PREFIX = "rmq_sys_"


def topic_entry(topic: str, queues: int, *, batch: bool) -> dict[str, Any]:
    """Returns the configuration of one topic."""
    return {
        "attributes": {"queue.type": "BatchCQ"} if batch else {},
        "order": False,
        "perm": READ_AND_WRITE,
        "readQueueNums": queues,
        "topicFilterType": "SINGLE_TAG",
        "topicName": topic,
        "topicSysFlag": 0,
        "writeQueueNums": queues,
    }


def lost_topics(queues: Mapping[str, int], known: Collection[str]) -> list[str]:
    """Returns the topics of ``queues`` that need a configuration and are not ``known``, sorted."""
    return sorted(
        topic
        for topic in queues
        if topic not in known and topic not in _MADE_BY_BROKER and not topic.startswith((_SYSTEM_PREFIX, LIGHT_PREFIX))
    )


def topics_json(
    queues: Mapping[str, int], batch_topics: Collection[str], known: Mapping[str, Any] | None, timestamp: int
) -> tuple[bytes, list[str]]:
    """Returns the file, and the topics in it that ``known`` (a parsed file, None for none) does not have.

    ``queues`` maps every topic of the log to its number of queues. ``timestamp`` (milliseconds) becomes that of the
    data version, whose counter says to others that something is new.
    """
    before: Mapping[str, Any] = known or {}
    table = dict(before.get("topicConfigTable") or {})
    added = lost_topics(queues, table)
    for topic in added:
        table[topic] = topic_entry(topic, queues[topic], batch=topic in batch_topics)
    version = dict(before.get("dataVersion") or {"stateVersion": 0})
    if added:
        version = {**version, "counter": int(version.get("counter", 0)) + 1, "timestamp": timestamp}
    document = {**before, "dataVersion": version, "topicConfigTable": dict(sorted(table.items()))}
    return (json.dumps(document, ensure_ascii=False, indent="\t") + "\n").encode(), added
