"""Records in compiled code: sizes, fixed heads, body CRCs and where properties lie. See ``numba_kernels``."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit, types

from storeformat import message as m
from storeformat.arrays import Bytes, Int32s, Int64s
from storeformat.errors import RecordDefect
from storeformat.kernels.columns import ENTRY_HEAD, ENTRY_MAGIC, Heads, Spans
from storeformat.kernels.machine_words import (
    BYTES,
    EVERY_BYTE,
    HIGH_BITS,
    INT32S,
    INT64S,
    WORDS,
    column,
    load8,
    load32,
    load64,
    memory,
    next_byte,
    result,
    swap32,
    swap64,
    trailing_zeros,
    tuple_of,
)
from storeformat.kernels.numba_crc import TABLES, crc32

WIDE_ROWS, NARROW_ROWS = result(types.int64, 2), result(types.int32, 2)


@njit(forceinline=True)
def int32_at(buffer, at):  # type: ignore[no-untyped-def]
    """The big-endian int32 at a position."""
    return np.int32(swap32(load32(buffer, at)))


@njit(forceinline=True)
def int64_at(buffer, at):  # type: ignore[no-untyped-def]
    """The big-endian int64 at a position."""
    return np.int64(swap64(load64(buffer, at)))


# --- framing ----------------------------------------------------------------------------------------------------


def walk_sizes(buffer: Bytes, start: int, stop: int, limit: int) -> tuple[Int64s, int]:
    """See ``Kernels.walk_sizes``."""
    positions = np.empty(max(stop - start, 0) // m.BLANK_SIZE + 1, np.int64)
    count, reached = _walk(buffer, start, min(stop, limit - 3), limit, positions)
    return positions[:count], reached


@njit(tuple_of(types.int64, types.int64)(BYTES, types.int64, types.int64, types.int64, result(types.int64)), cache=True)
def _walk(buffer_bytes, position, stop, limit, positions):  # type: ignore[no-untyped-def]
    buffer = memory(buffer_bytes)
    count = 0
    while position < stop:
        size = np.int64(np.int32(swap32(load32(buffer, position))))
        if size < m.BLANK_SIZE or position + size > limit:
            break
        positions[count] = position
        count += 1
        position += size
    return count, position


def walk_entries(
    buffer: Bytes, start: int, stop: int, limit: int, buffer_offset: int, index: int, term: int, committed: int
) -> tuple[Int64s, int]:
    """See ``Kernels.walk_entries``."""
    positions = np.empty(max(stop - start, 0) // ENTRY_HEAD.size + 1, np.int64)
    stop = min(stop, limit - ENTRY_HEAD.size + 1)
    count, reached = _walk_entries(buffer, start, stop, limit, buffer_offset, index, term, committed, positions)
    return positions[:count], reached


_ENTRY_HEAD_SIZE = ENTRY_HEAD.size - 4


@njit(tuple_of(types.int64, types.int64)(BYTES, *[types.int64] * 7, result(types.int64)), cache=True)
def _walk_entries(  # type: ignore[no-untyped-def]
    buffer_bytes, position, stop, limit, buffer_offset, index, term, committed, positions
):
    buffer = memory(buffer_bytes)
    count = 0
    while position < stop:
        size = np.int64(int32_at(buffer, position + 4))
        if int32_at(buffer, position) != ENTRY_MAGIC or size < _ENTRY_HEAD_SIZE + m.MIN_RECORD_SIZE:
            break
        body_length = np.int64(int32_at(buffer, position + 44))
        if position + size > limit or body_length != size - _ENTRY_HEAD_SIZE:
            break
        if int64_at(buffer, position + 24) != buffer_offset + position:
            break
        if int32_at(buffer, position + 48) != body_length:
            break
        own_index, own_term = int64_at(buffer, position + 8), int64_at(buffer, position + 16)
        if own_index < 0 or (own_term < term and own_index > committed) or (index >= 0 and own_index != index + 1):
            break
        positions[count] = position
        count += 1
        index, term = own_index, own_term
        position += size
    return count, position


# --- heads ------------------------------------------------------------------------------------------------------

_WIDE = ("queue_offset", "physical_offset", "born_timestamp", "store_timestamp", "prepared_transaction_offset",
         "body_start", "topic_start", "properties_start")  # fmt: skip
_NARROW = ("total_size", "magic_code", "queue_id", "flag", "sys_flag", "reconsume_times",
           "body_length", "topic_length", "properties_length")  # fmt: skip


def decode_heads(buffer: Bytes, positions: Int64s, buffer_offset: int) -> Heads:
    """See ``Kernels.decode_heads``."""
    rows = len(positions)
    wide, narrow = np.empty((len(_WIDE), rows), np.int64), np.empty((len(_NARROW), rows), np.int32)
    crc, defect = np.empty(rows, np.uint32), np.empty(rows, np.uint8)
    _decode(buffer, positions, buffer_offset, wide, narrow, crc, defect)
    columns: dict[str, Any] = dict(zip(_WIDE + _NARROW, (*wide, *narrow), strict=True))
    return Heads(**columns, body_crc=crc, defect=defect)


_OK, _ILLEGAL_MAGIC = int(RecordDefect.OK), int(RecordDefect.ILLEGAL_MAGIC)
_SIZE_TOO_SMALL, _LENGTH_MISMATCH = int(RecordDefect.SIZE_TOO_SMALL), int(RecordDefect.LENGTH_MISMATCH)
_FOREIGN_OFFSET = int(RecordDefect.FOREIGN_OFFSET)


@njit(forceinline=True)
def _int16(buffer, at):  # type: ignore[no-untyped-def]
    return np.int64(np.int8(load8(buffer, at))) * 256 + load8(buffer, at + 1)


@njit(forceinline=True)
def part_lengths(buffer, body_at, record_end, long_topic):  # type: ignore[no-untyped-def]
    """Returns whether the three lengths of a record add up, where topic and properties begin, and their lengths.

    ``body_at`` is the body's first byte; as in the reference, what cannot be reached is read at position 0.
    """
    fits = body_at + long_topic + 3 <= record_end
    topic_at = body_at if fits else 0
    topic_length = _int16(buffer, topic_at) if long_topic else np.int64(np.int8(load8(buffer, topic_at)))
    topic_start = topic_at + 1 + long_topic
    fits = fits and topic_length >= 0 and topic_start + topic_length + 2 <= record_end
    properties_at = topic_start + topic_length if fits else 0
    properties_length = max(_int16(buffer, properties_at), 0)
    fits = fits and properties_at + 2 + properties_length == record_end
    return fits, topic_start, topic_length, properties_at + 2, properties_length


@njit(
    types.void(BYTES, INT64S, types.int64, WIDE_ROWS, NARROW_ROWS, result(types.uint32), result(types.uint8)),
    cache=True,
)
def _decode(buffer_bytes, positions, buffer_offset, wide, narrow, crc, defect):  # type: ignore[no-untyped-def]
    buffer = memory(buffer_bytes)
    for row in range(len(positions)):
        p = positions[row]
        sys_flag = int32_at(buffer, p + 36)
        store_at = p + 56 + (12 if sys_flag & m.BORN_HOST_V6 else 0)
        tail = store_at + 16 + (12 if sys_flag & m.STORE_HOST_V6 else 0)
        magic, total_size = int32_at(buffer, p + 4), int32_at(buffer, p)
        physical_offset = int64_at(buffer, p + 28)
        body_length = max(int32_at(buffer, tail + 12), 0)
        body_start, record_end = tail + 16, p + total_size
        long_topic = 1 if magic == m.MAGIC_V2 else 0
        code = _OK
        if magic not in (m.MAGIC_V1, m.MAGIC_V2):
            code = _ILLEGAL_MAGIC
        elif body_start + long_topic + 3 > record_end:
            code = _SIZE_TOO_SMALL
        topic_at = body_start + body_length if code == _OK else record_end
        fits, topic_start, topic_length, properties_start, properties_length = part_lengths(
            buffer, topic_at, record_end, long_topic
        )
        if code == _OK and not fits:
            code = _LENGTH_MISMATCH
        if code == _OK and physical_offset != p + buffer_offset:
            code = _FOREIGN_OFFSET
        defect[row], crc[row] = code, swap32(load32(buffer, p + 8))
        wide[0, row], wide[1, row], wide[2, row] = int64_at(buffer, p + 20), physical_offset, int64_at(buffer, p + 40)
        wide[3, row], wide[4, row] = int64_at(buffer, store_at), int64_at(buffer, tail + 4)
        wide[5, row], wide[6, row], wide[7, row] = body_start, topic_start, properties_start
        narrow[0, row], narrow[1, row], narrow[2, row] = total_size, magic, int32_at(buffer, p + 12)
        narrow[3, row], narrow[4, row], narrow[5, row] = int32_at(buffer, p + 16), sys_flag, int32_at(buffer, tail)
        narrow[6, row], narrow[7, row], narrow[8, row] = body_length, topic_length, properties_length


def crc32_spans(buffer: Bytes, starts: Int64s, lengths: Int32s) -> npt.NDArray[np.uint32]:
    """See ``Kernels.crc32_spans``."""
    result = np.empty(len(starts), np.uint32)
    _crc(TABLES, buffer, starts, lengths, result)
    return result


@njit(types.void(column(types.uint32, 2), BYTES, INT64S, INT32S, result(types.uint32)), cache=True)
def _crc(table_words, buffer_bytes, starts, lengths, result):  # type: ignore[no-untyped-def]
    buffer = memory(buffer_bytes)
    tables = memory(table_words)
    for row in range(len(starts)):
        result[row] = crc32(tables, buffer, starts[row], starts[row] + lengths[row], True) & m.CRC_MASK


# --- properties -------------------------------------------------------------------------------------------------


def property_spans(
    buffer: Bytes, starts: Int64s, lengths: Int32s, names: tuple[bytes, ...], split_parser: bool
) -> list[Spans]:
    """See ``Kernels.property_spans``."""
    value_starts = np.zeros((len(names), len(starts)), np.int64)
    value_lengths = np.full((len(names), len(starts)), -1, np.int32)
    _properties(buffer, starts, lengths, *_name_words(names), split_parser, value_starts, value_lengths)
    return [Spans(*columns) for columns in zip(value_starts, value_lengths, strict=True)]


@lru_cache(maxsize=16)
def _name_words(names: tuple[bytes, ...]) -> tuple[Bytes, Int64s, npt.NDArray[np.uint64]]:
    """Returns the names in slots of one size, their lengths, and of each the first 8 bytes as a word."""
    longest = max([8, *map(len, names)])
    slots = np.frombuffer(b"".join(name.ljust(longest, b"\0") for name in names), np.uint8)
    words = np.array([int.from_bytes(name[:8], "little") for name in names], np.uint64)
    return slots, np.array([len(name) for name in names], np.int64), words


@njit(forceinline=True)
def _is_name(buffer, at, slots, slot, length):  # type: ignore[no-untyped-def]
    for place in range(8, length):  # noqa: SIM110 - numba compiles loops, not generators
        if load8(buffer, at + place) != load8(slots, slot + place):
            return False
    return True


_ABOVE_SEPARATORS = np.uint64(3) * EVERY_BYTE


@njit(forceinline=True)
def next_separator(buffer, at, end):  # type: ignore[no-untyped-def]
    """Position of the next byte below 3 in [at, end), or end. Eight bytes at a time; the padding is read, not used."""
    while at < end:
        word = load64(buffer, at)
        # The lowest marked byte is below 3; marks above it may be borrowed.
        marks = (word - _ABOVE_SEPARATORS) & ~word & HIGH_BITS
        if marks:
            return min(at + (trailing_zeros(marks) >> 3), end)
        at += 8
    return end


@njit(forceinline=True)
def _kept_value(begin, cut, end, cuts, last_other, split_parser):  # type: ignore[no-untyped-def]
    """Length of the value after ``cut`` in the piece [begin, end), or -1 where the parser drops the piece.

    ``cuts`` counts its 0x01 bytes; ``last_other`` is the position after its last byte other than 0x01.
    """
    if cuts == 0 or cut + 1 >= end:
        return -1
    if not split_parser:
        return end - cut - 1 if cut > begin else -1
    # Java's split drops trailing empty parts: the 0x01 at the end do not count, and after the first no other may stay.
    trailing = end - last_other
    return last_other - cut - 1 if cuts - 1 == trailing and last_other > cut + 1 else -1


@njit(forceinline=True)
def next_piece(buffer, begin, stop, split_parser):  # type: ignore[no-untyped-def]
    """Where the name of the piece at ``begin`` ends, its value's length (-1: dropped), and where the piece ends."""
    at, cut, cuts, last_other = begin, begin, 0, begin
    while True:
        seen = next_separator(buffer, at, stop)
        if seen > at:
            last_other = seen
        if seen >= stop or load8(buffer, seen) == m.PROPERTY_SEPARATOR:
            break
        if load8(buffer, seen) == m.NAME_VALUE_SEPARATOR:
            cut = cut if cuts else seen
            cuts += 1
        else:
            last_other = seen + 1
        at = seen + 1
    return cut, _kept_value(begin, cut, seen, cuts, last_other, split_parser), seen


