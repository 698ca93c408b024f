"""Commit logs for tests, written field by field with formats of their own.

Nothing here comes from ``storeformat``: when the two disagree, one of them misreads the broker. The writing rules are
those of ``CommitLog.DefaultAppendMessageCallback#doAppend`` (5.3.3): a record is appended only if 8 bytes stay free
after it, else a BLANK closes the segment, of which only the first 8 bytes are written. A truncated log
(``MappedFileQueue#truncateDirtyFiles``) keeps its bytes: only the write position moves back.

A record, field by field (B and S are 8 or 20 bytes: address and a port of four)::

    i32 total size | i32 magic | i32 body crc | i32 queue id | i32 flag | i64 queue offset | i64 physical offset
    i32 sys flag | i64 born timestamp | B born host | i64 store timestamp | S store host | i32 reconsume times
    i64 prepared transaction offset | i32 body length | body | i8 (V2: i16) topic length | topic
    i16 properties length | properties
"""

from __future__ import annotations

import socket
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

V1 = 0xDAA320A7
V2 = 0xDAA320AB
BLANK = 0xCBD43194

COMPRESSED = 0x1
PREPARED, COMMIT, ROLLBACK = 0x4, 0x8, 0xC
BORN_HOST_V6, STORE_HOST_V6 = 0x10, 0x20
NEED_UNWRAP, INNER_BATCH = 0x40, 0x80

HEAD = struct.Struct(">iIiiiqqiq")
TAIL = struct.Struct(">iqi")
FREE_BEHIND = 8
CRC_PROPERTY_LENGTH = 20

_MAGICS = tuple(magic.to_bytes(4, "big") for magic in (V1, V2, BLANK))

Host = tuple[str, int]


@dataclass(frozen=True)
class Embedded:
    """A body of whole records; with ``rejoins`` the last ends with its holder, and a reader inside never notices."""

    copies: tuple[Message, ...]
    lead: bytes = b""
    rejoins: bool = False


@dataclass(frozen=True)
class Message:
    """What a record holds; ``None`` means "as the broker would", so that a test can write any lie."""

    topic: str | bytes = "TopicTest"
    queue_id: int = 0
    queue_offset: int | None = None
    body: bytes | Embedded = b""
    tags: str | None = None
    keys: str | None = None
    uniq_key: str | None = None
    properties: bytes | Mapping[str, str] = field(default_factory=dict)
    trailing_separator: bool = True
    property_crc: bool = False
    flag: int = 0
    sys_flag: int = 0
    born_timestamp: int = 1_700_000_000_000
    born_host: Host = ("10.1.2.3", 4321)
    store_timestamp: int | None = None
    store_host: Host = ("192.168.0.9", 10911)
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    magic: int | None = None
    total_size: int | None = None
    body_crc: int | None = None
    body_length: int | None = None
    topic_length: int | None = None
    properties_length: int | None = None
    physical_offset: int | None = None

    @property
    def topic_bytes(self) -> bytes:
        return self.topic if isinstance(self.topic, bytes) else self.topic.encode()

    @property
    def queue(self) -> tuple[str | bytes, int]:
        return self.topic, self.queue_id

    @property
    def takes_a_queue_offset(self) -> bool:
        """False for PREPARED and ROLLBACK: the broker writes 0 there and goes to no queue."""
        return self.sys_flag & 0xC in (0, COMMIT)


@dataclass(frozen=True)
class Placed:
    """A record in the log, half open: ``[offset, end)``."""

    offset: int
    size: int
    message: Message

    @property
    def end(self) -> int:
        return self.offset + self.size


def encode_properties(message: Message) -> bytes:
    """The property block, ``name 0x01 value 0x02 ...``, without a property CRC."""
    if isinstance(message.properties, bytes):
        return message.properties
    pairs = dict(message.properties)
    named = {"KEYS": message.keys, "UNIQ_KEY": message.uniq_key, "TAGS": message.tags}
    pairs.update({name: value for name, value in named.items() if value is not None})
    text = "\x02".join(f"{name}\x01{value}" for name, value in pairs.items())
    return (text + "\x02" if pairs and message.trailing_separator else text).encode("utf-8", "surrogatepass")


