"""What a broker answers about one consume queue: its ends, and the queue offset of a time.

A queue is the sequence of its files in order of name. ``end`` is the queue offset after the last unit, the broker's
maxOffsetInQueue; times are milliseconds; ``StoreTime`` looks a record's store time up in the commit log.

Mirrors ConsumeQueue#recover, #correctMinOffset and #binarySearchInQueueByTime,
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

StoreTime = Callable[[int, int], int]
"""Takes commit-log offset and size of a unit, returns the record's store time, -1 where the log does not hold it."""


class Boundary(Enum):
    """Which message answers for a time between or among messages: the first not before, or the last not after it."""

    LOWER = "lower"
    UPPER = "upper"


@dataclass(frozen=True)
class FileUnits:
    """One file of a queue: the queue offset of its first unit, and all its units, unwritten ones too."""

    first_queue_offset: int
    units: Structs


def queue_end(files: Sequence[FileUnits]) -> int:
    """Returns the queue offset after the last unit, as recovery finds it: at the first invalid one from the third-last
    file on.
    """
    end = 0
    for file in files[max(len(files) - 3, 0) :]:
        written = written_units(file.units)
        end = file.first_queue_offset + written
        if written < len(file.units):
            break
    return end


def min_offset(files: Sequence[FileUnits], end: int, min_phy_offset: int, *, search: bool) -> int:
    """Returns the queue offset of the first message that the log still holds, as a broker computes it when it starts.

    0 where the broker finds none in the first file. Brokers that ``search`` (5.0.0 and later) let a queue whose last
    message is gone begin at its end. Where the log begins at 0, pre-blank units count as messages in every version.
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
    """What a broker serves of a queue: its min and its max offset, and where the log begins."""

    begin: int
    end: int
    min_phy_offset: int


def offset_by_time(
    files: Sequence[FileUnits], timestamp: int, boundary: Boundary, store_time: StoreTime, served: Served
) -> int:
    """Returns the queue offset for a time, as brokers since 5.1.1 answer, between the queue's min and max offset.

    LOWER is the first message at or after the time (the max offset if none), UPPER the last at or before it (the min
    offset if none), as far as store times ascend.
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
    """Returns the queue offset for a time, as brokers up to 5.1.0 answer: the message nearest in time, the earlier one
    on a tie.

    They search only in the first file that was last modified (``modified``, one a file) at or after the time, else in
    the last one. 0 where the search meets a record that the log does not hold.
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
    """The bisection by store time that all versions share, and what it saw: places in the file, -1 for never."""

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
        """Returns False when it met a record whose time is not to be had."""
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
    """ConsumeQueue#binarySearchInQueueByTime in one file, from place ``low`` on."""
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
    """Returns the number of the file to search in (MappedFileQueue#getConsumeQueueMappedFileByTime)."""

    def time_of(file: FileUnits, place: int) -> int:
        unit = file.units[place]
        time = store_time(int(unit["phy_offset"]), int(unit["size"]))
        return time if time > 0 else -1

    if boundary is Boundary.LOWER:
        last = len(files) - 1 if files else None
        return next((number for number, file in enumerate(files[:-1]) if time_of(file, -1) >= timestamp), last)
    return next((number for number in reversed(range(len(files))) if time_of(files[number], 0) <= timestamp), None)


def _bisect_phy_offsets(phy_offsets: Int64s, min_phy_offset: int) -> int:
    """Returns the place of the first unit at or after an offset, -1 for none; of several at it (pre-blanks) the
    broker's pick.
    """
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
    """The broker divides (base - 1 byte) by 20 where no place was found: one unit before the file, or 0."""
    return first_queue_offset + place if place >= 0 else max(first_queue_offset - 1, 0)
