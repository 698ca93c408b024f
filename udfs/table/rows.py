"""Decoded records -> rows of the table ``messages``, as Arrow record batches.

Only requested columns are made, from whole columns of a ``RecordBlock``; properties are parsed only if a column needs
them. Foreign records give no row. A timestamp outside of years 1 to 9999 is NULL, and ``store_date`` with it: Spark's
and Python's dates end there, and producers may send anything.
"""

from __future__ import annotations

import zoneinfo
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from storeformat import javacompat
from storeformat import message as m
from storeformat.arrays import Bools, Int32s, Int64s
from storeformat.kernels import Spans, active, numpy_kernels
from storeformat.record import message_ids
from storeformat.record.decode import RecordBlock
from storeformat.record.dispatch import DispatchRules, dispatched, tags_codes
from storeformat.record.message_ids import host_text
from udfs.table import schemas

DAY = 86_400_000
QUARTER = 900_000  # milliseconds; since 1972 no clock was changed within a quarter of an hour (UTC)
FIRST_MILLISECOND = -62_135_596_800_000 + DAY
LAST_MILLISECOND = 253_402_300_800_000 - DAY  # years 1 to 9999, less a day at both ends for time zones

TRANSACTION_TYPES = ("none", "prepared", "commit", "rollback")

PROPERTIES_OF = {
    "tags": (m.TAGS,),
    "tags_code": (m.TAGS, m.DELAY),
    "keys": (m.KEYS,),
    "uniq_key": (m.UNIQ_KEY,),
    "delay_level": (m.DELAY,),
    "timer_due": (m.TIMER_OUT_MS,),
    "real_topic": (m.REAL_TOPIC,),
    "inner_num": (m.INNER_NUM, m.INNER_BASE),
}
"""Properties of each column; ``properties`` itself needs all."""

HEAD_COLUMNS = tuple(name for name in schemas.MESSAGES.names if name not in PROPERTIES_OF and name != "properties")
"""Columns that need no property."""

_FEW_NAMES = 31  # powers of two that can be added 2**32 times in 64 bits

_CODED = pa.dictionary(pa.int32(), pa.string())
ENCODED = ("cluster", "broker", "topic", "tags", "transaction_type", "born_host", "store_host", "real_topic")
_ENCODED_TYPES = {**dict.fromkeys(ENCODED, _CODED), "properties": pa.map_(_CODED, pa.string())}


@dataclass(frozen=True)
class Doubt:
    """Doubtful rows: records in ``ranges`` were read past damage; those at offsets ``wrong`` give no row."""

    ranges: tuple[tuple[int, int], ...] = ()
    wrong: tuple[int, ...] = ()

    def meets(self, begin: int, end: int) -> bool:
        """True if a record in [begin, end) may be doubtful."""
        return any(low < end and high > begin for low, high in self.ranges) or any(
            begin <= offset < end for offset in self.wrong
        )

    def salvaged(self, offsets: Int64s) -> Bools:
        """Which offsets were read past damage."""
        if not self.ranges:
            return np.zeros(len(offsets), bool)
        begins, ends = np.array(self.ranges, np.int64).T
        at = np.searchsorted(begins, offsets, "right") - 1
        inside: Bools = (at >= 0) & (offsets < ends[np.maximum(at, 0)])
        return inside

    def without_wrong(self, block: RecordBlock) -> RecordBlock:
        """Records of a block that are not known to be wrong."""
        wrong = np.isin(block.offsets, self.wrong) if self.wrong else None
        return block if wrong is None or not wrong.any() else block.take(np.flatnonzero(~wrong))


NO_DOUBT = Doubt()


@dataclass(frozen=True)
class RowRules:
    """Columns to make, and by which rules. ``encoded``: the columns ``ENCODED`` and property names as dictionary
    arrays, which are several times as fast to write; Spark only takes texts.
    """

    dispatch_rules: DispatchRules
    split_parser: bool = False
    columns: tuple[str, ...] = tuple(schemas.MESSAGES.names)
    time_zone: str = "UTC"
    cluster: str | None = None
    broker: str | None = None
    encoded: bool = False
    doubt: Doubt = NO_DOUBT

    @property
    def properties(self) -> tuple[bytes, ...]:
        return tuple(dict.fromkeys(name for column in self.columns for name in PROPERTIES_OF.get(column, ())))

    @property
    def schema(self) -> pa.Schema:
        schema = schemas.select(self.columns)
        if not self.encoded:
            return schema
        return pa.schema([field.with_type(_ENCODED_TYPES.get(field.name, field.type)) for field in schema])


