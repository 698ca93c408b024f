"""``timerlog/`` and ``config/timercheck`` as a broker reads them when it starts; a wheel is made of them then.

A file of the timer log (``mappedFileSizeTimerLog``) holds units of 52 bytes; where none fits any more, a blank ends it:

======  ====================  ========================================================================================
offset  field                 meaning
======  ====================  ========================================================================================
0       size i32              52
4       previous i64          position of the unit before it in the slot, -1 for none
12      magic i32             1, and 2 for one to be stored again (rolled), 4 for one that recalls another
16      written i64, 24 i32   milliseconds; their sum is the time of the slot
28      offset i64, 36 i32    where the record lies in the log, and its size
40      hash i32              of its real topic
44      reserved i64          0
======  ====================  ========================================================================================

A blank: what is left of the file (i32), 0 (i64), its magic (i32). Mirrors TimerLog, TimerWheel#reviseSlot and
TimerMessageStore#recover, #recoverAndRevise and #reviseQueueOffset (5.0.0 to 5.4.0):

- the slots of an empty wheel come from the units, from the first file on where ``last_timer_log_flush_pos`` is 0
- the timer queue is read on after the message of the last unit, at most from ``master_timer_queue_offset``
- slots are delivered from ``last_read_time_ms`` on; a unit of a slot before it is not looked at again
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

UNIT = struct.Struct(">iqiqiqiiq")
DEFAULT, ROLL, DELETE = 1, 2, 4
DEFAULT_FILE_SIZE = 100 << 20
CHECK_SIZE = 4096

_BLANK = struct.Struct(">iqi")
_BLANK_MAGIC = 0xBBCCDDEE ^ (1880681586 + 8)
_CHECK = struct.Struct(">7q")


@dataclass(frozen=True)
class TimerUnit:
    """A message in a slot: the slot's time and that of the write in milliseconds, and where its record lies."""

    slot_ms: int
    written_ms: int
    magic: int
    offset: int
    size: int
    topic_hash: int = 0


def timer_log(units: Sequence[TimerUnit], file_size: int) -> Iterator[tuple[int, bytes]]:
    """Yields position and data of each file; after the data there are zeros. Units of one slot are a chain."""
    last: dict[int, int] = {}
    base, data = 0, bytearray()
    for unit in units:
        if len(data) + UNIT.size + _BLANK.size > file_size:
            data += _BLANK.pack(file_size - len(data), 0, _signed(_BLANK_MAGIC))
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
    """Returns ``config/timercheck``: slots are delivered from a time on, the queue is read from an offset on."""
    return _CHECK.pack(last_read_time_ms, 0, queue_offset, queue_offset, 0, 0, 0).ljust(CHECK_SIZE, b"\0")


def _signed(value: int) -> int:
    return value - (1 << 32) if value >= 1 << 31 else value