def encode_record(message: Message, offset: int) -> bytes:
    """The bytes of ``message`` as they stand at ``offset`` of the log."""
    properties = encode_properties(message)
    if message.property_crc:
        if properties and not properties.endswith(b"\x02"):
            properties += b"\x02"
        properties += bytes(CRC_PROPERTY_LENGTH)
    is_long = len(message.topic_bytes.decode("utf-8", "replace")) > 127  # autoMessageVersionOnTopicLen
    magic = _or(message.magic, V2 if is_long else V1)
    born_host, store_host = _host(message.born_host), _host(message.store_host)
    sys_flag = message.sys_flag
    sys_flag |= BORN_HOST_V6 if len(born_host) == 20 else 0
    sys_flag |= STORE_HOST_V6 if len(store_host) == 20 else 0
    topic_length = struct.pack(">h" if magic == V2 else ">b", _or(message.topic_length, len(message.topic_bytes)))
    tail = topic_length + message.topic_bytes
    tail += struct.pack(">h", _or(message.properties_length, len(properties))) + properties
    before_body = HEAD.size + len(born_host) + 8 + len(store_host) + TAIL.size
    body = _body(message, offset + before_body, len(tail))
    size = _or(message.total_size, before_body + len(body) + len(tail))
    crc = _or(message.body_crc, zlib.crc32(body) & 0x7FFFFFFF)
    numbers = (message.queue_id, message.flag, message.queue_offset or 0, _or(message.physical_offset, offset))
    body_length = _or(message.body_length, len(body))
    record = HEAD.pack(size, magic, crc, *numbers, sys_flag, message.born_timestamp) + born_host
    record += struct.pack(">q", message.store_timestamp or 0) + store_host
    record += TAIL.pack(message.reconsume_times, message.prepared_transaction_offset, body_length) + body + tail
    return _with_property_crc(record) if message.property_crc else record


def _with_properties(message: Message, more: Mapping[str, str]) -> Message:
    if isinstance(message.properties, bytes):
        raise TypeError("a property block of bytes takes no further properties")
    return replace(message, properties={**message.properties, **more})


def _or(given: int | None, computed: int) -> int:
    return computed if given is None else given


def _host(host: Host) -> bytes:
    address, port = host
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return socket.inet_pton(family, address) + struct.pack(">i", port)


def _body(message: Message, offset: int, tail_length: int) -> bytes:
    if isinstance(message.body, bytes):
        return message.body
    body = message.body.lead
    for number, copy in enumerate(message.body.copies):
        last = number == len(message.body.copies) - 1
        if last and message.body.rejoins:
            around = {name: getattr(message, name) for name in _SHARED_TAIL}
            body += encode_record(replace(copy, **around), offset + len(body))[:-tail_length]
        else:
            body += encode_record(copy, offset + len(body))
    return body


_SHARED_TAIL = ("topic", "magic", "properties", "keys", "uniq_key", "tags", "trailing_separator", "property_crc")


def _with_property_crc(record: bytes) -> bytes:
    """The record with ``__CRC32#`` at its end, digits least significant first (MessageDecoder#createCrc32)."""
    covered = record[:-CRC_PROPERTY_LENGTH]
    digits = str(zlib.crc32(covered) & 0x7FFFFFFF)[::-1].ljust(10, "0")
    return covered + b"__CRC32#\x01" + digits.encode() + b"\x02"


