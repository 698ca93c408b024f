"""Hypothesis strategies: messages with odd corners, logs as brokers leave them, ways to cut and ways to damage them.

A drawn log keeps its truth: ``records`` are the records that the sizes lead to, ``stale_records`` those that lie after
the end or under a BLANK and must never appear.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st
from support.broker_settings import BrokerSettings
from support.store_builder import COMMIT, COMPRESSED, PREPARED, ROLLBACK, Embedded, LogBuilder, Message

Draw = Callable[[st.SearchStrategy[Any]], Any]

VERSIONS = ("4.6.1", "4.9.8", "5.1.4", "5.3.3", "5.5.0")
SCHEDULE = "SCHEDULE_TOPIC_XXXX"
TOPICS = ("A", "TopicPay", "stock-level_2", "%RETRY%group", "RMQ_SYS_TRANS_HALF_TOPIC", SCHEDULE)
BATCH_TOPIC = "BatchTopic"
LIGHT_QUEUES = ("%LMQ%a", "%LMQ%b", "%LMQ%c/d")
LONG_TOPICS = ("%RETRY%" + "g" * 121, "%RETRY%" + "g" * 180)
# The last three: hash 0x80000000, non-BMP, and two strings of one hash.
TAGS = ("TagA", "a||b", " ", "标签", "polygenelubricants", "😀", "Aa", "BB")
DELAYS = ("1", "3", "18", "99", "+2", "0", "-1", "٣")
ODD_PIECES = (
    b"TAGS\x01TagA",
    b"TAGS\x01",
    b"TAGS\x01\xed\xa0\x80x",
    b"TAGS\x01\xff\xfe",
    b"KEYS\x01a  b ",
    b"KEYS\x01\xe6\xa0",
    b"KEYS\x01",
    b"UNIQ_KEY\x01U1",
    b"UNIQ_KEY\x01\xf0\x9f\x98\x80",
    b"DELAY\x01x",
    b"\x01value",
    b"name\x01a\x01b",
    b"name\x01a\x01",
    b"name",
    b"\x01\x01",
    b"",
)


# --- messages ---------------------------------------------------------------------------------------------------
def texts(max_size: int = 12) -> st.SearchStrategy[str]:
    """Text as clients write it: any script, no surrogates, none of the two separators."""
    return st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x01\x02"), max_size=max_size)


def tags() -> st.SearchStrategy[str | None]:
    return st.none() | st.sampled_from(TAGS) | texts()


def keys() -> st.SearchStrategy[str | None]:
    """Keys with one space between them, several, or none at all."""
    words = st.lists(texts(6), max_size=4)
    return st.none() | st.builds(str.join, st.sampled_from([" ", "  "]), words)


def property_maps() -> st.SearchStrategy[dict[str, str]]:
    names = st.sampled_from(["PGROUP", "WAIT", "REAL_TOPIC", "DELAY", "empty", "__SHARDINGKEY"])
    return st.dictionaries(names, st.sampled_from(["", "true", "x"]) | texts(), max_size=3)


def odd_properties() -> st.SearchStrategy[bytes]:
    """Property blocks that no encoder should write and some client did: empty names, no values, broken UTF-8."""
    pieces = st.sampled_from(ODD_PIECES) | st.binary(max_size=8)
    return st.builds(bytes.join, st.just(b"\x02"), st.lists(pieces, max_size=6))


def hosts() -> st.SearchStrategy[tuple[str, int]]:
    addresses = st.sampled_from(["10.1.2.3", "255.255.255.255", "0.0.0.0", "2001:db8::1", "::", "fe80::2"])
    return st.tuples(addresses, st.sampled_from([0, 10911, 65535]))


def sys_flags() -> st.SearchStrategy[int]:
    """Transaction types, mostly none, with the flags for compressed bodies and several tags."""
    types = st.sampled_from([0, 0, 0, 0, PREPARED, COMMIT, ROLLBACK])
    return st.builds(int.__or__, types, st.sampled_from([0, 0, COMPRESSED, 0x2]))


@st.composite
def messages(draw: Draw, *, v2: bool = True, body_size: int = 80) -> Message:
    """A message that every broker accepts as valid (with ``v2``: from 5.1 on, for topics of more than 127 letters)."""
    topic = draw(st.sampled_from(TOPICS + (LONG_TOPICS if v2 else ())))
    message = Message(
        topic=topic,
        queue_id=draw(st.integers(0, 2)),
        body=draw(st.binary(max_size=body_size)),
        properties={"DELAY": draw(st.sampled_from(DELAYS))} if topic == SCHEDULE else {},
        tags=draw(tags()),
        keys=draw(keys()),
        sys_flag=draw(sys_flags()),
    )
    # Most messages of a log are ordinary: they draw quickly, and a failing example stays readable.
    if draw(st.integers(0, 3)) == 0:
        message = draw(_odd_message(message))
    return message


@st.composite
def _odd_message(draw: Draw, message: Message) -> Message:
    properties: bytes | dict[str, str]
    if isinstance(message.properties, dict) and (message.topic == SCHEDULE or draw(st.booleans())):
        properties = draw(property_maps()) | message.properties
    else:
        properties = draw(odd_properties())
    return replace(
        message,
        uniq_key=draw(st.none() | texts() | st.just("0A010203000010E10000000000000001")),
        properties=properties,
        trailing_separator=draw(st.booleans()),
        property_crc=draw(st.booleans()),
        flag=draw(st.sampled_from([-(1 << 31), -1, 7, (1 << 31) - 1])),
        born_timestamp=draw(st.sampled_from([0, -1, 1 << 42])),
        born_host=draw(hosts()),
        store_host=draw(hosts()),
        reconsume_times=draw(st.integers(0, 16)),
        prepared_transaction_offset=draw(st.sampled_from([0, 4096])),
    )


@st.composite
def embedding_messages(draw: Draw, *, v2: bool = True) -> Message:
    """A message whose body holds whole records with the right offsets, as a reader inside a split may meet them."""
    copies = draw(st.lists(messages(v2=v2, body_size=20), min_size=1, max_size=3))
    body = Embedded(tuple(copies), lead=draw(st.binary(max_size=20)), rejoins=draw(st.booleans()))
    message: Message = draw(messages(v2=v2))
    return replace(message, body=body)


# --- logs -------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class LogShape:
    v2: bool = True
    stale: bool = True
    foreign_records: bool = True
    deleted_topics: bool = True
    removed_head: bool = True
    light_queues: bool = False
    inner_batches: bool = False
    odd_blanks: bool = True
    """BLANKs whose size is not the rest of the segment: no broker writes them, and none looks."""


@st.composite
def logs(draw: Draw, shape: LogShape | None = None, *, max_steps: int = 30) -> LogBuilder:
    """A log of several segments that a broker may leave behind; it ends after ``records`` or a foreign one."""
    shape = shape or LogShape()
    size = draw(st.sampled_from([2048, 4096, 8192]))
    log = LogBuilder(size, base=size * draw(st.sampled_from([0, 0, 1, 1_000_000])))
    steps = ["message"] * 8 + ["batch", "embedded", "fill", "clock", "blank"]
    steps += ["light"] * shape.light_queues + ["inner_batch"] * shape.inner_batches
    steps += ["truncate"] * shape.stale + ["foreign_record"] * shape.foreign_records
    steps += ["delete_topic"] * shape.deleted_topics
    for step in draw(st.lists(st.sampled_from(steps), min_size=1, max_size=max_steps)):
        _take_step(draw, log, step, shape)
    if shape.removed_head and draw(st.booleans()):
        log.remove_head(draw(st.integers(0, max(len(log.segments) - 1, 0))))
    log.settle()
    if draw(st.booleans()):
        log.preallocate()
    return log


def _take_step(draw: Draw, log: LogBuilder, step: str, shape: LogShape) -> None:
    if step in ("message", "batch", "embedded"):
        one = embedding_messages(v2=shape.v2) if step == "embedded" else messages(v2=shape.v2)
        batch = draw(st.lists(one, min_size=1, max_size=3)) if step == "batch" else [draw(one)]
        if log.fits(batch):
            log.batch(batch)
    elif step in ("light", "inner_batch"):
        message = replace(draw(messages(v2=shape.v2)), properties={}, topic=draw(st.sampled_from(TOPICS[:3])))
        if step == "inner_batch":
            log.inner_batch(replace(message, sys_flag=0, topic=BATCH_TOPIC), draw(st.integers(1, 5)))
        else:
            log.multi_dispatched(message, draw(st.lists(st.sampled_from(LIGHT_QUEUES), min_size=1, max_size=3)))
    elif step == "fill":
        log.fill(draw(st.integers(0, 24)), draw(messages(v2=shape.v2)))
    elif step == "clock":
        log.clock += draw(st.sampled_from([-260_000_000, -5_000, -1, 999, 1000, 3_600_000, 3_000_000_000_000]))
    elif step == "blank" and log.records:
        log.blank(draw(st.sampled_from([None, None, -1, 0])) if shape.odd_blanks else None)
    elif step == "truncate" and log.records:
        log.truncate(draw(st.sampled_from(log.records)).offset)
    elif step == "foreign_record" and log.records:
        record = draw(st.sampled_from(log.records))
        if record.size + 8 <= log.remaining < log.segment_size:  # a foreign record follows a record of its segment
            log.foreign_record(record)
    elif step == "delete_topic":
        log.delete_topic(draw(st.sampled_from(TOPICS)))


def broker_settings(log: LogBuilder) -> st.SearchStrategy[BrokerSettings]:
    """Settings of a release that can read the log, with files of a few units."""
    releases = [version for version in VERSIONS if version >= "5.1" or not _has_v2(log)]
    return st.builds(
        BrokerSettings,
        version=st.sampled_from(releases).map(lambda text: tuple(int(part) for part in text.split("."))),
        mapped_file_size_commit_log=st.just(log.segment_size),
        mapped_file_size_consume_queue=st.sampled_from([20, 41, 100, 1000]),
        max_hash_slot_num=st.sampled_from([1, 7, 100]),
        max_index_num=st.sampled_from([2, 3, 10, 60]),
        mapper_file_size_batch_consume_queue=st.sampled_from([46, 92, 920]),
        batch_topics=st.just(frozenset({BATCH_TOPIC})),
        enable_lmq=st.booleans(),
        enable_multi_dispatch=st.booleans(),
    )


def _has_v2(log: LogBuilder) -> bool:
    return any(len(placed.message.topic_bytes) > 127 for placed in log.records)


# --- split plans ------------------------------------------------------------------------------------------------
def split_sizes(segment_size: int) -> st.SearchStrategy[int]:
    """Sizes of equal splits: smaller than a record, odd, and larger than a segment."""
    corners = [16, 91, 100, 333, segment_size - 1, segment_size, segment_size + 1, 3 * segment_size]
    return st.sampled_from(corners) | st.integers(16, segment_size)


# --- damage -----------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Damage:
    """Bytes that took the place of others at an absolute offset, or (``cut``) a file that ends there."""

    kind: str
    offset: int
    data: bytes = b""
    cut: bool = False

    @property
    def end(self) -> int:
        return self.offset + len(self.data)


def apply_damages(segments: Mapping[int, bytes], damages: Sequence[Damage]) -> dict[int, bytes]:
    damaged = {base: bytearray(data) for base, data in segments.items()}
    for damage in damages:
        base = max(base for base in damaged if base <= damage.offset)
        position = damage.offset - base
        if damage.cut:
            del damaged[base][position:]
        elif position < len(damaged[base]):
            room = len(damaged[base]) - position
            damaged[base][position : position + len(damage.data)] = damage.data[:room]
    return {base: bytes(data) for base, data in damaged.items()}


@st.composite
def damages(draw: Draw, log: LogBuilder, *, max_count: int = 4, cuts: bool = True) -> list[Damage]:
    """What a disk, a crash or an operator does to a log; with ``cuts`` also files that are too short."""
    segments = log.segments
    if not segments:
        return []
    kinds = ["flip", "zero", "random", "size", "swap", "duplicate", "stale_segment"] + ["cut"] * cuts
    found: list[Damage] = []
    for kind in draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=max_count)):
        found += _damage(draw, log, segments, kind)
    return found


def _damage(draw: Draw, log: LogBuilder, segments: Mapping[int, bytes], kind: str) -> list[Damage]:
    base = draw(st.sampled_from(sorted(segments)))
    data = segments[base]
    position = draw(st.integers(0, len(data) - 1))
    block = min(draw(st.sampled_from([1, 8, 64, 512])), len(data) - position)
    if kind == "cut":
        return [Damage(kind, base + position, cut=True)]
    if kind == "flip":
        return [Damage(kind, base + position, bytes([data[position] ^ (1 << draw(st.integers(0, 7)))]))]
    if kind == "zero":
        return [Damage(kind, base + position, bytes(block))]
    if kind == "random":
        return [Damage(kind, base + position, draw(st.binary(min_size=block, max_size=block)))]
    if kind == "size" and log.records:
        placed = draw(st.sampled_from(log.records))
        size = draw(
            st.integers(-(1 << 31), (1 << 31) - 1) | st.integers(0, 4096).map(lambda add: placed.size + add - 90)
        )
        return [Damage(kind, placed.offset, struct.pack(">i", size))]
    other = draw(st.sampled_from(sorted(segments)))
    if kind == "stale_segment":  # an old file under a new name, in part: the offsets in it are of another place
        return [Damage(kind, base + position, segments[other][position:])]
    start = draw(st.integers(0, len(data) - block))
    there = Damage(kind, base + position, segments[other][start : start + block])
    if kind == "swap":
        return [there, Damage(kind, other + start, data[position : position + block])]
    return [there]
