"""Timer state as a broker reads it at its start: ``config/timercheck``, ``timerwheel``, ``timerlog/`` (FORMAT.md).

Mirrors TimerCheckpoint and TimerWheel (5.0.0 to 5.5.0), TimerLog, TimerWheel#reviseSlot and TimerMessageStore#recover,
#recoverAndRevise and #reviseQueueOffset (5.0.0 to 5.4.0):

- the wheel holds 7 days of slots, twice, 32 bytes each; the broker refuses another length. An absent one, or one of no
  length, is made again: its slots come from the units, from the first file on where ``last_timer_log_flush_pos`` is 0
- the timer queue is read on after the message of the last unit, at most from ``master_timer_queue_offset``
- slots are delivered from ``last_read_time_ms`` on; a unit of a slot before it is not looked at again
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from storeformat.arrays import Bools, Int64s, Structs
from storeformat.storage import files, locations
from storeformat.storage.files import FileStatus
from storeformat.store.config_files import CONFIG

TIMER_CHECK, WHEEL, LOG = "timercheck", "timerwheel", "timerlog"
WHEEL_SIZE = 7 * 24 * 3600 * 2 * 32
DEFAULT_FILE_SIZE = 100 << 20
CHECK_SIZE = 4096
CHECK = struct.Struct(">4q24x")

UNIT = struct.Struct(">iqiqiqiiq")
UNITS: Structs = np.zeros(0, ">i4,>i8,>i4,>i8,>i4,>i8,>i4,>i4,>i8")
UNITS.dtype.names = ("length", "previous", "magic", "written", "after", "offset", "size", "hash", "reserved")
DEFAULT, ROLL, DELETE = 1, 2, 4
_UNITS_READ = 10_000
_BLANK = struct.Struct(">iqI")
_BLANK_MAGIC = 0xBBCCDDEE ^ (1880681586 + 8)
LEAST_FILE_SIZE = UNIT.size + _BLANK.size


@dataclass(frozen=True)
class TimerFiles:
    """Timer state. ``queued_up_to``: timer queue offset from which recovery reads at most; ``read_time_ms``: first slot
    not delivered; None and 0 without ``timercheck``. ``units``: the last ``_UNITS_READ`` of the log.
    """

    queued_up_to: int | None
    wheel_size: int | None
    log_sizes: tuple[int, ...]
    read_time_ms: int = 0
    units: Structs = field(default_factory=lambda: UNITS)

    @property
    def ends(self) -> Int64s:
        """Log offsets after the units' records."""
        return self.units["offset"] + self.units["size"].astype(np.int64)

    def delivered(self, after_ms: int) -> Bools:
        """Which units were in delivered slots after a time, except due at once, recalling, or recallable ones."""
        slots = self.units["written"] + self.units["after"]
        recalled = np.isin(slots, slots[self.units["magic"] & DELETE != 0])
        return (slots > after_ms) & (slots < self.read_time_ms) & (self.units["after"] > 0) & ~recalled


def read_timer_files(root: str) -> TimerFiles:
    wheel = files.status_of(locations.join(root, WHEEL))
    logs = [entry for entry in files.statuses_in(locations.join(root, LOG)) if not entry.is_directory]
    path, check = locations.join(root, CONFIG, TIMER_CHECK), None
    if size := files.size_of(path):
        page = files.read_range(path, 0, min(size, CHECK.size)).ljust(CHECK.size, b"\0")  # as mmap reads it
        check = CHECK.unpack(page)
    return TimerFiles(
        min(check[2:]) if check else None,
        wheel.size if wheel is not None else None,
        tuple(entry.size for entry in logs),
        check[0] if check else 0,
        _last_units([entry for entry in logs if entry.size >= UNIT.size]),
    )


def _last_units(logs: Sequence[FileStatus]) -> Structs:
    if not logs:
        return UNITS
    last = logs[-1]
    end = min(-(-files.data_end(last.path, last.size) // UNIT.size), last.size // UNIT.size)
    begin = max(end - _UNITS_READ, 0)
    data = files.read_range(last.path, begin * UNIT.size, (end - begin) * UNIT.size)
    units: Structs = np.frombuffer(data, UNITS.dtype)
    return units[units["length"] == UNIT.size]


@dataclass(frozen=True)
class TimerUnit:
    """A message in a slot: times in milliseconds, and offset and size of its record."""

    slot_ms: int
    written_ms: int
    magic: int
    offset: int
    size: int
    topic_hash: int = 0


def timer_log(units: Sequence[TimerUnit], file_size: int) -> Iterator[tuple[int, bytes]]:
    """Position and data of each file; zeros follow. Units of one slot are linked."""
    last: dict[int, int] = {}
    base, data = 0, bytearray()
    for unit in units:
        if len(data) + LEAST_FILE_SIZE > file_size:
            data += _BLANK.pack(file_size - len(data), 0, _BLANK_MAGIC)
            yield base, bytes(data)
            base, data = base + file_size, bytearray()
        position = base + len(data)
        data += UNIT.pack(
            UNIT.size, last.get(unit.slot_ms, -1), unit.magic, unit.written_ms, unit.slot_ms - unit.written_ms,
            unit.offset, unit.size, unit.topic_hash, 0,
        )  # fmt: skip
        last[unit.slot_ms] = position
    if data:
        yield base, bytes(data)


def timer_check(last_read_time_ms: int, queue_offset: int) -> bytes:
    """``config/timercheck`` with a delivery time and a queue offset."""
    return CHECK.pack(last_read_time_ms, 0, queue_offset, queue_offset).ljust(CHECK_SIZE, b"\0")
