"""Repair a salvaged log: replace damaged bytes so that a broker reads through them.

A broker that starts on a damaged log ends it at the damage and deletes every later segment. So each damaged range
becomes what every release skips silently:

==============================  =======================================================================================
range                           becomes
==============================  =======================================================================================
inside a segment                records of just that size, rolled back (SYSFLAG 0xC): no queue and no index takes them
the last one of a segment       such records, and a BLANK from there to the segment's end
a record kept with a bad body   the same record with the CRC that its body has
a stray record                  such a record, if a broker that appends it would move later messages of a queue
==============================  =======================================================================================

The records also mark lost messages: a later rebuild fills their places in the queues again.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from storeformat import message as m
from storeformat.errors import NotAStore
from storeformat.log.segments import Segment

TOPIC = b"rmq_sys_lost"
MAX_FILLER = 1 << 20  # bytes: a broker reads a record whole, and by default accepts no larger body

_HEAD = struct.Struct(">iIIiiqqiq4siq4siiqi")
_BLANK = struct.Struct(">iI")


@dataclass(frozen=True)
class Patch:
    """Bytes to write at a log offset."""

    offset: int
    data: bytes


def filler_record(offset: int, size: int, store_timestamp: int) -> bytes:
    """A record of ``size`` bytes that no broker dispatches. Raises NotAStore if ``size`` is too small for a record."""
    if size < m.MIN_RECORD_SIZE:
        least = f"at least {m.MIN_RECORD_SIZE}"
        raise NotAStore("damage too short for a record of its own", offset=offset, found=size, expected=least)
    topic = TOPIC[: size - m.MIN_RECORD_SIZE]
    body = bytes(size - m.MIN_RECORD_SIZE - len(topic))
    crc = zlib.crc32(body) & m.CRC_MASK
    born = store = (store_timestamp, bytes(4), 0)
    queue_id = flag = queue_offset = reconsume_times = prepared_transaction_offset = 0
    head = _HEAD.pack(
        size, m.MAGIC_V1 & 0xFFFFFFFF, crc, queue_id, flag, queue_offset, offset, m.TRANSACTION_ROLLBACK,
        *born, *store, reconsume_times, prepared_transaction_offset, len(body),
    )  # fmt: skip
    return head + body + bytes([len(topic)]) + topic + bytes(2)


def is_filler(topic: bytes) -> bool:
    """True if a rolled back record of this topic is a filler."""
    return bool(topic) and TOPIC.startswith(topic)


def fill_range(
    begin: int, end: int, segment: Segment, store_timestamp: int, *, is_last: bool = False
) -> Iterator[Patch]:
    """Patches that make [begin, end) of a segment readable; ``is_last``: no record follows in the segment."""
    is_last = is_last or end == segment.end
    stop = min(end, segment.end - m.BLANK_SIZE) if is_last else end
    while begin < stop and (stop - begin >= m.MIN_RECORD_SIZE or not is_last):
        size = stop - begin
        if size > MAX_FILLER:
            size = MAX_FILLER - m.MIN_RECORD_SIZE  # leaves a rest large enough for a record
        yield Patch(begin, filler_record(begin, size, store_timestamp))
        begin += size
    if is_last:
        yield Patch(begin, _BLANK.pack(segment.end - begin, m.MAGIC_BLANK & 0xFFFFFFFF))


def crc_patch(record: bytes, offset: int) -> Patch:
    """Patch that gives a record the CRC of its body."""
    body_at = m.body_position(struct.unpack_from(">i", record, m.SYS_FLAG_POSITION)[0])
    length = max(struct.unpack_from(">i", record, body_at - 4)[0], 0)
    crc = zlib.crc32(record[body_at : body_at + length]) & m.CRC_MASK
    return Patch(offset + m.BODY_CRC_POSITION, struct.pack(">I", crc))
