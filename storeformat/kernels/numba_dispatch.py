"""Plain records in one compiled pass: checked, and made into units and index entries. See ``Kernels.dispatch_plain``.

A record is read once, while its bytes are in the cache: head, body CRC, properties, hashes. What one of the general
functions would treat in a way of its own stops the pass, so that the rules of rare records stand in one place.
"""

from __future__ import annotations

import numpy as np
from numba import njit, types

from storeformat import message as m
from storeformat.arrays import Bools, Bytes, Int64s, Structs
from storeformat.kernels import numpy_kernels
from storeformat.kernels.columns import PADDING
from storeformat.kernels.machine_words import (
    BYTES,
    HIGH_BITS,
    INT32S,
    INT64S,
    column,
    load8,
    load32,
    load64,
    memory,
    next_byte,
    result,
    store64,
    swap32,
)
from storeformat.kernels.numba_crc import TABLES, crc32
from storeformat.kernels.numba_records import int32_at, int64_at, next_piece, next_separator, part_lengths
from storeformat.kernels.numba_values import SPACES, hash_ascii, key_hash, mix_bytes, most_entries, same_bytes
from storeformat.kernels.plain_pass import ENTRY_SIZE, PlainRules, PlainStop, Tally, TopicKind, TopicTable, UnitColumns


def _word(name: bytes) -> np.uint64:
    return np.uint64(int.from_bytes(name[:8], "little"))


_OTHER, _KEYS, _TAGS, _UNIQ_KEY, _DELAY, _RARE = range(6)
"""What the pass knows of a property by its name."""
_KEYS_WORD, _TAGS_WORD, _DELAY_WORD, _UNIQ_KEY_WORD = _word(m.KEYS), _word(m.TAGS), _word(m.DELAY), _word(m.UNIQ_KEY)
_INNER_NUM, _INNER_BASE, _PROPERTY_CRC = _word(m.INNER_NUM), _word(m.INNER_BASE), _word(m.PROPERTY_CRC)
_KEYS_CUT, _TAGS_CUT = _word(m.KEYS + b"\x01"), _word(m.TAGS + b"\x01")
_FIVE_BYTES = np.uint64((1 << 40) - 1)
_MOST_DIGITS = 9

_DONE, _NEW_TOPIC, _FULL, _ODD = (int(stop) for stop in PlainStop)
_SCHEDULE, _ODD_TOPIC = int(TopicKind.SCHEDULE), int(TopicKind.ODD)
(
    _UNITS, _ENTRIES, _RECORDS, _RECORD_BYTES, _LAST_RECORD, _LAST_UNIT, _LAST_ENTRY, _FIRST_TIME, _THIRD_TIME,
    _SECOND_TIME, _LAST_TIME, _LATEST_TIME, _TOPICS, _STOP,
) = (int(place) for place in Tally)  # fmt: skip


def dispatch_plain(
    buffer: Bytes, positions: Int64s, buffer_offset: int, rules: PlainRules, topics: TopicTable, units: UnitColumns,
    entries: Bytes, tally: Int64s,
) -> int:  # fmt: skip
    """See ``Kernels.dispatch_plain``."""
    taken: int = _dispatch(TABLES, buffer, positions, buffer_offset, *rules, *topics, *units, entries, tally)
    return taken


@njit(forceinline=True)
def _is_message(buffer, p, offset):  # type: ignore[no-untyped-def]
    """Whether a head is that of a message in its own place of the log, and of a queue that there can be."""
    magic = int32_at(buffer, p + 4)
    return magic in (m.MAGIC_V1, m.MAGIC_V2) and int64_at(buffer, p + 28) == offset and int32_at(buffer, p + 12) >= 0


@njit(forceinline=True)
def _parts(buffer, p, total_size, sys_flag):  # type: ignore[no-untyped-def]
    """Whether the lengths in a record add up, its store timestamp, and where body, topic and properties begin, each
    with its length.
    """
    store_at = p + 56 + (12 if sys_flag & m.BORN_HOST_V6 else 0)
    tail = store_at + 16 + (12 if sys_flag & m.STORE_HOST_V6 else 0)
    body_start, body_length = tail + 16, max(int32_at(buffer, tail + 12), 0)
    fits, topic_start, topic_length, properties_start, properties_length = part_lengths(
        buffer, body_start + body_length, p + total_size, 1 if int32_at(buffer, p + 4) == m.MAGIC_V2 else 0
    )
    store_timestamp = int64_at(buffer, store_at)
    return (
        fits, store_timestamp, body_start, body_length, topic_start, topic_length, properties_start, properties_length,
    )  # fmt: skip


@njit(forceinline=True)
def _has_its_crc(tables, buffer, p, body_start, body_length):  # type: ignore[no-untyped-def]
    found = crc32(tables, buffer, body_start, body_start + body_length, True) & m.CRC_MASK
    return found == swap32(load32(buffer, p + 8))


