"""Rules on committed offsets, delay levels, timer state and epochs that do not fit their queues or the log."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from jobs.contract.report import quoted
from jobs.preflight.configuration import config_is_absent
from jobs.preflight.stopped_store import Reason, StoppedStore, first_of
from storeformat.errors import WrongSettings
from storeformat.message import SCHEDULE_TOPIC
from storeformat.record.dispatch import TIMER_TOPIC, parse_delay_levels
from storeformat.storage import files
from storeformat.store import config_files, queue_ends
from storeformat.store.config_files import Offsets, known_groups
from storeformat.store.queue_ends import QueueEnd
from storeformat.store.timer_files import LOG, TIMER_CHECK, WHEEL, WHEEL_SIZE

_WRITTEN_MS = 60_000  # a broker writes the offsets of delay levels every ten seconds (``flushDelayOffsetInterval``)
_MADE_WITHOUT_QUEUES = ("rmq_sys_", "%LMQ%")
_EPOCHS = "epochFileCheckpoint"
_IDENTITY = "brokerIdentity"  # what a member keeps of its registration with the controller (5.1.0 and later)
_NUMBER = re.compile("[+-]?[0-9]+")
_FILES_REVISED = 2  # files at the end of the timer log whose entries recovery puts back into the wheel


def end_after_start(store: StoppedStore, key: tuple[str, int]) -> int:
    """The queue offset after a queue's last message once recovery is over."""
    return store.replayed[key].end if key in store.replayed else 0


def no_offsets(store: StoppedStore, replicas: Mapping[str, Offsets] | None = None) -> Iterator[Reason]:
    """A sound file of offsets without any beside groups that the store knows, or that a ``.bak`` or a replica has; and
    a note where these have groups that the file lacks.

    Mirrors ClientManageProcessor#heartBeat, which makes the retry topic of a group, and ConsumerOffsetManager#persist:
    a broker that started without offsets leaves an empty table. So does a slave of 5.5.0, which cannot read those of
    its master (SlaveSynchronize#syncConsumerOffset). Groups in pullOffsetTable (5.5.0) have pulled and not committed:
    they broadcast, and keep their own offsets.
    """
    config = store.offsets_file
    messages = store.queues or store.tail.rows.keys
    if store.config_in_databases or config.taken is None or not messages:
        return
    copies = {"its .bak": config.backup.value or {}, **(replicas or {})}
    if config.value:
        own = set(known_groups((), (), config.value))
        for name, offsets in copies.items():
            if lacking := sorted(set(known_groups((), (), offsets)) - own):
                first = first_of(lacking)
                yield Reason.of("no_offsets.lacking", copy=name, count=len(lacking), name=config.name, first=first)
        return
    document = config_files.parse(config.taken.text)
    pulled = document.get("pullOffsetTable") if isinstance(document, dict) else None
    broadcasting = {key.partition("@")[2] for key in pulled} if isinstance(pulled, dict) else set()
    topics = {*(store.configs["topics.json"].value or {}), *(topic for topic, _ in messages)}
    known = known_groups(topics, store.configs["subscriptionGroup.json"].value or {}, *copies.values())
    groups = [group for group in known if group not in broadcasting]
    if groups:
        holders = [name for name, offsets in copies.items() if offsets]
        yield Reason.of(
            "no_offsets.none",
            unsafe=not store.is_slave,
            name=config.name,
            count=len(groups),
            first=first_of(groups),
            held=sum(queue.end - queue.begin for queue in store.queues.values()),
            copies=f"{' and '.join(holders)} has offsets" if holders else "a slave of 5.5.0 gets none from its master",
            path=quoted(config.main.path),
        )


