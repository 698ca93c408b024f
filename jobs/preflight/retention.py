"""Rules on what the broker deletes soon after its start: segments that are older than it keeps them, or a full disk."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from jobs.contract.commands import command
from jobs.preflight.reason import Reason
from jobs.preflight.stopped_store import StoppedStore
from storeformat.javacompat import parse_int
from storeformat.log.segments import Segment
from storeformat.storage import local_status, locations
from storeformat.storage.local_status import FileStatus
from storeformat.store import queue_ends
from storeformat.store.broker_conf import BrokerConf
from storeformat.store.broker_rules import BrokerRules
from storeformat.store.layout import CONSUME_QUEUE

HOUR_MS = 3_600_000


@dataclass(frozen=True)
class Doomed:
    """Segments that the next cleaning deletes: the log begins at ``begin`` then."""

    count: int
    begin: int
    forced: bool
    hours: int
    """Until it is time: 0 at once."""

    @property
    def when(self) -> str:
        return "at once" if self.hours == 0 else f"within {self.hours} h"

    @property
    def why(self) -> str:
        return "the disk is too full" if self.forced else "they are older than fileReservedTime"


def doomed(
    segments: Sequence[FileStatus], paths: Sequence[str], settings: BrokerConf, rules: BrokerRules, now_ms: int
) -> Doomed | None:
    """Returns what the next cleaning deletes of these segments, None for nothing; ``paths`` are the directories of the
    log, and that of the queues.

    Mirrors DefaultMessageStore.CleanCommitLogService#deleteExpiredFiles, #isTimeToDelete, #isSpaceToDelete and
    MappedFileQueue#deleteExpiredFileByTime (4.9.8 to 5.5.0): from the first segment on while it is older than
    ``fileReservedTime`` hours, never the last one; in the hours of ``deleteWhen``, or at once where a disk is fuller
    than ``diskMaxUsedSpaceRatio`` (10 to 95 %). With ``cleanFileForciblyEnable`` whatever its age where a disk is
    fuller than

    ==============  ===================================================================================
    4.9.8           85 %, once it is time to delete
    5.0.0 to 5.5.0  ``diskSpaceCleanForciblyRatio``, between 30 and 85 %, or ``diskSpaceWarningLevelRatio``,
                    between 35 and 90 %; then it is always time
    ==============  ===================================================================================
    """
    if len(segments) < 2:
        return None
    used = _used_percent(paths)
    reserved = settings.reserved_ms
    forcibly = min(max(settings.number("diskSpaceCleanForciblyRatio", 85), 30), 85) if rules.deletes_at_once else 85
    too_full = used > forcibly or used > warning_percent(settings, rules)
    forced = too_full and settings.flag("cleanFileForciblyEnable", default=True)
    hours = _hours_until(settings.text("deleteWhen", "04"), now_ms)
    at_once = used > min(max(settings.number("diskMaxUsedSpaceRatio", 75), 10), 95)
    at_once = at_once or (too_full and rules.deletes_at_once)
    due_ms = now_ms + (0 if at_once else hours * HOUR_MS)
    count = 0
    for file in segments[:-1]:
        if not forced and file.modified_ms + reserved > due_ms:
            break
        count += 1
    if not count:
        return None
    return Doomed(count, int(segments[count].name), forced, 0 if at_once else hours)


def warning_percent(settings: BrokerConf, rules: BrokerRules) -> int:
    """Returns the percent in use from which on a broker takes no message, and from 5.0.0 on deletes at once."""
    return min(max(settings.number("diskSpaceWarningLevelRatio", 90), 35), 90) if rules.deletes_at_once else 90


def _used_percent(paths: Sequence[str]) -> int:
    """Returns how full the emptiest disk of the log is, or that of the queues if it is fuller."""
    *log, queues = [
        local_status.space_of(path).used_percent if local_status.status_of(path) is not None else 0 for path in paths
    ]
    return max(min(log, default=0), queues)


def retention_notes(root: str, segments: Sequence[Segment], settings: BrokerConf, rules: BrokerRules) -> list[str]:
    """Returns a note where a broker that is started on a log now deletes a part of it; nothing for remote logs."""
    found = [local_status.status_of(segment.path) for segment in segments if locations.is_local(segment.path)]
    there = [status for status in found if status is not None]
    directories = dict.fromkeys(locations.parent_of(status.path) for status in there)
    paths = (*directories, locations.join(root, CONSUME_QUEUE))
    part = doomed(there, paths, settings, rules, int(time.time() * 1000))
    if part is None:
        return []
    why = part.why if part.forced else f"{part.why} ({settings.reserved_hours} h)"
    when = part.when if part.hours == 0 else f"{part.when} (deleteWhen {settings.text('deleteWhen', '04')})"
    hint = "" if settings.from_file else "; give --broker-conf to use the broker's own settings"
    what = f"{part.count} of {len(there)} segments {when}, all messages before offset {part.begin}"
    cure = "raise fileReservedTime, or touch the segments, before the start"
    return [f"retention: a broker that starts now deletes {what}: {why}; {cure}{hint}"]


def _hours_until(delete_when: str, now_ms: int) -> int:
    """Returns the hours until one of ``deleteWhen`` begins, 0 within it (UtilAll#isItTimeToDo, the machine's zone)."""
    now = time.localtime(now_ms / 1000).tm_hour
    hours = [parse_int(text.strip()) for text in delete_when.split(";")]
    return min(((hour - now) % 24 for hour in hours if hour is not None and 0 <= hour < 24), default=24)


def messages_deleted(store: StoppedStore) -> Iterator[Reason]:
    """Yields what is deleted soon after the start: how much of the log, when, and which groups have not read it.

    A group counts for topics in which it has committed an offset. Mirrors what ``doomed`` names;
    DefaultMessageStore#getMessage answers OFFSET_TOO_SMALL for what is gone.
    """
    paths = (*store.log.directories, store.place(CONSUME_QUEUE))
    part = doomed(store.log.files, paths, store.conf, store.rules, store.now_ms)
    if part is None:
        return
    unread, note = _unread(store, part.begin), ""
    for (group, topic), most in unread.most_common(1):
        count = sum(unread.values())
        note = f"; {count:,} messages of them some group has not read, most of all {group} in {topic} ({most:,})"
    yield Reason(
        "messages_deleted",
        f"{part.count} of {len(store.log.files)} segments, up to offset {part.begin}, are deleted {part.when}: "
        f"{part.why}{note}",
        found=part.begin,
        expected=store.log.begin,
        cure="free some space before the start"
        if part.forced
        else "raise fileReservedTime in broker.conf until the "
        f"groups have read them, or give the segments a new time: {command('touch', '--', store.log.directories[0])}/*",
        unsafe=bool(unread),
    )


def _unread(store: StoppedStore, begin: int) -> Counter[tuple[str, str]]:
    """Returns the messages before a log offset that each group (group, topic) has not read. Of a queue in which it has
    no offset, but has one in another queue of the topic, it has read none.
    """
    committed = {key: offsets for key, offsets in (store.offsets_file.value or {}).items() if offsets}
    deleted: dict[str, dict[int, tuple[int, int]]] = {topic: {} for topic, _ in committed}
    for topic, queue_id in {*store.queues, *store.tail.keys}:
        if topic in deleted:
            deleted[topic][queue_id] = _deleted(store, (topic, queue_id), begin)
    unread: Counter[tuple[str, str]] = Counter()
    for (topic, group), offsets in committed.items():
        for queue_id, (first, kept) in deleted[topic].items():
            unread[group, topic] += max(kept - max(offsets.get(queue_id, 0), first), 0)
    return +unread


def log_begins_late(store: StoppedStore) -> Iterator[Reason]:
    """Yields that the queues have messages from before a log whose first one is too young for them to have been deleted
    for their age: a disk that is too full does that (``doomed``), and so does a hand.
    """
    begin, hours = store.log.begin, store.conf.reserved_hours
    if not begin or not store.begins_young:
        return
    before = [queue_ends.offset_at(queue, begin) - queue.begin for queue in store.queues.values() if not queue.batch]
    if count := sum(before):
        yield Reason(
            "log_begins_late",
            f"the log begins at offset {begin}, after {count} messages that queues still have, though its first one is "
            f"younger than the {hours} hours of fileReservedTime",
            found=begin,
            expected=0,
            cure="nothing, if the disk was too full; else put the segments back that are missing",
            unsafe=False,
        )


def _deleted(store: StoppedStore, key: tuple[str, int], begin: int) -> tuple[int, int]:
    """Returns the first queue offset of a queue, and that of its first message from a log offset on; messages that are
    in no queue yet, but will be dispatched again, count.
    """
    queue, tail = store.queues.get(key), store.tail
    first, kept = (queue.begin, queue_ends.offset_at(queue, begin)) if queue is not None else (0, 0)
    if key in tail.rows_of:
        rows = tail.rows_of[key]
        covered = (tail.offsets[rows] < begin) & store.redispatch.covers(tail.offsets[rows])
        again = tail.queue_offsets[rows[covered]].tolist()
        if again:
            first, kept = (first if queue is not None else again[0]), max(kept, again[-1] + 1)
    return first, kept
