"""Searching batch queues: where they begin and end, the unit of a queue offset, the queue offset of a time.

A unit stands for ``batch_size`` messages from ``msg_base_offset`` on, so nothing is computed from an offset: a file is
chosen by its first unit (``searchBcqByCacheEnable``, which is on by default), and its units are bisected. Mirrors
BatchConsumeQueue#recover, #correctMinOffset, #getBatchMsgIndexBuffer, #getOffsetInQueueByTime, #binarySearch and
#binarySearchRight (5.1.1 to 5.5.0), and the clamp of ConsumeQueueStore#getOffsetInQueueByTime.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from storeformat.arrays import Int64s, Structs
from storeformat.queues.batch_consume_queue import written_units
from storeformat.queues.queue_search import Boundary


def recovered(files: Sequence[Structs]) -> list[Structs]:
    """Returns the units of each file that count, files in order: recovery trusts all but the last three files, and ends
    the queue at the first unit that is not valid. Files without a unit are left out.
    """
    kept: list[Structs] = []
    for number, units in enumerate(files):
        written = len(units) if number < len(files) - 3 else written_units(units)
        kept.append(units[:written])
        if written < len(units):
            break
    return [units for units in kept if len(units)]


def queue_range(files: Sequence[Structs], min_phy_offset: int) -> tuple[int, int]:
    """Returns the queue's min and max offset as a broker computes them when it starts; (-1, 0) where it has no unit.

    The min offset is looked for in the first file only: files of messages below the log are gone by then.
    """
    if not files:
        return -1, 0
    first, last = files[0], files[-1][-1]
    alive = np.flatnonzero(first["phy_offset"] >= min_phy_offset)
    place = int(alive[0]) if len(alive) else len(first)
    begin = int(first["msg_base_offset"][0]) if place == 0 else _end(first[place - 1])
    return begin, _end(last)


def unit_at(files: Sequence[Structs], queue_offset: int) -> np.void | None:
    """Returns the unit that a broker answers with for a queue offset, None where it finds none."""
    if not files or queue_offset >= _end(files[-1][-1]):
        return None
    units = _file_before(files, "msg_base_offset", queue_offset)
    if units is None:
        return None
    place = _bisect(units["msg_base_offset"], queue_offset)
    return None if place < 0 else units[place]


def offset_by_time(files: Sequence[Structs], timestamp: int, boundary: Boundary, *, begin: int, end: int) -> int:
    """Returns the queue offset for a time, clamped to [begin, end], the queue's min and max offset.

    The broker's own answer: at or after the last time of the file it has chosen that is the file's last unit, although
    the next file may hold a later one.
    """
    found = -1
    if files:
        units = _file_before(files, "store_timestamp", timestamp)
        units = files[0] if units is None else units
        times = units["store_timestamp"]
        place = len(units) - 1 if timestamp >= times[-1] else _bisect_right(times, timestamp, boundary)
        if place >= 0:
            found = int(units["msg_base_offset"][place])
    return min(max(found, begin), end)


def _end(unit: np.void) -> int:
    return int(unit["msg_base_offset"]) + int(unit["batch_size"])


def _file_before(files: Sequence[Structs], field: str, value: int) -> Structs | None:
    """Returns the last file if it begins at or before a value, else the one that begins closest before it; of several
    that begin with the same value the last.
    """
    if int(files[-1][field][0]) <= value:
        return files[-1]
    before = [(int(units[field][0]), number) for number, units in enumerate(files) if int(units[field][0]) <= value]
    return files[max(before)[1]] if before else None


def _bisect(values: Int64s, target: int) -> int:
    """BatchConsumeQueue#binarySearch: the last place at or before the target, -1 where the first one is after it."""
    left, right = 0, len(values) - 1
    while left <= right:
        middle = (left + right) // 2
        value = int(values[middle])
        if value == target:
            return middle
        if value > target:
            right = middle - 1
        elif middle == left:
            follows = middle + 1 < len(values) and int(values[middle + 1]) <= target
            return middle + 1 if follows else middle
        else:
            left = middle
    return -1


def _bisect_right(values: Int64s, target: int, boundary: Boundary) -> int:
    """BatchConsumeQueue#binarySearchRight: a place at or after the target, -1 for none."""
    left, right = 0, len(values) - 1
    while True:
        middle = (left + right) // 2
        value = int(values[middle])
        if middle in (left, right):
            if value >= target:
                return middle
            if middle == right:
                return -1
            left = middle + 1
        elif boundary is Boundary.LOWER:
            left, right = (middle + 1, right) if value < target else (left, middle)
        else:
            left, right = (middle, right) if value <= target else (left, middle - 1)
