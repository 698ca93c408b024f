"""The broker's ``messageDelayLevel``, derived from its queues of SCHEDULE_TOPIC_XXXX.

A unit's tags_code there is the delivery time: STORETIMESTAMP + milliseconds of the level
(``DefaultMessageStore#computeDeliverTimestamp``). Queue n is level n + 1
(``ScheduleMessageService#delayLevel2QueueId``).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from storeformat.arrays import Structs
from storeformat.log.framing import PLAIN
from storeformat.log.segments import Segment, segment_at
from storeformat.message import CERTIFICATE_SIZE, SCHEDULE_TOPIC
from storeformat.queues import consume_queue
from storeformat.record.decode import store_timestamp_at
from storeformat.storage import files
from storeformat.store.layout import CONSUME_QUEUE
from storeformat.store.queue_places import QueueDirectory, queue_directories

_UNITS_A_READ = 3_200
_UNITS_ASKED = 16


def observed_delays(root: str, segments: Sequence[Segment]) -> dict[int, int]:
    """Milliseconds of each delay level, from the newest units and their records."""
    shown = {}
    for queue in queue_directories(root, CONSUME_QUEUE, {SCHEDULE_TOPIC}):
        delay = next(_delays(_newest_units(queue), segments), None)
        if delay is not None and queue.queue_id is not None:
            shown[queue.queue_id + 1] = delay
    return dict(sorted(shown.items()))


def contradicted(shown: dict[int, int], delay_millis: Sequence[int]) -> list[int]:
    """Levels whose delay differs from ``delay_millis``."""
    return [level for level, delay in shown.items() if tuple(delay_millis[level - 1 : level]) != (delay,)]


def _newest_units(queue: QueueDirectory) -> Structs:
    for entry in (entry for entry in reversed(queue.files()) if entry.size > 0):
        with files.RangeReader(entry.path) as reader:
            units = _last_written(reader, entry.size)
        units = units[: consume_queue.written_units(units)]
        units = units[~consume_queue.is_pre_blank(units)]
        if len(units):
            return units[-_UNITS_ASKED:]
    return consume_queue.parse_units(b"")


def _last_written(reader: files.RangeReader, size: int) -> Structs:
    """The units around the end of the written part: units are written front to back."""

    def is_open(block: int) -> bool:
        units = _units(reader, size, block * _UNITS_A_READ, _UNITS_A_READ)
        return consume_queue.written_units(units) < _UNITS_A_READ

    full = bisect_left(range(-(-size // consume_queue.UNIT_SIZE // _UNITS_A_READ)), True, key=is_open)
    return _units(reader, size, max(full * _UNITS_A_READ - _UNITS_ASKED, 0), _UNITS_A_READ + _UNITS_ASKED)


def _units(reader: files.RangeReader, size: int, first: int, count: int) -> Structs:
    begin = first * consume_queue.UNIT_SIZE
    return consume_queue.parse_units(reader.read(begin, max(min(count * consume_queue.UNIT_SIZE, size - begin), 0)))


def _delays(units: Structs, segments: Sequence[Segment]) -> Iterator[int]:
    """Delivery time - store time of the units whose records are in the log, newest first."""
    for offset, size, deliver_time in units[::-1].tolist():
        segment = segment_at(segments, offset)
        if segment is None or offset + max(size, CERTIFICATE_SIZE) > segment.end - segment.missing:
            continue
        with files.RangeReader(segment.path) as reader:
            head = reader.read(offset - segment.base, CERTIFICATE_SIZE)
            found = PLAIN.find(head, offset, len(head), offset, offset + 1)
            if found is None or int.from_bytes(head[:4], "big", signed=True) != size:
                continue
            delay = deliver_time - store_timestamp_at(reader, offset - segment.base)
        if delay >= 0:  # the address of an extended unit is negative
            yield delay
