"""Where each consume queue of a store ends, read from the ends of its files: what a broker's recovery looks at.

A queue has gigabytes, its end has one unit. Up to ``READ_WHOLE`` bytes before a file's last hole are read; in more the
end is bisected, as units are written front to back. Zeros inside a long file are seen by a comparison with the log
alone, not here.

Mirrors ConsumeQueue#recover (4.5.1 to 5.5.0) and BatchConsumeQueue#recover (5.0.0 to 5.5.0): from the third-last file
on, the first unit that is not valid ends the queue, and files after it are deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass, replace
from functools import partial

from storeformat.arrays import Structs
from storeformat.queues import batch_consume_queue, consume_queue
from storeformat.storage import extents, files, local_status
from storeformat.storage.local_status import FileStatus
from storeformat.store.layout import BATCH_CONSUME_QUEUE, CONSUME_QUEUE, is_file_name
from storeformat.store.queue_places import queue_directories

READ_WHOLE = 1 << 16
"""Bytes; more than that is bisected."""
RECOVERED_FILES = 3
"""So many files a broker's recovery looks at, from the last on (ConsumeQueue#recover)."""


@dataclass(frozen=True)
class QueueEnd:
    """One queue, as its broker would find it before it reads the log.

    ``begin`` and ``end`` are queue offsets, ``end_offset`` the commit-log offset after the last unit's record (-1
    without units). ``stray`` are files that no queue has; ``lost_units`` stand in files after the one where recovery
    ends the queue; ``empty_last`` tells a last file without a unit after a full one.
    """

    topic: str
    queue_id: int
    files: tuple[FileStatus, ...]
    batch: bool = False
    begin: int = 0
    end: int = 0
    end_offset: int = -1
    stray: tuple[FileStatus, ...] = ()
    lost_units: int = 0
    empty_last: bool = False

    @property
    def ends_in_pre_blank(self) -> bool:
        return self.end_offset == consume_queue.PRE_BLANK_SIZE and not self.batch


def queue_ends(root: str, but: Container[tuple[str, int]] = ()) -> list[QueueEnd]:
    """Returns every queue of a store that lies in files, ``but`` for some, by topic and queue id; directories whose
    names are not numbers are not queues (ConsumeQueueStore#loadConsumeQueues).
    """
    found = []
    for kind in (CONSUME_QUEUE, BATCH_CONSUME_QUEUE):
        for queue in queue_directories(root, kind):
            if queue.queue_id is not None and (queue.topic, queue.queue_id) not in but:
                found += [_queue_end(queue.topic, queue.queue_id, queue.path, batch=kind == BATCH_CONSUME_QUEUE)]
    return found


def _queue_end(topic: str, queue_id: int, directory: str, *, batch: bool) -> QueueEnd:
    entries = local_status.statuses_in(directory)
    own = tuple(entry for entry in entries if is_file_name(entry.name) and not entry.is_directory)
    stray = tuple(entry for entry in entries if not is_file_name(entry.name) and not entry.is_directory)
    queue = QueueEnd(topic, queue_id, own, batch, stray=stray)
    units = _unit_size(batch=batch)
    if not own:
        return queue
    if not batch:
        queue = replace(queue, begin=_first_written(own[0]))
    last: Structs | None = None
    recovered = own[max(len(own) - RECOVERED_FILES, 0) :]
    for number, file in enumerate(recovered):
        written, last_unit = _written(file, batch=batch)
        if last_unit is not None:
            last = last_unit
            queue = replace(queue, end=_offset_after(file, written, last, batch=batch))
        if written < file.size // units:
            later = recovered[number + 1 :]
            lost = sum(_written(file, batch=batch)[0] for file in later)
            empty_last = not later and not written and len(own) > 1
            return replace(queue, end_offset=_end_offset(last), lost_units=lost, empty_last=empty_last)
    return replace(queue, end_offset=_end_offset(last))


def _unit_size(*, batch: bool) -> int:
    return batch_consume_queue.UNIT_SIZE if batch else consume_queue.UNIT_SIZE


