"""Segments that a broker deletes soon after its start, because of age or a full disk."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from storeformat.javacompat import parse_int
from storeformat.storage import local_status
from storeformat.storage.files import FileStatus
from storeformat.store.broker_conf import BrokerConf
from storeformat.store.broker_rules import BrokerRules

HOUR_MS = 3_600_000


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
    segments: Sequence[FileStatus], paths: Sequence[str], settings: BrokerConf, rules: BrokerRules, now_ms: int
) -> Doomed | None:
    """What the next cleaning deletes; ``paths`` are the log directories, then that of the queues.

    Mirrors DefaultMessageStore.CleanCommitLogService#deleteExpiredFiles, #isTimeToDelete, #isSpaceToDelete and
    MappedFileQueue#deleteExpiredFileByTime (4.9.8 to 5.5.0): never the last segment; those older than
    ``fileReservedTime`` in the hours of ``deleteWhen``, or at once where a disk is fuller than
    ``diskMaxUsedSpaceRatio`` (10 to 95 %). With ``cleanFileForciblyEnable`` whatever their age where it is fuller than
    85 %, once it is time (4.9.8), or at any time (5.0.0 and later) than ``diskSpaceCleanForciblyRatio`` (30 to 85 %) or
    ``diskSpaceWarningLevelRatio`` (35 to 90 %).
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
    """Disk usage from which a broker refuses messages, and from 5.0.0 on deletes at once."""
    return min(max(settings.number("diskSpaceWarningLevelRatio", 90), 35), 90) if rules.deletes_at_once else 90


def _used_percent(paths: Sequence[str]) -> int:
    """The emptiest disk of the log, or that of the queues if fuller."""
    *log, queues = [
        local_status.space_of(path).used_percent if local_status.status_of(path) is not None else 0 for path in paths
    ]
    return max(min(log, default=0), queues)


def _hours_until(delete_when: str, now_ms: int) -> int:
    """Hours until the next of ``deleteWhen``, 0 within it (UtilAll#isItTimeToDo, the machine's zone)."""
    now = time.localtime(now_ms / 1000).tm_hour
    hours = [parse_int(text.strip()) for text in delete_when.split(";")]
    return min(((hour - now) % 24 for hour in hours if hour is not None and 0 <= hour < 24), default=24)
