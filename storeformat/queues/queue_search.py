"""What a broker answers about one consume queue: min and max offset, and the queue offset of a time.

Files are in order of name. ``end`` is the queue offset after the last unit, the broker's maxOffsetInQueue; times are
milliseconds. Mirrors ConsumeQueue#recover, #correctMinOffset and #binarySearchInQueueByTime,
MappedFileQueue#getConsumeQueueMappedFileByTime and #getMappedFileByTime.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

import numpy as np

from storeformat.arrays import Int64s, Structs
from storeformat.queues.consume_queue import written_units

StoreTime = Callable[[int, int], int]  # commit-log offset and size of a unit -> store time, -1 if not in the log


class Boundary(Enum):
    """Which message answers for a time: the first at or after it, or the last at or before it."""

    LOWER = "lower"
    UPPER = "upper"


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


def min_offset(files: Sequence[FileUnits], end: int, min_phy_offset: int, *, search: bool) -> int:
    """Queue offset of the first message still in the log, as a starting broker computes it; 0 if the first file has
    none. ``search`` (5.0.0 and later): a queue whose last message is gone begins at its end. From log offset 0,
    pre-blanks count.
    """
    if not files or end <= files[0].first_queue_offset:
        return 0
    first = files[0]
    phy_offsets = first.units["phy_offset"][: end - first.first_queue_offset]
    if search:
        last = files[max(bisect_right(files, end - 1, key=lambda file: file.first_queue_offset) - 1, 0)]
        if last.units["phy_offset"][end - 1 - last.first_queue_offset] < min_phy_offset:
            return end
        if first.first_queue_offset == 0 and phy_offsets[0] >= min_phy_offset:
            return 0
        place = _bisect_phy_offsets(phy_offsets, min_phy_offset)
        return first.first_queue_offset + place if place >= 0 else 0
    alive = np.flatnonzero(phy_offsets >= min_phy_offset)
    return first.first_queue_offset + int(alive[0]) if len(alive) else 0


class Served(NamedTuple):
    """Min and max offset of a queue, and the start of the log."""

    begin: int
    end: int
    min_phy_offset: int


def offset_by_time(
    files: Sequence[FileUnits], timestamp: int, boundary: Boundary, store_time: StoreTime, served: Served
) -> int:
    """Queue offset for a time as brokers since 5.1.1 answer: LOWER is the first message at or after it (else the max
    offset), UPPER the last at or before it (else the min offset), if store times ascend.
    """
    number = _file_by_store_time(files, timestamp, boundary, store_time)
    found = 0
    if number is not None:
        file = files[number]
        units = file.units[: max(served.end - file.first_queue_offset, 0)] if number == len(files) - 1 else file.units
        low = max(served.begin - file.first_queue_offset, 0)
        if low < len(units):
            search = _TimeSearch(units, store_time, served.min_phy_offset)
            found = _in_file(search, low, timestamp, boundary, file.first_queue_offset)
    return min(max(found, served.begin), served.end)


def offset_by_modified_time(
    files: Sequence[FileUnits],
    modified: Sequence[int],
    timestamp: int,
    store_time: StoreTime,
    served: Served,
) -> int:
    """Queue offset for a time as brokers up to 5.1.0 answer: the nearest message, the earlier on a tie, in the first
    file ``modified`` at or after the time, else the last. 0 if the search meets a record that is not in the log.
    """
    if not files:
        return 0
    later = [number for number, time in enumerate(modified) if time >= timestamp]
    number = later[0] if later else len(files) - 1
    file = files[number]
    units = file.units[: max(served.end - file.first_queue_offset, 0)] if number == len(files) - 1 else file.units
    search = _TimeSearch(units, store_time, served.min_phy_offset)
    if not search.bisect(max(served.begin - file.first_queue_offset, 0), timestamp):
        return 0
    if search.target >= 0:
        place = search.target
    elif search.left_time < 0:
        place = search.right
    elif search.right_time < 0:
        place = search.left
    else:
        nearer_right = timestamp - search.left_time > search.right_time - timestamp
        place = search.right if nearer_right else search.left
    return _queue_offset(file.first_queue_offset, place)


class _TimeSearch:
    """The bisection by store time of all versions; places in the file, -1 if not set."""

    def __init__(self, units: Structs, store_time: StoreTime, min_phy_offset: int) -> None:
        self.units = units
        self.min_phy_offset = min_phy_offset
        self._store_time = store_time
        self.target = self.left = self.right = -1
        self.left_time = self.right_time = -1

    def time(self, place: int) -> int:
        unit = self.units[place]
        return self._store_time(int(unit["phy_offset"]), int(unit["size"]))

    def bisect(self, low: int, timestamp: int) -> bool:
        """False if a record's store time is unavailable."""
        high = len(self.units) - 1
        while high >= low:
            middle = (low + high) // 2
            if self.units["phy_offset"][middle] < self.min_phy_offset:
                low, self.left = middle + 1, middle
                continue
            time = self.time(middle)
            if time < 0:
                return False
            if time == timestamp:
                self.target = middle
                break
            if time > timestamp:
                high, self.right, self.right_time = middle - 1, middle, time
            else:
                low, self.left, self.left_time = middle + 1, middle, time
        return True


def _in_file(search: _TimeSearch, low: int, timestamp: int, boundary: Boundary, first_queue_offset: int) -> int:
    """ConsumeQueue#binarySearchInQueueByTime."""
    ceiling = len(search.units) - 1
    lower = boundary is Boundary.LOWER
    if search.time(ceiling) < timestamp:
        return first_queue_offset + ceiling + lower
    if search.time(low) > timestamp:
        return first_queue_offset if lower else 0
    if not search.bisect(low, timestamp):
        return 0
    if search.target < 0:
        return _queue_offset(first_queue_offset, search.right if lower else search.left)
    place, step, last = (search.target, -1, low) if lower else (search.target, 1, ceiling)
    while place != last and search.time(place + step) == timestamp:
        place += step
    return first_queue_offset + place


def _file_by_store_time(
    files: Sequence[FileUnits], timestamp: int, boundary: Boundary, store_time: StoreTime
) -> int | None:
    """MappedFileQueue#getConsumeQueueMappedFileByTime."""

    def time_of(file: FileUnits, place: int) -> int:
        unit = file.units[place]
        time = store_time(int(unit["phy_offset"]), int(unit["size"]))
        return time if time > 0 else -1

    if boundary is Boundary.LOWER:
        last = len(files) - 1 if files else None
        return next((number for number, file in enumerate(files[:-1]) if time_of(file, -1) >= timestamp), last)
    return next((number for number in reversed(range(len(files))) if time_of(files[number], 0) <= timestamp), None)


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


def _queue_offset(first_queue_offset: int, place: int) -> int:
    """Without a place the broker divides (base - 1 byte) by 20: one unit before the file, or 0."""
    return first_queue_offset + place if place >= 0 else max(first_queue_offset - 1, 0)