@njit(types.void(BYTES, INT64S, INT32S, BYTES, INT64S, WORDS, types.boolean, WIDE_ROWS, NARROW_ROWS), cache=True)
def _properties(  # type: ignore[no-untyped-def]
    buffer_bytes, starts, lengths, slot_bytes, name_lengths, words, split_parser, value_starts, value_lengths
):
    buffer = memory(buffer_bytes)
    slots = memory(slot_bytes)
    names = len(name_lengths)
    slot_size = len(slot_bytes) // max(names, 1)
    for row in range(len(starts)):
        begin, stop = starts[row], starts[row] + lengths[row]
        while begin < stop:
            cut, value_length, end = next_piece(buffer, begin, stop, split_parser)
            if value_length >= 0:
                length = cut - begin
                word = load64(buffer, begin)
                if length < 8:
                    word &= (np.uint64(1) << np.uint64(8 * length)) - np.uint64(1)
                for name in range(names):
                    if (
                        word == words[name]
                        and length == name_lengths[name]
                        and _is_name(buffer, begin, slots, name * slot_size, length)
                    ):
                        value_starts[name, row], value_lengths[name, row] = cut + 1, value_length
            begin = end + 1


def property_pieces(buffer: Bytes, starts: Int64s, lengths: Int32s, split_parser: bool) -> tuple[Int64s, Spans, Spans]:
    """See ``Kernels.property_pieces``."""
    columns, count, row = _room(8 * len(starts), "i8", "i8", "i4", "i8", "i4"), 0, 0
    while row < len(starts):
        columns = grown(columns, count, int(lengths[row]))
        row, count = _pieces(buffer, starts, lengths, split_parser, row, count, *columns)
    rows, names, name_lengths, values, value_lengths = (column[:count] for column in columns)
    return rows, Spans(names, name_lengths), Spans(values, value_lengths)