def _offset_after(file: FileStatus, written: int, last: Structs, *, batch: bool) -> int:
    if batch:
        return int(last["msg_base_offset"][0]) + int(last["batch_size"][0])
    return int(file.name) // consume_queue.UNIT_SIZE + written


def _end_offset(last: Structs | None) -> int:
    return -1 if last is None else int(last["phy_offset"][0]) + int(last["size"][0])


def _units(file: FileStatus, first: int, count: int, *, batch: bool) -> Structs:
    """Returns some units of a file."""
    with files.RangeReader(file.path) as reader:
        return _read_units(reader, first, count, batch=batch)


def _read_units(reader: files.RangeReader, first: int, count: int, *, batch: bool) -> Structs:
    size = _unit_size(batch=batch)
    data = bytearray(count * size)
    reader.read_into(first * size, memoryview(data))
    return batch_consume_queue.parse_units(data) if batch else consume_queue.parse_units(data)


def _written(file: FileStatus, *, batch: bool) -> tuple[int, Structs | None]:
    """Returns the number of units before the first that is not valid, and the last of them."""
    unit_size = _unit_size(batch=batch)
    end = extents.data_end(file.path, file.size)
    count = min(-(-end // unit_size), file.size // unit_size)
    with files.RangeReader(file.path) as reader:
        if end <= READ_WHOLE:
            units = _read_units(reader, 0, count, batch=batch)
            written = (batch_consume_queue if batch else consume_queue).written_units(units)
            return written, units[written - 1 : written] if written else None
        written = _bisect(count, lambda place: _is_valid(reader, place, batch=batch))
        return written, _read_units(reader, written - 1, 1, batch=batch) if written else None


def _is_valid(reader: files.RangeReader, place: int, *, batch: bool) -> bool:
    unit = _read_units(reader, place, 1, batch=batch)
    return bool((batch_consume_queue if batch else consume_queue).is_valid(unit)[0])


def _bisect(count: int, holds: Callable[[int], bool]) -> int:
    """Returns the first place in [0, count) for which ``holds`` is false, where it is true before and false after."""
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            low = middle + 1
        else:
            high = middle
    return low


def unit_at(queue: QueueEnd, queue_offset: int) -> int | None:
    """Returns the commit-log offset in the unit of a queue offset, None where an ordinary queue has no such unit."""
    for file in queue.files if not queue.batch else ():
        place = queue_offset - int(file.name) // consume_queue.UNIT_SIZE
        if 0 <= place < file.size // consume_queue.UNIT_SIZE:
            return int(_units(file, place, 1, batch=False)["phy_offset"][0])
    return None


def _is_below(reader: files.RangeReader, log_offset: int, place: int, *, batch: bool) -> bool:
    unit = _read_units(reader, place, 1, batch=batch)
    return int(unit["size"][0]) > 0 and 0 <= int(unit["phy_offset"][0]) < log_offset


def _first_written(file: FileStatus) -> int:
    """Returns the queue offset of a queue's first unit that is not a filler."""
    with files.RangeReader(file.path) as reader:

        def is_filler(place: int) -> bool:
            return bool(consume_queue.is_pre_blank(_read_units(reader, place, 1, batch=False))[0])

        count = file.size // consume_queue.UNIT_SIZE
        blanks = _bisect(count, is_filler) if count and is_filler(0) else 0  # in most files there is none
    return int(file.name) // consume_queue.UNIT_SIZE + blanks


def offset_at(queue: QueueEnd, log_offset: int) -> int:
    """Returns the first queue offset whose record begins at or after a commit-log offset, ``end`` where none does: the
    queue's first message once the log begins there (ConsumeQueue#correctMinOffset).
    """
    unit_size = _unit_size(batch=queue.batch)
    for file in queue.files:
        count = file.size // unit_size
        with files.RangeReader(file.path) as reader:
            first = int(file.name) // unit_size
            if not queue.batch:
                count = min(count, max(queue.end - first, 0))
            place = _bisect(count, partial(_is_below, reader, log_offset, batch=queue.batch))
            if place < count:
                unit = _read_units(reader, place, 1, batch=queue.batch)
                if queue.batch:
                    return int(unit["msg_base_offset"][0]) if _is_valid(reader, place, batch=True) else queue.end
                return first + place
    return queue.end