class LogBuilder:
    """A commit log that grows as a broker's does; segments are full length and zero where nothing was written."""

    def __init__(self, segment_size: int = 65536, base: int = 0, *, clock: int = 1_700_000_000_000) -> None:
        if base % segment_size:
            raise ValueError(f"base {base} is no multiple of the segment size {segment_size}")
        self.segment_size = segment_size
        self.end_offset = base
        self.clock = clock
        self.records: list[Placed] = []
        self._old: list[Placed] = []
        self.queue_offsets: dict[tuple[str | bytes, int], int] = {}
        self._segments: dict[int, bytearray] = {}

    @property
    def segments(self) -> dict[int, bytes]:
        return {base: bytes(data) for base, data in sorted(self._segments.items())}

    @property
    def remaining(self) -> int:
        return self.segment_size - self.end_offset % self.segment_size

    def message(self, message: Message | None = None, /, **fields: Any) -> Placed:
        """Appends one message (``fields`` override those of ``message``) and returns where it lies."""
        return self.batch([replace(message or Message(), **fields)])[0]

    def batch(self, messages: Sequence[Message]) -> list[Placed]:
        """Appends a producer's batch, all of it in one segment, and returns where its records lie."""
        stamped = [self._stamped(message) for message in messages]
        needed = sum(len(encode_record(message, self.end_offset)) for message in stamped)
        if needed + FREE_BEHIND > self.segment_size:
            raise ValueError(f"{needed} bytes fit in no segment of {self.segment_size}")
        if needed + FREE_BEHIND > self.remaining:
            self.blank()
        placed = []
        for message in stamped:
            record = encode_record(message, self.end_offset)
            placed.append(Placed(self.end_offset, len(record), message))
            self.raw(record)
        self.records += placed
        return placed

    def _stamped(self, message: Message) -> Message:
        queue_offset = message.queue_offset
        if queue_offset is None:
            queue_offset = self.queue_offsets.get(message.queue, 0) if message.takes_a_queue_offset else 0
        if message.takes_a_queue_offset:
            self.queue_offsets[message.queue] = queue_offset + 1
        if message.store_timestamp is not None:
            self.clock = message.store_timestamp
        else:
            self.clock += 1
        return replace(message, queue_offset=queue_offset, store_timestamp=self.clock)

    def multi_dispatched(self, message: Message, names: Sequence[str]) -> Placed:
        """Appends a message for several light queues: the broker adds its offset in each (``LmqDispatch``)."""
        offsets = []
        for name in names:
            offsets.append(self.queue_offsets.get((name, 0), 0))
            self.queue_offsets[name, 0] = offsets[-1] + 1
        more = {"INNER_MULTI_DISPATCH": ",".join(names), "INNER_MULTI_QUEUE_OFFSET": ",".join(map(str, offsets))}
        return self.message(_with_properties(message, more))

    def inner_batch(self, message: Message, count: int) -> Placed:
        """Appends one record for ``count`` messages of a BatchCQ topic; their bodies are the caller's affair."""
        base = self.queue_offsets.get(message.queue, 0)
        more = {"INNER_NUM": str(count), "INNER_BASE": str(base)}
        flags = message.sys_flag | INNER_BATCH | NEED_UNWRAP
        placed = self.message(_with_properties(message, more), sys_flag=flags, queue_offset=base)
        self.queue_offsets[message.queue] = base + count
        return placed

    def foreign_record(self, record: Placed) -> int:
        """Appends a copy of an earlier record, offset and all, as 5.5.0 pads a page with an old buffer."""
        data = encode_record(record.message, record.offset)
        if len(data) + FREE_BEHIND > self.remaining:
            self.blank()
        return self.raw(data)

    def raw(self, data: bytes) -> int:
        """Writes bytes as they are and moves the end after them; returns their offset."""
        offset = self.end_offset
        if len(data) > self.remaining:
            raise ValueError(f"{len(data)} bytes at {offset}: only {self.remaining} are left in the segment")
        position = offset % self.segment_size
        self._segment(offset)[position : position + len(data)] = data
        self.end_offset += len(data)
        return offset

    def blank(self, size: int | None = None) -> int:
        """Closes the segment with a BLANK (of a ``size`` nobody checks) and returns its offset."""
        offset, remaining = self.end_offset, self.remaining
        self.raw(struct.pack(">iI", _or(size, remaining), BLANK))
        self.end_offset = offset + remaining
        self._segment(self.end_offset)
        return offset

    def truncate(self, offset: int) -> None:
        if not min(self._segments, default=0) <= offset <= self.end_offset:
            raise ValueError(f"offset {offset} is not in the log")
        for base in [base for base in self._segments if base > offset]:
            del self._segments[base]
        removed = [placed for placed in self.records if placed.offset >= offset]
        for placed in reversed(removed):
            if placed.message.takes_a_queue_offset:
                self.queue_offsets[placed.message.queue] = placed.message.queue_offset or 0
        self._old += removed
        self.records = [placed for placed in self.records if placed.offset < offset]
        self.end_offset = offset

    @property
    def stale_records(self) -> list[Placed]:
        """Records that a truncation took off the log and that still lie there whole, with the right offsets."""
        live = {placed.offset for placed in self.records}
        return [
            placed
            for placed in self._old
            if placed.offset not in live
            and self._bytes_at(placed.offset, placed.size) == encode_record(placed.message, placed.offset)
        ]

    def settle(self) -> None:
        """Appends short records until no old record begins just where the log ends: nobody could tell the two apart."""
        while self._bytes_at(self.end_offset + 4, 4) in _MAGICS:
            self.message(body=bytes(len(self.records) % 7))

    def fill(self, left: int, message: Message | None = None) -> Placed | None:
        """Appends a message whose body leaves ``left`` bytes in the segment (below 8 it rolls), None if none can."""
        message = replace(message or Message(), body=b"", body_length=None)
        body_length = self.remaining - left - len(encode_record(message, self.end_offset))
        filled = replace(message, body=bytes(max(body_length, 0)))
        return self.message(filled) if body_length >= 0 and self.fits([filled]) else None

    def fits(self, messages: Sequence[Message]) -> bool:
        """Whether an empty segment has room for the batch."""
        return sum(len(encode_record(message, 0)) for message in messages) + FREE_BEHIND <= self.segment_size

    def delete_topic(self, topic: str) -> None:
        """Lets the queue offsets of ``topic`` start again at 0, as after its deletion."""
        for queue in [queue for queue in self.queue_offsets if queue[0] == topic]:
            del self.queue_offsets[queue]

    def remove_head(self, segments: int) -> None:
        """Removes the first segments, as retention does."""
        for base in sorted(self._segments)[:segments]:
            del self._segments[base]
        first = min(self._segments, default=self.end_offset)
        self.records = [placed for placed in self.records if placed.offset >= first]

    def preallocate(self) -> None:
        """Adds the next segment, all zero, as the broker's allocation service does ahead of need."""
        self._segment(self.end_offset - self.end_offset % self.segment_size + self.segment_size)

    def write(self, root: Path) -> Path:
        directory = root / "commitlog"
        directory.mkdir(parents=True, exist_ok=True)
        for base, data in self.segments.items():
            (directory / f"{base:020d}").write_bytes(data)
        return root

    def _bytes_at(self, offset: int, length: int) -> bytes:
        base = offset - offset % self.segment_size
        return bytes(self._segments.get(base, b"")[offset - base : offset - base + length])

    def _segment(self, offset: int) -> bytearray:
        return self._segments.setdefault(offset - offset % self.segment_size, bytearray(self.segment_size))


def overwrite_log(directory: Path, offset: int, data: bytes) -> None:
    """Writes over what the files of a log have at a log offset, inside one of them."""
    segment = max(path for path in directory.iterdir() if int(path.name) <= offset)
    with segment.open("r+b") as file:
        file.seek(offset - int(segment.name))
        file.write(data)
