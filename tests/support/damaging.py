"""Random damage: logs of short records, and what one to three random accidents leave of their segments."""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass

from support.store_builder import Embedded, LogBuilder, Message

SEGMENT = 4096
TOPICS = ("A", "TopicPay", "stock-level_2")
KINDS = ("flip", "flip", "zero", "random", "size", "swap", "duplicate", "zero_tail", "old_generation")


@dataclass(frozen=True)
class Shape:
    property_crc: bool = True
    embedded: bool = False


def draw_log(draw: random.Random, shape: Shape, *, clock: int = 1_700_000_000_000, segments: int = 4) -> LogBuilder:
    """A log of short records in a few queues, its last segment half full."""
    log = LogBuilder(SEGMENT, clock=clock)
    while log.end_offset < (segments - 1) * SEGMENT + draw.randrange(800, 3400):
        log.clock += draw.choice([0, 0, 1, 30])
        message = Message(
            topic=draw.choice(TOPICS),
            queue_id=draw.randrange(2),
            body=draw.randbytes(draw.choice([0, 5, 20, 20, 20, 40, 40, 300])),
            tags="t",
            property_crc=shape.property_crc,
        )
        if shape.embedded and draw.random() < 0.1:
            message = _with_copies(draw, message, log.clock + 1)
        log.message(message)
    log.settle()
    if draw.random() < 0.5:
        log.preallocate()
    return log


def _with_copies(draw: random.Random, message: Message, clock: int) -> Message:
    """The message with whole records in its body, as timely as it is itself, with queue offsets out of the air."""
    copies = tuple(
        Message(
            topic=draw.choice(TOPICS),
            queue_id=draw.randrange(2),
            body=draw.randbytes(5),
            queue_offset=draw.randrange(60),
            store_timestamp=clock,
        )
        for _ in range(draw.randrange(1, 4))
    )
    body = Embedded(copies, lead=draw.randbytes(draw.randrange(30)), rejoins=draw.random() < 0.5)
    return Message(topic=message.topic, queue_id=message.queue_id, body=body, property_crc=message.property_crc)


FIELDS = {
    "queue id": slice(12, 16),
    "queue offset": slice(20, 28),
    "sys flag": slice(36, 40),
    "born timestamp": slice(40, 48),
    "store timestamp": slice(56, 64),
    "prepared offset": slice(76, 84),
}
"""Fields of a record with short hosts that nothing checks; its topic and its properties are two more."""


def draw_field_damage(draw: random.Random, log: LogBuilder) -> tuple[int, dict[int, bytes]]:
    """One record with one damaged field: its log offset, and its segment by its base; no segment if nothing changed."""
    placed = draw.choice(log.records)
    base = placed.offset - placed.offset % SEGMENT
    data = bytearray(log.segments[base])
    at = placed.offset - base
    (body,) = struct.unpack_from(">i", data, at + 84)
    topic = slice(at + 89 + body, at + 89 + body + data[at + 88 + body])
    fields = [slice(at + part.start, at + part.stop) for part in FIELDS.values()]
    part = draw.choice([*fields, topic, slice(topic.stop + 2, at + placed.size)])
    if part.stop - part.start in (4, 8) and draw.random() < 0.4:  # a number that is near, as a stale or torn one is
        size = part.stop - part.start
        number = int.from_bytes(data[part], "big") + draw.choice([-3, -2, -1, 1, 2, 3])
        data[part] = (number % (1 << 8 * size)).to_bytes(size, "big")
    elif part == topic and draw.random() < 0.3:
        data[part] = draw.choice(list(TOPICS)).encode().ljust(part.stop - part.start, b"x")[: part.stop - part.start]
    else:
        kind = draw.choice(["flip", "flip", "zero", "random"])
        one = draw.randrange(part.start, max(part.stop, part.start + 1))
        if kind == "flip":
            data[one] ^= 1 << draw.randrange(8)
        else:
            length = part.stop - part.start
            data[part] = bytes(length) if kind == "zero" else draw.randbytes(length)
    return placed.offset, {} if data == log.segments[base] else {base: bytes(data)}


def draw_damage(
    draw: random.Random, log: LogBuilder, older: LogBuilder, *, whole_files: bool = True
) -> dict[int, bytes]:
    """The segments that one to three random damages leave, by their base; only those that differ."""
    segments = log.segments
    written = [base for base in segments if base < log.end_offset]
    changed: dict[int, bytearray] = {}
    for _ in range(draw.choice([1, 1, 1, 2, 3])):
        base = draw.choice(written)
        data = changed.setdefault(base, bytearray(segments[base]))
        _damage(draw, data, base, log, older, whole_files)
    return {base: bytes(data) for base, data in changed.items() if data != segments[base]}


def _damage(
    draw: random.Random, data: bytearray, base: int, log: LogBuilder, older: LogBuilder, whole_files: bool
) -> None:
    kind = draw.choice(KINDS)
    at = draw.randrange(len(data))
    length = min(draw.choice([1, 8, 64, 300]), len(data) - at)
    source = draw.randrange(len(data) - length + 1)
    if kind == "flip":
        data[at] ^= 1 << draw.randrange(8)
    elif kind == "zero":
        data[at : at + length] = bytes(length)
    elif kind == "random":
        data[at : at + length] = draw.randbytes(length)
    elif kind == "zero_tail":
        data[at:] = bytes(len(data) - at)
    elif kind == "size":
        placed = draw.choice([item for item in log.records if base <= item.offset < base + SEGMENT])
        size = draw.choice([draw.randrange(-(1 << 31), 1 << 31), placed.size + draw.randrange(-90, 600), 0])
        struct.pack_into(">i", data, placed.offset - base, size)
    elif kind == "duplicate":
        data[at : at + length] = data[source : source + length]
    elif kind == "swap":
        one, other = bytes(data[at : at + length]), bytes(data[source : source + length])
        data[at : at + length], data[source : source + length] = other, one
    elif not base:
        data[at] ^= 1  # what is older than the first records of a log, nobody can tell
    elif whole_files and draw.random() < 0.3:  # a file of the log's earlier life under the name of this one
        data[:] = older.segments[base]
    else:
        data[at : at + length] = older.segments[base][at : at + length]