def committed_outside_queue(store: StoppedStore) -> Iterator[Reason]:
    """Groups that committed an offset beyond the end of a queue skip new messages until the queue reaches it; those
    that committed one before its first message go on there, the messages between are gone.

    Mirrors ConsumerOffsetManager#queryOffset, PullMessageProcessor with OFFSET_OVERFLOW_BADLY (4.9.8 to 5.5.0), and
    DefaultMessageStore#getMessage with OFFSET_TOO_SMALL (4.9.8 to 5.5.0).
    """
    topics, slave = store.configs["topics.json"].value, store.is_slave
    found = {} if store.config_in_databases else store.offsets_file.value or {}
    first_offset = cache(lambda key: _first_in_log(store.queues[key], store.log.begin))
    outside = []
    for (topic, group), own in found.items():
        for queue_id, committed in own.items():
            queue = store.queues.get((topic, queue_id))
            is_before = queue and committed < queue.end and committed < first_offset((topic, queue_id))
            if is_before or committed > end_after_start(store, (topic, queue_id)):
                outside.append((topic, group, queue_id, committed))
    for topic, group, queue_id, committed in sorted(outside):
        values: dict[str, Any] = {"topic": topic, "group": group, "queue_id": queue_id, "committed": committed}
        end = end_after_start(store, (topic, queue_id))
        if committed > end:
            deleted = topics is not None and topic not in topics and not topic.startswith(_MADE_WITHOUT_QUEUES)
            yield Reason.of(
                "committed_beyond_queue",
                unsafe=not (deleted or slave),
                end=end,
                skipped=committed - end,
                but=", but the topic is not configured" * deleted
                + ", but a slave has its master's offsets, and reads on" * slave,
                path=quoted(store.offsets_file.main.path),
                name=json.dumps(f"{topic}@{group}", ensure_ascii=False),
                **values,
            )
        else:
            begin = first_offset((topic, queue_id))
            yield Reason.of("committed_before_queue", begin=begin, gone=begin - committed, **values)


def _first_in_log(queue: QueueEnd, log_begin: int) -> int:
    """Queue offset of the first message that the log still has."""
    return max(queue.begin, queue_ends.offset_at(queue, log_begin)) if log_begin else queue.begin


def delay_offsets_beyond_queue(store: StoppedStore) -> Iterator[Reason]:
    """Delay levels whose offset is past undelivered messages, or past the end of their queue.

    Mirrors ScheduleMessageService#executeOnTimeUp, which stores what it delivers, so that the log has a record from
    then; and #correctDelayOffset (4.9.2 to 5.5.0), which sets an offset beyond the queue to its end; releases before
    let the level skip messages. Level n has queue n - 1.
    """
    if store.queues_in_rocksdb:
        return
    path, corrected = quoted(store.place("config", "delayOffset.json")), store.rules.corrects_delay_offsets
    for level, offset in sorted((store.configs["delayOffset.json"].value or {}).items()):
        end = end_after_start(store, (SCHEDULE_TOPIC, level - 1))
        right = min(_first_not_due(store, level), end)
        values: dict[str, Any] = {"level": level, "offset": offset, "path": path, "right": right}
        if right < min(end, offset):
            skipped = min(offset, end) - right
            yield Reason.of("delay_offset_ahead", unsafe=not store.is_slave, skipped=skipped, **values)
        elif offset > right:
            then = "the broker sets it back" if corrected else f"the level would skip the next {offset - end} messages"
            yield Reason.of("delay_offset_beyond_queue", unsafe=not corrected, end=end, then=then, **values)


