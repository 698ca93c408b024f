"""What a start dispatches again, by the rules of its release, and what is deleted soon after it.

Messages that recovery dispatches again reach their queues without help: after a crash (``abort``) those from the
segment that the checkpoint shows, after a clean stop those after the end of the furthest queue, or none. Mirrors
CommitLog#recoverNormally, #recoverAbnormally, #isMappedFileMatchedRecover, DefaultMessageStore#start (4.9.8 to 5.5.0),
ConsumeQueueStore#isMappedFileMatchedRecover (5.5.0) and #doRecheckReputOffsetFromCq (5.0.0). For a name of several
releases, the worst counts.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from storeformat.arrays import Bools, Int64s
from storeformat.javacompat import parse_int
from storeformat.log.segments import Segment
from storeformat.message import MAX_HEAD_SIZE
from storeformat.record.decode import store_timestamp_at
from storeformat.storage import files
from storeformat.storage.files import FileStatus, RangeReader
from storeformat.store.broker_rules import MOST_RECOVERED_SEGMENTS, BrokerRules
from storeformat.store.checkpoint import StoreCheckpoint
from storeformat.store.settings import Settings

NEVER = (1 << 63) - 1
_MARGIN_MS = 3000
HOUR_MS = 3_600_000
_LOOKS_AT_MORE = ("messageIndexSafe", "transRocksDBEnable", "indexRocksDBEnable", "timerRocksDBEnable")


@dataclass(frozen=True)
class Redispatch:
    """Records from ``begin`` on are dispatched again, except a record that begins exactly at ``skipped``."""

    begin: int = NEVER
    skipped: int = -1

    def covers(self, offsets: Int64s | int) -> Bools:
        return np.asarray((offsets >= self.begin) & (offsets != self.skipped))


def recovered_from(segments: Sequence[Segment], rules: BrokerRules, settings: Settings) -> int:
    """Lowest offset that recovery reads."""
    if not rules.bounded_recovery:
        return segments[0].base
    most = settings.number("commitLogRecoverMaxNum")
    return segments[-(most if most > 0 else MOST_RECOVERED_SEGMENTS) :][0].base


def redispatch(
    segments: Sequence[Segment],
    page: StoreCheckpoint,
    rules: BrokerRules,
    settings: Settings,
    furthest_unit: int,
    *,
    after_crash: bool,
) -> Redispatch:
    """What the next start dispatches again; ``furthest_unit`` is the end of the furthest queue, -1 for none."""
    if not segments:
        return Redispatch()
    first = recovered_from(segments, rules, settings)
    if after_crash:
        return Redispatch(_matched(segments, page, rules, settings, first))
    if not rules.trusts_clean_stop or settings.flag("recheckReputOffsetFromCq"):
        return Redispatch(max(furthest_unit, segments[0].base))
    if rules.dispatches_after_queues:
        return Redispatch(max(furthest_unit, first), furthest_unit)
    return Redispatch()


def looks_from(
    segments: Sequence[Segment], rules: BrokerRules, settings: Settings, furthest_unit: int, *, after_crash: bool
) -> int:
    """First offset that the next start reads, over all releases of the rules: damage before it has no effect.

    After a crash, and with queues in RocksDB, the start of the log: there checkpoints decide. Else the third-last
    segment, or the one in which the furthest queue ends.
    """
    if not segments or after_crash or (rules.knows_rocksdb and settings.queues_in_rocksdb):
        return segments[0].base if segments else 0
    third_last = segments[max(len(segments) - 3, 0)].base
    if not rules.starts_at_furthest_queue:
        return third_last
    reached = max((segment.base for segment in segments if segment.base <= furthest_unit), default=segments[0].base)
    if not rules.bounded_recovery:
        return min(third_last, reached)
    last_ten = recovered_from(segments, rules, settings)
    more = any(settings.flag(name) for name in _LOOKS_AT_MORE)
    return last_ten if more else max(reached, last_ten)


def _matched(
    segments: Sequence[Segment], page: StoreCheckpoint, rules: BrokerRules, settings: Settings, first: int
) -> int:
    """Base of the segment in which recovery after a crash begins."""
    limit = max(min(page.physic_msg_timestamp, page.logics_msg_timestamp) - _MARGIN_MS, 0)
    if settings.flag("messageIndexSafe"):
        limit = min(limit, page.index_msg_timestamp)
    by_offset = rules.checkpoint_queue_offset and page.logics_physical_offset > 0  # 5.5.0
    for segment in reversed(segments):
        if segment.base <= first:
            break
        with RangeReader(segment.path) as reader:
            time = store_timestamp_at(reader, 0) if any(reader.read(0, 8)) and segment.size > MAX_HEAD_SIZE else 0
        if not time:
            continue
        if by_offset and segment.base <= page.logics_physical_offset:
            return segment.base
        later = rules.checkpoint_queue_offset and not by_offset and time <= page.logics_msg_timestamp
        if later or (time <= limit and not by_offset):
            return segment.base
    return first


@dataclass(frozen=True)
class Doomed:
    """Segments that the next cleaning deletes; the log then begins at ``begin``."""

    count: int
    begin: int
    forced: bool
    hours: int  # until cleaning, 0: at once

    @property
    def when(self) -> str:
        return "at once" if self.hours == 0 else f"within {self.hours} h"


def doomed(
    segments: Sequence[FileStatus], paths: Sequence[str], settings: Settings, rules: BrokerRules, now_ms: int
) -> Doomed | None:
    """What the next cleaning deletes; ``paths`` are the log directories, then that of the queues.

    Mirrors DefaultMessageStore.CleanCommitLogService#deleteExpiredFiles, #isTimeToDelete, #isSpaceToDelete and
    MappedFileQueue#deleteExpiredFileByTime (4.9.8 to 5.5.0): never the last segment; those older than
    ``fileReservedTime`` in the hours of ``deleteWhen``, or at once where a disk is too full. With
    ``cleanFileForciblyEnable`` whatever their age where it is fuller still, once it is time (4.9.8), or at any time.
    """
    if len(segments) < 2:
        return None
    *log, queues = [files.space_of(path).used_percent if files.status_of(path) is not None else 0 for path in paths]
    used = max(min(log, default=0), queues)  # the emptiest disk of the log, or that of the queues if fuller
    forcibly = min(max(settings.number("diskSpaceCleanForciblyRatio"), 30), 85) if rules.deletes_at_once else 85
    too_full = used > forcibly or used > warning_percent(settings, rules)
    forced = too_full and settings.flag("cleanFileForciblyEnable")
    hours = _hours_until(settings.text("deleteWhen"), now_ms)
    at_once = used > min(max(settings.number("diskMaxUsedSpaceRatio"), 10), 95)
    at_once = at_once or (too_full and rules.deletes_at_once)
    due_ms = now_ms + (0 if at_once else hours * HOUR_MS)
    count = 0
    while count < len(segments) - 1 and (forced or segments[count].modified_ms + settings.reserved_ms <= due_ms):
        count += 1
    if not count:
        return None
    return Doomed(count, int(segments[count].name), forced, 0 if at_once else hours)


def warning_percent(settings: Settings, rules: BrokerRules) -> int:
    """Disk usage from which a broker refuses messages, and from 5.0.0 on deletes at once."""
    return min(max(settings.number("diskSpaceWarningLevelRatio"), 35), 90) if rules.deletes_at_once else 90


def _hours_until(delete_when: str, now_ms: int) -> int:
    """Hours until the next of ``deleteWhen``, 0 within it (UtilAll#isItTimeToDo, the machine's zone)."""
    now = time.localtime(now_ms / 1000).tm_hour
    hours = [parse_int(text.strip()) for text in delete_when.split(";")]
    return min(((hour - now) % 24 for hour in hours if hour is not None and 0 <= hour < 24), default=24)