@njit(forceinline=True)
def _find_topic(slots, mixes, names, starts, lengths, buffer, at, length):  # type: ignore[no-untyped-def]
    """Row of a topic in the table (-1 where it is not in it), what it is found by, and its slot."""
    last = np.uint64((slots[1] >> 3) - 1)
    mixed = mix_bytes(buffer, at, length)
    place = mixed & last
    while True:
        row = np.int64(load64(slots, place << np.uint64(3)))
        if row < 0 or (
            load64(mixes, row << 3) == mixed
            and np.int32(load32(lengths, row << 2)) == length
            and same_bytes(buffer, at, names, np.int64(load64(starts, row << 3)), length)
        ):
            return row, mixed, place
        place = (place + np.uint64(1)) & last


@njit(forceinline=True)
def _add_topic(  # type: ignore[no-untyped-def]
    slots, mixes, names, starts, lengths, tally, slot, mixed, buffer, at, length
):
    """Makes a topic the last row of the table; returns why the pass stops: for that, or because there is no room."""
    row = tally[_TOPICS]
    start = starts[row - 1] + lengths[row - 1] if row > 0 else np.int64(0)
    if row == len(starts) or start + length > len(names) - PADDING:
        return _ODD
    for byte in range(length):
        names[start + byte] = load8(buffer, at + byte)
    slots[slot], mixes[row] = row, mixed
    starts[row], lengths[row] = start, length
    tally[_TOPICS] += 1
    return _NEW_TOPIC


@njit(forceinline=True)
def _known_name(buffer, at):  # type: ignore[no-untyped-def]
    """The name of most properties that matter, and where its 0x01 is: told by its first bytes, without a search."""
    word = load64(buffer, at)
    if word == _UNIQ_KEY_WORD and load8(buffer, at + 8) == m.NAME_VALUE_SEPARATOR:
        return _UNIQ_KEY, at + 8
    if word & _FIVE_BYTES == _KEYS_CUT:
        return _KEYS, at + 4
    if word & _FIVE_BYTES == _TAGS_CUT:
        return _TAGS, at + 4
    return _OTHER, at


@njit(forceinline=True)
def _name(buffer, at, length):  # type: ignore[no-untyped-def]
    """The name of a property, by its length. Names that begin like one of the rare ones count as rare, too."""
    word = load64(buffer, at)
    if length < 8:
        word &= (np.uint64(1) << np.uint64(8 * length)) - np.uint64(1)
        if word == _KEYS_WORD:
            return _KEYS
        if word == _TAGS_WORD:
            return _TAGS
        return _DELAY if word == _DELAY_WORD else _OTHER
    if word == _UNIQ_KEY_WORD:
        return _UNIQ_KEY if length == 8 else _OTHER
    return _RARE if word in (_INNER_NUM, _INNER_BASE, _PROPERTY_CRC) else _OTHER


@njit(forceinline=True)
def _properties(buffer, begin, stop, split_parser):  # type: ignore[no-untyped-def]
    """Place and length of UNIQ_KEY, KEYS, TAGS and DELAY (-1: absent), and whether there is one of the rare ones."""
    uniq_at, keys_at, tags_at, delay_at = begin, begin, begin, begin
    uniq_size, keys_size, tags_size, delay_size = np.int64(-1), np.int64(-1), np.int64(-1), np.int64(-1)
    rare = False
    while begin < stop:
        name, cut = _known_name(buffer, begin)
        end = next_separator(buffer, cut + 1, stop) if name else begin
        size = end - cut - 1
        if not name or size < 1 or (end < stop and load8(buffer, end) != m.PROPERTY_SEPARATOR):
            cut, size, end = next_piece(buffer, begin, stop, split_parser)
            name = _name(buffer, begin, cut - begin) if size >= 0 else _OTHER
        if name == _UNIQ_KEY:
            uniq_at, uniq_size = cut + 1, size
        elif name == _KEYS:
            keys_at, keys_size = cut + 1, size
        elif name == _TAGS:
            tags_at, tags_size = cut + 1, size
        elif name == _DELAY:
            delay_at, delay_size = cut + 1, size
        rare = rare or name == _RARE
        begin = end + 1
    return uniq_at, uniq_size, keys_at, keys_size, tags_at, tags_size, delay_at, delay_size, rare


@njit(forceinline=True)
def _delay_level(buffer, at, length):  # type: ignore[no-untyped-def]
    """The number that a few decimal digits are, or -1."""
    if length < 1 or length > _MOST_DIGITS:
        return np.int64(-1)
    level = np.int64(0)
    for place in range(at, at + length):
        digit = np.int64(load8(buffer, place)) - 48
        if digit < 0 or digit > 9:
            return np.int64(-1)
        level = 10 * level + digit
    return level


