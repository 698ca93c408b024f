"""Rules on committed offsets, and on those of delay levels, that do not fit their queues."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterator, Mapping

import numpy as np

from jobs.contract.commands import quoted
from jobs.preflight.configuration import config_is_absent
from jobs.preflight.reason import Reason, first_of
from jobs.preflight.stopped_store import StoppedStore
from storeformat.errors import WrongSettings
from storeformat.message import SCHEDULE_TOPIC
from storeformat.record.dispatch import DEFAULT_DELAY_LEVELS, parse_delay_levels
from storeformat.store import queue_ends
from storeformat.store.config import fastjson
from storeformat.store.config.config_files import Offsets
from storeformat.store.config.consumer_offsets import known_groups
from storeformat.store.queue_ends import QueueEnd

_WRITTEN_MS = 60_000
"""A broker writes the offsets of delay levels every ten seconds (``flushDelayOffsetInterval``)."""
_MADE_WITHOUT_QUEUES = ("rmq_sys_", "%LMQ%")


def end_after_start(store: StoppedStore, key: tuple[str, int]) -> int:
    """Returns the queue offset after a queue's last message once recovery is over: units that point beyond the log's
    end are cut, records that are dispatched again are added.
    """
    queue, tail = store.queues.get(key), store.tail
    end = 0 if queue is None else queue.end
    if queue is not None and store.log.segments and queue.end_offset > tail.end and not queue.ends_in_pre_blank:
        end = min(end, queue_ends.offset_at(queue, tail.end))
    row = tail.last_rows.get(key)
    if row is not None and store.redispatch.covers(int(tail.offsets[row])):
        end = max(end, int(tail.queue_offsets[row]) + 1)
    return end


def no_offsets(store: StoppedStore, replicas: Mapping[str, Offsets] | None = None) -> Iterator[Reason]:
    """Yields a sound file of offsets without any beside groups that the store knows, or that a ``.bak`` or a replica
    has; and a note where these have groups that the file lacks.

    Mirrors ClientManageProcessor#heartBeat, which makes the retry topic of a group, and
    ConsumerOffsetManager#persist: a broker that started without offsets leaves an empty table. A slave of 5.5.0 has
    one, too: SlaveSynchronize#syncConsumerOffset fails, for ConsumerOffsetSerializeWrapper does not have the
    pullOffsetTable that its master sends, and fastjson2 cannot skip numbers as names. Groups in pullOffsetTable (5.5.0)
    have pulled and not committed: they broadcast, and keep their own offsets.
    """
    config = store.offsets_file
    messages = store.queues or store.tail.keys
    if store.config_in_databases or config.taken is None or not messages:
        return
    copies = {"its .bak": config.backup.value or {}, **(replicas or {})}
    if config.value:
        own = set(known_groups((), (), config.value))
        for name, offsets in copies.items():
            if lacking := sorted(set(known_groups((), (), offsets)) - own):
                yield Reason(
                    "no_offsets",
                    f"{name} has offsets of {len(lacking)} groups that {config.name} lacks ({first_of(lacking)}): if "
                    "they were not deleted, they start over",
                    found=lacking,
                    cure="rebuild --only consumer-offsets takes theirs from all copies, --replica ROOT also from a "
                    "slave's",
                    unsafe=False,
                )
        return
    document = fastjson.parse(config.taken.text)
    pulled = document.get("pullOffsetTable") if isinstance(document, dict) else None
    broadcasting = {key.partition("@")[2] for key in pulled} if isinstance(pulled, dict) else set()
    topics = {*(store.configs["topics.json"].value or {}), *(topic for topic, _ in messages)}
    known = known_groups(topics, store.configs["subscriptionGroup.json"].value or {}, *copies.values())
    groups = [group for group in known if group not in broadcasting]
    held = sum(queue.end - queue.begin for queue in store.queues.values())
    if groups:
        shown = [name for name, offsets in copies.items() if offsets]
        yield Reason(
            "no_offsets",
            f"{config.name} has no offset, and {len(groups)} groups are known ({first_of(groups)}): they start over, "
            f"read up to {held:,} messages again or skip those they have not read"
            + (f"; {' and '.join(shown)} has offsets" if shown else "; a slave of 5.5.0 gets none from its master"),
            found=0,
            cure=f"put another copy of {quoted(config.main.path)} in place, or rebuild --only consumer-offsets and "
            "publish; where nothing proves an offset, --consumer-offsets-at TIME sets it",
        )


def committed_outside_queue(store: StoppedStore) -> Iterator[Reason]:
    """Yields groups that committed an offset beyond the end of a queue: they skip new messages until the queue reaches
    it; and those that committed one before its first message: they go on there, the messages between are gone.

    Mirrors ConsumerOffsetManager#queryOffset, which hands out what was committed, PullMessageProcessor with
    OFFSET_OVERFLOW_BADLY (5.1.4 to 5.5.0; the same in 4.9.8), and DefaultMessageStore#getMessage with OFFSET_TOO_SMALL
    (4.9.8 to 5.5.0).
    """
    topics, slave, log_begin = store.configs["topics.json"].value, store.is_slave, store.log.begin
    found = {} if store.config_in_databases else store.offsets_file.value or {}
    for topic, group, queue_id, committed in sorted((*key, *one) for key, own in found.items() for one in own.items()):
        place = f"group {group} has committed {committed} in queue {queue_id} of {topic}, which"
        queue, end = store.queues.get((topic, queue_id)), end_after_start(store, (topic, queue_id))
        if committed > end:
            deleted = topics is not None and topic not in topics and not topic.startswith(_MADE_WITHOUT_QUEUES)
            yield Reason(
                "committed_beyond_queue",
                f"{place} ends at {end}: it would skip the next {committed - end} messages"
                + (", but the topic is not configured" if deleted else "")
                + (", but a slave has its master's offsets, and reads on" if slave else ""),
                found=committed,
                expected=f"at most {end}",
                cure=f"in {quoted(store.offsets_file.main.path)}, "
                f"{json.dumps(f'{topic}@{group}', ensure_ascii=False)}, "
                f"set {queue_id}:{committed} to {queue_id}:{end} while the broker is stopped",
                unsafe=not (deleted or slave),
            )
        elif queue is not None and committed < queue.end:
            begin = max(queue.begin, queue_ends.offset_at(queue, log_begin)) if log_begin else queue.begin
            if committed < begin:
                yield Reason(
                    "committed_before_queue",
                    f"{place} begins at {begin}: the {begin - committed} messages between are no longer in the log",
                    found=committed,
                    expected=f"at least {begin}",
                    unsafe=False,
                )


def delay_offsets_beyond_queue(store: StoppedStore) -> Iterator[Reason]:
    """Yields delay levels whose offset is past undelivered messages, or past the end of their queue.

    Mirrors ScheduleMessageService#executeOnTimeUp, which stores what it delivers, so that the log has a record from
    then; and #correctDelayOffset (4.9.2 to 5.5.0), which sets an offset beyond the queue to its end; releases before
    let the level skip messages. Level n has queue n - 1.
    """
    if store.queues_in_rocksdb:
        return
    corrected = store.rules.corrects_delay_offsets
    for level, offset in sorted((store.configs["delayOffset.json"].value or {}).items()):
        end = end_after_start(store, (SCHEDULE_TOPIC, level - 1))
        right = min(_first_not_due(store, level), end)
        if offset <= right:
            continue
        if is_ahead := right < end:
            then = f"and {min(offset, end) - right} messages before it were not due when the log ended: they are never "
            then += "delivered"
        else:
            then = f"its queue ends at {end}: "
            then += "the broker sets it back" if corrected else f"the level would skip the next {offset - end} messages"
        yield Reason(
            "delay_offset_ahead" if is_ahead else "delay_offset_beyond_queue",
            f"delay level {level} stands at {offset}, {then}",
            found=offset,
            expected=f"at most {right}",
            cure=f"in {quoted(store.place('config', 'delayOffset.json'))}, set {level}:{offset} to {level}:{right}",
            unsafe=not (store.is_slave if is_ahead else corrected),
        )


def delay_offsets_behind(store: StoppedStore) -> Iterator[Reason]:
    """Yields delay levels that stand before messages which were due when the log ended: what of them was delivered is
    delivered again, of a level without an offset everything. A level whose messages were due long before the log's end
    had its offset written: that was lost.

    Mirrors ScheduleMessageService#start, which begins at 0 without an offset, and #persist, every ten seconds and at
    the stop (4.9.8 to 5.5.1).
    """
    config = store.configs["delayOffset.json"]
    if config.ends_the_start or config_is_absent(store):
        return
    served, torn = config.value or {}, config.taken is None and not config.is_absent
    again: dict[bool, dict[int, int]] = {True: {}, False: {}}
    for level, queue in _delay_queues(store):
        due = min(_first_not_due(store, level), end_after_start(store, (SCHEDULE_TOPIC, level - 1)))
        if (count := due - max(served.get(level, 0), queue.begin)) > 0:
            known = torn or _first_not_due(store, level, store.tail.time - _WRITTEN_MS) > queue.begin
            again[known and level not in served][level] = count
    for lost, counts in again.items():
        if counts:
            count, has = sum(counts.values()), "no offset" if lost else "an earlier offset, or none,"
            yield Reason(
                "delay_offset_behind",
                f"{config.name} has {has} of delay levels {list(counts)}, and {count} messages from there on were due "
                "when the log ended: those that were delivered come a second time",
                found=counts,
                expected="no message that was due",
                cure=f"put a copy of {quoted(config.main.path)} in place that is as new as the log; or nothing, if "
                f"{count} messages may come twice",
                unsafe=lost,
            )


def delay_levels_absent(store: StoppedStore) -> Iterator[Reason]:
    """Yields a messageDelayLevel that no broker takes, and levels that it lacks while messages wait at them.

    Mirrors ScheduleMessageService#parseDelayLevel, which ends a start, and #start, which serves the levels of the
    setting alone (4.9.8 to 5.5.1).
    """
    setting = store.conf.text("messageDelayLevel", DEFAULT_DELAY_LEVELS)
    try:
        levels = len(parse_delay_levels(setting))
    except WrongSettings as error:
        yield Reason(
            "delay_level_absent",
            f"messageDelayLevel has '{error.found}', and the broker does not start",
            found=setting,
            expected="numbers, each with s, m, h or d",
            cure="set messageDelayLevel right in broker.conf",
        )
        return
    served = store.configs["delayOffset.json"].value or {}
    waiting: dict[int, int] = {}
    for level, queue in _delay_queues(store):
        count = end_after_start(store, (SCHEDULE_TOPIC, level - 1)) - max(served.get(level, 0), queue.begin)
        if level > levels and count > 0:
            waiting[level] = count
    if waiting:
        most = max(waiting)
        yield Reason(
            "delay_level_absent",
            f"{sum(waiting.values())} messages wait at delay levels {list(waiting)}, messageDelayLevel has {levels}: "
            "they are never delivered",
            found=levels,
            expected=f"at least {most}",
            cure=f"give messageDelayLevel {most} levels in broker.conf, the first ones as they were",
        )


def _delay_queues(store: StoppedStore) -> list[tuple[int, QueueEnd]]:
    """Returns the delay levels that have a queue in files, and their queues: level n has queue n - 1."""
    queues = {} if store.queues_in_rocksdb else store.queues
    return sorted((queue_id + 1, queue) for (topic, queue_id), queue in queues.items() if topic == SCHEDULE_TOPIC)


def _first_not_due(store: StoppedStore, level: int, time: int | None = None) -> int:
    """Returns the queue offset of the first message of a delay level that was due after a time, by default that of the
    log's last record; when a message is due is the tags code of its unit. Without such a queue, the largest.
    """
    queue = store.queues.get((SCHEDULE_TOPIC, level - 1))
    if queue is None or not store.tail.time:
        return 1 << 62

    def due(place: int) -> int:
        return int(queue_ends.units_at(queue, np.array([place]))["tags_code"][0])

    return bisect_right(range(queue.end), store.tail.time if time is None else time, lo=queue.begin, key=due)
