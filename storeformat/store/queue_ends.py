"""The end of each consume queue of a store, read from its files as a broker's recovery does.

Up to ``READ_WHOLE`` bytes before a file's last hole are read; in more data the end is bisected, as units are written
front to back. Zeros inside a long file only show in a comparison with the log.

Mirrors ConsumeQueue#recover (4.5.1 to 5.5.0) and BatchConsumeQueue#recover (5.0.0 to 5.5.0): from the third-last file
on, the first invalid unit ends the queue, and files after it are deleted.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Container
from dataclasses import dataclass, field
from io import FileIO
from types import ModuleType

import numpy as np

from storeformat.arrays import Int64s, Structs
from storeformat.queues import batch_consume_queue, consume_queue
from storeformat.storage import files, local_files, local_status
from storeformat.storage.files import FileStatus
from storeformat.store.layout import BATCH_CONSUME_QUEUE, CONSUME_QUEUE, is_file_name
from storeformat.store.queue_places import queue_directories

READ_WHOLE = 1 << 16  # bytes; more data is bisected
_HELD = 256  # fewer units in a queue's last file are kept: reopening 20,000 files takes 0.5 s
_AT_ONCE = 1 << 20  # units read at a time
_FURTHEST = (1 << 63) - 1
_NO_UNITS: Structs = np.zeros(0, consume_queue.UNIT)
RECOVERED_FILES = 3  # files that recovery checks, from the last on (ConsumeQueue#recover)


@dataclass(frozen=True)
class QueueEnd:
    """One queue as its broker finds it before reading the log.

    ``begin``, ``end``: queue offsets; ``end_offset``: commit-log offset after the last unit's record (-1 without
    units). ``stray``, ``folders``: names that are no queue files; ``lost_units``: in files after the end;
    ``empty_last``: the last file has no unit; ``held``: the units of the file with the end, if few.
    """

    topic: str
    queue_id: int
    files: tuple[FileStatus, ...]
    batch: bool = False
    begin: int = 0
    end: int = 0
    end_offset: int = -1
    stray: tuple[FileStatus, ...] = ()
    folders: tuple[FileStatus, ...] = ()
    lost_units: int = 0
    empty_last: bool = False
    held: Structs = field(default_factory=lambda: _NO_UNITS, compare=False)

    @property
    def ends_in_pre_blank(self) -> bool:
        return self.end_offset == consume_queue.PRE_BLANK_SIZE and not self.batch


def queue_ends(root: str, but: Container[tuple[str, int]] = ()) -> list[QueueEnd]:
    """Every queue in files, except ``but``; its directory's name is a number (ConsumeQueueStore#loadConsumeQueues)."""
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
    folders = tuple(entry for entry in entries if entry.is_directory)
    kind = batch_consume_queue if batch else consume_queue
    begin, end, end_offset, lost, empty_last, held = 0, 0, -1, 0, False, _NO_UNITS
    recovered = own[max(len(own) - RECOVERED_FILES, 0) :]
    for number, file in enumerate(recovered):
        place = int(file.name) // kind.UNIT_SIZE
        written, units = _written(file, kind)
        if not number and not batch:
            known = file is own[0] and written and not consume_queue.is_pre_blank(units[0])
            begin = place if known else _first_written(own[0])
        if written:
            last = units[-1]
            held = units if written < _HELD else _NO_UNITS
            end = min(place + written, _FURTHEST)
            if batch:
                end = min(int(last["msg_base_offset"]) + int(last["batch_size"]), _FURTHEST)
            end_offset = min(int(last["phy_offset"]) + int(last["size"]), _FURTHEST)
        if written < file.size // kind.UNIT_SIZE:
            later = recovered[number + 1 :]
            lost, empty_last = sum(_written(file, kind)[0] for file in later), not later and not written
            break
    return QueueEnd(topic, queue_id, own, batch, begin, end, end_offset, stray, folders, lost, empty_last, held)


def _kind_of(queue: QueueEnd) -> ModuleType:
    return batch_consume_queue if queue.batch else consume_queue


def _units(handle: FileIO, first: int, count: int, kind: ModuleType) -> Structs:
    size = kind.UNIT_SIZE
    units: Structs = kind.parse_units(local_files.read_at(handle.fileno(), first * size, count * size))
    return units


