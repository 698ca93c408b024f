"""Messages that wait in system topics, inside a Spark task: their destination, and the fate of timers.

They are delivered to REAL_TOPIC, queue REAL_QID: a topic may have only such messages (``storeformat.record.pending``).
Timer messages:

===================================  =================================================================================
record                               is
===================================  =================================================================================
in ``rmq_sys_wheel_timer``           a message that waits for TIMER_OUT_MS; with TIMER_DEL_UNIQKEY what recalls
                                     another
with TIMER_DEQUEUE_MS                a message that waited: delivered to its topic, or, in the timer topic again,
                                     stored anew because its time was too far away
===================================  =================================================================================

Both have the same unique key, TIMER_OUT_MS and born time (TimerMessageStore#convertMessage copies all properties);
without a unique key the body's CRC counts. Mirrors 5.0.0 to 5.4.0.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from storeformat import message as m
from storeformat.arrays import Bools, Int64s
from storeformat.javacompat import java_hash, parse_int
from storeformat.message import SCHEDULE_TOPIC
from storeformat.record.decode import RecordBlock, span_texts
from storeformat.record.dispatch import HOLDING_TOPICS, PREFIXES, TIMER_TOPIC

TIMER_PROPERTIES = (m.UNIQ_KEY, b"TIMER_OUT_MS", b"TIMER_DEQUEUE_MS", b"TIMER_DEL_UNIQKEY", b"REAL_TOPIC")

_COPIED = (*PREFIXES, SCHEDULE_TOPIC)  # retried messages have all properties of the delivered one, but end no wait

Identity = tuple[str, int, int]  # unique key or CRC, TIMER_OUT_MS, born time


@dataclass(frozen=True, slots=True)
class WaitingTimer:
    """A message in the timer queue. ``recalls``: it ends the wait of another. ``due`` -1: unreadable. ``queue_offset``
    -1: not in queue 0, the only queue that a broker reads.
    """

    offset: int
    size: int
    queue_offset: int
    due: int
    recalls: bool
    topic_hash: int


@dataclass(frozen=True, slots=True)
class TimerEvent:
    """A record that ends the wait of an earlier one (``ends``), a record that waits, or both."""

    identity: Identity
    ends: bool
    waiting: WaitingTimer | None


def timer_events(block: RecordBlock) -> list[TimerEvent]:
    """Events of a block decoded with ``TIMER_PROPERTIES``, in log order."""
    codes = [code for code, topic in enumerate(block.topics) if topic == TIMER_TOPIC.encode()]
    in_queue = np.isin(block.topic_codes, codes)
    dequeued = block.properties[b"TIMER_DEQUEUE_MS"].lengths > 0
    copies = [code for code, topic in enumerate(block.topics) if topic.decode(errors="replace").startswith(_COPIED)]
    dequeued &= ~np.isin(block.topic_codes, copies)
    rows = np.flatnonzero(~block.foreign & (in_queue | dequeued))
    return list(_events(block, rows, in_queue)) if len(rows) else []


def _events(block: RecordBlock, rows: Int64s, in_queue: Bools) -> Iterable[TimerEvent]:
    heads = block.heads
    keys, dues, dequeues, deletes, topics = (texts_of(block, name, rows) for name in TIMER_PROPERTIES)
    for place, row in enumerate(rows.tolist()):
        is_time = dues[place].isascii() and dues[place].isdigit() and len(dues[place]) < 19
        if not (is_time or in_queue[row]):
            continue
        due = int(dues[place]) if is_time else -1
        identity = (keys[place] or f"crc {int(heads.body_crc[row])}", due, int(heads.born_timestamp[row]))
        waiting = None
        if in_queue[row]:
            queue_offset = -1 if heads.queue_id[row] else int(heads.queue_offset[row])
            waiting = WaitingTimer(
                int(block.offsets[row]), int(heads.total_size[row]), queue_offset, due,
                bool(deletes[place]), java_hash(topics[place]),
            )  # fmt: skip
        yield TimerEvent(identity, bool(dequeues[place]), waiting)


def texts_of(block: RecordBlock, name: bytes, rows: Int64s) -> list[str]:
    """Values of a property in some rows, empty where a record lacks it."""
    spans, values = block.properties[name], [""] * len(rows)
    there = np.flatnonzero(spans.lengths[rows] > 0)
    for place, text in zip(there.tolist(), span_texts(block.buffer, spans, rows[there]), strict=True):
        values[place] = text
    return values


REAL_PROPERTIES = (b"REAL_TOPIC", b"REAL_QID")
MOST_QUEUES = 1 << 16  # a larger REAL_QID is not trusted: a broker would make that many queues


def real_queues(block: RecordBlock) -> set[tuple[str, int]]:
    """Topic and queue id of waiting messages in a block decoded with ``REAL_PROPERTIES``."""
    codes = [code for code, topic in enumerate(block.topics) if topic.decode(errors="replace") in HOLDING_TOPICS]
    rows = np.flatnonzero(~block.foreign & np.isin(block.topic_codes, codes))
    texts = (texts_of(block, name, rows) for name in REAL_PROPERTIES)
    pairs = ((name, parse_int(text)) for name, text in zip(*texts, strict=True) if name)
    return {(name, queue_id) for name, queue_id in pairs if queue_id is not None and 0 <= queue_id < MOST_QUEUES}