@njit(forceinline=True)
def _tags_code(buffer, at, size, delay_at, delay_size, store_timestamp, delay_millis):  # type: ignore[no-untyped-def]
    """Whether the tags code is plain, and it. ``delay_size`` is -1 where DELAY does not matter."""
    value, seen = hash_ascii(buffer, at, max(size, 0), np.uint32(0))
    code = np.int64(np.int32(value))
    if delay_size < 0:
        return seen & HIGH_BITS == 0, code
    level = _delay_level(buffer, delay_at, delay_size)
    place = min(level, delay_millis[1] >> 3) - 1
    if place >= 0:
        code = store_timestamp + np.int64(load64(delay_millis, place << 3))
    return level >= 0 and seen & HIGH_BITS == 0, code


@njit(forceinline=True)
def _put_entry(entries, number, stored_hash, offset, store_timestamp):  # type: ignore[no-untyped-def]
    """Writes one row of ``index.entries.ROW``. The first store reaches into the offset, which comes after it."""
    at = number * ENTRY_SIZE
    store64(entries, at, np.uint64(stored_hash))
    store64(entries, at + 4, np.uint64(offset))
    store64(entries, at + 12, np.uint64(store_timestamp))
    return stored_hash < 0


@njit(forceinline=True)
def _put_entries(  # type: ignore[no-untyped-def]
    entries, number, buffer, uniq_at, uniq_size, keys_at, keys_size, head, tags_at, tags_size, tags_head, offset, time
):
    """Writes the entries of a record; returns the number after the last, and whether a key is not ASCII."""
    odd = False
    if uniq_size >= 0:
        odd = _put_entry(entries, number, key_hash(buffer, uniq_at, uniq_size, head), offset, time)
        number += 1
    stop = keys_at + keys_size
    while keys_at < stop:
        end = next_byte(buffer, keys_at, stop, SPACES)
        if end > keys_at:
            odd |= _put_entry(entries, number, key_hash(buffer, keys_at, end - keys_at, head), offset, time)
            number += 1
        keys_at = end + 1
    if tags_size > 0:
        odd |= _put_entry(entries, number, key_hash(buffer, tags_at, tags_size, tags_head), offset, time)
        number += 1
    return number, odd


@njit(inline="always")
def _count(tally, offset, total_size, store_timestamp):  # type: ignore[no-untyped-def]
    """Adds a record to the sums."""
    if tally[_RECORDS] == 0:
        tally[_FIRST_TIME] = store_timestamp
    tally[_RECORDS] += 1
    tally[_RECORD_BYTES] += total_size
    tally[_LAST_RECORD] = offset
    tally[_THIRD_TIME], tally[_SECOND_TIME] = tally[_SECOND_TIME], tally[_LAST_TIME]
    tally[_LAST_TIME], tally[_LATEST_TIME] = store_timestamp, max(tally[_LATEST_TIME], store_timestamp)


