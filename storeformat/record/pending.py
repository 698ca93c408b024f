"""Messages that a broker keeps in a system topic until delivery, and what they wait for.

============================================  =========  ==============================================================
topic                                         kind       waits for
============================================  =========  ==============================================================
``SCHEDULE_TOPIC_XXXX``                       delayed    the delivery time, which is the tagsCode of its unit
``SCHEDULE_TOPIC_XXXX``, RETRY_TOPIC set      retried    the same; then it goes to ``%RETRY%GROUP``
``rmq_sys_wheel_timer``                       timer      the delivery time, property TIMER_OUT_MS
``RMQ_SYS_TRANS_HALF_TOPIC``,                 half       its producer, to commit it or to roll it back
``RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC``
``%RETRY%GROUP``, ``%RETRY%GROUP+TOPIC``,     retried    the group, to consume it again (the last two by POP)
``%RETRY%GROUP_TOPIC``
``%DLQ%GROUP``                                dead       nothing: its group gave up
============================================  =========  ==============================================================

The original topic is in REAL_TOPIC and REAL_QID, for a retried or dead message in RETRY_TOPIC or DLQ_ORIGIN_TOPIC.
Mirrors ScheduleMessageService, TimerMessageStore, TransactionalMessageBridge and
AbstractSendMessageProcessor#consumerSendMsgBack (4.6 to 5.5).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from storeformat.javacompat import parse_long
from storeformat.message import SCHEDULE_TOPIC

TIMER_TOPIC = "rmq_sys_wheel_timer"
HALF_TOPICS = ("RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC")
OP_TOPICS = ("RMQ_SYS_TRANS_OP_HALF_TOPIC", "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC")
"""An op message ends half messages of the queue with its id: the body is their queue offsets, with commas. In RocksDB
(5.5.0) it ends the one at log offset TRANS_OFFSET.
"""
HOLDING_TOPICS = (SCHEDULE_TOPIC, TIMER_TOPIC, *HALF_TOPICS)
RETRY_PREFIX = "%RETRY%"
DEAD_PREFIX = "%DLQ%"
PREFIXES = (RETRY_PREFIX, DEAD_PREFIX)

_REAL_TOPIC, _REAL_QUEUE = "REAL_TOPIC", "REAL_QID"
_RETRIED_TOPIC, _DEAD_TOPIC = "RETRY_TOPIC", "DLQ_ORIGIN_TOPIC"
_LEVEL, _DUE, _RECALLED = "DELAY", "TIMER_OUT_MS", "TIMER_DEL_UNIQKEY"


@dataclass(frozen=True)
class Pending:
    """A waiting message: ``topics`` (the next one first), the first one's queue id, delivery time in milliseconds."""

    kind: Literal["delayed", "timer", "half", "retried", "dead"]
    topics: tuple[str, ...]
    queue_id: int | None = None
    due: int | None = None


def ended_half(queue_id: int, body: bytes | None, properties: Mapping[str, str]) -> list[tuple[int, int]]:
    """Queue id and queue offset of the half messages that an op message ends; -1 and the log offset in RocksDB."""
    if (offset := _natural(properties.get("TRANS_OFFSET"))) is not None:
        return [(-1, offset)]
    texts = (body or b"").decode("latin-1").split(",")
    return [(queue_id, place) for text in texts if (place := parse_long(text)) is not None]


def may_hold(topic: str) -> bool:
    """True if messages in a topic may belong to another one."""
    return topic in HOLDING_TOPICS or topic.startswith(PREFIXES)


def pending(topic: str, tags_code: int | None, properties: Mapping[str, str]) -> Pending | None:
    """What a stored message waits for; None if it is in its own topic."""
    if topic.startswith(PREFIXES):
        origins = (properties.get(_DEAD_TOPIC), properties.get(_RETRIED_TOPIC), properties.get(_REAL_TOPIC))
        topics = tuple(dict.fromkeys(origin for origin in origins if origin and origin != topic))
        return Pending("dead" if topic.startswith(DEAD_PREFIX) else "retried", topics)
    real = properties.get(_REAL_TOPIC)
    if topic not in HOLDING_TOPICS or not real or _RECALLED in properties:
        return None
    queue_id = _natural(properties.get(_REAL_QUEUE))
    retried = properties.get(_RETRIED_TOPIC)
    topics = (real, retried) if retried and retried != real else (real,)
    if topic in HALF_TOPICS:
        return Pending("half", topics, queue_id)
    if topic == TIMER_TOPIC:
        return Pending("timer", topics, queue_id, _natural(properties.get(_DUE)))
    due = tags_code if _natural(properties.get(_LEVEL)) else None
    return Pending("retried" if real.startswith(RETRY_PREFIX) else "delayed", topics, queue_id, due)


def belongs_to(topic: str, waiting: Pending, asked: str) -> bool:
    """True if a message that waits in ``topic`` belongs to ``asked``."""
    if asked in waiting.topics:
        return True
    return topic.startswith(RETRY_PREFIX) and topic.endswith((f"+{asked}", f"_{asked}"))


def _natural(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 19 else None
