"""Consume queues in RocksDB (``storeType=defaultRocksDB``, 5.2.0 and later): the pairs that a broker keeps.

===========  =============================================================  ==========================================
family       key                                                            value
===========  =============================================================  ==========================================
``default``  i32 length of topic, 01, topic, 01, i32 queue id, 01,          i64 phy_offset, i32 size, i64 tags_code,
             i64 queue offset                                               i64 store_timestamp
``offset``   i32 length of topic, 01, topic, 01, ``max`` or ``min``, 01,    i64 phy_offset, i64 queue offset of the
             i32 queue id                                                   queue's last or first unit
``offset``   the same for ``CHECKPOINT_TOPIC``, ``max``, queue id 0         i64 end of the last record dispatched
===========  =============================================================  ==========================================

All big-endian. Mirrors RocksDBConsumeQueueTable and RocksDBConsumeQueueOffsetTable (5.3.3, 5.5.0). A unit lies under
its own queue offset: nothing shifts, nothing is filled. Of several with one offset the last one written stays; a broker
writes 16 requests at a time, and among these it is the first.
"""

from __future__ import annotations

import struct

import numpy as np

from storeformat.arrays import Bytes, Int64s, Structs

DEFAULT_FAMILY = "default"
OFFSET_FAMILY = "offset"
CHECKPOINT_TOPIC = b"CHECKPOINT_TOPIC"
VALUE = np.dtype([("phy_offset", ">i8"), ("size", ">i4"), ("tags_code", ">i8"), ("store_timestamp", ">i8")])

_SEPARATOR = b"\x01"
_OFFSETS = struct.Struct(">qq")


def unit_keys(topic: bytes, queue_id: int, queue_offsets: Int64s) -> Bytes:
    """Returns the keys of units of one queue, one a row of bytes; they sort as their queue offsets do."""
    head = np.frombuffer(_topic_head(topic) + queue_id.to_bytes(4, "big") + _SEPARATOR, np.uint8)
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


def _topic_head(topic: bytes) -> bytes:
    return len(topic).to_bytes(4, "big") + _SEPARATOR + topic + _SEPARATOR
