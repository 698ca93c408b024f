"""Light queues (LMQ): one record in several consume queues, named in its own properties.

============================  ====================================================================
property                      holds
============================  ====================================================================
``INNER_MULTI_DISPATCH``      queue names, separated by commas
``INNER_MULTI_QUEUE_OFFSET``  a queue offset for each, as the broker that stored the record counted
============================  ====================================================================

Mirrors ``ConsumeQueue#multiDispatchLmqQueue`` (4.9.3) to ``LmqDispatch`` (5.5.0). A record whose two lists differ in
length, by Java's ``split``, goes to none. Units are placed by the same rules as in other queues; of a name that
occurs twice in a record only the first counts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from storeformat import javacompat
from storeformat import message as m
from storeformat.arrays import Bools, Bytes, Int32s, Int64s
from storeformat.kernels import Spans, numpy_kernels
from storeformat.record.decode import RecordBlock, is_directory_name, span_texts

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
