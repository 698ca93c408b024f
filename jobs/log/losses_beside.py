"""Lost messages at the ends of queues, which leave no gap in the log: what the rest of the store proves.

===================  =================================================================================================
evidence             proves
===================  =================================================================================================
consume queues       exactly the messages of units whose records were in lost bytes, or after the end of the log
index files          at least the messages at the entries' offsets: not every message has a key
committed offsets    at least the messages up to which a group has read a queue
retried messages     at least their originals, each at the offset in its ORIGIN_MESSAGE_ID
===================  =================================================================================================

The last three are used for a salvage, or if the log ends with its last segment. A committed offset may be wrong (4.x
keeps those of deleted topics), so it counts only if the lost bytes have room for the messages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from jobs.log.log_scan import LogReading
from jobs.log.losses import Loss
from jobs.spark.runner import Runner
from storeformat import message as m
from storeformat.arrays import Bools, Int64s, LogExtent, Structs
from storeformat.errors import DependencyMissing, MissingInput, NotAStore
from storeformat.index import index_file
from storeformat.message import SCHEDULE_TOPIC
from storeformat.queues.consume_queue import UNIT_SIZE
from storeformat.record.decode import DecodeRules
from storeformat.record.dispatch import topic_names
from storeformat.record.light_queues import LIGHT_PREFIX
from storeformat.record.pending import PREFIXES
from storeformat.storage import files, locations
from storeformat.store.config.config_files import read_config, read_offsets
from storeformat.store.layout import CONSUME_QUEUE, INDEX
from storeformat.store.queue_ends import QueueEnd, batched_messages, offset_at, queue_ends, units_at
from storeformat.store.queue_places import queue_store
from storeformat.store.rocksdb_queues import RocksDbQueues, rocksdb_queues_in
from storeformat.store.settings import ENTRIES, SLOTS
from udfs.log.find_records import FindOrigins

if TYPE_CHECKING:
    from jobs.log.opening import OpenedStore

PROVEN = "lost bytes of the log: a unit of the store's own queue is left"
_FURTHEST = (1 << 63) - 1
_AT_ONCE = 1 << 20

_Queue = tuple[str, int]
_Units = tuple[Int64s, Int64s, Int64s, Int64s]
"""Queue offsets, commit-log offsets, record sizes and message counts of units."""


def with_losses_beside(store: OpenedStore, reading: LogReading, runner: Runner, *, open_end: bool) -> LogReading:
    """Add the losses that the rest of the store proves. ``open_end``: messages after the end of the log are lost."""
    ranges = tuple((item.begin, item.end) for item in reading.damaged if item.begin < reading.end)
    ranges += (_after_end(reading),) if open_end else ()
    lost = LogExtent(reading.begin, reading.end, ranges)
    if not lost.damaged:
        return reading
    known = reading.queue_runs.ranges()
    found, proven, ends = _in_queues(store, reading, lost, known)
    own = reading.losses
    last_of = {(loss.topic, loss.queue_id): loss for loss in found}
    rows = [row for row in own.rows if not _counts(last_of.get((row.topic, row.queue_id)), row)] + found
    unexplained = [item for item in own.unexplained if not _any_in(item, proven)]
    losses = replace(own, rows=rows, unexplained=tuple(unexplained))
    messages, at_least = losses.messages, losses.at_least
    if reading.salvaged or reading.ends_with_segment:
        at_least = max(at_least, messages + _beyond_ends(store, reading, ends))
        proven = np.union1d(proven, _in_index(store, lost))
        if ranges[0][1] < _FURTHEST:
            proven = np.union1d(proven, _retried(reading, store.decode_rules(), lost, runner))
        at_least = max(at_least, len(proven) + sum(not _any_in(item, proven) for item in unexplained))
    if not found and at_least == own.at_least:
        return reading
    return replace(reading, all_losses=replace(losses, least=at_least))


def end_of_units(store: OpenedStore, reading: LogReading) -> int:
    """Commit-log offset after the last unit in the store's queues, or the end of the log."""
    lost = LogExtent(reading.begin, reading.end, (_after_end(reading),))
    rows, _, _ = _in_queues(store, reading, lost, reading.queue_runs.ranges())
    return max((row.end for row in rows), default=reading.end)


