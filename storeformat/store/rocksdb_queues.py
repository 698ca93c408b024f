"""RocksDB queues of a store as a broker reads them: ends and units.

Mirrors RocksDBConsumeQueueStore and RocksDBConsumeQueueOffsetTable (5.3.3, 5.5.0).
``storeformat.queues.rocksdb_pairs`` has keys and values.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice

import numpy as np

from storeformat.arrays import Int64s, Structs
from storeformat.queues import rocksdb_pairs
from storeformat.queues.rocksdb_pairs import DEFAULT_FAMILY, MAX, MIN, OFFSET_FAMILY, VALUE
from storeformat.storage import rocksdb
from storeformat.storage.rocksdb import Database

PAIRS_AT_A_TIME = 1 << 16

Queue = tuple[bytes, int]  # topic and queue id


@dataclass(frozen=True)
class StoredEnds:
    """Commit-log and queue offset of a queue's last and first unit. ``first`` may be (0, 0) or before the log."""

    last: tuple[int, int] | None = None
    first: tuple[int, int] | None = None


@dataclass(frozen=True)
class RocksDbQueues:
    """Queues in an open database."""

    database: Database

    def dispatched(self) -> int | None:
        """Offset up to which the log is dispatched, None if not stored."""
        value = self.database.get(OFFSET_FAMILY, rocksdb_pairs.checkpoint_key())
        return None if value is None else rocksdb_pairs.parse_offset(value)

    def ends(self) -> dict[Queue, StoredEnds]:
        """The stored ends of all queues."""
        found: dict[Queue, dict[str, tuple[int, int]]] = {}
        for key, value in self.database.pairs(OFFSET_FAMILY):
            named, offsets = rocksdb_pairs.parse_end(key), rocksdb_pairs.parse_ends(value)
            if named is not None and offsets is not None:
                found.setdefault(named[:2], {})[named[2]] = offsets
        return {queue: StoredEnds(ends.get(MAX), ends.get(MIN)) for queue, ends in found.items()}

    def queues(self) -> Iterator[Queue]:
        """The queues that have units, in key order."""
        key = self.database.key_from(DEFAULT_FAMILY, b"")
        while key is not None:
            queue = rocksdb_pairs.parse_queue(key)
            if queue is not None:
                yield queue
            key = self.database.key_from(DEFAULT_FAMILY, rocksdb_pairs.after_queue(*queue) if queue else key + b"\0")

    def unit(self, queue: Queue, queue_offset: int) -> Structs | None:
        """The unit at a queue offset as one row of ``VALUE``."""
        value = self.database.get(DEFAULT_FAMILY, rocksdb_pairs.unit_key(*queue, queue_offset))
        return np.frombuffer(value, VALUE) if value is not None and len(value) == VALUE.itemsize else None

    def units(self, queue: Queue, begin: int = 0, end: int | None = None) -> Iterator[tuple[Int64s, Structs]]:
        """Batches of queue offsets and values in [begin, end). Values of another length are no units."""
        first = rocksdb_pairs.unit_key(*queue, begin) if begin else rocksdb_pairs.queue_head(*queue)
        stop = rocksdb_pairs.after_queue(*queue) if end is None else rocksdb_pairs.unit_key(*queue, end)
        pairs = self.database.pairs(DEFAULT_FAMILY, first, stop)
        width, size = len(first if begin else first + bytes(8)), VALUE.itemsize
        while some := list(islice(pairs, PAIRS_AT_A_TIME)):
            whole = [(key, value) for key, value in some if len(key) == width and len(value) == size]
            keys = np.frombuffer(b"".join(key[-8:] for key, _ in whole), ">i8")
            yield keys.astype(np.int64), np.frombuffer(b"".join(value for _, value in whole), VALUE)

    def range_of(self, queue: Queue, log_begin: int) -> tuple[int, int]:
        """First queue offset served, and the one after the last (#getMinCqOffset, #getMaxOffsetInQueue)."""
        last, first = self._end(queue, MAX), self._end(queue, MIN)
        begin = first[1] if first else 0
        if first is not None and first[0] >= log_begin:
            return begin, last[1] + 1 if last else 0
        if last is None:
            return 0, 0
        if last[0] < log_begin:
            return last[1] + 1, last[1] + 1
        return self._first_from(queue, begin, last[1], log_begin), last[1] + 1

    def _end(self, queue: Queue, end: str) -> tuple[int, int] | None:
        value = self.database.get(OFFSET_FAMILY, rocksdb_pairs.end_key(*queue, end))
        return None if value is None else rocksdb_pairs.parse_ends(value)

    def _first_from(self, queue: Queue, low: int, high: int, log_begin: int) -> int:
        found, begin = None, low
        while high >= low:
            middle = low + (high - low) // 2
            unit = self.unit(queue, middle)
            if unit is not None and int(unit["phy_offset"][0]) >= log_begin:
                found, high = middle, middle - 1
                if int(unit["phy_offset"][0]) == log_begin:
                    break
            else:
                low = middle + 1
        return begin if found is None else found


@contextmanager
def rocksdb_queues_in(directory: str) -> Iterator[RocksDbQueues]:
    """Open the queues of a database."""
    with rocksdb.reading(directory, (DEFAULT_FAMILY, OFFSET_FAMILY)) as database:
        yield RocksDbQueues(database)
