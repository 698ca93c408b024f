"""A store as its broker would answer from it: records by offset, queues and index files, read without Spark."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from jobs.log.opening import OpenedStore
from storeformat.arrays import Int64s, Structs
from storeformat.errors import MAPPED_FILE, MissingInput, NotAStore
from storeformat.index import index_file
from storeformat.log.chain_walk import BlockWindow, chain_from
from storeformat.log.segments import segment_at
from storeformat.queues import batch_consume_queue, consume_queue
from storeformat.queues.rocksdb_queues import Queue, RocksDbQueues, rocksdb_queues_in
from storeformat.record import bodies as record_bodies
from storeformat.record.decode import store_timestamp_at
from storeformat.storage import files, locations
from storeformat.store.layout import BATCH_CONSUME_QUEUE, CONSUME_QUEUE, INDEX, is_file_name, queue_id_of
from storeformat.store.queue_ends import RECOVERED_FILES
from storeformat.store.settings import BATCH_SIZE, SLOTS
from udfs.table import schemas
from udfs.table.rows import RowRules, record_batch

_BYTES_AT_A_TIME = 32 << 20
_BYTES_OF_A_UNIT = 4 << 10  # in memory, beside its record

SHOWN_COLUMNS = tuple(name for name in schemas.MESSAGES.names if name not in ("cluster", "broker", *schemas.RUNS))


def row_rules(store: OpenedStore, *, bodies: bool) -> RowRules:
    """Rules for displayed records: every column that is not constant, bodies if asked for."""
    columns = (*SHOWN_COLUMNS, schemas.BODY) if bodies else SHOWN_COLUMNS
    return RowRules(store.dispatch_rules(), split_parser=store.rules.split_parser, columns=columns)


def plain_row(row: dict[str, Any], *, is_compressed: bool = True) -> dict[str, Any]:
    """A table row for JSON: times as text and in milliseconds, bodies uncompressed if they are as stored."""
    if is_compressed and row.get(schemas.BODY) is not None:
        plain = record_bodies.uncompressed(row[schemas.BODY], row["sys_flag"])
        row = row if plain is None else {**row, schemas.BODY: plain}
    stored = row["store_timestamp"]
    facts: dict[str, Any] = {"store_timestamp_ms": None if stored is None else round(stored.timestamp() * 1000)}
    for name, value in row.items():
        if hasattr(value, "isoformat"):
            facts[name] = value.isoformat(timespec="milliseconds") if hasattr(value, "hour") else value.isoformat()
        elif name == "properties":
            facts[name] = dict(value or ())
        else:
            facts[name] = value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value
    return facts


UNIT = np.dtype([("queue_offset", np.int64), ("messages", np.int64), ("phy_offset", np.int64), ("size", np.int64)])
"""Of any queue. A batch's stands for ``messages`` messages from its queue offset on; ``size`` is 0 where there is no
message: a pre-blank, or an invalid unit.
"""


class QueueView(NamedTuple):
    """What a broker serves of a queue: [begin, end), and the unit at a queue offset."""

    begin: int
    end: int
    unit: Callable[[int], np.void | None]


@dataclass(frozen=True)
class OfflineStore:
    """What a broker looks up: the log by offset, a queue's units, the index by key hash."""

    store: OpenedStore

    def record_at(self, offset: int, *, bodies: bool = False) -> dict[str, Any] | None:
        """Record at a commit-log offset; its body CRC is checked."""
        segment = segment_at(self.store.segments, offset)
        if segment is None:
            return None
        begin = offset - segment.framing.head_size
        with files.RangeReader(segment.path) as reader:
            window = BlockWindow(reader, segment)
            for block in chain_from(window, begin, self.store.decode_rules(), stop=begin + 1, block_size=1 << 16):
                rows = record_batch(block, row_rules(self.store, bodies=bodies)).to_pylist()
                return plain_row(rows[0]) if rows else None
        return None

    def store_time(self, offset: int, size: int) -> int:
        """Store time of a unit's record, -1 if the log does not hold it."""
        segment = segment_at(self.store.segments, offset)
        if segment is None or offset + size > segment.end:
            return -1
        with files.RangeReader(segment.path) as reader:
            return store_timestamp_at(reader, offset - segment.base)

    def _recovered(self, topic: str, queue_id: int, begin: int = 0) -> Iterator[Structs]:
        """Units of a queue, at least those from ``begin`` on, up to where a broker's recovery ends it."""
        kind, settings = self._kind(topic), self.store.settings
        directory = locations.join(self.store.root, kind, topic, str(queue_id))
        entries = [entry for entry in files.list_directory(directory) or [] if is_file_name(entry.name)]
        if entries and not entries[-1].size:  # a broker was making it when it died
            entries.pop()
        if not entries:
            raise MissingInput("the store has no such consume queue", path=directory, advice="--scan reads the log")
        expected = settings.queue_file_size if kind == CONSUME_QUEUE else settings.number(BATCH_SIZE)
        for entry in entries:
            if entry.size not in (expected, -1):
                raise NotAStore(
                    "a queue file has the wrong length: a broker answers nothing from this queue", path=entry.path,
                    found=entry.size, expected=expected, advice="rebuild it; --scan reads the log",
                )  # fmt: skip
        contents = ((int(entry.name), files.read_bytes(entry.path, MAPPED_FILE)) for entry in entries)
        return recovered_units(contents, len(entries), batch=kind == BATCH_CONSUME_QUEUE)

    def _served(self, units: Structs) -> Structs:
        return units[(units["size"] > 0) & (units["phy_offset"] >= self.store.segments[0].base)]

    @contextmanager
    def view(self, topic: str, queue_id: int) -> Iterator[QueueView]:
        """A queue, as long as it is open; a batch's unit answers for each of its messages."""
        units = np.concatenate([np.zeros(0, UNIT), *self._recovered(topic, queue_id)])
        end = int(units[-1]["queue_offset"] + units[-1]["messages"]) if len(units) else 0
        served = self._served(units)
        firsts = served["queue_offset"].copy()

        def unit(queue_offset: int) -> np.void | None:
            place = int(firsts.searchsorted(queue_offset, "right")) - 1
            found: np.void | None = served[place] if place >= 0 else None
            return found if found is not None and queue_offset < found["queue_offset"] + found["messages"] else None

        yield QueueView(int(firsts[0]) if len(firsts) else end, end, unit)

    def offset_by_time(self, topic: str, queue_id: int, time: int, *, upper: bool = False) -> dict[str, int]:
        """First queue offset at or after a time, else the end; ``upper``: the last at or before it, else the begin.
        ``found``: the message there has such a time. Store times ascend, as in #binarySearchInQueueByTime.
        """
        with self.view(topic, queue_id) as queue:

            def time_at(place: int) -> int:
                unit = queue.unit(place)
                return -1 if unit is None else self.store_time(int(unit["phy_offset"]), int(unit["size"]))

            bisect, places = bisect_right if upper else bisect_left, range(queue.begin, queue.end)
            before = bisect(places, time, key=time_at)
            found = queue.begin + (max(before - 1, 0) if upper else before)
            unit, at = queue.unit(found), time_at(found)
        return {
            "found": int(0 <= at <= time if upper else at >= time),
            "queue_offset": found if unit is None else int(unit["queue_offset"]),
            "min_offset": queue.begin,
            "max_offset": queue.end,
        }

    def queue_ids(self, topic: str) -> list[int]:
        there = files.list_directory(locations.join(self.store.root, self._kind(topic), topic)) or []
        return sorted(queue_id for entry in there if (queue_id := queue_id_of(entry.name)) is not None)

    def _kind(self, topic: str) -> str:
        return BATCH_CONSUME_QUEUE if topic in self.store.batch_topics else CONSUME_QUEUE

    def units(self, topic: str, queue_id: int, begin: int = 0) -> Iterator[Structs]:
        """Units from ``begin`` on whose records the log may hold, in parts of ``_BYTES_AT_A_TIME``."""
        for units in self._recovered(topic, queue_id, begin):
            served = self._served(units)
            served = served[served["queue_offset"] + served["messages"] > begin]
            parts = np.cumsum(served["size"] + _BYTES_OF_A_UNIT) // _BYTES_AT_A_TIME
            yield from np.split(served, np.flatnonzero(np.diff(parts)) + 1)

    def topics_with(self, *prefixes: str) -> list[str]:
        there = files.list_directory(locations.join(self.store.root, CONSUME_QUEUE)) or []
        return [entry.name for entry in there if entry.is_directory and entry.name.startswith(prefixes)]

    def index_offsets(self, topic: str, key: str, *, max_num: int, begin: int, end: int) -> list[int]:
        """Ascending commit-log offsets in the index for a key, including other keys of the same hash."""
        settings, entries = self.store.settings, files.list_directory(locations.join(self.store.root, INDEX)) or []
        names = [entry for entry in entries if index_file.is_index_file_name(entry.name) and not entry.is_directory]
        reads = [partial(_read_mapped, entry.path, settings.index_file_size) for entry in names]
        index = [(index_file.parse_header(read(0, index_file.HEADER_SIZE)), read) for read in reads]
        hashed, slots = index_file.key_hash(topic, key), settings.number(SLOTS)
        return sorted(index_file.query_offsets(index, slots, hashed, max_num=max_num, begin=begin, end=end))


