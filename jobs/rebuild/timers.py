"""Timer messages that still wait, and the files with which a broker delivers each of them once.

A message in the timer queue waits until a later record ends its wait: a delivery, or a copy that was stored anew.
Recalling messages leave no trace when they are done; all are taken, into the slot of the message that they recall.

The last unit shows the position in the timer queue. It is that of the queue's last message; if that one no longer
waits, its unit gets a slot before the time from which slots are delivered.

Mirrors TimerMessageStore#doEnqueue (5.0.0 to 5.4.0).
"""

from __future__ import annotations

import json
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from jobs.log.log_scan import LogReading
from storeformat.errors import Refused, WrongSettings
from storeformat.message import SCHEDULE_TOPIC
from storeformat.queues.consume_queue import MAX_QUEUE_OFFSET
from storeformat.record.dispatch import TIMER_TOPIC
from storeformat.store.config_files import DELAY_OFFSETS, read_config
from storeformat.store.queue_ends import first_not_due, queue_ends
from storeformat.store.settings import Settings
from storeformat.store.timer_files import (
    DEFAULT,
    DEFAULT_FILE_SIZE,
    DELETE,
    LEAST_FILE_SIZE,
    ROLL,
    TimerUnit,
    timer_check,
    timer_log,
)
from udfs.log.timers import Identity, TimerEvent, WaitingTimer

_WIDEST_WINDOW = 7 * 24 * 3600 - 60  # slots; a broker uses it in place of a setting out of range
_PRECISIONS_MS = (100, 200, 500, 1_000)  # the next lower one, else the first (MessageStoreConfig#setTimerPrecisionMs)
_UNSURE_MS = 1_000
LOG, WHEEL, CHECK = "timerlog", "timerwheel", "config/timercheck"


@dataclass(frozen=True)
class TimerSettings:
    """``timerPrecisionMs``, ``timerRollWindowSlot`` and ``mappedFileSizeTimerLog``."""

    precision_ms: int = 1_000
    roll_window_slots: int = 2 * 24 * 3600
    file_size: int = DEFAULT_FILE_SIZE


@dataclass(frozen=True)
class TimersPlan:
    """The units of a timer log, and the content of ``timercheck``."""

    units: tuple[TimerUnit, ...]
    settings: TimerSettings
    read_from_ms: int
    queue_end: int
    waiting: int
    overdue: int
    delivered: int
    unreadable: int

    def files(self) -> Iterator[tuple[str, bytes, int]]:
        yield CHECK, timer_check(self.read_from_ms, self.queue_end), 4096
        for base, data in timer_log(self.units, self.settings.file_size):
            yield f"{LOG}/{base:020d}", data, self.settings.file_size

    def facts(self) -> dict[str, Any]:
        return {
            "timers_waiting": self.waiting,
            "timers_overdue": self.overdue,
            "timers_delivered": self.delivered,
            "timer_queue_end": self.queue_end,
        }

    def notes(self) -> list[str]:
        what = "messages of the timer queue have no time that can be read: they are never delivered"
        return [f"{self.unreadable} {what}"] if self.unreadable else []


def still_waiting(events: Iterable[TimerEvent]) -> tuple[list[WaitingTimer], list[WaitingTimer], int]:
    """Waiting messages and recalls in log order, and the number of ended waits; equal identities end in order."""
    open_ones: dict[Identity, deque[WaitingTimer]] = defaultdict(deque)
    recalls: list[WaitingTimer] = []
    ended = 0
    for event in events:
        if event.ends and open_ones[event.identity]:
            open_ones[event.identity].popleft()
            ended += 1
        if event.waiting is not None and event.waiting.recalls:
            recalls.append(event.waiting)
        elif event.waiting is not None:
            open_ones[event.identity].append(event.waiting)
    waiting = sorted((one for ones in open_ones.values() for one in ones), key=lambda one: one.offset)
    return waiting, recalls, ended


