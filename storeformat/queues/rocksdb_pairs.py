"""Consume queues in RocksDB (``storeType=defaultRocksDB``, 5.2.0 and later): keys and values (FORMAT.md).

Mirrors RocksDBConsumeQueueTable and RocksDBConsumeQueueOffsetTable (5.3.3, 5.5.0). A unit is stored under its own queue
offset: nothing shifts, nothing is filled. Of several with one offset the last written stays; a broker writes 16
requests at a time, and among these it is the first.
"""

from __future__ import annotations

import struct

import numpy as np

from storeformat.arrays import Bytes, Int64s, Structs
from storeformat.storage.rocksdb import Family

DEFAULT_FAMILY = "default"
OFFSET_FAMILY = "offset"
FAMILIES = (Family(DEFAULT_FAMILY, compressed=True, universal=True), Family(OFFSET_FAMILY))
"""Table options of each (RocksDBOptionsFactory#createCQCFOptions, #createOffsetCFOptions)."""
MAX, MIN = "max", "min"
CHECKPOINT_TOPIC = b"CHECKPOINT_TOPIC"
VALUE = np.dtype([("phy_offset", ">i8"), ("size", ">i4"), ("tags_code", ">i8"), ("store_timestamp", ">i8")])

_SEPARATOR = b"\x01"
_OFFSETS = struct.Struct(">qq")
_OFFSET = struct.Struct(">q")


def unit_keys(topic: bytes, queue_id: int, queue_offsets: Int64s) -> Bytes:
    """Keys of one queue's units, a row of bytes each; they sort as their queue offsets do."""
    head = np.frombuffer(queue_head(topic, queue_id), np.uint8)
    keys = np.empty((len(queue_offsets), len(head) + 8), np.uint8)
    keys[:, : len(head)] = head
    keys[:, len(head) :] = queue_offsets.astype(">i8").view(np.uint8).reshape(-1, 8)
    return keys


def unit_values(units: Structs, store_timestamps: Int64s) -> Structs:
    """Values of consume-queue units."""
    values = np.empty(len(units), VALUE)
    for name in ("phy_offset", "size", "tags_code"):
        values[name] = units[name]
    values["store_timestamp"] = store_timestamps
    return values


def end_key(topic: bytes, queue_id: int, end: str) -> bytes:
    """Key of a queue's ``max`` or ``min``."""
    return _topic_head(topic) + end.encode() + _SEPARATOR + queue_id.to_bytes(4, "big")


def end_value(phy_offset: int, queue_offset: int) -> bytes:
    """Value of a queue's ``max`` or ``min``."""
    return _OFFSETS.pack(phy_offset, queue_offset)


def checkpoint_key() -> bytes:
    """Key of the offset up to which the log was dispatched."""
    return end_key(CHECKPOINT_TOPIC, 0, MAX)


def checkpoint_value(end: int) -> bytes:
    """Value of the checkpoint; inverse of ``parse_offset``."""
    return _OFFSET.pack(end)


def queue_head(topic: bytes, queue_id: int) -> bytes:
    """Common prefix of the keys of a queue's units."""
    return _topic_head(topic) + queue_id.to_bytes(4, "big") + _SEPARATOR


def after_queue(topic: bytes, queue_id: int) -> bytes:
    """A key after all units of a queue and before those of the next."""
    return queue_head(topic, queue_id)[:-1] + b"\x02"


def unit_key(topic: bytes, queue_id: int, queue_offset: int) -> bytes:
    """Key of one unit."""
    return queue_head(topic, queue_id) + _OFFSET.pack(queue_offset)


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


def parse_ends(value: bytes) -> tuple[int, int] | None:
    """Commit-log offset and queue offset in the value of a ``max`` or ``min``."""
    return _OFFSETS.unpack(value) if len(value) == _OFFSETS.size else None


def parse_offset(value: bytes) -> int | None:
    """Offset in the value of the checkpoint."""
    return int(_OFFSET.unpack(value)[0]) if len(value) == _OFFSET.size else None


def _topic_head(topic: bytes) -> bytes:
    return len(topic).to_bytes(4, "big") + _SEPARATOR + topic + _SEPARATOR