def record_batch(block: RecordBlock, rules: RowRules) -> pa.RecordBatch:
    """Rows of a block's own records, in its order, with the columns of the rules."""
    if block.foreign.any():
        block = block.take(np.flatnonzero(~block.foreign))
    wanted = rules.properties
    if not set(wanted) <= set(block.properties):
        heads = block.heads
        spans = active().property_spans(
            block.buffer, heads.properties_start, heads.properties_length, wanted, rules.split_parser
        )
        block = replace(block, properties=dict(zip(wanted, spans, strict=True)))
    schema = rules.schema
    if not len(block):
        return pa.RecordBatch.from_arrays([pa.array([], column.type) for column in schema], schema=schema)
    columns = [_MAKERS[name](block, rules) for name in rules.columns]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _head(name: str, kind: pa.DataType) -> Callable[[RecordBlock, RowRules], pa.Array]:
    return lambda block, rules: pa.array(getattr(block.heads, name), kind)


def _constant(value: str | None, count: int, rules: RowRules) -> pa.Array:
    if value is None:
        return pa.nulls(count, _CODED if rules.encoded else pa.string())
    return _pick([value], np.zeros(count, np.int32), rules)


def _topics(block: RecordBlock, rules: RowRules) -> pa.Array:
    return _pick([javacompat.decode_java_utf8(topic) for topic in block.topics], block.topic_codes, rules)


def _pick(texts: Sequence[str | None], codes: Int32s, rules: RowRules) -> pa.Array:
    """A column of ``ENCODED``: the text of each code."""
    values, indices = pa.array(texts, pa.string()), pa.array(codes)
    return pa.DictionaryArray.from_arrays(indices, values) if rules.encoded else values.take(indices)


def _value(name: bytes) -> Callable[[RecordBlock, RowRules], pa.Array]:
    def make(block: RecordBlock, rules: RowRules) -> pa.Array:
        present = block.properties[name].lengths >= 0
        if not present.any():
            return pa.nulls(len(block), pa.string())
        texts = _texts(block, _ascending(block, name))
        bitmap = None if present.all() else pa.array(present).buffers()[1]
        _, offsets, data = texts.buffers()
        return pa.StringArray.from_buffers(len(block), offsets, data, bitmap)

    return make


def _coded(name: bytes) -> Callable[[RecordBlock, RowRules], pa.Array]:
    def make(block: RecordBlock, rules: RowRules) -> pa.Array:
        there = block.properties[name].lengths >= 0
        if not rules.encoded:
            return _value(name)(block, rules)
        if not there.any():
            return pa.nulls(len(block), _CODED)
        # An absent value is an empty span: the code of "", if it has one, is not this row's.
        codes, distinct = numpy_kernels.dictionary(block.buffer, _ascending(block, name))
        texts = pa.array([javacompat.decode_java_utf8(text) for text in distinct], pa.string())
        return pa.DictionaryArray.from_arrays(pa.array(codes, mask=None if there.all() else ~there), texts)

    return make


def _number(block: RecordBlock, name: bytes) -> pa.Array:
    """A property as a whole number (int64), NULL if absent or not one of up to 18 digits."""
    rows = np.flatnonzero(block.properties[name].lengths >= 0)
    if not rows.size:
        return pa.nulls(len(block), pa.int64())
    texts = _texts(block, block.properties[name].rows(rows))
    plain = pc.match_substring_regex(texts, r"^[+-]?[0-9]{1,18}$")
    numbers = pc.if_else(plain, pc.utf8_ltrim(texts, "+"), None).cast(pa.int64())
    places = np.full(len(block), -1)
    places[rows] = np.arange(len(rows))
    return numbers.take(pa.array(places, mask=places < 0))


def _small(numbers: pa.Array) -> pa.Array:
    """As int32, NULL beyond."""
    fits = pc.and_(pc.greater_equal(numbers, -(1 << 31)), pc.less(numbers, 1 << 31))
    return pc.if_else(fits, numbers, None).cast(pa.int32())


def _timer_due(block: RecordBlock, rules: RowRules) -> pa.Array:
    return _timestamps(np.asarray(_number(block, m.TIMER_OUT_MS).fill_null(LAST_MILLISECOND)))


def _inner_num(block: RecordBlock, rules: RowRules) -> pa.Array:
    numbers = _small(_number(block, m.INNER_NUM))
    return pc.if_else(_number(block, m.INNER_BASE).is_valid(), numbers, None)