def _after_end(reading: LogReading) -> tuple[int, int]:
    """Bytes after the log, without old ones that a broker left there when it cut it."""
    return max([reading.end, *(item.end for item in reading.stale if item.held_record)]), _FURTHEST


def _counts(found: Loss | None, row: Loss) -> bool:
    if found is None or row.first_queue_offset is None:
        return False
    return 0 <= row.first_queue_offset - (found.first_queue_offset or 0) < found.messages


def _any_in(item: tuple[int, int], offsets: Int64s) -> bool:
    begin, end = np.searchsorted(offsets, item)
    return bool(begin < end)


def _in_queues(
    store: OpenedStore, reading: LogReading, lost: LogExtent, known: Mapping[_Queue, tuple[int, int]]
) -> tuple[list[Loss], Int64s, dict[_Queue, int]]:
    """Losses proven by units, the sorted log offsets of their records, and each queue's end including its losses."""
    rows: list[Loss] = []
    offsets: list[Int64s] = [np.zeros(0, np.int64)]
    ends = {queue: end for queue, (_, end) in known.items()}
    found = [
        (queue, *units) for queue, parts in _stored(store, reading, lost, known) for units in parts if len(units[0])
    ]
    alone = _alone([(places, sizes) for _, _, places, sizes, _ in found])
    for (queue, numbers, places, sizes, counts), is_alone in zip(found, alone, strict=True):
        rows_lost = np.flatnonzero(lost.lost(places) & (sizes != 0) & is_alone)
        if len(rows_lost):
            begin, end = (
                int(places[rows_lost[0]]),
                min(int(places[rows_lost[-1]]) + abs(int(sizes[rows_lost[-1]])), _FURTHEST),
            )
            rows.append(Loss(*queue, int(numbers[rows_lost[0]]), int(counts[rows_lost].sum()), begin, end, PROVEN))
            offsets.append(places[rows_lost])
            ends[queue] = max(ends.get(queue, 0), int(numbers[rows_lost[-1]]) + int(counts[rows_lost[-1]]))
    return rows, np.unique(np.concatenate(offsets)), ends


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


def _stored(
    store: OpenedStore, reading: LogReading, lost: LogExtent, known: Mapping[_Queue, tuple[int, int]]
) -> Iterator[tuple[_Queue, Iterator[_Units]]]:
    first_lost = lost.damaged[0][0]
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
        begin, end = known.get(queue, (None, None))
        if stored.batch:
            yield queue, _of_batches(stored, reading.end)
        elif end is None:
            yield queue, _of_file(stored, offset_at(stored, reading.begin), stored.end)
        else:
            if not reading.whole and len(lost.damaged) > 1:
                yield queue, _of_file(stored, offset_at(stored, reading.begin), begin or 0)
            last = units_at(stored, np.array([min(end, stored.end) - 1]))["phy_offset"]
            was_made_anew = lost.lost(last.astype(np.int64)).any()  # the survivors are of its topic's life before
            yield queue, _of_file(stored, offset_at(stored, first_lost) if was_made_anew else end, stored.end)


