"""Vectorised decode: (buffer, record starts) -> columns, and the first record that fails a check.

Checks in the order of ``CommitLog#checkMessageAndReturnSize``, and three that the broker lacks: the record's own
PHYSICALOFFSET, the property CRC if present, and a topic and queue id that can be a directory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from storeformat import javacompat
from storeformat import message as m
from storeformat.arrays import Bools, Bytes, Int32s, Int64s
from storeformat.errors import RecordDefect
from storeformat.kernels import Heads, Spans, active, numpy_kernels
from storeformat.storage.files import RangeReader

_CRC_NAME = np.frombuffer(m.PROPERTY_CRC + b"\x01", np.uint8)
_CRC_TAIL = np.arange(-m.PROPERTY_CRC_SIZE, 0)
_POWERS_OF_TEN = 10 ** np.arange(m.PROPERTY_CRC_SIZE - len(_CRC_NAME) - 1)  # a property CRC has its lowest digit first

DISPATCH_PROPERTIES = (m.UNIQ_KEY, m.KEYS, m.TAGS, m.DELAY, m.INNER_NUM, m.INNER_BASE, m.PROPERTY_CRC)


@dataclass(frozen=True)
class DecodeRules:
    """``split_parser``: property grammar of releases up to 4.9.0. ``as_broker``: go on where a broker's recovery does,
    without checks of PHYSICALOFFSET, property CRC (without ``forceVerifyPropCRC``) and the size of a BLANK inside its
    segment.
    """

    check_crc: bool = True
    split_parser: bool = False
    as_broker: bool = False
    properties: tuple[bytes, ...] = DISPATCH_PROPERTIES


HEADS_ONLY = DecodeRules(check_crc=False, properties=())  # without properties and body CRCs


@dataclass(frozen=True)
class RecordBlock:
    """Consecutive records decoded from one buffer, whose first byte is at log offset ``buffer_offset``. ``positions``
    are relative to the buffer. ``topic_codes`` index ``topics`` (UTF-8, as Java reads them). ``properties`` has the
    value spans of each name in the rules. Rows with FOREIGN_OFFSET in ``heads.defect`` are not dispatched.
    """

    buffer: Bytes
    buffer_offset: int
    positions: Int64s
    heads: Heads
    topic_codes: Int32s
    topics: list[bytes]
    properties: Mapping[bytes, Spans] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.positions)

    @property
    def offsets(self) -> Int64s:
        """Commit-log offsets of the records."""
        return self.positions + self.buffer_offset

    @property
    def foreign(self) -> Bools:
        """Sound records whose PHYSICALOFFSET is not their position."""
        return self.heads.defect != RecordDefect.OK

    def head(self, count: int) -> RecordBlock:
        return self if count == len(self) else self.take(slice(count))

    def take(self, rows: Int64s | slice | Bools) -> RecordBlock:
        """Select rows; topics and buffer are not reduced."""
        return RecordBlock(
            self.buffer,
            self.buffer_offset,
            self.positions[rows],
            self.heads.rows(rows),
            self.topic_codes[rows],
            self.topics,
            {name: spans.rows(rows) for name, spans in self.properties.items()},
        )


@dataclass(frozen=True)
class Fault:
    """The first row that is no record: its index among the positions, and why."""

    row: int
    defect: RecordDefect


def decode(
    buffer: Bytes, buffer_offset: int, positions: Int64s, rules: DecodeRules
) -> tuple[RecordBlock, Fault | None]:
    """Decode records up to the first that fails a check; nothing after it is decoded. Bad bytes never raise.

    ``buffer``: uint8, ``PADDING`` bytes after its data, first byte at log offset ``buffer_offset``.
    ``positions``: int64, ascending, from ``walk_sizes``, each record inside the data.

    >>> from storeformat.kernels import PADDING
    >>> record = bytes.fromhex(
    ...     "00000086daa320a73610a686000000000000000700000000000000000000000000000000000000000000018bcfe568000a010203"
    ...     "000010e1000001a1f852deb0c0a8000900002a9f0000000200000000000000000000000568656c6c6f06546f7069634100204b45"
    ...     "5953016b31206b3202554e49515f4b455901553002544147530154616741"
    ... )
    >>> buffer = np.frombuffer(record + bytes(PADDING), np.uint8)
    >>> block, fault = decode(buffer, 0, np.array([0]), DecodeRules())
    >>> len(block), fault, block.topics, block.heads.store_timestamp.tolist()
    (1, None, [b'TopicA'], [1795167542960])
    >>> {name.decode(): span_texts(buffer, block.properties[name], np.array([0])) for name in (m.TAGS, m.KEYS)}
    {'TAGS': ['TagA'], 'KEYS': ['k1 k2']}
    """
    heads: Heads = numpy_kernels.decode_heads(buffer, positions, buffer_offset)
    fault, count = None, len(positions)
    failed = (heads.defect != RecordDefect.OK) & (heads.defect != RecordDefect.FOREIGN_OFFSET)
    if failed.any():
        count = int(failed.argmax())
        fault = Fault(count, RecordDefect(int(heads.defect[count])))
    if rules.check_crc:
        bad_body = _first_bad_body(buffer, heads, count, as_broker=rules.as_broker)
        if bad_body is not None:
            fault, count = Fault(bad_body, RecordDefect.BODY_CRC), bad_body
    positions = positions[:count]
    heads = heads.rows(slice(count))
    codes, topics = _as_java_reads(*numpy_kernels.dictionary(buffer, Spans(heads.topic_start, heads.topic_length)))
    spans: dict[bytes, Spans] = {}
    if rules.properties:
        columns = active().property_spans(
            buffer, heads.properties_start, heads.properties_length, rules.properties, rules.split_parser
        )
        spans = dict(zip(rules.properties, columns, strict=True))
    block = RecordBlock(buffer, buffer_offset, positions, heads, codes, topics, spans)
    deeper = _deeper_fault(block, rules)
    if deeper is not None:
        return block.head(deeper.row), deeper
    return block, fault


def _as_java_reads(codes: Int32s, topics: list[bytes]) -> tuple[Int32s, list[bytes]]:
    """Malformed bytes become U+FFFD, so that two topics can become one."""
    joined = b"\0".join(topics)
    if javacompat.decode_java_utf8(joined).encode() == joined:
        return codes, topics
    names = [javacompat.decode_java_utf8(topic).encode() for topic in topics]
    distinct = {name: code for code, name in enumerate(dict.fromkeys(names))}
    return np.array([distinct[name] for name in names], np.int32)[codes], list(distinct)


def _first_bad_body(buffer: Bytes, heads: Heads, count: int, *, as_broker: bool) -> int | None:
    """An empty body has CRC 0; a broker writes it (UtilAll#crc32), but does not check it."""
    lengths = heads.body_length[:count]
    rows = np.flatnonzero(lengths > 0) if as_broker else np.arange(count)
    found = active().crc32_spans(buffer, heads.body_start[rows], heads.body_length[rows])
    bad = np.flatnonzero(found != heads.body_crc[rows])
    return int(rows[bad[0]]) if bad.size else None


def _deeper_fault(block: RecordBlock, rules: DecodeRules) -> Fault | None:
    faults = [
        Fault(row, defect)
        for defect, row in (
            (RecordDefect.PROPERTY_CRC, _bad_property_crc(block) if rules.check_crc and not rules.as_broker else None),
            (RecordDefect.BAD_DELAY, _bad_delay(block)),
            (RecordDefect.BAD_INNER_BATCH, _bad_inner_batch(block)),
            (RecordDefect.BAD_NAME, _bad_name(block)),
        )
        if row is not None
    ]
    return min(faults, key=lambda fault: fault.row, default=None)


def _bad_name(block: RecordBlock) -> int | None:
    impossible = np.array([not is_directory_name(topic) for topic in block.topics], dtype=bool)
    bad = (block.heads.queue_id < 0) | impossible[block.topic_codes]
    return int(bad.argmax()) if bad.any() else None


@lru_cache(1 << 16)  # each block has the same topics
def is_directory_name(topic: bytes) -> bool:
    """True if a topic can name a directory, and not one outside the consume-queue folder."""
    text = javacompat.decode_java_utf8(topic)
    return bool(text) and text not in (".", "..") and "/" not in text and "\0" not in text and len(text.encode()) <= 255


def _bad_delay(block: RecordBlock) -> int | None:
    """Only in the schedule topic: there the broker parses DELAY, and rejects a record if it cannot."""
    spans = block.properties.get(m.DELAY)
    schedule = [code for code, topic in enumerate(block.topics) if topic == m.SCHEDULE_TOPIC.encode()]
    if spans is None or not schedule:
        return None
    rows = np.flatnonzero((block.topic_codes == schedule[0]) & (spans.lengths >= 0))
    texts = zip(rows.tolist(), span_texts(block.buffer, spans, rows), strict=True)
    return next((row for row, text in texts if javacompat.parse_int(text) is None), None)


def _bad_inner_batch(block: RecordBlock) -> int | None:
    count, base = block.properties.get(m.INNER_NUM), block.properties.get(m.INNER_BASE)
    if count is None or base is None:
        return None
    rows = np.flatnonzero((count.lengths >= 0) & (base.lengths >= 0))
    counts, bases = span_texts(block.buffer, count, rows), span_texts(block.buffer, base, rows)
    for row, count_text, base_text in zip(rows.tolist(), counts, bases, strict=True):
        if javacompat.parse_short(count_text) is None or javacompat.parse_long(base_text) is None:
            return int(row)
    return None


def _bad_property_crc(block: RecordBlock) -> int | None:
    rows, values = _property_crcs(block)
    starts, sizes = block.positions[rows], block.heads.total_size[rows]
    found = active().crc32_spans(block.buffer, starts, sizes - np.int32(m.PROPERTY_CRC_SIZE))
    bad = np.flatnonzero(found != values)
    return int(rows[bad[0]]) if bad.size else None


def _property_crcs(block: RecordBlock) -> tuple[Int64s, Int64s]:
    spans = block.properties.get(m.PROPERTY_CRC)
    if spans is None:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    rows = np.flatnonzero(spans.lengths >= 0)
    ends = block.positions[rows] + block.heads.total_size[rows]
    tails = block.buffer[ends[:, None] + _CRC_TAIL]
    digits = tails[:, len(_CRC_NAME) : -1] - ord("0")
    # No CRC to check: glued to other text by a batch encoder, or a user's property.
    checked = (
        (tails[:, : len(_CRC_NAME)] == _CRC_NAME).all(1) & (tails[:, -1] == m.PROPERTY_SEPARATOR) & (digits <= 9).all(1)
    )
    return rows[checked], digits[checked] @ _POWERS_OF_TEN


def span_texts(buffer: Bytes, spans: Spans, rows: Int64s) -> list[str]:
    """Text of the spans in these rows, decoded as in Java."""
    view = memoryview(buffer.data)
    starts, lengths = spans.rows(rows)
    ends = starts + lengths
    return [javacompat.decode_java_utf8(bytes(view[a:b])) for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]


def store_timestamp_at(reader: RangeReader, position: int) -> int:
    """STORETIMESTAMP of the record at ``position`` of a segment file."""
    head = reader.read(position, m.FIXED_HEAD + 2 * m.HOST_V4).ljust(m.MAX_HEAD_SIZE, b"\0")
    v4 = np.frombuffer(head, m.head_dtype(m.HOST_V4, m.HOST_V4))
    if int(v4["sys_flag"][0]) & m.BORN_HOST_V6 == 0:
        return int(v4["store_timestamp"][0])
    return int(np.frombuffer(head, m.head_dtype(m.HOST_V6, m.HOST_V4))["store_timestamp"][0])