def _room(rows: int, *kinds: str) -> tuple[Any, ...]:
    return tuple(np.empty(rows, kind) for kind in kinds)


def grown(columns: tuple[Any, ...], filled: int, more: int) -> tuple[Any, ...]:
    """Returns the columns if there is room for ``more`` rows after those filled, else larger ones. A compiled loop that
    made room itself would count references in every round.
    """
    if filled + more <= len(columns[0]):
        return columns
    return tuple(np.concatenate([column, np.empty(filled + more, column.dtype)]) for column in columns)


_LONGS, _INTS = result(types.int64), result(types.int32)
_TWO = tuple_of(types.int64, types.int64)


@njit(
    _TWO(BYTES, INT64S, INT32S, types.boolean, types.int64, types.int64, _LONGS, _LONGS, _INTS, _LONGS, _INTS),
    cache=True,
)
def _pieces(  # type: ignore[no-untyped-def]
    buffer_bytes, starts, lengths, split_parser, first, count, rows, names, name_lengths, values, value_lengths
):
    """Fills rows from row ``first`` on; returns the row for which there is no room, and how many are filled."""
    buffer = memory(buffer_bytes)
    for row in range(first, len(starts)):
        if count + lengths[row] > len(rows):
            return row, count
        begin, stop = starts[row], starts[row] + lengths[row]
        while begin < stop:
            cut, value_length, end = next_piece(buffer, begin, stop, split_parser)
            if value_length >= 0:
                rows[count], names[count], values[count] = row, begin, cut + 1
                name_lengths[count], value_lengths[count] = cut - begin, value_length
                count += 1
            begin = end + 1
    return len(starts), count


