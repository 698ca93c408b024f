"""The end of each consume queue of a store, read from its files as a broker's recovery does.

Up to ``READ_WHOLE`` bytes before a file's last hole are read; in more data the end is bisected, as units are written
front to back. Zeros inside a long file only show in a comparison with the log.

Mirrors ConsumeQueue#recover (4.5.1 to 5.5.0) and BatchConsumeQueue#recover (5.0.0 to 5.5.0): from the third-last file
on, the first invalid unit ends the queue, and files after it are deleted. Queues are then compared with the end of the
log: records at their place, and what a start makes of them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from io import FileIO
from types import ModuleType

import numpy as np

from storeformat.arrays import Bools, Int64s, Structs
from storeformat.javacompat import LONG_MAX
from storeformat.log.log_tail import LogTail, TailRows
from storeformat.queues import batch_consume_queue, consume_queue
from storeformat.queues.consume_queue import UNIT_SIZE
from storeformat.record.dispatch import LIGHT_PREFIX
from storeformat.storage import files, local_files
from storeformat.storage.files import FileStatus
from storeformat.store.layout import BATCH_CONSUME_QUEUE, CONSUME_QUEUE, is_file_name, queue_directories
from storeformat.store.recovery import NEVER

READ_WHOLE = 1 << 16  # bytes; more data is bisected
_HELD = 4096 // UNIT_SIZE  # a page; fewer units in a queue's last file are kept: reopening 20,000 files takes 0.5 s
_AT_ONCE = 1 << 20  # units read at a time
_NO_UNITS: Structs = np.zeros(0, consume_queue.UNIT)
RECOVERED_FILES = 3  # files that recovery checks, from the last on (ConsumeQueue#recover)
_NO_ROWS = np.zeros(0, np.int64)


@dataclass(frozen=True)
class QueueFiles:
    """Contents of a queue's directory. ``stray``: files that are not queue files."""

    own: Sequence[FileStatus] = ()
    stray: Sequence[FileStatus] = ()
    folders: Sequence[FileStatus] = ()
    lost_units: int = 0  # in own files after the queue's end
    empty_last: bool = False  # the last own file has no unit


@dataclass(frozen=True)
class QueueEnd:
    """One queue as its broker finds it before reading the log. ``begin``, ``end``: queue offsets."""

    topic: str
    queue_id: int
    files: QueueFiles = QueueFiles()
    batch: bool = False
    begin: int = 0
    end: int = 0
    end_offset: int = -1  # commit-log offset after the last unit's record
    held: Structs = field(default_factory=lambda: _NO_UNITS, compare=False)  # units of the file with the end, if few

    @property
    def ends_in_pre_blank(self) -> bool:
        return self.end_offset == consume_queue.PRE_BLANK_SIZE and not self.batch


def queue_ends(root: str, but: Container[tuple[str, int]] = (), topics: Collection[str] = ()) -> list[QueueEnd]:
    """Queues in files, by default of all topics, except ``but`` (ConsumeQueueStore#loadConsumeQueues)."""
    return [*_ends(root, CONSUME_QUEUE, but, topics), *_ends(root, BATCH_CONSUME_QUEUE, but, topics)]


def _ends(root: str, folder: str, but: Container[tuple[str, int]], topics: Collection[str]) -> Iterator[QueueEnd]:
    kind = batch_consume_queue if folder == BATCH_CONSUME_QUEUE else consume_queue
    queues = []
    for queue in queue_directories(root, folder, topics):
        if (number := queue.queue_id) is not None and (queue.topic, number) not in but:
            own: list[FileStatus] = []
            stray: list[FileStatus] = []
            folders: list[FileStatus] = []
            for entry in files.statuses_in(queue.path):
                (folders if entry.is_directory else own if is_file_name(entry.name) else stray).append(entry)
            queues.append((queue.topic, number, QueueFiles(own, stray, folders)))
    if not queues:
        return
    written = _written([file for _, _, found in queues for file in found.own[-RECOVERED_FILES:]], kind)
    for topic, number, found in queues:
        yield _recovered(topic, number, found, written, kind)


def _recovered(
    topic: str, queue_id: int, found: QueueFiles, written: Mapping[str, tuple[int, Structs]], kind: ModuleType
) -> QueueEnd:
    own, batch = found.own, kind is batch_consume_queue
    begin, end, end_offset, held = 0, 0, -1, _NO_UNITS
    recovered = own[-RECOVERED_FILES:]
    for number, file in enumerate(recovered):
        place = int(file.name) // kind.UNIT_SIZE
        count, units = written[file.path]
        if not number and not batch:
            known = file is own[0] and count and not consume_queue.is_pre_blank(units[0])
            begin = place if known else _first_written(own[0])
        if not batch:
            end = min(place + count, LONG_MAX)
        if count:
            last = units[-1]
            held = units if count < _HELD else _NO_UNITS
            if batch:
                end = min(int(last["msg_base_offset"]) + int(last["batch_size"]), LONG_MAX)
            end_offset = min(int(last["phy_offset"]) + int(last["size"]), LONG_MAX)
        if count < file.size // kind.UNIT_SIZE:
            later = recovered[number + 1 :]
            lost = sum(written[file.path][0] for file in later)
            found = replace(found, lost_units=lost, empty_last=not later and not count)
            break
    return QueueEnd(topic, queue_id, found, batch, begin, end, end_offset, held)


