"""Consume queues in RocksDB (``storeType=defaultRocksDB``, 5.2.0 and later): the pairs that a broker keeps.

FORMAT.md has the keys and values of both families. Mirrors RocksDBConsumeQueueTable and RocksDBConsumeQueueOffsetTable
(5.3.3, 5.5.0). A unit lies under its own queue offset: nothing shifts, nothing is filled. Of several with one offset
the last one written stays; a broker writes 16 requests at a time, and among these it is the first.
"""

from __future__ import annotations

import struct

import numpy as np

from storeformat.arrays import Bytes, Int64s, Structs
from storeformat.storage.rocksdb import Family

DEFAULT_FAMILY = "default"
OFFSET_FAMILY = "offset"
FAMILIES = (Family(DEFAULT_FAMILY, compressed=True, universal=True), Family(OFFSET_FAMILY))
"""How the tables of each are made (RocksDBOptionsFactory#createCQCFOptions, #createOffsetCFOptions)."""
MAX, MIN = "max", "min"
CHECKPOINT_TOPIC = b"CHECKPOINT_TOPIC"
VALUE = np.dtype([("phy_offset", ">i8"), ("size", ">i4"), ("tags_code", ">i8"), ("store_timestamp", ">i8")])

_SEPARATOR = b"\x01"
_OFFSETS = struct.Struct(">qq")
_OFFSET = struct.Struct(">q")


def unit_keys(topic: bytes, queue_id: int, queue_offsets: Int64s) -> Bytes:
    """Returns the keys of units of one queue, one a row of bytes; they sort as their queue offsets do."""
    head = np.frombuffer(queue_head(topic, queue_id), np.uint8)
    keys = np.empty((len(queue_offsets), len(head) + 8), np.uint8)
    keys[:, : len(head)] = head
    keys[:, len(head) :] = queue_offsets.astype(">i8").view(np.uint8).reshape(-1, 8)
    return keys


def unit_values(units: Structs, store_timestamps: Int64s) -> Structs:
    """Returns the values of units that are as in a consume-queue file, as rows of ``VALUE``."""
    values = np.empty(len(units), VALUE)
    for name in ("phy_offset", "size", "tags_code"):
        values[name] = units[name]
    values["store_timestamp"] = store_timestamps
    return values


def end_key(topic: bytes, queue_id: int, end: str) -> bytes:
    """Returns the key of a queue's ``max`` or ``min``."""
    return _topic_head(topic) + end.encode() + _SEPARATOR + queue_id.to_bytes(4, "big")


def end_value(phy_offset: int, queue_offset: int) -> bytes:
    """Returns the value of a queue's ``max`` or ``min``."""
    return _OFFSETS.pack(phy_offset, queue_offset)


def checkpoint_key() -> bytes:
    """Returns the key under which lies how far the log was dispatched."""
    return end_key(CHECKPOINT_TOPIC, 0, MAX)


def checkpoint_value(end: int) -> bytes:
    """Returns the value of the checkpoint; ``parse_offset`` is its inverse."""
    return _OFFSET.pack(end)


def queue_head(topic: bytes, queue_id: int) -> bytes:
    """Returns what the keys of all units of a queue begin with."""
    return _topic_head(topic) + queue_id.to_bytes(4, "big") + _SEPARATOR


def after_queue(topic: bytes, queue_id: int) -> bytes:
    """Returns a key that lies after all units of a queue and before those of every other one that follows."""
    return queue_head(topic, queue_id)[:-1] + b"\x02"


def unit_key(topic: bytes, queue_id: int, queue_offset: int) -> bytes:
    """Returns the key of one unit."""
    return queue_head(topic, queue_id) + _OFFSET.pack(queue_offset)


def key_order(topic: bytes, queue_id: int) -> tuple[int, bytes, int]:
    """Returns what sorts queues as their keys do: short names first."""
    return len(topic), topic, queue_id


def parse_queue(key: bytes) -> tuple[bytes, int] | None:
    """Returns the queue of a unit's key, None where it is not a unit's."""
    length = int.from_bytes(key[:4], "big")
    if len(key) != length + 19 or key[4] != 1 or key[5 + length] != 1 or key[10 + length] != 1:
        return None
    return key[5 : 5 + length], int.from_bytes(key[6 + length : 10 + length], "big")


def parse_end(key: bytes) -> tuple[bytes, int, str] | None:
    """Returns topic, queue id and which end a key of the family ``offset`` is for, None where it is none's."""
    length = int.from_bytes(key[:4], "big")
    end = key[6 + length : 9 + length].decode("latin-1")
    if len(key) != length + 14 or end not in (MAX, MIN):
        return None
    return key[5 : 5 + length], int.from_bytes(key[10 + length :], "big"), end


def parse_ends(value: bytes) -> tuple[int, int] | None:
    """Returns commit-log offset and queue offset of an end, None where the value is not that of one."""
    return _OFFSETS.unpack(value) if len(value) == _OFFSETS.size else None


def parse_offset(value: bytes) -> int | None:
    """Returns the offset in the value of the checkpoint, None where it is none."""
    return int(_OFFSET.unpack(value)[0]) if len(value) == _OFFSET.size else None


def _topic_head(topic: bytes) -> bytes:
    return len(topic).to_bytes(4, "big") + _SEPARATOR + topic + _SEPARATOR
