"""Consume queues in RocksDB (``storeType=defaultRocksDB``, 5.2.0 and later): ends and units; FORMAT.md has the pairs.

Mirrors RocksDBConsumeQueueStore, RocksDBConsumeQueueTable and RocksDBConsumeQueueOffsetTable (5.3.3, 5.5.0). A unit is
stored under its own queue offset: nothing shifts, nothing is filled. Of several with one offset the last written stays;
a broker writes 16 requests at a time, and among these it is the first.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice

import numpy as np

from storeformat.arrays import Bytes, Int64s, Structs
from storeformat.storage import rocksdb
from storeformat.storage.rocksdb import Database, Family

DEFAULT_FAMILY = "default"
OFFSET_FAMILY = "offset"
# RocksDBOptionsFactory#createCQCFOptions, #createOffsetCFOptions
FAMILIES = (Family(DEFAULT_FAMILY, compressed=True, universal=True), Family(OFFSET_FAMILY))
MAX, MIN = "max", "min"
CHECKPOINT_TOPIC = b"CHECKPOINT_TOPIC"
VALUE = np.dtype([("phy_offset", ">i8"), ("size", ">i4"), ("tags_code", ">i8"), ("store_timestamp", ">i8")])
ENDS = struct.Struct(">qq")  # commit-log offset and queue offset of a ``max`` or ``min``
OFFSET = struct.Struct(">q")  # of the checkpoint
PAIRS_AT_A_TIME = 1 << 16
Queue = tuple[bytes, int]  # topic and queue id


def _topic_head(topic: bytes) -> bytes:
    return len(topic).to_bytes(4, "big") + b"\x01" + topic + b"\x01"


def end_key(topic: bytes, queue_id: int, end: str) -> bytes:
    """Key of a queue's ``max`` or ``min``."""
    return _topic_head(topic) + end.encode() + b"\x01" + queue_id.to_bytes(4, "big")


CHECKPOINT_KEY = end_key(CHECKPOINT_TOPIC, 0, MAX)


def queue_head(topic: bytes, queue_id: int) -> bytes:
    """Common prefix of the keys of a queue's units."""
    return _topic_head(topic) + queue_id.to_bytes(4, "big") + b"\x01"


def after_queue(topic: bytes, queue_id: int) -> bytes:
    """A key after all units of a queue and before those of the next."""
    return queue_head(topic, queue_id)[:-1] + b"\x02"


def unit_key(topic: bytes, queue_id: int, queue_offset: int) -> bytes:
    return queue_head(topic, queue_id) + OFFSET.pack(queue_offset)


def unit_keys(topic: bytes, queue_id: int, queue_offsets: Int64s) -> Bytes:
    """Keys of one queue's units, a row of bytes each; they sort as their queue offsets do."""
    head = np.frombuffer(queue_head(topic, queue_id), np.uint8)
    keys = np.empty((len(queue_offsets), len(head) + 8), np.uint8)
    keys[:, : len(head)] = head
    keys[:, len(head) :] = queue_offsets.astype(">i8").view(np.uint8).reshape(-1, 8)
    return keys


def unit_values(units: Structs, store_timestamps: Int64s) -> Structs:
    values = np.empty(len(units), VALUE)
    for name in ("phy_offset", "size", "tags_code"):
        values[name] = units[name]
    values["store_timestamp"] = store_timestamps
    return values


def key_order(topic: bytes, queue_id: int) -> tuple[int, bytes, int]:
    """Sort key that orders queues as their keys do: short names first."""
    return len(topic), topic, queue_id


def parse_queue(key: bytes) -> tuple[bytes, int] | None:
    """Topic and queue id of a unit's key."""
    length = int.from_bytes(key[:4], "big")
    if len(key) != length + 19 or key[4] != 1 or key[5 + length] != 1 or key[10 + length] != 1:
        return None
    return key[5 : 5 + length], int.from_bytes(key[6 + length : 10 + length], "big")


def parse_end(key: bytes) -> tuple[bytes, int, str] | None:
    """Topic, queue id, and ``max`` or ``min`` of a key in the family ``offset``."""
    length = int.from_bytes(key[:4], "big")
    end = key[6 + length : 9 + length].decode("latin-1")
    if len(key) != length + 14 or end not in (MAX, MIN):
        return None
    return key[5 : 5 + length], int.from_bytes(key[10 + length :], "big"), end


def parse_ends(value: bytes | None) -> tuple[int, int] | None:
    return ENDS.unpack(value) if value is not None and len(value) == ENDS.size else None


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
        value = self.database.get(OFFSET_FAMILY, CHECKPOINT_KEY)
        return OFFSET.unpack(value)[0] if value is not None and len(value) == OFFSET.size else None

    def ends(self) -> dict[Queue, StoredEnds]:
        """The stored ends of all queues."""
        found: dict[Queue, dict[str, tuple[int, int]]] = {}
        for key, value in self.database.pairs(OFFSET_FAMILY):
            named, offsets = parse_end(key), parse_ends(value)
            if named is not None and offsets is not None:
                found.setdefault(named[:2], {})[named[2]] = offsets
        return {queue: StoredEnds(ends.get(MAX), ends.get(MIN)) for queue, ends in found.items()}

    def queues(self) -> Iterator[Queue]:
        """The queues that have units, in key order."""
        key = self.database.key_from(DEFAULT_FAMILY, b"")
        while key is not None:
            queue = parse_queue(key)
            if queue is not None:
                yield queue
            key = self.database.key_from(DEFAULT_FAMILY, after_queue(*queue) if queue else key + b"\0")

    def unit(self, queue: Queue, queue_offset: int) -> Structs | None:
        """The unit at a queue offset as one row of ``VALUE``."""
        value = self.database.get(DEFAULT_FAMILY, unit_key(*queue, queue_offset))
        return np.frombuffer(value, VALUE) if value is not None and len(value) == VALUE.itemsize else None

    def units(self, queue: Queue, begin: int = 0, end: int | None = None) -> Iterator[tuple[Int64s, Structs]]:
        """Batches of queue offsets and values in [begin, end). Values of another length are no units."""
        first = unit_key(*queue, begin) if begin else queue_head(*queue)
        stop = after_queue(*queue) if end is None else unit_key(*queue, end)
        pairs = self.database.pairs(DEFAULT_FAMILY, first, stop)
        width, size = len(first if begin else first + bytes(8)), VALUE.itemsize
        while some := list(islice(pairs, PAIRS_AT_A_TIME)):
            whole = [(key, value) for key, value in some if len(key) == width and len(value) == size]
            keys = np.frombuffer(b"".join(key[-8:] for key, _ in whole), ">i8")
            yield keys.astype(np.int64), np.frombuffer(b"".join(value for _, value in whole), VALUE)

    def range_of(self, queue: Queue, log_begin: int) -> tuple[int, int]:
        """First queue offset served, and the one after the last (#getMinCqOffset, #getMaxOffsetInQueue)."""
        keys = (end_key(*queue, end) for end in (MAX, MIN))
        last, first = (parse_ends(self.database.get(OFFSET_FAMILY, key)) for key in keys)
        begin = first[1] if first else 0
        if first is not None and first[0] >= log_begin:
            return begin, last[1] + 1 if last else 0
        if last is None:
            return 0, 0
        if last[0] < log_begin:
            return last[1] + 1, last[1] + 1
        return self._first_from(queue, begin, last[1], log_begin), last[1] + 1

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
    with rocksdb.reading(directory, (DEFAULT_FAMILY, OFFSET_FAMILY)) as database:
        yield RocksDbQueues(database)