def _written(file: FileStatus, kind: ModuleType) -> tuple[int, Structs]:
    """Number of units before the first invalid one, and these units, or the first and last if many."""
    with files.opened(file.path) as handle:
        units = _units(handle, 0, min(_HELD, file.size // kind.UNIT_SIZE), kind)
        if (written := kind.written_units(units)) < _HELD:
            return written, units[:written]
        end = max((high for _, high in local_files.data_ranges(handle.fileno(), 0, file.size)), default=0)
        count = min(-(-end // kind.UNIT_SIZE), file.size // kind.UNIT_SIZE)
        if end <= READ_WHOLE:
            units = _units(handle, 0, count, kind)
            written = kind.written_units(units)
            return written, units[:written]
        written = bisect_left(range(count), True, key=lambda place: not _is_valid(handle, place, kind))
        return written, np.concatenate([_units(handle, place, 1, kind) for place in (0, written - 1) if written])


def _is_valid(handle: FileIO, place: int, kind: ModuleType) -> bool:
    return bool(kind.is_valid(_units(handle, place, 1, kind))[0])


def units_at(queue: QueueEnd, queue_offsets: Int64s) -> Structs:
    """Units of an ordinary queue at queue offsets, one a row; size 0 for none."""
    places = queue_offsets - (queue.end - len(queue.held))
    if ((places >= 0) & (places < len(queue.held))).all():
        return queue.held[places]
    found = np.zeros(len(queue_offsets), consume_queue.UNIT)
    for file in queue.files:
        places = queue_offsets - int(file.name) // consume_queue.UNIT_SIZE
        rows = np.flatnonzero((places >= 0) & (places < file.size // consume_queue.UNIT_SIZE))
        if rows.size:
            first, last = int(places[rows].min()), int(places[rows].max())
            with files.opened(file.path) as handle:
                found[rows] = _units(handle, first, last - first + 1, consume_queue)[places[rows] - first]
    return found


def units_after_end(queue: QueueEnd) -> tuple[Int64s, Structs]:
    """Queue offsets and units in the files after the end of an ordinary queue."""
    later = [file for file in queue.files if int(file.name) // consume_queue.UNIT_SIZE > queue.end]
    ranges = [
        int(file.name) // consume_queue.UNIT_SIZE + np.arange(file.size // consume_queue.UNIT_SIZE) for file in later
    ]
    places = np.concatenate([np.zeros(0, np.int64), *ranges])
    units = units_at(queue, places)
    return places[consume_queue.is_valid(units)], units[consume_queue.is_valid(units)]


def _first_written(file: FileStatus) -> int:
    """Queue offset of the first unit that is not a pre-blank."""
    with files.opened(file.path) as handle:

        def is_written(place: int) -> bool:
            return not consume_queue.is_pre_blank(_units(handle, place, 1, consume_queue))[0]

        count = file.size // consume_queue.UNIT_SIZE
        begins_late = count and not is_written(0)  # most files have no filler
        blanks = bisect_left(range(count), True, key=is_written) if begins_late else 0
    return int(file.name) // consume_queue.UNIT_SIZE + blanks


def offset_at(queue: QueueEnd, log_offset: int) -> int:
    """First queue offset whose record is at or after a log offset, else ``end`` (ConsumeQueue#correctMinOffset)."""
    kind = _kind_of(queue)

    def is_reached(place: int) -> bool:
        unit = _units(handle, place, 1, kind)
        return not (int(unit["size"][0]) > 0 and 0 <= int(unit["phy_offset"][0]) < log_offset)

    for file in queue.files:
        count, first = file.size // kind.UNIT_SIZE, int(file.name) // kind.UNIT_SIZE
        with files.opened(file.path) as handle:
            if not queue.batch:
                count = min(count, max(queue.end - first, 0))
            place = bisect_left(range(count), True, key=is_reached)
            if place < count:
                unit = _units(handle, place, 1, kind)
                if queue.batch:
                    return int(unit["msg_base_offset"][0]) if kind.is_valid(unit)[0] else queue.end
                return first + place
    return queue.end


def batched_messages(queue: QueueEnd, log_offset: int) -> int:
    """Messages in a batch queue whose records begin at or after a commit-log offset."""
    messages = 0
    for file in queue.files:
        written, _ = _written(file, batch_consume_queue)
        with files.opened(file.path) as handle:
            for at in range(0, written, _AT_ONCE):
                units = _units(handle, at, min(_AT_ONCE, written - at), batch_consume_queue)
                messages += int(units["batch_size"][units["phy_offset"] >= log_offset].sum(dtype=np.int64))
    return messages
