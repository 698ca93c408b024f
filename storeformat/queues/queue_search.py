"""What a broker of 5.1.1 to 5.5.0 answers about one queue: min and max offset, and the queue offset of a time.

Files are in order of name; times are milliseconds. Mirrors ConsumeQueue#recover, #correctMinOffset and
#binarySearchInQueueByTime, where store times ascend; BatchConsumeQueue#recover, #correctMinOffset,
#getBatchMsgIndexBuffer, #getOffsetInQueueByTime, #binarySearch and #binarySearchRight, and the clamp of
ConsumeQueueStore#getOffsetInQueueByTime.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from storeformat.arrays import Int64s, Structs
from storeformat.queues import batch_consume_queue
from storeformat.queues.consume_queue import written_units


class Boundary(Enum):
    """Which message answers for a time: the first at or after it, or the last at or before it."""

    LOWER = "lower"
    UPPER = "upper"


def offset_by_time(begin: int, end: int, time_at: Callable[[int], int], time: int, boundary: Boundary) -> int:
    """First queue offset of [begin, end) at or after a time, else ``end``; UPPER: the last at or before it, else
    ``begin``. ``time_at``: store time at a queue offset, -1 if the log does not hold it.
    """
    places = range(begin, end)
    if boundary is Boundary.LOWER:
        return begin + bisect_left(places, time, key=time_at)
    return begin + max(bisect_right(places, time, key=time_at) - 1, 0)


@dataclass(frozen=True)
class FileUnits:
    """One file of a queue: the queue offset of its first unit, and all its units, unwritten ones too."""

    first_queue_offset: int
    units: Structs


def queue_end(files: Sequence[FileUnits]) -> int:
    """Queue offset after the last unit, as recovery finds it: the first invalid unit from the third-last file on."""
    end = 0
    for file in files[max(len(files) - 3, 0) :]:
        written = written_units(file.units)
        end = file.first_queue_offset + written
        if written < len(file.units):
            break
    return end


def min_offset(files: Sequence[FileUnits], end: int, min_phy_offset: int) -> int:
    """Queue offset of the first message still in the log, as a starting broker computes it; 0 if the first file has
    none. A queue whose last message is gone begins at its end. From log offset 0, pre-blanks count.
    """
    if not files or end <= files[0].first_queue_offset:
        return 0
    first = files[0]
    phy_offsets = first.units["phy_offset"][: end - first.first_queue_offset]
    last = files[max(bisect_right(files, end - 1, key=lambda file: file.first_queue_offset) - 1, 0)]
    if last.units["phy_offset"][end - 1 - last.first_queue_offset] < min_phy_offset:
        return end
    if first.first_queue_offset == 0 and phy_offsets[0] >= min_phy_offset:
        return 0
    place = _bisect_phy_offsets(phy_offsets, min_phy_offset)
    return first.first_queue_offset + place if place >= 0 else 0


def _bisect_phy_offsets(phy_offsets: Int64s, min_phy_offset: int) -> int:
    """Place of the first unit at or after an offset, -1 for none; among equal ones (pre-blanks) the broker's pick."""
    low, high = 0, len(phy_offsets) - 1
    while high - low > 1:
        middle = (low + high) // 2
        if phy_offsets[middle] == min_phy_offset:
            return middle
        if phy_offsets[middle] > min_phy_offset:
            high = middle
        else:
            low = middle
    return next((place for place in (low, high) if phy_offsets[place] >= min_phy_offset), -1)


# ------------------------------------------------------------------------------------------------------- batch queues
# A unit stands for ``batch_size`` messages from ``msg_base_offset`` on: a file is chosen by its first unit
# (``searchBcqByCacheEnable``, on by default) and its units are bisected.


def recovered_batches(files: Sequence[Structs]) -> list[Structs]:
    """The valid units of each file: recovery trusts all but the last three files and ends at the first invalid unit."""
    kept: list[Structs] = []
    for number, units in enumerate(files):
        written = len(units) if number < len(files) - 3 else batch_consume_queue.written_units(units)
        kept.append(units[:written])
        if written < len(units):
            break
    return [units for units in kept if len(units)]


def batch_range(files: Sequence[Structs], min_phy_offset: int) -> tuple[int, int]:
    """Min and max offset as a starting broker computes them, the min from the first file only; (-1, 0) if empty."""
    if not files:
        return -1, 0
    first, last = files[0], files[-1][-1]
    alive = np.flatnonzero(first["phy_offset"] >= min_phy_offset)
    place = int(alive[0]) if len(alive) else len(first)
    begin = int(first["msg_base_offset"][0]) if place == 0 else _end(first[place - 1])
    return begin, _end(last)


def batch_at(files: Sequence[Structs], queue_offset: int) -> np.void | None:
    """The unit that a broker answers with for a queue offset."""
    if not files or queue_offset >= _end(files[-1][-1]):
        return None
    units = _file_before(files, "msg_base_offset", queue_offset)
    if units is None:
        return None
    place = _bisect(units["msg_base_offset"], queue_offset)
    return None if place < 0 else units[place]


def batch_offset_by_time(files: Sequence[Structs], timestamp: int, boundary: Boundary, *, begin: int, end: int) -> int:
    """Queue offset for a time, clamped to [begin, end]. As in the broker, at or after the last time of the chosen file
    it is that file's last unit, although the next file may hold a later one.
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
    """The last file if it begins at or before a value, else the closest before; among equal ones the last."""
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