def _of_file(stored: QueueEnd, begin: int, end: int) -> Iterator[_Units]:
    stop = begin  # the name of a file proves no units before it
    for file in stored.files:
        first = int(file.name) // UNIT_SIZE
        stop = max(stop, first + file.size // UNIT_SIZE) if first <= stop else stop
    stop = min(stop, end)
    for at in range(begin, stop, _AT_ONCE):
        numbers = np.arange(at, min(at + _AT_ONCE, stop))
        yield _of_units(numbers, units_at(stored, numbers))


def _of_units(numbers: Int64s, units: Structs) -> _Units:
    return numbers, units["phy_offset"].astype(np.int64), units["size"].astype(np.int64), np.ones_like(numbers)


def _of_batches(stored: QueueEnd, log_end: int) -> Iterator[_Units]:
    """Batch messages after the end of the log as one unit without a size, at the end of the last batch."""
    begin = offset_at(stored, log_end)
    count = min(stored.end - begin, batched_messages(stored, log_end))
    if count > 0:
        yield np.array([begin]), np.array([stored.end_offset - 1]), np.array([-1]), np.array([count])


def _in_database(
    database: RocksDbQueues, known: Mapping[_Queue, tuple[int, int]], first_lost: int
) -> Iterator[tuple[_Queue, Iterator[_Units]]]:
    for stored, ends in database.ends().items():
        queue = topic_names([stored[0]])[0], stored[1]
        if ends.last is None or ends.last[0] < first_lost or queue[0].startswith(LIGHT_PREFIX):
            continue
        begin, end = known.get(queue, (0, 0))
        for part in ((0, begin), (end, ends.last[1] + 1)):
            if part[0] < part[1]:
                yield queue, (_of_units(*some) for some in database.units(stored, *part))


def _in_index(store: OpenedStore, lost: LogExtent) -> Int64s:
    settings, found = store.settings, [np.zeros(0, np.int64)]
    for entry in files.list_directory(locations.join(store.root, INDEX)) or []:
        if entry.size != settings.index_file_size or not index_file.is_index_file_name(entry.name):
            continue
        with files.RangeReader(entry.path) as reader:
            header = index_file.parse_header(reader.read(0, index_file.HEADER_SIZE))
            if header.end_phy_offset < lost.damaged[0][0]:
                continue
            begin = index_file.entries_position(settings.number(SLOTS))
            used = min(header.index_count, settings.number(ENTRIES))  # it may be damaged
            for at in range(1, used, _AT_ONCE):
                count = min(_AT_ONCE, used - at)
                size = index_file.ENTRY_SIZE
                entries = index_file.parse_entries(reader.read(begin + at * size, count * size))
                places = entries["phy_offset"].astype(np.int64)
                found.append(np.unique(places[lost.lost(places) & (places <= header.end_phy_offset)]))
    return np.unique(np.concatenate(found))


def _beyond_ends(store: OpenedStore, reading: LogReading, ends: Mapping[_Queue, int]) -> int:
    """Messages that groups have read beyond the ends of queues, if the lost bytes have room for them."""
    topics = read_config(store.root, "topics.json").value
    read: dict[_Queue, int] = {}
    committed = read_offsets(store.root, enable_lmq=store.settings.flag("enableLmq")).value or {}
    for (topic, _), offsets in committed.items():
        if not topic.startswith(LIGHT_PREFIX) and (topics is None or topic in topics):
            for queue_id, offset in offsets.items():
                read[topic, queue_id] = max(read.get((topic, queue_id), 0), offset)
    last = reading.segments[-1]  # and one more may have been after it
    room = sum(item.end - item.begin for item in reading.damaged) + last.end - reading.end + last.size
    beyond = (
        offset - ends.get((topic, queue_id), 0)
        for (topic, queue_id), offset in read.items()
        if reading.whole or (topic, queue_id) in ends  # else it may have begun anywhere
        if not files.exists(locations.join(store.root, CONSUME_QUEUE, topic, str(queue_id)))  # else that knows better
    )
    messages = sum(count for count in beyond if 0 < count <= room // m.MIN_RECORD_SIZE)
    return messages if messages <= room // m.MIN_RECORD_SIZE else 0


def _retried(reading: LogReading, rules: DecodeRules, lost: LogExtent, runner: Runner) -> Int64s:
    splits = [
        replace(scan.report.split, first_record=scan.report.start)
        for scan in reading.scans
        if scan.records and scan.report.end > lost.damaged[0][0]
        and any(name == SCHEDULE_TOPIC or name.startswith(PREFIXES) for name in topic_names(scan.topics))
    ]  # fmt: skip
    found = runner.map("look what was retried", FindOrigins(rules), splits) if splits else []
    offsets = np.unique(np.concatenate([np.zeros(0, np.int64), *found]))
    return offsets[lost.lost(offsets)]
