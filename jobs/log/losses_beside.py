"""Lost messages at the ends of queues, which leave no gap in the log: units of the store's own queues prove exactly
those whose records were in lost bytes, or after the end of the log. An index that goes on there proves one at least.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from jobs.log.log_scan import LogReading
from jobs.log.losses import Loss
from storeformat.arrays import Bools, Int64s, LogExtent, Structs
from storeformat.errors import DependencyMissing, MissingInput, NotAStore
from storeformat.index import index_file
from storeformat.queues.consume_queue import UNIT_SIZE
from storeformat.queues.rocksdb_queues import RocksDbQueues, rocksdb_queues_in
from storeformat.record.dispatch import LIGHT_PREFIX, topic_names
from storeformat.storage import files, locations
from storeformat.store.layout import INDEX, queue_store
from storeformat.store.queue_ends import QueueEnd, batched_messages, offset_at, queue_ends, units_at
from storeformat.store.settings import ENTRIES, SLOTS

if TYPE_CHECKING:
    from jobs.log.opening import OpenedStore

PROVEN = "lost bytes of the log: a unit of the store's own queue is left"
_FURTHEST = (1 << 63) - 1

_Queue = tuple[str, int]
_Units = tuple[_Queue, Int64s, Int64s, Int64s, Int64s]
"""A queue, and queue offsets, commit-log offsets, record sizes and message counts of its units."""


def with_losses_beside(store: OpenedStore, reading: LogReading, *, open_end: bool) -> LogReading:
    """Add the losses that the store's queues prove. ``open_end``: messages after the end of the log are lost."""
    ranges = tuple((item.begin, item.end) for item in reading.damaged if item.begin < reading.end)
    ranges += (_after_end(reading),) if open_end else ()
    found, proven = _in_queues(store, reading, ranges)
    goes_on = open_end and (reading.rules.salvaged or reading.ends_with_segment) and _index_goes_on(store, reading)
    if not found and not goes_on:
        return reading
    own = reading.losses
    of_queue = {(loss.topic, loss.queue_id): loss for loss in found}
    rows = [row for row in own.rows if not _counts(of_queue.get((row.topic, row.queue_id)), row)] + found
    held = (*own.unexplained, _after_end(reading)) if goes_on else own.unexplained
    unexplained = tuple(item for item in held if not ((proven >= item[0]) & (proven < item[1])).any())
    return replace(reading, all_losses=replace(own, rows=rows, unexplained=unexplained))


def end_of_units(store: OpenedStore, reading: LogReading) -> int:
    """Commit-log offset after the last unit in the store's queues, or the end of the log."""
    rows, _ = _in_queues(store, reading, (_after_end(reading),))
    return max((row.end for row in rows), default=reading.end)


def _index_goes_on(store: OpenedStore, reading: LogReading) -> bool:
    """True if the last entry of an index file is of a record after the end of the log."""
    end, slots, most = _after_end(reading)[0], store.settings.number(SLOTS), store.settings.number(ENTRIES)
    for entry in files.list_directory(locations.join(store.root, INDEX)) or []:
        if entry.size == store.settings.index_file_size and index_file.is_index_file_name(entry.name):
            with files.RangeReader(entry.path) as reader:
                header = index_file.parse_header(reader.read(0, index_file.HEADER_SIZE))
                at = index_file.entries_position(slots) + index_file.ENTRY_SIZE * min(header.entries, most - 1)
                last = index_file.parse_entries(reader.read(at, index_file.ENTRY_SIZE))
            if end <= header.end_phy_offset == last["phy_offset"][0]:
                return True
    return False


def _after_end(reading: LogReading) -> tuple[int, int]:
    """Bytes after the log, without old ones that a broker left there when it cut it."""
    return max([reading.end, *(item.end for item in reading.stale if item.held_record)]), _FURTHEST


def _counts(found: Loss | None, row: Loss) -> bool:
    if found is None or row.first_queue_offset is None:
        return False
    return 0 <= row.first_queue_offset - (found.first_queue_offset or 0) < found.messages