def recovered_units(contents: Iterable[tuple[int, bytes]], count: int, *, batch: bool) -> Iterator[Structs]:
    """``UNIT`` rows of each of ``count`` files, given as number in the name and content. Recovery trusts all but the
    last three, and ends at the first invalid unit.
    """
    kind = batch_consume_queue if batch else consume_queue
    for number, (position, content) in enumerate(contents):
        stored = kind.parse_units(content)
        valid = kind.is_valid(stored)
        ends = number >= count - RECOVERED_FILES and not valid.all()
        units = np.zeros(int((~valid).argmax()) if ends else len(stored), UNIT)
        stored, valid = stored[: len(units)], valid[: len(units)]
        if batch:
            units["queue_offset"], units["messages"] = stored["msg_base_offset"], stored["batch_size"]
        else:
            units["queue_offset"], units["messages"] = position // kind.UNIT_SIZE + np.arange(len(units)), 1
            valid = valid & ~consume_queue.is_pre_blank(stored)
        units["phy_offset"], units["size"] = stored["phy_offset"], np.where(valid, stored["size"], 0)
        yield units
        if ends:
            return


@dataclass(frozen=True)
class RocksDbStore(OfflineStore):
    """Queues in RocksDB; each call opens the database again, so it sees what a broker has flushed."""

    def queues(self) -> AbstractContextManager[RocksDbQueues]:
        return rocksdb_queues_in(locations.join(self.store.root, self.store.queues_in.database))

    def _range(self, queues: RocksDbQueues, queue: Queue) -> tuple[int, int]:
        begin, end = queues.range_of(queue, self.store.segments[0].base)
        if end == 0:
            path = locations.join(queues.database.path, queue[0].decode(), str(queue[1]))
            raise MissingInput("the store has no such consume queue", path=path, advice="--scan reads the log")
        return begin, end

    @contextmanager
    def view(self, topic: str, queue_id: int) -> Iterator[QueueView]:
        queue = (topic.encode(), queue_id)
        with self.queues() as queues:
            begin, end = self._range(queues, queue)

            def unit(queue_offset: int) -> np.void | None:
                found = queues.unit(queue, queue_offset) if begin <= queue_offset < end else None
                return None if found is None else _units_of(np.array([queue_offset]), found)[0]

            yield QueueView(begin, end, unit)

    def queue_ids(self, topic: str) -> list[int]:
        with self.queues() as queues:
            return sorted(queue_id for name, queue_id in queues.ends() if name == topic.encode())

    def topics_with(self, *prefixes: str) -> list[str]:
        with self.queues() as queues:
            names = {name.decode("utf-8", "replace") for name, _ in queues.ends()}
        return sorted(name for name in names if name.startswith(prefixes))

    def _recovered(self, topic: str, queue_id: int, begin: int = 0) -> Iterator[Structs]:
        queue = (topic.encode(), queue_id)
        with self.queues() as queues:
            first, end = self._range(queues, queue)
            for queue_offsets, values in queues.units(queue, max(begin, first), end):
                yield _units_of(queue_offsets, values)


def _units_of(queue_offsets: Int64s, values: Structs) -> Structs:
    units = np.ones(len(values), UNIT)
    units["queue_offset"], units["phy_offset"], units["size"] = queue_offsets, values["phy_offset"], values["size"]
    return units


def _read_mapped(path: str, mapped: int, position: int, length: int) -> bytes:
    """Read like a broker that maps ``mapped`` bytes of a file: zeros after the end of a short one."""
    length = max(min(length, mapped - position), 0)
    with files.RangeReader(path) as reader:
        return reader.read(position, max(min(length, reader.size - position), 0)).ljust(length, b"\0")


def utc_text(milliseconds: int) -> str:
    """A time as UTC text, or the number if it is not a calendar time."""
    try:
        return datetime.fromtimestamp(milliseconds / 1000, timezone.utc).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return str(milliseconds)