def _unit(one: WaitingTimer, now: int, settings: TimerSettings) -> TimerUnit:
    """Overdue messages get the slot of ``now``; those due after the wheel's window one within it, to be stored anew."""
    step, window = settings.precision_ms, settings.roll_window_slots * settings.precision_ms
    rolls, near = one.due - now >= window, one.due - now - window < window // 3
    time = max(one.due, now)
    if rolls:
        time = now + (settings.roll_window_slots // 2 * step if near else window)
    magic = DEFAULT | (ROLL if rolls else 0) | (DELETE if one.recalls else 0)
    return TimerUnit(time // step * step, now, magic, one.offset, one.size, one.topic_hash)


def plan_timers(reading: LogReading, settings: TimerSettings, now: int) -> TimersPlan:
    """Timer state of a log; an empty one without timer messages."""
    events = [event for scan in reading.scans for event in scan.properties.timers]
    queued = [event.waiting for event in events if event.waiting is not None]
    in_queue = [one for one in queued if 0 <= one.queue_offset < MAX_QUEUE_OFFSET]
    _, queue_end = reading.queue_runs.ranges().get((TIMER_TOPIC, 0), (0, 0))
    last = max(in_queue, key=lambda one: (min(one.queue_offset, queue_end - 1), one.offset), default=None)
    now = now // settings.precision_ms * settings.precision_ms
    waiting, recalls, ended = still_waiting(event for event in events if event.identity[1] >= 0)
    units = [_unit(one, now, settings) for one in sorted([*waiting, *recalls], key=lambda one: one.offset)]
    if last is not None and (not units or units[-1].offset != last.offset):
        past = now - 2 * settings.precision_ms
        units.append(TimerUnit(past, past, DEFAULT, last.offset, last.size, last.topic_hash))
    return TimersPlan(
        tuple(units), settings, now - settings.precision_ms, queue_end,
        waiting=len(waiting), overdue=sum(one.due < now for one in waiting), delivered=ended,
        unreadable=sum(one.due < 0 for one in queued),
    )  # fmt: skip


@dataclass(frozen=True)
class DelayOffsets:
    """``config/delayOffset.json`` before and after: each level at its first message that was not due a second before
    the log ended, or where it stood if that was before. What was delivered in that second comes twice.
    """

    before: Mapping[int, int]
    after: Mapping[int, int]

    @classmethod
    def of(cls, root: str, queues: str, log_end: int) -> DelayOffsets:
        """``queues``: the directory that has the queues; ``log_end``: store time of the last record."""
        before = read_config(root, DELAY_OFFSETS).value or {}
        after = dict.fromkeys(before, 0)  # of levels without a queue
        for queue in queue_ends(queues, topics=(SCHEDULE_TOPIC,)):
            right, level = first_not_due(queue, log_end - _UNSURE_MS), queue.queue_id + 1
            after[level] = min(before[level], right) if level in before else right
        return cls(before, after)

    def content(self) -> bytes:
        return json.dumps({"offsetTable": {str(level): self.after[level] for level in sorted(self.after)}}).encode()

    def facts(self) -> dict[str, Any]:
        rows = [{"level": level, "before": self.before.get(level), "offset": self.after[level]} for level in self.after]
        return {"delay_offsets": rows}


def timer_settings(settings: Settings) -> TimerSettings:
    """Refused if the broker keeps timers in another form."""
    for name in ("timerRocksDBEnable", "timerWheelSnapshotFlush"):
        if settings.flag(name):
            what = f"with {name}=true a broker keeps its timers in another form, which is not rebuilt"
            raise Refused(what, found=name)
    window, precision = settings.number("timerRollWindowSlot"), settings.number("timerPrecisionMs")
    file_size = settings.number("mappedFileSizeTimerLog")
    if file_size < LEAST_FILE_SIZE:
        raise WrongSettings(
            "a file of the timer log holds no unit with this mappedFileSizeTimerLog", path=settings.path,
            found=file_size, expected=f"at least {LEAST_FILE_SIZE}",
        )  # fmt: skip
    return TimerSettings(
        max((taken for taken in _PRECISIONS_MS if taken <= precision), default=_PRECISIONS_MS[0]),
        window if 2 <= window <= _WIDEST_WINDOW else _WIDEST_WINDOW,
        file_size,
    )