def _units(handle: FileIO, first: int, count: int, kind: ModuleType) -> Structs:
    size = kind.UNIT_SIZE
    units: Structs = kind.parse_units(local_files.read_at(handle.fileno(), first * size, count * size))
    return units


def _written(paths: Sequence[FileStatus], kind: ModuleType) -> dict[str, tuple[int, Structs]]:
    """Number of units of each file before the first invalid one, and these units, or the first and last if many."""
    found, short = dict[str, tuple[int, Structs]](), dict[str, bytes]()
    for file in paths:
        with files.opened(file.path) as handle:
            head = _head(handle, file.size, kind.UNIT_SIZE)
            if len(head) < _HELD * kind.UNIT_SIZE:
                short[file.path] = head
            else:
                found[file.path] = _of_many(handle, file.size, kind, kind.parse_units(head))
    units = kind.parse_units(b"".join(short.values()))
    begins = np.cumsum([0, *(len(head) // kind.UNIT_SIZE for head in short.values())])
    invalid = np.append(np.flatnonzero(~kind.is_valid(units)), len(units))
    ends = np.minimum(invalid[np.searchsorted(invalid, begins[:-1])], begins[1:])
    for path, begin, end in zip(short, begins.tolist(), ends.tolist(), strict=False):
        found[path] = end - begin, units[begin:end]
    return found


def _head(handle: FileIO, file_size: int, size: int) -> bytes:
    """The first units, up to one of zeros if two follow each other."""
    head = local_files.read_at(handle.fileno(), 0, min(_HELD, file_size // size) * size)
    unwritten = head.find(bytes(2 * size))
    return head if unwritten < 0 else head[: -(-unwritten // size) * size]


def _of_many(handle: FileIO, file_size: int, kind: ModuleType, head: Structs) -> tuple[int, Structs]:
    if (written := kind.written_units(head)) < _HELD:
        return written, head[:written]
    end = max((high for _, high in local_files.data_ranges(handle.fileno(), 0, file_size)), default=0)
    count = min(-(-end // kind.UNIT_SIZE), file_size // kind.UNIT_SIZE)
    if end <= READ_WHOLE:
        units = _units(handle, 0, count, kind)
        written = kind.written_units(units)
        return written, units[:written]

    def is_invalid(place: int) -> bool:
        return not kind.is_valid(_units(handle, place, 1, kind))[0]

    written = bisect_left(range(count), True, key=is_invalid)
    return written, np.concatenate([_units(handle, place, 1, kind) for place in (0, written - 1) if written])


def units_at(queue: QueueEnd, queue_offsets: Int64s) -> Structs:
    """Units of an ordinary queue at queue offsets, one a row; size 0 for none."""
    places = queue_offsets - (queue.end - len(queue.held))
    if ((places >= 0) & (places < len(queue.held))).all():
        return queue.held[places]
    found = np.zeros(len(queue_offsets), consume_queue.UNIT)
    for file in queue.files.own:
        places = queue_offsets - int(file.name) // UNIT_SIZE
        rows = np.flatnonzero((places >= 0) & (places < file.size // UNIT_SIZE))
        if rows.size:
            first, last = int(places[rows].min()), int(places[rows].max())
            with files.opened(file.path) as handle:
                found[rows] = _units(handle, first, last - first + 1, consume_queue)[places[rows] - first]
    return found


def first_not_due(queue: QueueEnd, time: int) -> int:
    """Queue offset of the first message of a delay level that is due after a time: that is its unit's tags code."""

    def due(place: int) -> int:
        return int(units_at(queue, np.array([place]))["tags_code"][0])

    return bisect_right(range(queue.end), time, lo=queue.begin, key=due)


def units_after_end(queue: QueueEnd) -> tuple[Int64s, Structs]:
    """Queue offsets and units in the files after the end of an ordinary queue."""
    firsts = [(int(file.name) // UNIT_SIZE, file) for file in queue.files.own]
    ranges = [np.arange(first, first + file.size // UNIT_SIZE) for first, file in firsts if first > queue.end]
    places = np.concatenate([np.zeros(0, np.int64), *ranges])
    units = units_at(queue, places)
    return places[consume_queue.is_valid(units)], units[consume_queue.is_valid(units)]


def _first_written(file: FileStatus) -> int:
    """Queue offset of the first unit that is not a pre-blank."""
    with files.opened(file.path) as handle:

        def is_written(place: int) -> bool:
            return not consume_queue.is_pre_blank(_units(handle, place, 1, consume_queue))[0]

        count = file.size // UNIT_SIZE
        begins_late = count and not is_written(0)  # most files have no filler
        blanks = bisect_left(range(count), True, key=is_written) if begins_late else 0
    return int(file.name) // UNIT_SIZE + blanks


def offset_at(queue: QueueEnd, log_offset: int) -> int:
    """First queue offset whose record is at or after a log offset, else ``end`` (ConsumeQueue#correctMinOffset)."""
    kind = batch_consume_queue if queue.batch else consume_queue

    def is_reached(place: int) -> bool:
        unit = _units(handle, place, 1, kind)
        return not (int(unit["size"][0]) > 0 and 0 <= int(unit["phy_offset"][0]) < log_offset)

    for file in queue.files.own:
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
    for file in queue.files.own:
        written, _ = _written([file], batch_consume_queue)[file.path]
        with files.opened(file.path) as handle:
            for at in range(0, written, _AT_ONCE):
                units = _units(handle, at, min(_AT_ONCE, written - at), batch_consume_queue)
                messages += int(units["batch_size"][units["phy_offset"] >= log_offset].sum(dtype=np.int64))
    return messages


def settled(tail: LogTail, queues: Mapping[tuple[str, int], QueueEnd]) -> set[tuple[str, int]]:
    """Ordinary queues that have the unit of each of their records in the tail and end with the last: nearly all."""
    absent, records = QueueEnd("", 0), tail.rows
    ends = [queues.get(key, absent) for key in records.keys]
    held = np.frombuffer(b"".join(queue.held.tobytes() for queue in ends if not queue.batch), consume_queue.UNIT)
    counts = np.array([0 if queue.batch else len(queue.held) for queue in ends], np.int64)
    reached = np.array([queue.end_offset for queue in ends], np.int64)
    firsts = np.array([queue.end for queue in ends], np.int64) - counts
    of, places = records.key_of, records.queue_offsets - firsts[records.key_of]
    good = (places >= 0) & (places < counts[of]) & (records.ends <= reached[of]) & (reached[of] <= tail.end)
    rows = np.flatnonzero(good)
    units = held[(np.cumsum(counts) - counts)[of[rows]] + places[rows]]
    good[rows] = units["phy_offset"] == records.offsets[rows]
    good[rows] &= units["size"] == (records.ends - records.offsets)[rows]
    bad = set(np.unique(of[~good]).tolist())
    return {key for number, key in enumerate(records.keys) if number not in bad and not key[0].startswith(LIGHT_PREFIX)}


@dataclass(frozen=True)
class Replayed:
    """End of a queue after a start, and the dispatched rows of the tail that are not at their place."""

    end: int
    misplaced: Int64s = field(default_factory=lambda: _NO_ROWS)


def replayed(
    queue: QueueEnd | None, key: tuple[str, int], tail: LogTail, covered: Bools, *, cut: bool, batch: bool
) -> Replayed:
    """A queue after a start that cuts it at the log's end (ConsumeQueue#truncateDirtyLogicFiles) and appends the
    ``covered`` rows of the tail. ``batch``: type of a queue without files.
    """
    end, reached = (0, -1) if queue is None else (queue.end, queue.end_offset)
    if queue is not None and cut and reached > tail.end and not queue.ends_in_pre_blank:
        end, reached = min(end, offset_at(queue, tail.end)), tail.end
    records = tail.rows
    rows = records.by_queue.get(key, _NO_ROWS)
    again = rows[covered[rows] & (records.ends[rows] > reached)]
    if not again.size:
        return Replayed(end)
    if queue is None or not queue.files.own:
        end = int(records.queue_offsets[again[0]])
    if queue.batch if queue is not None else batch:
        return Replayed(max(end, int(records.queue_offsets[again[-1]]) + 1))
    last = rows[records.ends[rows] == reached]  # after a gap, units of 5.0.0 are before their places
    before = int(records.queue_offsets[last[0]]) + 1 - end if last.size else 0
    put, places, end = _appended(records, again, end)
    if put is again or key[0].startswith(LIGHT_PREFIX):  # for light queues only the order counts
        return Replayed(end, np.setdiff1d(again, put))
    return Replayed(end, np.setdiff1d(again, put[records.queue_offsets[put] - before == places]))


def _appended(tail: TailRows, rows: Int64s, end: int) -> tuple[Int64s, Int64s, int]:
    """Rows appended to a queue that ends at ``end``, their places, and the new end. A unit is appended unless its
    offset is already in the queue; offset 0 never is (ConsumeQueue#putMessagePositionInfo, 4.9.8 to 5.5.1).
    """
    offsets = tail.queue_offsets[rows]
    if not rows.size:
        return rows, rows, end
    if offsets[0] == end and offsets[-1] - end == len(rows) - 1 and (np.diff(offsets) == 1).all():
        return rows, offsets, end + len(rows)
    put, first = np.zeros(len(rows), np.bool_), end
    for number, offset in enumerate(offsets.tolist()):
        put[number] = offset >= end or offset == 0
        end += bool(put[number])
    return rows[put], np.arange(first, end), end


def misplaced(tail: TailRows, rows: Int64s, queue: QueueEnd) -> Int64s:
    """Records of an ordinary queue whose unit is missing or wrong at their queue offset."""
    if queue.topic.startswith(LIGHT_PREFIX):  # some releases put more records there, none puts one after its place
        first = offset_at(queue, int(tail.offsets[rows[0]]))
        begin = min(first, int(tail.queue_offsets[rows[0]]))
        put, _, _ = _appended(tail, rows[tail.ends[rows] <= queue.end_offset], begin)
        units = units_at(queue, np.arange(first, min(queue.end, first + _held(queue))))
        places = {unit[:2]: place for place, unit in enumerate(units.tolist(), first)}
        pairs = zip(tail.offsets[put].tolist(), (tail.ends[put] - tail.offsets[put]).tolist(), strict=True)
        found = np.array([places.get(pair, NEVER) for pair in pairs], np.int64)
        return put[(found > tail.queue_offsets[put]) & ((found == NEVER) | (tail.queue_offsets[put] > 0))]
    rows = rows[tail.queue_offsets[rows] < queue.end]
    ours, numbers = points_to(tail, rows, queue), tail.queue_offsets[rows]
    if ours.all():
        return rows[:0]
    kept = np.where(ours, numbers, queue.end)
    least = np.minimum.accumulate(kept[::-1])[::-1]  # of correct ones from here on
    older = np.flatnonzero(~ours & (least <= numbers))  # a later life has their place and those before
    first = older[-1] + 1 if older.size else 0
    rows, ours = rows[first:], ours[first:]
    later = np.minimum.accumulate(tail.queue_offsets[rows][::-1])[::-1]
    last_life = np.append(tail.queue_offsets[rows][:-1] < later[1:], True)[: len(rows)]  # excludes deleted topics
    rows = rows[last_life & ~ours]
    return rows[~_lies_before_its_place(tail, rows, queue)] if rows.size else rows


def points_to(tail: TailRows, rows: Int64s, queue: QueueEnd) -> Bools:
    """Which records have their unit at their queue offset in an ordinary queue."""
    units, begins = units_at(queue, tail.queue_offsets[rows]), tail.offsets[rows]
    return np.asarray((units["phy_offset"] == begins) & (units["size"] == tail.ends[rows] - begins))


def _held(queue: QueueEnd) -> int:
    """Units that the files can hold: their names may be far apart."""
    return sum(file.size for file in queue.files.own) // UNIT_SIZE


def _lies_before_its_place(tail: TailRows, rows: Int64s, queue: QueueEnd) -> Bools:
    """Brokers of 5.0.0 left gaps in queue offsets, but not in queues: units are at earlier places, in order."""
    first, last = (offset_at(queue, int(tail.offsets[row])) for row in rows[[0, -1]])
    stop = min(last + 1, queue.end, first + _held(queue))
    begins = units_at(queue, np.arange(first, stop))["phy_offset"].astype(np.int64)
    if not begins.size or (np.diff(begins) <= 0).any():
        return np.zeros(len(rows), np.bool_)
    at = np.minimum(np.searchsorted(begins, tail.offsets[rows]), len(begins) - 1)
    return np.asarray((begins[at] == tail.offsets[rows]) & (first + at < tail.queue_offsets[rows]))


def given_twice(tail: TailRows, rows: Int64s, wrong: Int64s, queue: QueueEnd) -> Bools:
    """Which ``wrong`` rows came too late: an earlier record has their place, perhaps after a counter restarted."""
    there = units_at(queue, tail.queue_offsets[wrong])
    units = np.where(there["size"] > 0, there["phy_offset"].astype(np.int64), -1)
    other = rows[np.minimum(np.searchsorted(tail.offsets[rows], units), len(rows) - 1)]
    anew = (tail.queue_offsets[other] == 0) & np.isin(other, wrong)
    has_it = (tail.queue_offsets[other] == tail.queue_offsets[wrong]) | anew
    return np.asarray((tail.offsets[other] == units) & has_it & (other < wrong))
