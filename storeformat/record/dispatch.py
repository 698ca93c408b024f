"""DispatchRequest as columns: the units and index entries of records.

Mirrors ``CommitLog#checkMessageAndReturnSize`` (the request), ``CommitLogDispatcherBuildConsumeQueue``,
``IndexService#buildIndex`` and ``DefaultMessageStore#computeDeliverTimestamp``; FORMAT.md has the rules for
transactions and keys. ``PlainDispatch`` does it in one pass with ``decode`` for plain records, without their columns:
the hot loop of a sound log's scan. A record that is not plain (``numba_kernels.dispatch_plain``) ends the pass; the
general functions take its block.

Light queues (LMQ): one record in several consume queues, named in its own properties.

============================  ====================================================================
property                      holds
============================  ====================================================================
``INNER_MULTI_DISPATCH``      queue names, separated by commas
``INNER_MULTI_QUEUE_OFFSET``  a queue offset for each, as the broker that stored the record counted
============================  ====================================================================

Mirrors ``ConsumeQueue#multiDispatchLmqQueue`` (4.9.3) to ``LmqDispatch`` (5.5.0). A record whose two lists differ in
length, by Java's ``split``, goes to none. Units are placed by the same rules as in other queues; of a name that
occurs twice in a record only the first counts.

Messages that a broker keeps in a system topic until delivery, and what they wait for.

============================================  =========  ==============================================================
topic                                         kind       waits for
============================================  =========  ==============================================================
``SCHEDULE_TOPIC_XXXX``                       delayed    the delivery time, which is the tagsCode of its unit
``SCHEDULE_TOPIC_XXXX``, RETRY_TOPIC set      retried    the same; then it goes to ``%RETRY%GROUP``
``rmq_sys_wheel_timer``                       timer      the delivery time, property TIMER_OUT_MS
``RMQ_SYS_TRANS_HALF_TOPIC``,                 half       its producer, to commit it or to roll it back
``RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC``
``%RETRY%GROUP``, ``%RETRY%GROUP+TOPIC``,     retried    the group, to consume it again (the last two by POP)
``%RETRY%GROUP_TOPIC``
``%DLQ%GROUP``                                dead       nothing: its group gave up
============================================  =========  ==============================================================

The original topic is in REAL_TOPIC and REAL_QID, for a retried or dead message in RETRY_TOPIC or DLQ_ORIGIN_TOPIC.
Mirrors ScheduleMessageService, TimerMessageStore, TransactionalMessageBridge and
AbstractSendMessageProcessor#consumerSendMsgBack (4.6 to 5.5).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

from storeformat import javacompat
from storeformat import message as m
from storeformat.arrays import Bools, Bytes, Int32s, Int64s, Structs
from storeformat.errors import WrongSettings
from storeformat.javacompat import java_hash, parse_long
from storeformat.kernels import (
    ENTRY_SIZE,
    PlainRules,
    PlainStop,
    Spans,
    Tally,
    TopicKind,
    TopicTable,
    UnitColumns,
    compiled,
    numpy_kernels,
)
from storeformat.message import SCHEDULE_TOPIC
from storeformat.queues import batch_consume_queue
from storeformat.record.decode import DecodeRules, RecordBlock, is_directory_name, span_texts

_DELAY_UNITS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}

_MOST_TOPICS, _NAME_BYTES = 1 << 17, 1 << 22  # further topics go to the general functions
_ENTRY_ROOM = 1 << 15  # buffered index entries: more than one record makes, few enough for the processor's cache


@dataclass(frozen=True)
class DispatchRules:
    """Settings and version rules of dispatch. ``delay_millis[i]`` belongs to level i + 1."""

    delay_millis: tuple[int, ...]
    message_index_enable: bool = True
    index_tags: bool = False
    multi_dispatch: MultiDispatchRules | None = None  # None without ``enableMultiDispatch``
    batch_topics: frozenset[bytes] = frozenset()  # ``queue.type=BatchCQ``: batch queues, no ordinary ones
    unqueued_topics: frozenset[bytes] = frozenset()  # topics whose records get no unit


@dataclass(frozen=True)
class QueueUnits:
    """Units; ``topic_codes`` index ``topics`` (the block's, then light queues), ``light`` marks light-queue units."""

    topics: list[bytes]
    columns: UnitColumns
    light: Bools


@dataclass(frozen=True)
class IndexEntries:
    """One index entry a row, in ``IndexFile#putKey`` order; ``key_hashes`` as stored (never negative)."""

    key_hashes: Int32s
    offsets: Int64s
    store_timestamps: Int64s


def parse_delay_levels(text: str) -> tuple[int, ...]:
    """Milliseconds of each level of ``messageDelayLevel``."""
    levels = []
    for word in text.split(" "):
        unit = _DELAY_UNITS.get(word[-1:])
        count = javacompat.parse_long(word[:-1])
        if unit is None or count is None:
            raise WrongSettings(
                "messageDelayLevel cannot be parsed", found=word, expected="a number and one of s, m, h, d"
            )
        levels.append(unit * count)
    return tuple(levels)


def dispatched(block: RecordBlock) -> Bools:
    """Which records go to a consume queue."""
    return ~block.foreign & m.is_queued(block.heads.sys_flag)


def tags_codes(block: RecordBlock, rules: DispatchRules) -> Int64s:
    """Tags code of each record: Java's hash of TAGS, or the delivery time (milliseconds) in the schedule topic."""
    spans = block.properties[m.TAGS]
    codes = np.zeros(len(block), np.int64)
    rows = np.flatnonzero(spans.lengths > 0)
    if rows.size:
        codes[rows] = numpy_kernels.hash_spans(block.buffer, spans.rows(rows))[0]
    schedule = block.topics.index(m.SCHEDULE_TOPIC.encode()) if m.SCHEDULE_TOPIC.encode() in block.topics else None
    delay = block.properties[m.DELAY]
    if schedule is not None:
        rows = np.flatnonzero((block.topic_codes == schedule) & (delay.lengths >= 0))
        levels = np.array(
            [javacompat.parse_int(text) or 0 for text in span_texts(block.buffer, delay, rows)], dtype=np.int64
        )
        levels = np.minimum(levels, len(rules.delay_millis))
        delayed = levels > 0
        millis = np.array(rules.delay_millis, dtype=np.int64)[levels[delayed] - 1]
        codes[rows[delayed]] = block.heads.store_timestamp[rows[delayed]] + millis
    return codes


def queue_units(block: RecordBlock, rules: DispatchRules) -> QueueUnits:
    """Consume-queue units of a block in log order: one for each queued record, then those of its light queues."""
    rows = np.flatnonzero(dispatched(block) & ~_of_topics(block, rules.batch_topics | rules.unqueued_topics))
    heads = block.heads
    topics, topic_codes = block.topics, block.topic_codes[rows]
    queue_ids, queue_offsets = heads.queue_id[rows], heads.queue_offset[rows]
    is_light = np.zeros(len(rows), np.bool_)
    if rules.multi_dispatch is not None:
        light = light_units(block, rows, rules.multi_dispatch)
        names = {name: code for code, name in enumerate(dict.fromkeys([*topics, *light.names]))}
        # A stable sort by row keeps a record's own queue before its light ones.
        order = np.argsort(np.concatenate([rows, light.rows]), kind="stable")
        light_codes = np.array([names[name] for name in light.names], np.int32)[light.name_codes]
        topics, topic_codes = list(names), np.concatenate([topic_codes, light_codes])[order]
        queue_ids = np.concatenate([queue_ids, light.queue_ids])[order]
        queue_offsets = np.concatenate([queue_offsets, light.queue_offsets])[order]
        is_light = np.repeat([False, True], [len(rows), len(light.rows)])[order]
        rows = np.concatenate([rows, light.rows])[order]
    columns = UnitColumns(
        topic_codes, queue_ids, queue_offsets, heads.physical_offset[rows], heads.total_size[rows],
        tags_codes(block, rules)[rows], heads.store_timestamp[rows],
    )  # fmt: skip
    return QueueUnits(topics, columns, is_light)


def _of_topics(block: RecordBlock, topics: frozenset[bytes]) -> Bools:
    own = np.array([topic in topics for topic in block.topics], np.bool_)
    return own[block.topic_codes] if own.any() else np.zeros(len(block), np.bool_)


@dataclass(frozen=True)
class BatchUnits:
    """One batch-queue unit a row, in log order; ``topic_codes`` index the block's topics."""

    topic_codes: Int32s
    queue_ids: Int32s
    units: Structs


def batch_units(block: RecordBlock, rules: DispatchRules) -> BatchUnits:
    """Units of BatchCQ topics, from INNER_NUM and INNER_BASE if a record has both, else one message at its offset."""
    rows = np.flatnonzero(dispatched(block) & _of_topics(block, rules.batch_topics))
    heads = block.heads
    bases, sizes = heads.queue_offset[rows].copy(), np.ones(len(rows), np.int64)
    counts, firsts = block.properties[m.INNER_NUM], block.properties[m.INNER_BASE]
    inner = np.flatnonzero((counts.lengths[rows] >= 0) & (firsts.lengths[rows] >= 0))
    if inner.size:  # the decode checks parsed every value
        sizes[inner] = [javacompat.parse_short(text) or 0 for text in span_texts(block.buffer, counts, rows[inner])]
        bases[inner] = [javacompat.parse_long(text) or 0 for text in span_texts(block.buffer, firsts, rows[inner])]
    keep = (bases >= 0) & (sizes >= 0)
    rows = rows[keep]
    units = np.zeros(len(rows), batch_consume_queue.UNIT)
    units["phy_offset"], units["size"] = heads.physical_offset[rows], heads.total_size[rows]
    units["tags_code"], units["store_timestamp"] = tags_codes(block, rules)[rows], heads.store_timestamp[rows]
    units["msg_base_offset"], units["batch_size"] = bases[keep], sizes[keep]
    units["compacted_offset"] = batch_consume_queue.NOT_COMPACTED
    return BatchUnits(block.topic_codes[rows], heads.queue_id[rows], units)


def index_entries(block: RecordBlock, rules: DispatchRules) -> IndexEntries:
    """Index entries of a block in the broker's order; none without ``message_index_enable``."""
    if not rules.message_index_enable:
        return IndexEntries(np.zeros(0, np.int32), np.zeros(0, np.int64), np.zeros(0, np.int64))
    properties = block.properties
    indexable = ~block.foreign & ((block.heads.sys_flag & m.TRANSACTION_MASK) != m.TRANSACTION_ROLLBACK)
    topics = javacompat.java_hashes(pa.array(block.topics, pa.binary()))
    joined_topics = np.stack([javacompat.concat_hashes(topics, *joint) for joint in _JOINTS])
    owners, key_hashes = numpy_kernels.index_keys(
        block.buffer,
        indexable,
        (properties[m.UNIQ_KEY], properties[m.TAGS]) if rules.index_tags else (properties[m.UNIQ_KEY],),
        properties[m.KEYS],
        block.topic_codes,
        joined_topics,
    )
    return IndexEntries(
        key_hashes=key_hashes,
        offsets=block.heads.physical_offset[owners],
        store_timestamps=block.heads.store_timestamp[owners],
    )


def from_tags(block: RecordBlock, entries: IndexEntries) -> Bools:
    """Which entries are of TAGS, the last one of each tagged record; brokers before 5.4.0 do not write them."""
    last = np.append(entries.offsets[1:] != entries.offsets[:-1], True)[: len(entries.offsets)]
    tagged = block.heads.physical_offset[~block.foreign & (block.properties[m.TAGS].lengths > 0)]
    return last & np.isin(entries.offsets, tagged)


_JOINTS = tuple((javacompat.java_hash(joint), len(joint)) for joint in ("#", "#T#"))
"""Java hash and length of the separators of an index key: topic#key, and topic#T#tags."""


def topic_names(topics: Sequence[bytes]) -> list[str]:
    """Topics as the broker names their directories."""
    return [javacompat.decode_java_utf8(topic) for topic in topics]


class PlainDispatch:
    """A pass over the plain records of a split. Topics with ``is_odd`` go to the general functions."""

    def __init__(
        self,
        decode_rules: DecodeRules,
        dispatch_rules: DispatchRules,
        code_of: Callable[[bytes], int],
        is_odd: Callable[[bytes], bool],
        *,
        with_units: bool,
        with_entries: bool,
    ) -> None:
        self._rules = PlainRules(
            decode_rules.check_crc,
            decode_rules.split_parser,
            with_units,
            with_entries and dispatch_rules.message_index_enable,
            dispatch_rules.index_tags,
            np.array(dispatch_rules.delay_millis, np.int64),
        )
        self._code_of, self._is_odd = code_of, is_odd
        self._topics = TopicTable.of(_MOST_TOPICS, _NAME_BYTES)
        self._entries = np.empty(ENTRY_SIZE * _ENTRY_ROOM, np.uint8)

    @staticmethod
    def serves(rules: DispatchRules) -> bool:
        """True if records can be plain under these rules: no light, batch or unqueued topics, and compiled code."""
        if compiled() is None:
            return False
        return rules.multi_dispatch is None and not rules.batch_topics and not rules.unqueued_topics

    def take(self, buffer: Bytes, positions: Int64s, buffer_offset: int, units: UnitColumns, tally: Int64s) -> int:
        """Take records from the front until one is not plain or a buffer is full; updates ``tally``."""
        taken, made = 0, compiled()
        while made is not None and taken < len(positions):
            taken += made.dispatch_plain(
                buffer, positions[taken:], buffer_offset, self._rules, self._topics, units, self._entries, tally
            )
            if tally[Tally.STOP] != PlainStop.NEW_TOPIC:
                break
            self._fill_in(int(tally[Tally.TOPICS]) - 1)
        return taken

    def entries(self, tally: Int64s) -> Bytes:
        """Index entries since the last call, rows of ``index.entries.ROW``; valid until the next ``take``."""
        count = int(tally[Tally.ENTRIES])
        tally[Tally.ENTRIES] = 0
        return self._entries[: ENTRY_SIZE * count]

    def _fill_in(self, row: int) -> None:
        topics, name = self._topics, self._topics.name(row)
        if not name.isascii() or not is_directory_name(name) or self._is_odd(name):
            return
        topics.kinds[row] = TopicKind.SCHEDULE if name == m.SCHEDULE_TOPIC.encode() else TopicKind.PLAIN
        topics.codes[row] = self._code_of(name)
        topics.joined_topics[:, row] = [java_hash(name.decode() + joint) for joint in ("#", "#T#")]


LIGHT_PREFIX = "%LMQ%"
_SEPARATOR = ","
_MOST_DIGITS = 18  # digits that always fit 64 bits

_POWERS = 10 ** np.arange(_MOST_DIGITS, dtype=np.int64)


@dataclass(frozen=True)
class MultiDispatchRules:
    """``enable_lmq`` puts ``%LMQ%`` names into queue 0; records of excluded topics have no light queues."""

    enable_lmq: bool
    excluded_topics: tuple[str, ...] = ()
    excluded_prefixes: tuple[str, ...] = ()


@dataclass(frozen=True)
class LightUnits:
    """One further unit a row, ascending: row of the record, id and offset in queue ``names[name_codes]``."""

    names: list[bytes]
    rows: Int64s
    name_codes: Int32s
    queue_ids: Int32s
    queue_offsets: Int64s


def light_units(block: RecordBlock, queued: Int64s, rules: MultiDispatchRules) -> LightUnits:
    """Light-queue units of the ``queued`` rows. Names that cannot be a directory have no queue."""
    names, offsets = block.properties[m.INNER_MULTI_DISPATCH], block.properties[m.INNER_MULTI_QUEUE_OFFSET]
    topics = [javacompat.decode_java_utf8(topic) for topic in block.topics]
    excluded = np.array(
        [topic in rules.excluded_topics or topic.startswith(rules.excluded_prefixes) for topic in topics], np.bool_
    )
    rows = queued[(names.lengths[queued] > 0) & (offsets.lengths[queued] > 0)]
    rows = rows[~excluded[block.topic_codes[rows]]]
    pairs = _regular_pairs(block.buffer, names.rows(rows), offsets.rows(rows))
    odd = np.ones(len(rows), np.bool_)
    odd[pairs.owners] = False
    return _placed(block, rules, topics, _joined(pairs, rows, _odd_pairs(block, names, offsets, rows[odd])))


@dataclass(frozen=True)
class _Pairs:
    """Name and queue offset of each pair, and the row of its record, in order."""

    owners: Int64s
    names: list[str]
    name_codes: Int32s
    queue_offsets: Int64s


def _regular_pairs(buffer: Bytes, names: Spans, offsets: Spans) -> _Pairs:
    """The pairs as brokers write them: no empty parts, as many names as offsets, plain decimal digits."""
    owners, parts = numpy_kernels.split_spans(buffer, names, ord(_SEPARATOR))
    offset_owners, offset_parts = numpy_kernels.split_spans(buffer, offsets, ord(_SEPARATOR))
    values, proper = _decimals(buffer, offset_parts)
    count = len(names.starts)
    regular = _unbroken(names, owners, parts) & _unbroken(offsets, offset_owners, offset_parts)
    regular &= np.bincount(owners, minlength=count) == np.bincount(offset_owners, minlength=count)
    regular &= np.bincount(offset_owners, ~proper, minlength=count) == 0
    codes, distinct = numpy_kernels.dictionary(buffer, parts)
    texts = [javacompat.decode_java_utf8(name) for name in distinct]
    blank = np.array([javacompat.is_blank(text) for text in texts], np.bool_)
    regular[owners[blank[codes]]] = False
    mine, offset_mine = regular[owners], regular[offset_owners]
    return _Pairs(owners[mine], texts, codes[mine], values[offset_mine])


def _unbroken(spans: Spans, owners: Int64s, parts: Spans) -> Bools:
    """Which spans have no empty part."""
    count = len(spans.starts)
    used = np.bincount(owners, parts.lengths + 1, minlength=count) - 1
    return np.asarray(used == spans.lengths)


def _decimals(buffer: Bytes, parts: Spans) -> tuple[Int64s, Bools]:
    """Value of each part, and whether it is only a few decimal digits."""
    back = np.arange(_MOST_DIGITS)
    places = parts.starts[:, None] + parts.lengths[:, None] - 1 - back
    inside = back < parts.lengths[:, None]
    digits = np.where(inside, buffer[np.maximum(places, 0)].astype(np.int64) - ord("0"), 0)
    proper = (parts.lengths <= _MOST_DIGITS) & ((digits >= 0) & (digits <= 9)).all(axis=1)
    return digits @ _POWERS, proper


def _odd_pairs(block: RecordBlock, names: Spans, offsets: Spans, rows: Int64s) -> list[tuple[int, str, int]]:
    """The pairs of the other records, by Java's ``split`` and ``parseLong``."""
    lists = zip(span_texts(block.buffer, names, rows), span_texts(block.buffer, offsets, rows), strict=True)
    return [(row, *pair) for row, texts in zip(rows.tolist(), lists, strict=True) for pair in _pairs(*texts)]


def _joined(pairs: _Pairs, rows: Int64s, odd: list[tuple[int, str, int]]) -> _Pairs:
    odd_rows, odd_offsets = (np.array([pair[field] for pair in odd], np.int64) for field in (0, 2))
    code_of: dict[str, int] = {}
    renamed = np.array([code_of.setdefault(name, len(code_of)) for name in pairs.names], np.int32)
    odd_codes = np.array([code_of.setdefault(name, len(code_of)) for _, name, _ in odd], np.int32)
    owners = np.concatenate([rows[pairs.owners], odd_rows])
    order = np.argsort(owners, kind="stable")
    return _Pairs(
        owners[order],
        list(code_of),
        np.concatenate([renamed[pairs.name_codes], odd_codes])[order].astype(np.int32),
        np.concatenate([pairs.queue_offsets, odd_offsets])[order],
    )


def _placed(block: RecordBlock, rules: MultiDispatchRules, topics: list[str], pairs: _Pairs) -> LightUnits:
    """Each queue once for a record, without the record's own."""
    names, codes, rows = pairs.names, pairs.name_codes, pairs.owners
    usable = np.array([is_directory_name(name.encode()) for name in names], np.bool_)
    light = np.array([rules.enable_lmq and name.startswith(LIGHT_PREFIX) for name in names], np.bool_)
    code_of_topic = {name: code for code, name in enumerate(names)}
    own_codes = np.array([code_of_topic.get(topic, -1) for topic in topics], np.int32)
    own_ids = block.heads.queue_id[rows]
    queue_ids = np.where(light[codes], 0, own_ids)
    own = (own_codes[block.topic_codes[rows]] == codes) & (queue_ids == own_ids)
    first = np.zeros(len(codes), np.bool_)
    first[np.unique(rows * len(names) + codes, return_index=True)[1]] = True
    keep = first & usable[codes] & ~own
    return LightUnits(
        names=[name.encode() for name in names],
        rows=rows[keep],
        name_codes=codes[keep],
        queue_ids=queue_ids[keep].astype(np.int32),
        queue_offsets=pairs.queue_offsets[keep],
    )


def _pairs(name_list: str, offset_list: str) -> list[tuple[str, int]]:
    """The broker throws at the first offset that is not a number, so later pairs are lost."""
    if javacompat.is_blank(name_list) or javacompat.is_blank(offset_list):
        return []
    names, offsets = javacompat.java_split(name_list, _SEPARATOR), javacompat.java_split(offset_list, _SEPARATOR)
    if len(names) != len(offsets):
        return []
    pairs = []
    for name, text in zip(names, offsets, strict=True):
        offset = javacompat.parse_long(text)
        if offset is None:
            break
        pairs.append((name, offset))
    return pairs


TIMER_TOPIC = "rmq_sys_wheel_timer"
HALF_TOPICS = ("RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC")
OP_TOPICS = ("RMQ_SYS_TRANS_OP_HALF_TOPIC", "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC")
"""An op message ends half messages of the queue with its id: the body is their queue offsets, with commas. In RocksDB
(5.5.0) it ends the one at log offset TRANS_OFFSET.
"""
HOLDING_TOPICS = (SCHEDULE_TOPIC, TIMER_TOPIC, *HALF_TOPICS)
RETRY_PREFIX = "%RETRY%"
DEAD_PREFIX = "%DLQ%"
PREFIXES = (RETRY_PREFIX, DEAD_PREFIX)

_REAL_TOPIC, _REAL_QUEUE = "REAL_TOPIC", "REAL_QID"
_RETRIED_TOPIC, _DEAD_TOPIC = "RETRY_TOPIC", "DLQ_ORIGIN_TOPIC"
_LEVEL, _DUE, _RECALLED = "DELAY", "TIMER_OUT_MS", "TIMER_DEL_UNIQKEY"


@dataclass(frozen=True)
class Pending:
    """A waiting message: ``topics`` (the next one first), the first one's queue id, delivery time in milliseconds."""

    kind: Literal["delayed", "timer", "half", "retried", "dead"]
    topics: tuple[str, ...]
    queue_id: int | None = None
    due: int | None = None


def ended_half(queue_id: int, body: bytes | None, properties: Mapping[str, str]) -> list[tuple[int, int]]:
    """Queue id and queue offset of the half messages that an op message ends; -1 and the log offset in RocksDB."""
    if (offset := _natural(properties.get("TRANS_OFFSET"))) is not None:
        return [(-1, offset)]
    texts = (body or b"").decode("latin-1").split(",")
    return [(queue_id, place) for text in texts if (place := parse_long(text)) is not None]


def may_hold(topic: str) -> bool:
    """True if messages in a topic may belong to another one."""
    return topic in HOLDING_TOPICS or topic.startswith(PREFIXES)


def pending(topic: str, tags_code: int | None, properties: Mapping[str, str]) -> Pending | None:
    """What a stored message waits for; None if it is in its own topic."""
    if topic.startswith(PREFIXES):
        origins = (properties.get(_DEAD_TOPIC), properties.get(_RETRIED_TOPIC), properties.get(_REAL_TOPIC))
        topics = tuple(dict.fromkeys(origin for origin in origins if origin and origin != topic))
        return Pending("dead" if topic.startswith(DEAD_PREFIX) else "retried", topics)
    real = properties.get(_REAL_TOPIC)
    if topic not in HOLDING_TOPICS or not real or _RECALLED in properties:
        return None
    queue_id = _natural(properties.get(_REAL_QUEUE))
    retried = properties.get(_RETRIED_TOPIC)
    topics = (real, retried) if retried and retried != real else (real,)
    if topic in HALF_TOPICS:
        return Pending("half", topics, queue_id)
    if topic == TIMER_TOPIC:
        return Pending("timer", topics, queue_id, _natural(properties.get(_DUE)))
    due = tags_code if _natural(properties.get(_LEVEL)) else None
    return Pending("retried" if real.startswith(RETRY_PREFIX) else "delayed", topics, queue_id, due)


def belongs_to(topic: str, waiting: Pending, asked: str) -> bool:
    """True if a message that waits in ``topic`` belongs to ``asked``."""
    if asked in waiting.topics:
        return True
    return topic.startswith(RETRY_PREFIX) and topic.endswith((f"+{asked}", f"_{asked}"))


def _natural(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 19 else None
