"""What the log shows of who read what, inside a Spark task: groups that had a message retried, and what POP handed out.

==========================================  ==========================================================================
record                                      proves
==========================================  ==========================================================================
in ``%RETRY%GROUP`` or ``%DLQ%GROUP``, or   that the group reads the topic in RETRY_TOPIC or DLQ_ORIGIN_TOPIC. It had
waiting for ``%RETRY%GROUP``                one message; nothing follows for those before it
checkpoint in ``rmq_sys_REVIVE_LOG_*``, or  that POP handed out the messages from its first to its last in one piece,
waiting for it in ``rmq_sys_wheel_timer``   and that the broker hands out again what of them is not acknowledged
==========================================  ==========================================================================

A checkpoint waits as a timer until its messages are due again, and is stored a second time then: which is the newest is
said by its own time. Pieces are joined where they touch. A checkpoint that its broker kept in memory until all was
acknowledged (``enablePopBufferMerge``) was never written, which leaves a hole between two pieces: nothing is concluded
past it.
Mirrors PopMessageProcessor#appendCheckPoint and PopCheckPoint (5.0.0 to 5.5.0).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from storeformat.arrays import Int64s
from storeformat.message import SCHEDULE_TOPIC
from storeformat.record.decode import RecordBlock
from storeformat.record.pending import DEAD_PREFIX, PREFIXES, RETRY_PREFIX, TIMER_TOPIC
from storeformat.store.config import fastjson
from udfs.log.timers import texts_of

CONSUMPTION_PROPERTIES = (b"RETRY_TOPIC", b"DLQ_ORIGIN_TOPIC", b"REAL_TOPIC")
REVIVE_TOPIC = "rmq_sys_REVIVE_LOG_"

Subscription = tuple[str, str]
"""Topic and group."""
PoppedQueue = tuple[str, str, int]
"""Topic, group, queue id."""
Interval = tuple[int, int]
"""Queue offsets [begin, end)."""


@dataclass(frozen=True, slots=True)
class HandedOut:
    """What POP handed out of a queue: ``pieces`` ascend and do not touch, ``last_end`` is the end of the newest, which
    was handed out at ``last_time`` (milliseconds since 1970).
    """

    pieces: tuple[Interval, ...]
    last_end: int
    last_time: int


@dataclass(frozen=True, slots=True)
class Consumption:
    """What a part of the log says."""

    subscriptions: frozenset[Subscription] = frozenset()
    handed_out: Mapping[PoppedQueue, HandedOut] = field(default_factory=dict)


NONE = Consumption()


def joined(parts: Iterable[Consumption]) -> Consumption:
    """Returns what parts of the log, in its order, say together."""
    subscriptions: set[Subscription] = set()
    handed_out: dict[PoppedQueue, list[HandedOut]] = {}
    for part in parts:
        subscriptions |= part.subscriptions
        for queue, found in part.handed_out.items():
            handed_out.setdefault(queue, []).append(found)
    return Consumption(frozenset(subscriptions), {queue: _together(found) for queue, found in handed_out.items()})


def _together(found: list[HandedOut]) -> HandedOut:
    newest = max(reversed(found), key=lambda one: one.last_time)
    return HandedOut(_merged(piece for one in found for piece in one.pieces), newest.last_end, newest.last_time)


def _merged(pieces: Iterable[Interval]) -> tuple[Interval, ...]:
    merged: list[Interval] = []
    for begin, end in sorted(pieces):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((begin, end))
    return tuple(merged)


def consumption_in(block: RecordBlock) -> Consumption:
    """Returns what the records of a block say that was decoded with ``CONSUMPTION_PROPERTIES``."""
    names = [topic.decode("utf-8", "replace") for topic in block.topics]
    revive = [code for code, name in enumerate(names) if name.startswith(REVIVE_TOPIC)]
    waiting = [code for code, name in enumerate(names) if name == TIMER_TOPIC]
    retried = [code for code, name in enumerate(names) if name.startswith(PREFIXES) or name == SCHEDULE_TOPIC]
    found: set[Subscription] = set()
    if retried:
        found = set(_retried(block, names, _rows(block, retried)))
    rows = _rows(block, revive)
    if waiting:
        timers = _rows(block, waiting)
        revived = [topic.startswith(REVIVE_TOPIC) for topic in texts_of(block, b"REAL_TOPIC", timers)]
        rows = np.concatenate([rows, timers[revived]])
    handed_out: dict[PoppedQueue, list[HandedOut]] = {}
    for queue, piece in _checkpoints(block, rows):
        handed_out.setdefault(queue, []).append(piece)
    if not found and not handed_out:
        return NONE
    return Consumption(frozenset(found), {queue: _together(pieces) for queue, pieces in handed_out.items()})


def _rows(block: RecordBlock, codes: list[int]) -> Int64s:
    return np.flatnonzero(~block.foreign & np.isin(block.topic_codes, codes))


def _retried(block: RecordBlock, names: list[str], rows: Int64s) -> Iterable[Subscription]:
    texts = [texts_of(block, name, rows) for name in CONSUMPTION_PROPERTIES]
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


def _checkpoints(block: RecordBlock, rows: Int64s) -> Iterable[tuple[PoppedQueue, HandedOut]]:
    heads, view = block.heads, memoryview(block.buffer.data)
    for row in rows.tolist():
        start = int(heads.body_start[row])
        try:
            document = fastjson.parse(str(view[start : start + int(heads.body_length[row])], "utf-8"))
        except (ValueError, RecursionError):
            continue
        checkpoint = _checkpoint(document) if isinstance(document, dict) else None
        if checkpoint is not None:
            yield checkpoint


def _checkpoint(document: Mapping[str, object]) -> tuple[PoppedQueue, HandedOut] | None:
    """Returns queue and piece of a checkpoint; None for an acknowledgement, which has no ``n``."""
    topic, group = document.get("t"), document.get("c")
    queue_id, begin, count, time = (document.get(name) for name in ("q", "so", "n", "pt"))
    if not (isinstance(topic, str) and isinstance(group, str)):
        return None
    if not (type(queue_id) is int and type(begin) is int and type(count) is int and type(time) is int):
        return None
    if begin < 0 or count <= 0:
        return None
    steps = document.get("d")
    last = count - 1
    if isinstance(steps, list) and steps:
        last = max(step for step in steps if type(step) is int) if all(type(step) is int for step in steps) else -1
    end = begin + last + 1
    return ((topic, group, queue_id), HandedOut(((begin, end),), end, time)) if last >= 0 else None