def split_spans(buffer: Bytes, spans: Spans, separator: int) -> tuple[Int64s, Spans]:
    """See ``Kernels.split_spans``."""
    columns, count, row = _room(2 * len(spans.starts), "i8", "i8", "i4"), 0, 0
    while row < len(spans.starts):
        columns = grown(columns, count, int(spans.lengths[row]))
        row, count = _split(buffer, *spans, separator, row, count, *columns)
    rows, starts, lengths = (column[:count] for column in columns)
    return rows, Spans(starts, lengths)


@njit(_TWO(BYTES, INT64S, INT32S, types.int64, types.int64, types.int64, _LONGS, _LONGS, _INTS), cache=True)
def _split(  # type: ignore[no-untyped-def]
    buffer_bytes, starts, lengths, separator, first, count, owners, begins, sizes
):
    """Fills rows from row ``first`` on; returns the row for which there is no room, and how many are filled."""
    buffer = memory(buffer_bytes)
    pattern = np.uint64(separator) * EVERY_BYTE
    for row in range(first, len(starts)):
        if count + lengths[row] > len(owners):
            return row, count
        begin, stop = starts[row], starts[row] + lengths[row]
        while begin < stop:
            end = next_byte(buffer, begin, stop, pattern)
            if end > begin:
                owners[count], begins[count], sizes[count] = row, begin, end - begin
                count += 1
            begin = end + 1
    return len(starts), count