def _in_queues(
    store: OpenedStore, reading: LogReading, ranges: tuple[tuple[int, int], ...]
) -> tuple[list[Loss], Int64s]:
    """Losses in ranges of the log proven by units, and the sorted log offsets of their records."""
    rows: list[Loss] = []
    offsets: list[Int64s] = [np.zeros(0, np.int64)]
    lost = LogExtent(reading.begin, reading.end, ranges)
    found = [part for part in _stored(store, reading, lost) if len(part[1])] if ranges else []
    alone = _alone([(places, sizes) for _, _, places, sizes, _ in found])
    for (queue, numbers, places, sizes, counts), is_alone in zip(found, alone, strict=True):
        rows_lost = np.flatnonzero(lost.lost(places) & (sizes != 0) & is_alone)
        if len(rows_lost):
            begin = int(places[rows_lost[0]])
            end = min(int(places[rows_lost[-1]]) + abs(int(sizes[rows_lost[-1]])), _FURTHEST)
            rows.append(Loss(*queue, int(numbers[rows_lost[0]]), int(counts[rows_lost].sum()), begin, end, PROVEN))
            offsets.append(places[rows_lost])
    return rows, np.unique(np.concatenate(offsets))


def _alone(parts: Sequence[tuple[Int64s, Int64s]]) -> list[Bools]:
    """For each part, the units before its first step back in the log whose bytes no other unit claims: no leftovers."""
    kept, spans = [], [np.zeros((2, 0), np.int64)]
    for places, sizes in parts:
        span = np.stack([places, places + sizes])
        own = np.append(True, places[1:] >= np.maximum.accumulate(span[1])[:-1])
        kept.append(np.logical_and.accumulate(own))
        spans.append(span[:, kept[-1]])
    begins, ends = np.concatenate(spans, axis=1)
    order = np.argsort(begins, kind="stable")
    clash = np.zeros(len(begins), bool)
    over = begins[order][1:] < np.maximum.accumulate(ends[order])[:-1]
    clash[order[1:][over]] = clash[order[:-1][over]] = True
    at = 0
    for own in kept:
        count = int(own.sum())
        own[own] = ~clash[at : at + count]
        at += count
    return kept


def _stored(store: OpenedStore, reading: LogReading, lost: LogExtent) -> Iterator[_Units]:
    known, first_lost = reading.queue_runs.ranges(), lost.damaged[0][0]
    queues = queue_store(store.root, store.settings)
    if queues.in_rocksdb:
        place = locations.join(store.root, queues.database)
        with suppress(DependencyMissing, MissingInput, NotAStore), rocksdb_queues_in(place) as database:
            yield from _in_database(database, known, first_lost)
        return
    for stored in queue_ends(store.root):
        queue = (stored.topic, stored.queue_id)
        if queue[0].startswith(LIGHT_PREFIX) or stored.end_offset <= first_lost:
            continue
        begin, end = known.get(queue, (0, 0))
        if stored.batch:  # messages after the end of the log as one unit without a size, at the end of the last batch
            first = offset_at(stored, reading.end)
            count = max(min(stored.end - first, batched_messages(stored, reading.end)), 0)
            unit = np.array([[first], [stored.end_offset - 1], [-1], [count]])[:, : min(count, 1)]
            yield queue, unit[0], unit[1], unit[2], unit[3]
        elif queue not in known:
            yield _of_file(stored, offset_at(stored, reading.begin), stored.end)
        else:
            if not reading.rules.whole and len(lost.damaged) > 1:
                yield _of_file(stored, offset_at(stored, reading.begin), begin)
            last = units_at(stored, np.array([min(end, stored.end) - 1]))["phy_offset"]
            was_made_anew = lost.lost(last.astype(np.int64)).any()  # the survivors are of its topic's life before
            yield _of_file(stored, offset_at(stored, first_lost) if was_made_anew else end, stored.end)


def _of_file(stored: QueueEnd, begin: int, end: int) -> _Units:
    stop = begin  # the name of a file proves no units before it
    for file in stored.files.own:
        first = int(file.name) // UNIT_SIZE
        stop = max(stop, first + file.size // UNIT_SIZE) if first <= stop else stop
    numbers = np.arange(begin, min(stop, end))
    return _of_units((stored.topic, stored.queue_id), numbers, units_at(stored, numbers))


def _of_units(queue: _Queue, numbers: Int64s, units: Structs) -> _Units:
    return queue, numbers, units["phy_offset"].astype(np.int64), units["size"].astype(np.int64), np.ones_like(numbers)


def _in_database(database: RocksDbQueues, known: Mapping[_Queue, tuple[int, int]], first_lost: int) -> Iterator[_Units]:
    for stored, ends in database.ends().items():
        queue = topic_names([stored[0]])[0], stored[1]
        if ends.last is None or ends.last[0] < first_lost or queue[0].startswith(LIGHT_PREFIX):
            continue
        begin, end = known.get(queue, (0, 0))
        for part in ((0, begin), (end, ends.last[1] + 1)):
            if part[0] < part[1]:
                yield from (_of_units(queue, *some) for some in database.units(stored, *part))