def delay_offsets_behind(store: StoppedStore) -> Iterator[Reason]:
    """Delay levels that stand before messages which were due when the log ended: what of them was delivered is
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
            values: dict[str, Any] = {"levels": list(counts), "count": sum(counts.values())}
            case = "lost" if lost else "earlier"
            yield Reason.of(f"delay_offset_behind.{case}", name=config.name, path=quoted(config.main.path), **values)


def delay_levels_absent(store: StoppedStore) -> Iterator[Reason]:
    """A messageDelayLevel that no broker takes, and levels that it lacks while messages wait at them.

    Mirrors ScheduleMessageService#parseDelayLevel, which ends a start, and #start, which serves the levels of the
    setting alone (4.9.8 to 5.5.1).
    """
    try:
        levels = len(parse_delay_levels(store.settings.text("messageDelayLevel")))
    except WrongSettings as error:
        yield Reason.of("delay_level_absent.setting", found=error.found)
        return
    served = store.configs["delayOffset.json"].value or {}
    waiting: dict[int, int] = {}
    for level, queue in _delay_queues(store):
        count = end_after_start(store, (SCHEDULE_TOPIC, level - 1)) - max(served.get(level, 0), queue.begin)
        if level > levels and count > 0:
            waiting[level] = count
    if waiting:
        count = sum(waiting.values())
        yield Reason.of("delay_level_absent", count=count, at=list(waiting), levels=levels, most=max(waiting))


def _delay_queues(store: StoppedStore) -> list[tuple[int, QueueEnd]]:
    """The delay levels that have a queue in files, and their queues: level n has queue n - 1."""
    queues = {} if store.queues_in_rocksdb else store.queues
    return sorted((queue_id + 1, queue) for (topic, queue_id), queue in queues.items() if topic == SCHEDULE_TOPIC)


def _first_not_due(store: StoppedStore, level: int, time: int | None = None) -> int:
    """The queue offset of the first message of a delay level that was due after a time, by default that of the
    log's last record. Without such a queue, the largest.
    """
    queue = store.queues.get((SCHEDULE_TOPIC, level - 1))
    if queue is None or not store.tail.time:
        return 1 << 62
    return queue_ends.first_not_due(queue, store.tail.time if time is None else time)


def timer_state(store: StoppedStore) -> Iterator[Reason]:
    """Combinations of timer wheel, timer log and ``timercheck`` with which waiting messages are never delivered,
    delivered twice, or the broker does not start.

    Mirrors TimerWheel's constructor, TimerLog#load and TimerMessageStore#recover, #recoverAndRevise and
    #reviseQueueOffset (5.0.0 to 5.5.0). What ``timercheck`` calls queued is looked for in wheel and log alone; without
    it, or with a 0 in it, everything that the timer queue has is queued again.
    """
    timers = store.timers
    if not store.rules.reads_batches_and_timers or not store.settings.flag("timerWheelEnable"):
        return
    check = store.place("config", TIMER_CHECK)
    if timers.wheel_size not in (None, 0, WHEEL_SIZE):
        aside = store.set_aside(store.place(WHEEL), check)
        yield Reason.of("timer_wheel_size", size=timers.wheel_size, aside=aside)
        return
    log_size = store.settings.number("mappedFileSizeTimerLog")
    wrong = [size for size in timers.log_sizes if size != log_size]
    if wrong and store.settings.from_file:
        yield Reason.of("timer_log_size", size=wrong[0])
    queue = store.queues.get((TIMER_TOPIC, 0))
    if beyond := list(_beyond_log(store, 0 if queue is None else queue.end)):
        yield from beyond
        return
    waiting = 0 if queue is None else queue.end - queue.begin
    if queue is None or not waiting or store.settings.flag("timerRocksDBEnable"):  # it has its own offset
        return
    has_wheel, has_log = bool(timers.wheel_size), bool(timers.log_sizes)
    queued = 0 if timers.queued_up_to is None else max(min(timers.queued_up_to, queue.end) - queue.begin, 0)
    if not queued:
        still = ", and so do those that wait, for wheel and log still hold them" * (has_wheel and has_log)
        yield Reason.of("timer_state_lost.check", waiting=waiting, still=still)
    elif not (has_wheel and has_log) and not (has_log and len(timers.log_sizes) <= _FILES_REVISED):
        lost = " and ".join(name for name, there in ((WHEEL, has_wheel), (f"{LOG}/", has_log)) if not there)
        yield Reason.of("timer_state_lost.queued", lost=lost, queued=queued, aside=store.set_aside(check))


def _beyond_log(store: StoppedStore, end: int) -> Iterator[Reason]:
    """Timer state of messages that neither the log nor its queue, which ends at ``end``, has: 5.1.1 and 5.3.3 stop
    delivering timers when they meet it. And messages whose slots were delivered after the log's last record, so that
    what was delivered is lost: no slot is looked at twice (TimerMessageStore#dequeue, 5.0.0 to 5.5.0).
    """
    timers, tail = store.timers, store.tail
    rows = tail.rows.by_queue.get((TIMER_TOPIC, 0))
    end = max(end, int(tail.rows.queue_offsets[rows].max()) + 1 if rows is not None else 0)
    if not store.log.segments or store.log.of_group or tail.damage.goes_on_at is not None:
        return
    units = int((timers.ends > tail.end).sum())
    offsets = max((timers.queued_up_to or 0) - end, 0)
    if units or offsets:
        yield Reason.of("timer_beyond_log", units=units, offsets=offsets)
    elif tail.time and (count := int(timers.delivered(tail.time).sum())):
        yield Reason.of("timer_beyond_log.delivered", unsafe=not store.is_slave, count=count)


def epoch_file(store: StoppedStore) -> Iterator[Reason]:
    """An epoch file that a broker of a controller's group cannot read, or has lost.

    Mirrors CheckpointFile#read and EpochFileCache#initCacheFromFile (5.0.0 to 5.5.0): number of lines, CRC32 of the
    lines (0: not checked), the lines ``epoch-offset``. Where these do not fit, or there are none, the ``.bak`` is read;
    where that does not fit either, AutoSwitchHAService begins without a history. AutoSwitchHAClient#doTruncate then
    skips the comparison, and the member goes on at its own log's end; as master it knows its new epoch alone, in which
    EpochFileCache#findConsistentPoint of the others finds no place. What should be a number and is none is no
    IOException: it ends the start (DefaultMessageStore#start), whatever the ``.bak`` holds.
    """
    if not store.settings.flag("enableControllerMode"):
        return
    path = store.settings.text("storePathEpochFile") or store.place(_EPOCHS)
    main, backup = _epochs(path), _epochs(path + ".bak")
    if main == "sound":
        return
    if "not numbers" in (main, backup):
        wrong, other = (path, backup) if main == "not numbers" else (path + ".bak", main)
        also = "" if other == "sound" else ", and put a sound copy in place"
        yield Reason.of("epoch_file.not_numbers", path=wrong, aside=store.set_aside(wrong), also=also)
    elif backup == "sound":
        yield Reason.of("epoch_file.backup", state=main)
    elif store.log.segments:
        was_member = files.exists(store.settings.text("storePathBrokerIdentity") or store.place(_IDENTITY))
        unsafe = was_member or "torn" in (main, backup)
        yield Reason.of("epoch_file.lost", unsafe=unsafe, state=main, backup=backup)


def _epochs(path: str) -> str:
    """``absent``, ``torn``, ``not numbers`` or ``sound``."""
    if files.size_of(path) is None:
        return "absent"
    try:
        lines = re.split("\r\n|\r|\n", files.read_bytes(path).decode())
    except UnicodeDecodeError:
        return "torn"
    lines = lines[:-1] if lines[-1] == "" else lines
    entries = [entry for line in lines[2:] if len(entry := line.rstrip("-").split("-")) == 2]
    numbers = [*(lines[:2] if len(lines) > 1 else [""]), *(number for entry in entries for number in entry)]
    if not all(_NUMBER.fullmatch(number) for number in numbers):
        return "not numbers"
    crc = zlib.crc32("".join(f"{line}\n" for line in lines[2:]).encode()) & 0x7FFFFFFF
    if len(entries) != int(lines[0]) or int(lines[1]) not in (0, crc):
        return "torn"
    return "sound" if entries else "absent"
