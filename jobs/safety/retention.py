"""Rules on what the broker deletes soon after its start: segments that are older than it keeps them, or a full disk."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from jobs.safety.evidence import Evidence
from jobs.safety.reason import Reason
from jobs.safety.start_settings import StartSettings
from storeformat.log.segments import Segment
from storeformat.storage import local_status, locations
from storeformat.storage.local_status import FileStatus
from storeformat.store import queue_ends

_HOUR_MS = 3_600_000
_RESERVED_HOURS = 72
_FORCED_PERCENT = 85
_WRITABLE_PERCENT = (10, 95)


@dataclass(frozen=True)
class Doomed:
    """Segments that the next cleaning deletes: the log begins at ``begin`` then."""

    count: int
    begin: int
    forced: bool
    hours: int
    """Until it is time: 0 at once."""


def doomed_segments(evidence: Evidence) -> Doomed | None:
    """Returns what the next cleaning deletes of a store's log, None for nothing."""
    return doomed(evidence.log.files, evidence.settings, evidence.now_ms)


def doomed(segments: Sequence[FileStatus], settings: StartSettings, now_ms: int) -> Doomed | None:
    """Returns what the next cleaning deletes of these segments, None for nothing.

    Mirrors CleanCommitLogService#deleteExpiredFiles, #isTimeToDelete, #isSpaceToDelete and
    MappedFileQueue#deleteExpiredFileByTime (4.9.8 to 5.5.0): from the first segment on while it is older than
    ``fileReservedTime`` hours, never the last one; in the hours of ``deleteWhen``, or at once where the disk is fuller
    than ``diskMaxUsedSpaceRatio``; above 85 %, with ``cleanFileForciblyEnable``, whatever its age.
    """
    used = local_status.space_of(locations.parent_of(segments[0].path)).used_percent if segments else 0
    reserved = settings.number("fileReservedTime", _RESERVED_HOURS) * _HOUR_MS
    forced = used > min(settings.number("diskSpaceCleanForciblyRatio", _FORCED_PERCENT), _FORCED_PERCENT)
    forced = forced and settings.flag("cleanFileForciblyEnable", default=True)
    low, high = _WRITABLE_PERCENT
    hours = _hours_until(settings.text("deleteWhen", "04"), now_ms)
    at_once = used > min(max(settings.number("diskMaxUsedSpaceRatio", 75), low), high)
    due_ms = now_ms + (0 if at_once else hours * _HOUR_MS)
    count = 0
    for file in segments[:-1]:
        if not forced and file.modified_ms + reserved > due_ms:
            break
        count += 1
    if not count:
        return None
    return Doomed(count, int(segments[count].name), forced, 0 if forced or at_once else hours)


def retention_notes(segments: Sequence[Segment], settings: StartSettings) -> list[str]:
    """Returns a note where a broker that is started on a log now deletes a part of it; nothing for remote logs."""
    found = [local_status.status_of(segment.path) for segment in segments if locations.is_local(segment.path)]
    there = [status for status in found if status is not None]
    part = doomed(there, settings, int(time.time() * 1000))
    if part is None:
        return []
    hours = settings.number("fileReservedTime", _RESERVED_HOURS)
    why = "the disk is too full" if part.forced else f"they are older than fileReservedTime ({hours} h)"
    when = "at once" if part.hours == 0 else f"within {part.hours} h (deleteWhen {settings.text('deleteWhen', '04')})"
    told = "" if settings.told else "; --broker-conf tells the broker's own settings"
    what = f"{part.count} of {len(there)} segments {when}, all messages before offset {part.begin}"
    cure = "raise fileReservedTime, or touch the segments, before the start"
    return [f"retention: a broker that starts now deletes {what}: {why}; {cure}{told}"]


def _hours_until(delete_when: str, now_ms: int) -> int:
    """Returns the hours until one of ``deleteWhen`` begins, 0 within it (UtilAll#isItTimeToDo, the machine's zone)."""
    now = time.localtime(now_ms / 1000).tm_hour
    hours = [int(text) for text in delete_when.split(";") if text.strip().isdigit()]
    return min(((hour - now) % 24 for hour in hours if 0 <= hour < 24), default=24)


def messages_deleted(evidence: Evidence) -> Iterator[Reason]:
    """Yields what is deleted soon after the start: how much of the log, when, and which groups have not read it.

    A group counts where it has committed an offset in a queue that lies before what stays. Mirrors what
    ``doomed_segments`` names; DefaultMessageStore#getMessage answers OFFSET_TOO_SMALL for what is gone.
    """
    doomed = doomed_segments(evidence)
    if doomed is None:
        return
    when = "at once" if doomed.hours == 0 else f"within {doomed.hours} h"
    why = "the disk is too full" if doomed.forced else "they are older than fileReservedTime"
    unread = dict(_unread(evidence, doomed.begin))
    told = ""
    if unread:
        (group, topic), most = max(unread.items(), key=lambda item: item[1])
        told = f"; {sum(unread.values()):,} messages of them some group has not read, most of all {group} in {topic}"
        told += f" ({most:,})"
    yield Reason(
        "messages_deleted",
        f"{doomed.count} of {len(evidence.log.files)} segments, up to offset {doomed.begin}, are deleted {when}: {why}"
        + told,
        found=doomed.begin,
        expected=evidence.log.begin,
        cure="free some space before the start"
        if doomed.forced
        else "raise fileReservedTime in broker.conf until the "
        "groups have read them, or give the segments a new time: touch " + evidence.log.directories[0] + "/*",
        unsafe=bool(unread),
    )


def _unread(evidence: Evidence, begin: int) -> Iterator[tuple[tuple[str, str], int]]:
    """Yields the messages before a log offset that each group (group, topic) has not read."""
    unread: dict[tuple[str, str], int] = {}
    cached: dict[tuple[str, int], int] = {}
    for (topic, group), offsets in (evidence.configs["consumerOffset.json"].value or {}).items():
        for queue_id, committed in offsets.items():
            queue = evidence.queues.get((topic, queue_id))
            if queue is None or committed >= queue.end:
                continue
            key = (topic, queue_id)
            if key not in cached:
                cached[key] = queue_ends.offset_at(queue, begin)
            lost = cached[key] - max(committed, queue.begin)
            if lost > 0:
                unread[group, topic] = unread.get((group, topic), 0) + lost
    yield from unread.items()