@njit(
    types.int64(
        column(types.uint32, 2),
        *(BYTES, INT64S, types.int64),
        *(types.boolean, types.boolean, types.boolean, types.boolean, types.boolean, INT64S),
        *(result(types.int64), result(types.uint64), result(types.uint8), result(types.int64), result(types.int32)),
        *(INT32S, BYTES, column(types.int32, 2)),
        *(result(types.int32), result(types.int32), result(types.int64), result(types.int64)),
        *(result(types.int32), result(types.int64), result(types.int64)),
        *(result(types.uint8), result(types.int64)),
    ),
    cache=True,
)
def _dispatch(  # type: ignore[no-untyped-def]
    table_words,
    buffer_bytes, positions, buffer_offset,
    check_crc, split_parser, with_units, with_entries, index_tags, delays,
    topic_slots, topic_mixes, name_bytes, topic_starts, topic_lengths, codes, kinds, joined,
    topic_codes, queue_ids, queue_offsets, offsets, sizes, tags_codes, store_timestamps,
    entry_bytes, tally,
):  # fmt: skip
    buffer, tables = memory(buffer_bytes), memory(table_words)
    delay_millis, entries = memory(delays), memory(entry_bytes)
    slots, mixes, names = memory(topic_slots), memory(topic_mixes), memory(name_bytes)
    starts, lengths = memory(topic_starts), memory(topic_lengths)
    unit, entry = tally[_UNITS], tally[_ENTRIES]
    unit_room, entry_room = len(offsets), len(entry_bytes) // ENTRY_SIZE
    taken, stop = np.int64(0), _DONE
    for row in range(len(positions)):
        p, stop = positions[row], _ODD
        offset, total_size, sys_flag = p + buffer_offset, int32_at(buffer, p), int32_at(buffer, p + 36)
        if not _is_message(buffer, p, offset):
            break
        fits, store_timestamp, body_start, body_length, topic_start, topic_length, begin, size = _parts(
            buffer, p, total_size, sys_flag
        )
        if not fits or (check_crc and not _has_its_crc(tables, buffer, p, body_start, body_length)):
            break
        topic, mixed, slot = _find_topic(slots, mixes, names, starts, lengths, buffer, topic_start, topic_length)
        if topic < 0:
            stop = _add_topic(
                topic_slots, topic_mixes, name_bytes, topic_starts, topic_lengths, tally,
                slot, mixed, buffer, topic_start, topic_length,
            )  # fmt: skip
            break
        uniq_at, uniq_size, keys_at, keys_size, tags_at, tags_size, delay_at, delay_size, rare = _properties(
            buffer, begin, begin + size, split_parser
        )
        if rare or kinds[topic] == _ODD_TOPIC:
            break
        is_plain, tags_code = _tags_code(
            buffer, tags_at, tags_size, delay_at, delay_size if kinds[topic] == _SCHEDULE else -1,
            store_timestamp, delay_millis,
        )  # fmt: skip
        if not is_plain:
            break

        kind = sys_flag & m.TRANSACTION_MASK
        queued = with_units and kind & m.TRANSACTION_PREPARED == 0
        indexed = with_entries and kind != m.TRANSACTION_ROLLBACK
        if (queued and unit == unit_room) or (indexed and entry + most_entries(keys_size) > entry_room):
            stop = _FULL
            break
        if indexed:
            after, odd = _put_entries(
                entries, entry, buffer, uniq_at, uniq_size, keys_at, keys_size, joined[0, topic],
                tags_at, tags_size if index_tags else -1, joined[1, topic], offset, store_timestamp,
            )  # fmt: skip
            if odd:
                break
            if after > entry:
                entry = after
                tally[_LAST_ENTRY] = offset
        if queued:
            topic_codes[unit], queue_ids[unit], sizes[unit] = codes[topic], int32_at(buffer, p + 12), total_size
            queue_offsets[unit], offsets[unit] = int64_at(buffer, p + 20), offset
            tags_codes[unit], store_timestamps[unit] = tags_code, store_timestamp
            unit += 1
            tally[_LAST_UNIT] = offset
        _count(tally, offset, total_size, store_timestamp)
        taken, stop = taken + 1, _DONE
    tally[_UNITS], tally[_ENTRIES], tally[_STOP] = unit, entry, stop
    return taken


_MOST_GROUPS = 1 << 20
"""Above it counting is not the fastest way to sort."""


def group_units(units: UnitColumns, light: Bools, packed: Structs) -> tuple[Int64s, Bools]:
    """See ``Kernels.group_units``."""
    rows = len(units.offsets)
    width = int(units.queue_ids.max(initial=0)) + 1
    groups = (int(units.topic_codes.max(initial=0)) + 1) * width
    if groups > _MOST_GROUPS:
        return numpy_kernels.group_units(units, light, packed)
    order, begins = np.empty(rows, np.int64), np.empty(rows, np.bool_)
    words = packed.view(np.uint32).reshape(rows, 5)
    _group(*units[:-1], light, width, np.zeros(groups, np.int64), order, begins, words)
    return order, begins


@njit(
    types.void(
        *(INT32S, INT32S, INT64S, INT64S, INT32S, INT64S, column(types.boolean)),
        *(types.int64, result(types.int64), result(types.int64), result(types.boolean), result(types.uint32, 2)),
    ),
    cache=True,
)
def _group(  # type: ignore[no-untyped-def]
    topic_codes, queue_ids, queue_offsets, offsets, sizes, tags_codes, light, width, ends, order, begins, packed
):
    rows = len(offsets)
    for row in range(rows):
        ends[np.int64(topic_codes[row]) * width + queue_ids[row]] += 1
    first = np.int64(0)
    for group in range(len(ends)):
        ends[group], first = first, first + ends[group]
    first_of_group = ends.copy()
    for row in range(rows):
        group = np.int64(topic_codes[row]) * width + queue_ids[row]
        place = ends[group]
        ends[group] = place + 1
        order[place] = row
        begin = True
        if place > first_of_group[group]:
            before = order[place - 1]
            begin = queue_offsets[row] != queue_offsets[before] + 1 or light[row] != light[before]
        begins[place] = begin
        offset, tags_code = np.uint64(offsets[row]), np.uint64(tags_codes[row])
        packed[place, 0] = swap32(np.uint32(offset >> np.uint64(32)))
        packed[place, 1] = swap32(np.uint32(offset))
        packed[place, 2] = swap32(np.uint32(sizes[row]))
        packed[place, 3] = swap32(np.uint32(tags_code >> np.uint64(32)))
        packed[place, 4] = swap32(np.uint32(tags_code))