def _ascending(block: RecordBlock, name: bytes) -> Spans:
    """Spans of values; absent ones are empty at their row's properties, so that the spans ascend."""
    spans = block.properties[name]
    starts = np.where(spans.lengths >= 0, spans.starts, block.heads.properties_start)
    return Spans(starts, np.maximum(spans.lengths, 0))


def _texts(block: RecordBlock, spans: Spans) -> pa.Array:
    if not len(spans.starts):
        return pa.array([], pa.string())
    return javacompat.decode_java_texts(numpy_kernels.gather_spans(block.buffer, spans))


def _keys(block: RecordBlock, rules: RowRules) -> pa.Array:
    rows, spans = numpy_kernels.split_spans(block.buffer, block.properties[m.KEYS], ord(" "))
    return pa.ListArray.from_arrays(_list_offsets(rows, len(block)), _texts(block, spans))


def _list_offsets(rows: Int64s, count: int) -> pa.Array:
    offsets = np.zeros(count + 1, np.int32)
    np.cumsum(np.bincount(rows, minlength=count), out=offsets[1:])
    return pa.array(offsets)


def _properties(block: RecordBlock, rules: RowRules) -> pa.Array:
    heads = block.heads
    rows, names, values = active().property_pieces(
        block.buffer, heads.properties_start, heads.properties_length, rules.split_parser
    )
    if not len(rows):
        return pa.MapArray.from_arrays(
            _list_offsets(rows, len(block)), _pick([], np.zeros(0, np.int32), rules), _texts(block, values)
        )
    codes, distinct = numpy_kernels.dictionary(block.buffer, names)
    texts = [javacompat.decode_java_utf8(name) for name in distinct]
    if len(set(texts)) < len(texts):  # different malformed bytes can be one name in Java
        codes = np.array([texts.index(text) for text in texts], np.int32)[codes]
    if _repeats(rows, codes, len(texts)):
        keep = _last_of_each(rows * len(texts) + codes)
        rows, codes, values = rows[keep], codes[keep], Spans(values.starts[keep], values.lengths[keep])
    keys = _pick(texts, codes, rules)
    return pa.MapArray.from_arrays(_list_offsets(rows, len(block)), keys, _texts(block, values))


def _repeats(rows: Int64s, codes: Int32s, names: int) -> bool:
    """True if a row, of ascending rows, has a code below ``names`` twice."""
    if names > _FEW_NAMES:
        marks = np.sort(rows * names + codes)
        return bool((marks[1:] == marks[:-1]).any())
    # The sum of different powers of two is their union; of equal ones it is not.
    powers = np.int64(1) << codes.astype(np.int64)
    begins = np.flatnonzero(np.diff(rows, prepend=-1))
    return bool((np.add.reduceat(powers, begins) != np.bitwise_or.reduceat(powers, begins)).any())


def _last_of_each(marks: Int64s) -> Int64s:
    """Ascending positions of the last of equal marks."""
    order = np.argsort(marks, kind="stable")
    last = np.append(marks[order][1:] != marks[order][:-1], True)
    return np.sort(order[last])


def _timestamp(name: str) -> Callable[[RecordBlock, RowRules], pa.Array]:
    return lambda block, rules: _timestamps(getattr(block.heads, name))


def _timestamps(milliseconds: Int64s) -> pa.Array:
    outside = (milliseconds < FIRST_MILLISECOND) | (milliseconds >= LAST_MILLISECOND)
    micros = np.where(outside, 0, milliseconds) * 1000
    return pa.array(micros, pa.int64(), mask=outside if outside.any() else None).cast(schemas.TIMESTAMP)


def store_dates(milliseconds: Int64s, time_zone: str) -> pa.Array:
    """Dates of times in a time zone, NULL outside of years 1 to 9999."""
    days = _timestamps(milliseconds).cast(pa.date32())
    if time_zone == "UTC":
        return days
    inside = np.clip(milliseconds, FIRST_MILLISECOND, LAST_MILLISECOND - 1)
    local = (inside + _utc_offsets(inside, time_zone)) // DAY
    return pa.array(local.astype(np.int32), mask=np.asarray(days.is_null())).cast(pa.date32())


