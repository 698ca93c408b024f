"""``config/topics.json``: queue types of topics, and the file restored from the log.

A topic with the attribute ``queue.type=BatchCQ`` has its queues in ``batchconsumequeue/``; a broker does not start with
queues in the wrong place (ConsumeQueueStore#queueTypeShouldBe), so the directories show the type too.

A broker keeps queues of unconfigured topics, but no client sees them. The log proves a topic's number of queues and
their type; the rest is that of a new topic:

===================================  ===================================================================
field                                value
===================================  ===================================================================
``readQueueNums, writeQueueNums``    the highest plausible queue id of the topic's messages, and one
``perm``                             6, to be read and written
``attributes``                       ``queue.type`` of BatchCQ topics; other attributes leave no trace
``order, topicFilterType, ...``      those of a new topic
===================================  ===================================================================

Mirrors TopicConfigManager#encode and TopicConfig (4.6 to 5.5).

Existing entries stay, except a ``readQueueNums`` that hides messages (an older copy of the file;
PullMessageProcessor refuses higher queues). Omitted: topics that a broker makes at its start
(TopicConfigManager#init), and light queues, which are not topics.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from storeformat.errors import WrongSettings
from storeformat.record.decode import is_directory_name
from storeformat.record.light_queues import LIGHT_PREFIX
from storeformat.storage import files, locations
from storeformat.store.config import fastjson
from storeformat.store.config.config_files import BATCH_QUEUES, CONFIG, DEFAULT_QUEUES, TOPICS_JSON, read_config
from storeformat.store.layout import BATCH_CONSUME_QUEUE, CONSUME_QUEUE

TOPICS = f"{CONFIG}/{TOPICS_JSON}"
READ_AND_WRITE = 6
_FEW_QUEUES, _QUEUES_OF_ONE = 1024, 16  # of more queues, one in 16 must have a message in the log
MADE_BY_BROKER = frozenset(
    (
        "TBW102", "SCHEDULE_TOPIC_XXXX", "BenchmarkTest", "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT", "CHECKPOINT_TOPIC",
        "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC",
        "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC", "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC",
    )
)  # fmt: skip
_SYSTEM_PREFIX = "rmq_sys_"


def find_batch_topics(root: str, named: Iterable[str]) -> frozenset[str]:
    """BatchCQ topics: named, configured, or with a directory. Raises WrongSettings if one has ordinary queues too."""
    found = set(named) | (configured_batch_topics(root) or set())
    there = files.list_directory(locations.join(root, BATCH_CONSUME_QUEUE)) or []
    found |= {entry.name for entry in there if entry.is_directory}
    for topic in sorted(found):
        ordinary = locations.join(root, CONSUME_QUEUE, topic)
        if files.list_directory(ordinary):
            raise WrongSettings("a topic of type BatchCQ has ordinary consume queues, too", path=ordinary, found=topic)
    return frozenset(found)


def topic_configuration(root: str) -> dict[str, Any] | None:
    """The document of ``config/topics.json``, or its backup, with all its fields; None without one."""
    taken = read_config(root, TOPICS_JSON).taken
    return dict(fastjson.parse(taken.text)) if taken is not None and taken.value else None


def configured_batch_topics(root: str) -> set[str] | None:
    """BatchCQ topics in ``config/topics.json``; None without the file."""
    topics = read_config(root, TOPICS_JSON).value
    return topics and {topic for topic, own in topics.items() if own.batch and is_directory_name(topic.encode())}


def topic_entry(topic: str, queues: int, *, batch: bool) -> dict[str, Any]:
    """Configuration of one topic."""
    return {
        "attributes": {"queue.type": BATCH_QUEUES} if batch else {},
        "order": False,
        "perm": READ_AND_WRITE,
        "readQueueNums": queues,
        "topicFilterType": "SINGLE_TAG",
        "topicName": topic,
        "topicSysFlag": 0,
        "writeQueueNums": queues,
    }


def number_of_queues(queue_ids: Collection[int]) -> int:
    """Highest plausible queue id plus one: a damaged bit makes ids up to 2**30, and clients allocate each queue."""
    bound = max(_FEW_QUEUES, _QUEUES_OF_ONE * len(queue_ids))
    return 1 + max((queue_id for queue_id in queue_ids if 0 <= queue_id < bound), default=-1)


def lost_topics(queues: Mapping[str, int], known: Collection[str]) -> list[str]:
    """Topics of ``queues`` that need a configuration and are not ``known``, sorted."""
    return sorted(
        topic
        for topic in queues
        if topic not in known and topic not in MADE_BY_BROKER and not topic.startswith((_SYSTEM_PREFIX, LIGHT_PREFIX))
    )


def topics_json(
    queues: Mapping[str, int], batch_topics: Collection[str], known: Mapping[str, Any] | None, timestamp: int
) -> tuple[bytes, list[str]]:
    """The file, and its topics that ``known`` (a parsed file) lacks or has with fewer read queues. ``queues``: number
    of queues of every topic in the log. ``timestamp``: milliseconds, for the data version.
    """
    before: Mapping[str, Any] = known or {}
    table = dict(before.get("topicConfigTable") or {})
    added = lost_topics(queues, table)
    for topic in added:
        table[topic] = topic_entry(topic, queues[topic], batch=topic in batch_topics)
    for topic in lost_topics(queues, added):
        entry = table[topic]
        read = entry.get("readQueueNums", DEFAULT_QUEUES) if isinstance(entry, dict) else None
        if isinstance(read, int) and read < queues[topic]:
            table[topic] = {**entry, "readQueueNums": queues[topic]}
            added.append(topic)
    stated = before.get("dataVersion")
    version = stated if stated and isinstance(stated, dict) else {"stateVersion": 0}
    if added:
        counter = version.get("counter")
        counter = counter if type(counter) is int and abs(counter) < (1 << 63) - 1 else 0
        version = {**version, "counter": counter + 1, "timestamp": timestamp}
    document = {**before, "dataVersion": version, "topicConfigTable": dict(sorted(table.items()))}
    return (json.dumps(document, ensure_ascii=False, indent="\t") + "\n").encode(), sorted(added)