def _utc_offsets(milliseconds: Int64s, time_zone: str) -> Int64s:
    """Milliseconds that a time zone is ahead of UTC, by Python's rules: Arrow only knows the changes listed in a zone's
    file, which end in 2037 or, in "slim" files, long ago.
    """
    zone = zoneinfo.ZoneInfo(time_zone)

    def offset_at(time: int) -> int:
        offset = (javacompat.EPOCH + timedelta(milliseconds=time)).astimezone(zone).utcoffset()
        return 0 if offset is None else offset // timedelta(milliseconds=1)

    quarters, places = np.unique(milliseconds // QUARTER, return_inverse=True)
    begins = np.array([offset_at(int(quarter) * QUARTER) for quarter in quarters], np.int64)
    ends = np.array([offset_at(int(quarter) * QUARTER + QUARTER - 1) for quarter in quarters], np.int64)
    offsets = begins[places]
    for row in np.flatnonzero((begins != ends)[places]):  # old clocks, set at odd seconds
        offsets[row] = offset_at(int(milliseconds[row]))
    return offsets


def host_sizes(flags: Int32s) -> tuple[Int64s, Int64s]:
    """Bytes of BORNHOST and STOREHOST."""
    born, stored = ((flags & is_v6) != 0 for is_v6 in (m.BORN_HOST_V6, m.STORE_HOST_V6))
    return np.where(born, m.HOST_V6, m.HOST_V4), np.where(stored, m.HOST_V6, m.HOST_V4)


def _host_spans(block: RecordBlock, *, store: bool) -> Spans:
    born, stored = host_sizes(block.heads.sys_flag)
    starts = block.positions + m.BORN_HOST_POSITION
    return Spans(starts + 8 + born, stored.astype(np.int32)) if store else Spans(starts, born.astype(np.int32))


def _hosts(block: RecordBlock, rules: RowRules, *, store: bool) -> pa.Array:
    codes, hosts = numpy_kernels.dictionary(block.buffer, _host_spans(block, store=store))
    return _pick([host_text(host) for host in hosts], codes, rules)


def _offset_msg_ids(block: RecordBlock, rules: RowRules) -> pa.Array:
    hosts = numpy_kernels.gather_spans(block.buffer, _host_spans(block, store=True))
    return message_ids.offset_message_ids(hosts, block.heads.physical_offset)


def _transaction_types(block: RecordBlock, rules: RowRules) -> pa.Array:
    kinds: Int32s = (block.heads.sys_flag & m.TRANSACTION_MASK) >> 2
    return _pick(TRANSACTION_TYPES, kinds, rules)


def bodies_of(block: RecordBlock) -> pa.BinaryArray:
    """Bodies as stored."""
    return numpy_kernels.gather_spans(block.buffer, Spans(block.heads.body_start, block.heads.body_length))


_MAKERS: dict[str, Callable[[RecordBlock, RowRules], pa.Array]] = {
    "salvaged": lambda block, rules: pa.array(rules.doubt.salvaged(block.heads.physical_offset)),
    "cluster": lambda block, rules: _constant(rules.cluster, len(block), rules),
    "broker": lambda block, rules: _constant(rules.broker, len(block), rules),
    "store_date": lambda block, rules: store_dates(block.heads.store_timestamp, rules.time_zone),
    "commit_log_offset": _head("physical_offset", pa.int64()),
    "size": _head("total_size", pa.int32()),
    "topic": _topics,
    "queue_id": _head("queue_id", pa.int32()),
    "queue_offset": _head("queue_offset", pa.int64()),
    "tags": _coded(m.TAGS),
    "tags_code": lambda block, rules: pa.array(tags_codes(block, rules.dispatch_rules)),
    "keys": _keys,
    "uniq_key": _value(m.UNIQ_KEY),
    "offset_msg_id": _offset_msg_ids,
    "flag": _head("flag", pa.int32()),
    "sys_flag": _head("sys_flag", pa.int32()),
    "transaction_type": _transaction_types,
    "reconsume_times": _head("reconsume_times", pa.int32()),
    "prepared_transaction_offset": _head("prepared_transaction_offset", pa.int64()),
    "born_timestamp": _timestamp("born_timestamp"),
    "born_host": lambda block, rules: _hosts(block, rules, store=False),
    "store_timestamp": _timestamp("store_timestamp"),
    "store_host": lambda block, rules: _hosts(block, rules, store=True),
    "body_crc": lambda block, rules: pa.array(block.heads.body_crc.view(np.int32)),
    "body_size": _head("body_length", pa.int32()),
    "properties": _properties,
    "magic_code": _head("magic_code", pa.int32()),
    "dispatched": lambda block, rules: pa.array(dispatched(block)),
    "delay_level": lambda block, rules: _small(_number(block, m.DELAY)),
    "timer_due": _timer_due,
    "real_topic": _coded(m.REAL_TOPIC),
    "inner_num": _inner_num,
    **dict.fromkeys(schemas.RUNS, lambda block, rules: pa.nulls(len(block), pa.int32())),
    "body": lambda block, rules: bodies_of(block),
}
