"""The kernels of ``numpy_kernels``, compiled by numba: the same functions with the same results on every input.

Each public function allocates columns and calls a compiled loop, which reads a record's bytes while they are in the
cache. What needs Java's rules for text beyond ASCII is left to ``javacompat``, for the few rows that have it. Compiled
code is kept in ``NUMBA_CACHE_DIR`` (``storeformat.kernels`` chooses it) and every loop has one signature, so a worker
never compiles.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit, types

from storeformat import javacompat
from storeformat import message as m
from storeformat.errors import RecordDefect
from storeformat.kernels import numpy_kernels
from storeformat.kernels.columns import Bytes, Heads, Int32s, Int64s, Spans
from storeformat.kernels.machine_words import load32, load64, swap32, swap64, trailing_zeros
from storeformat.kernels.numba_crc import TABLES, crc32
from storeformat.kernels.numpy_kernels import gather_spans

__all__ = [
    "crc32_spans",
    "decode_heads",
    "dictionary",
    "gather_spans",
    "hash_spans",
    "index_keys",
    "property_spans",
    "put_entries",
    "split_spans",
    "walk_sizes",
]


def _column(kind: Any, dimensions: int = 1) -> Any:
    """Type of an argument that is only read: arrays that may be written fit it too."""
    return types.Array(kind, dimensions, "C", readonly=True)


def _result(kind: Any, dimensions: int = 1) -> Any:
    return types.Array(kind, dimensions, "C")


def _tuple(*kinds: Any) -> Any:
    return types.Tuple(kinds)  # type: ignore[no-untyped-call]


_BYTES, _INT32S, _INT64S = _column(types.uint8), _column(types.int32), _column(types.int64)
_WORDS = _column(types.uint64)
_WIDE_ROWS, _NARROW_ROWS = _result(types.int64, 2), _result(types.int32, 2)


# --- framing ----------------------------------------------------------------------------------------------------


def walk_sizes(buffer: Bytes, start: int, stop: int, limit: int) -> tuple[Int64s, int]:
    """See ``numpy_kernels.walk_sizes``."""
    positions: Int64s
    positions, reached = _walk(buffer, start, min(stop, limit - 3), limit)
    return positions, reached


@njit(_tuple(_result(types.int64), types.int64)(_BYTES, types.int64, types.int64, types.int64), cache=True)
def _walk(buffer, position, stop, limit):  # type: ignore[no-untyped-def]
    positions = np.empty(1 << 10, np.int64)
    count = 0
    while position < stop:
        size = np.int64(np.int32(swap32(load32(buffer, position))))
        if size < m.BLANK_SIZE or position + size > limit:
            break
        if count == len(positions):
            positions = np.concatenate((positions, np.empty_like(positions)))
        positions[count] = position
        count += 1
        position += size
    return positions[:count], position


# --- heads ------------------------------------------------------------------------------------------------------

_WIDE = ("queue_offset", "physical_offset", "born_timestamp", "store_timestamp", "prepared_transaction_offset",
         "body_start", "topic_start", "properties_start")  # fmt: skip
_NARROW = ("total_size", "magic_code", "queue_id", "flag", "sys_flag", "reconsume_times",
           "body_length", "topic_length", "properties_length")  # fmt: skip


def decode_heads(buffer: Bytes, positions: Int64s, buffer_offset: int) -> Heads:
    """See ``numpy_kernels.decode_heads``."""
    rows = len(positions)
    wide, narrow = np.empty((len(_WIDE), rows), np.int64), np.empty((len(_NARROW), rows), np.int32)
    crc, defect = np.empty(rows, np.uint32), np.empty(rows, np.uint8)
    _decode(buffer, positions, buffer_offset, wide, narrow, crc, defect)
    columns: dict[str, Any] = dict(zip(_WIDE + _NARROW, (*wide, *narrow), strict=True))
    return Heads(**columns, body_crc=crc, defect=defect)


_OK, _ILLEGAL_MAGIC = int(RecordDefect.OK), int(RecordDefect.ILLEGAL_MAGIC)
_SIZE_TOO_SMALL, _LENGTH_MISMATCH = int(RecordDefect.SIZE_TOO_SMALL), int(RecordDefect.LENGTH_MISMATCH)
_FOREIGN_OFFSET = int(RecordDefect.FOREIGN_OFFSET)


@njit
def _int32(buffer, at):  # type: ignore[no-untyped-def]
    return np.int32(swap32(load32(buffer, at)))


@njit
def _int64(buffer, at):  # type: ignore[no-untyped-def]
    return np.int64(swap64(load64(buffer, at)))


@njit
def _int16(buffer, at):  # type: ignore[no-untyped-def]
    return np.int64(np.int8(buffer[at])) * 256 + buffer[at + 1]


@njit
def _lengths(buffer, body_at, record_end, long_topic):  # type: ignore[no-untyped-def]
    """Returns whether the three lengths of a record add up, where topic and properties begin, and their lengths.

    ``body_at`` is the body's first byte; as in the reference, what cannot be reached is read at position 0.
    """
    fits = body_at + long_topic + 3 <= record_end
    topic_at = body_at if fits else 0
    topic_length = _int16(buffer, topic_at) if long_topic else np.int64(np.int8(buffer[topic_at]))
    topic_start = topic_at + 1 + long_topic
    fits = fits and topic_length >= 0 and topic_start + topic_length + 2 <= record_end
    properties_at = topic_start + topic_length if fits else 0
    properties_length = max(_int16(buffer, properties_at), 0)
    fits = fits and properties_at + 2 + properties_length == record_end
    return fits, topic_start, topic_length, properties_at + 2, properties_length


@njit(
    types.void(_BYTES, _INT64S, types.int64, _WIDE_ROWS, _NARROW_ROWS, _result(types.uint32), _result(types.uint8)),
    cache=True,
)
def _decode(buffer, positions, buffer_offset, wide, narrow, crc, defect):  # type: ignore[no-untyped-def]
    for row in range(len(positions)):
        p = positions[row]
        sys_flag = _int32(buffer, p + 36)
        store_at = p + 56 + (12 if sys_flag & m.BORN_HOST_V6 else 0)
        tail = store_at + 16 + (12 if sys_flag & m.STORE_HOST_V6 else 0)
        magic, total_size = _int32(buffer, p + 4), _int32(buffer, p)
        physical_offset = _int64(buffer, p + 28)
        body_length = max(_int32(buffer, tail + 12), 0)
        body_start, record_end = tail + 16, p + total_size
        long_topic = 1 if magic == m.MAGIC_V2 else 0
        code = _OK
        if magic not in (m.MAGIC_V1, m.MAGIC_V2):
            code = _ILLEGAL_MAGIC
        elif body_start + long_topic + 3 > record_end:
            code = _SIZE_TOO_SMALL
        topic_at = body_start + body_length if code == _OK else record_end
        fits, topic_start, topic_length, properties_start, properties_length = _lengths(
            buffer, topic_at, record_end, long_topic
        )
        if code == _OK and not fits:
            code = _LENGTH_MISMATCH
        if code == _OK and physical_offset != p + buffer_offset:
            code = _FOREIGN_OFFSET
        defect[row], crc[row] = code, swap32(load32(buffer, p + 8))
        wide[0, row], wide[1, row], wide[2, row] = _int64(buffer, p + 20), physical_offset, _int64(buffer, p + 40)
        wide[3, row], wide[4, row] = _int64(buffer, store_at), _int64(buffer, tail + 4)
        wide[5, row], wide[6, row], wide[7, row] = body_start, topic_start, properties_start
        narrow[0, row], narrow[1, row], narrow[2, row] = total_size, magic, _int32(buffer, p + 12)
        narrow[3, row], narrow[4, row], narrow[5, row] = _int32(buffer, p + 16), sys_flag, _int32(buffer, tail)
        narrow[6, row], narrow[7, row], narrow[8, row] = body_length, topic_length, properties_length


def crc32_spans(buffer: Bytes, starts: Int64s, lengths: Int32s) -> npt.NDArray[np.uint32]:
    """See ``numpy_kernels.crc32_spans``."""
    result = np.empty(len(starts), np.uint32)
    _crc(TABLES, buffer, starts, lengths, result)
    return result


@njit(types.void(_column(types.uint32, 2), _BYTES, _INT64S, _INT32S, _result(types.uint32)), cache=True)
def _crc(tables, buffer, starts, lengths, result):  # type: ignore[no-untyped-def]
    for row in range(len(starts)):
        result[row] = crc32(tables, buffer, starts[row], starts[row] + lengths[row], True) & m.CRC_MASK


# --- properties -------------------------------------------------------------------------------------------------


def property_spans(
    buffer: Bytes, starts: Int64s, lengths: Int32s, names: tuple[bytes, ...], split_parser: bool
) -> list[Spans]:
    """See ``numpy_kernels.property_spans``."""
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


@njit
def _is_name(buffer, at, slots, slot, length):  # type: ignore[no-untyped-def]
    for place in range(8, length):  # noqa: SIM110 - numba compiles loops, not generators
        if buffer[at + place] != slots[slot + place]:
            return False
    return True


_EVERY_BYTE, _HIGH_BITS = np.uint64(0x0101010101010101), np.uint64(0x8080808080808080)
_ABOVE_SEPARATORS = np.uint64(3) * _EVERY_BYTE


@njit
def _next_separator(buffer, at, end):  # type: ignore[no-untyped-def]
    """Position of the next byte below 3 in [at, end), or end. Eight bytes at a time; the padding is read, not used."""
    while at < end:
        word = load64(buffer, at)
        # The lowest marked byte is below 3; marks above it may be borrowed.
        marks = (word - _ABOVE_SEPARATORS) & ~word & _HIGH_BITS
        if marks:
            return min(at + (trailing_zeros(marks) >> 3), end)
        at += 8
    return end


@njit
def _kept_value(buffer, begin, cut, end, cuts, last_other, split_parser):  # type: ignore[no-untyped-def]
    """Length of the value behind ``cut`` in the piece [begin, end), or -1 where the parser drops the piece.

    ``cuts`` counts its 0x01 bytes; ``last_other`` is the position behind its last byte that is no 0x01.
    """
    if cuts == 0 or cut + 1 >= end:
        return -1
    if not split_parser:
        return end - cut - 1 if cut > begin else -1
    # Java's split drops trailing empty parts: the 0x01 at the end do not count, and behind the first no other may stay.
    trailing = end - last_other
    return last_other - cut - 1 if cuts - 1 == trailing and last_other > cut + 1 else -1


@njit(
    types.void(_BYTES, _INT64S, _INT32S, _BYTES, _INT64S, _WORDS, types.boolean, _WIDE_ROWS, _NARROW_ROWS), cache=True
)
def _properties(  # type: ignore[no-untyped-def]
    buffer, starts, lengths, slots, name_lengths, words, split_parser, value_starts, value_lengths
):
    names = len(name_lengths)
    slot_size = len(slots) // max(names, 1)
    for row in range(len(starts)):
        begin, stop = starts[row], starts[row] + lengths[row]
        while begin < stop:
            at, cut, cuts, last_other = begin, begin, 0, begin
            while True:
                seen = _next_separator(buffer, at, stop)
                if seen > at:
                    last_other = seen
                if seen >= stop or buffer[seen] == m.PROPERTY_SEPARATOR:
                    break
                if buffer[seen] == m.NAME_VALUE_SEPARATOR:
                    cut = cut if cuts else seen
                    cuts += 1
                else:
                    last_other = seen + 1
                at = seen + 1
            value_length = _kept_value(buffer, begin, cut, seen, cuts, last_other, split_parser)
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
            begin = seen + 1


def split_spans(buffer: Bytes, spans: Spans, separator: int) -> tuple[Int64s, Spans]:
    """See ``numpy_kernels.split_spans``."""
    rows, starts, lengths = _split(buffer, spans.starts, spans.lengths, separator)
    return rows, Spans(starts, lengths)


@njit(
    _tuple(_result(types.int64), _result(types.int64), _result(types.int32))(_BYTES, _INT64S, _INT32S, types.int64),
    cache=True,
)
def _split(buffer, starts, lengths, separator):  # type: ignore[no-untyped-def]
    room = 2 * len(starts) + 16
    owners, begins, sizes = np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room, np.int32)
    count = 0
    for row in range(len(starts)):
        begin = starts[row]
        end = begin + lengths[row]
        for at in range(begin, end + 1):
            if at == end or buffer[at] == separator:
                if at > begin:
                    if count == len(owners):
                        owners, begins = np.concatenate((owners, owners)), np.concatenate((begins, begins))
                        sizes = np.concatenate((sizes, sizes))
                    owners[count], begins[count], sizes[count] = row, begin, at - begin
                    count += 1
                begin = at + 1
    return owners[:count], begins[:count], sizes[:count]


# --- values -----------------------------------------------------------------------------------------------------


def hash_spans(buffer: Bytes, spans: Spans) -> tuple[Int32s, Int32s]:
    """See ``numpy_kernels.hash_spans``."""
    hashes = np.empty(len(spans.starts), np.int32)
    lengths = spans.lengths.copy()
    if _hash(buffer, spans.starts, spans.lengths, hashes, lengths):
        rows = np.flatnonzero(lengths < 0)
        odd = gather_spans(buffer, Spans(spans.starts[rows], spans.lengths[rows]))
        hashes[rows], lengths[rows] = javacompat.java_hashes_and_lengths(odd)
    return hashes, lengths


_EVEN_BYTES, _EVEN_PAIRS = np.uint64(0x00FF00FF00FF00FF), np.uint64(0x0000FFFF0000FFFF)
_POWERS = np.array([pow(31, n, 1 << 32) for n in range(9)], np.uint32)


@njit
def _hash_word(word):  # type: ignore[no-untyped-def]
    """Hash of eight bytes below 0x80, the lowest first: sums of pairs, of pairs of pairs, of both halves."""
    pairs = (word & _EVEN_BYTES) * np.uint64(31) + ((word >> np.uint64(8)) & _EVEN_BYTES)
    fours = (pairs & _EVEN_PAIRS) * np.uint64(31**2) + ((pairs >> np.uint64(16)) & _EVEN_PAIRS)
    return np.uint32(fours) * np.uint32(31**4) + np.uint32(fours >> np.uint64(32))


@njit
def _hash_ascii(buffer, at, left, value):  # type: ignore[no-untyped-def]
    """Returns the hash of a text with hash ``value`` and ``left`` bytes behind it, and all the bytes ored."""
    seen = np.uint64(0)
    while left >= 8:
        word = load64(buffer, at)
        seen |= word
        value = np.uint32(value * _POWERS[8] + _hash_word(word))
        at += 8
        left -= 8
    if left > 0:
        # Zeros in front add nothing to a hash.
        word = load64(buffer, at) << np.uint64(8 * (8 - left))
        seen |= word
        value = np.uint32(value * _POWERS[left] + _hash_word(word))
    return value, seen


@njit(types.int64(_BYTES, _INT64S, _INT32S, _result(types.int32), _result(types.int32)), cache=True)
def _hash(buffer, starts, lengths, hashes, units):  # type: ignore[no-untyped-def]
    """Hashes the values of ASCII alone; of the others, which it counts, ``units`` becomes -1."""
    odd = 0
    for row in range(len(starts)):
        value, seen = _hash_ascii(buffer, starts[row], lengths[row], np.uint32(0))
        hashes[row] = np.int32(value)
        if seen & _HIGH_BITS:
            units[row] = -1
            odd += 1
    return odd


def index_keys(
    buffer: Bytes,
    indexable: npt.NDArray[np.bool_],
    whole: tuple[Spans, ...],
    keys: Spans,
    topic_codes: Int32s,
    joined_topics: npt.NDArray[np.int32],
) -> tuple[Int64s, Int32s]:
    """See ``numpy_kernels.index_keys``."""
    uniq_keys, tags = whole[0], whole[-1]
    owners, hashes, odd = _index_keys(
        buffer, indexable, *uniq_keys, *keys, len(whole) > 1, *tags, topic_codes, joined_topics
    )
    if odd:
        return numpy_kernels.index_keys(buffer, indexable, whole, keys, topic_codes, joined_topics)
    return owners, hashes


@njit
def _key_hash(buffer, at, length, head):  # type: ignore[no-untyped-def]
    """Returns the hash of a key behind a topic's as an index file stores it, or -1 where the key is not ASCII."""
    value, seen = _hash_ascii(buffer, at, length, np.uint32(head))
    if seen & _HIGH_BITS:
        return np.int32(-1)
    stored = abs(np.int64(np.int32(value)))
    return np.int32(0) if stored > 0x7FFFFFFF else np.int32(stored)


_SPACES = np.uint64(ord(" ")) * _EVERY_BYTE


@njit
def _next_space(buffer, at, end):  # type: ignore[no-untyped-def]
    """Position of the next space in [at, end), or end."""
    while at < end:
        word = load64(buffer, at) ^ _SPACES
        marks = (word - _EVERY_BYTE) & ~word & _HIGH_BITS
        if marks:
            return min(at + (trailing_zeros(marks) >> 3), end)
        at += 8
    return end


@njit(
    _tuple(_result(types.int64), _result(types.int32), types.boolean)(
        _BYTES,
        _column(types.boolean),
        *(_INT64S, _INT32S),
        *(_INT64S, _INT32S),
        *(types.boolean, _INT64S, _INT32S),
        _INT32S,
        _column(types.int32, 2),
    ),
    cache=True,
)
def _index_keys(  # type: ignore[no-untyped-def]
    buffer, indexable, uniq_at, uniq_size, keys_at, keys_size, with_tags, tags_at, tags_size, topic_codes, joined
):
    owners, hashes = np.empty(4 * len(topic_codes) + 8, np.int64), np.empty(4 * len(topic_codes) + 8, np.int32)
    count, odd = 0, False
    for row in range(len(topic_codes)):
        if not indexable[row]:
            continue
        # A row makes at most one entry for each second byte of its keys, and two more.
        while count + max(keys_size[row], 0) // 2 + 3 > len(owners):
            owners, hashes = np.concatenate((owners, owners)), np.concatenate((hashes, hashes))
        head = joined[0, topic_codes[row]]
        first = count
        if uniq_size[row] >= 0:
            hashes[count] = _key_hash(buffer, uniq_at[row], uniq_size[row], head)
            count += 1
        begin, stop = keys_at[row], keys_at[row] + keys_size[row]
        while begin < stop:
            end = _next_space(buffer, begin, stop)
            if end > begin:
                hashes[count] = _key_hash(buffer, begin, end - begin, head)
                count += 1
            begin = end + 1
        if with_tags and tags_size[row] > 0:
            hashes[count] = _key_hash(buffer, tags_at[row], tags_size[row], joined[1, topic_codes[row]])
            count += 1
        for entry in range(first, count):
            owners[entry] = row
            odd = odd or hashes[entry] < 0
    return owners[:count], hashes[:count], odd


def put_entries(
    key_hashes: Int32s,
    phy_offsets: Int64s,
    store_timestamps: Int64s,
    begin_timestamp: int,
    first_number: int,
    slot_table: Int32s,
    packed: npt.NDArray[np.void],
) -> None:
    """See ``numpy_kernels.put_entries``."""
    key_hashes = np.ascontiguousarray(key_hashes, np.int32)
    phy_offsets = np.ascontiguousarray(phy_offsets, np.int64)
    store_timestamps = np.ascontiguousarray(store_timestamps, np.int64)
    words = packed.view(np.uint32).reshape(len(packed), 5)
    _put_entries(key_hashes, phy_offsets, store_timestamps, begin_timestamp, first_number, slot_table, words)


@njit(
    types.void(_INT32S, _INT64S, _INT64S, types.int64, types.int64, _result(types.int32), _result(types.uint32, 2)),
    cache=True,
)
def _put_entries(  # type: ignore[no-untyped-def]
    key_hashes, phy_offsets, store_timestamps, begin_timestamp, first_number, slot_table, packed
):
    slots = np.uint64(len(slot_table))
    for row in range(len(key_hashes)):
        key_hash, phy_offset = key_hashes[row], np.uint64(phy_offsets[row])
        slot = np.uint64(key_hash) % slots
        seconds = np.int64(0)
        if begin_timestamp > 0:
            seconds = min(max((store_timestamps[row] - begin_timestamp) // 1000, 0), 0x7FFFFFFF)
        packed[row, 0] = swap32(np.uint32(key_hash))
        packed[row, 1] = swap32(np.uint32(phy_offset >> np.uint64(32)))
        packed[row, 2] = swap32(np.uint32(phy_offset))
        packed[row, 3] = swap32(np.uint32(seconds))
        packed[row, 4] = swap32(np.uint32(slot_table[slot]))
        slot_table[slot] = first_number + row


def dictionary(buffer: Bytes, spans: Spans) -> tuple[Int32s, list[bytes]]:
    """See ``numpy_kernels.dictionary``."""
    codes = np.empty(len(spans.starts), np.int32)
    firsts = _encode(buffer, spans.starts, spans.lengths, codes)
    begins = spans.starts[firsts]
    ends = begins + spans.lengths[firsts]
    return codes, [buffer[a:b].tobytes() for a, b in zip(begins.tolist(), ends.tolist(), strict=True)]


@njit
def _mix(buffer, at, length):  # type: ignore[no-untyped-def]
    """A hash of bytes for the table of ``_encode``."""
    mixed = np.uint64(length) * np.uint64(0x9E3779B97F4A7C15)
    while length > 0:
        word = load64(buffer, at)
        if length < 8:
            word &= (np.uint64(1) << np.uint64(8 * length)) - np.uint64(1)
        mixed = (mixed ^ word) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(32)
        at += 8
        length -= 8
    return mixed


@njit
def _equal(buffer, one, other, length):  # type: ignore[no-untyped-def]
    while length >= 8:
        if load64(buffer, one) != load64(buffer, other):
            return False
        one += 8
        other += 8
        length -= 8
    if length == 0:
        return True
    difference = load64(buffer, one) ^ load64(buffer, other)
    return difference << np.uint64(8 * (8 - length)) == 0


@njit(_result(types.int64)(_BYTES, _INT64S, _INT32S, _result(types.int32)), cache=True)
def _encode(buffer, starts, lengths, codes):  # type: ignore[no-untyped-def]
    """Fills ``codes``, returns the row of each distinct value's first occurrence. The table is at most half full."""
    table = np.full(256, -1, np.int64)
    firsts, mixes = np.empty(128, np.int64), np.empty(128, np.uint64)
    count = 0
    for row in range(len(starts)):
        mixed = _mix(buffer, starts[row], lengths[row])
        place = mixed & np.uint64(len(table) - 1)
        while table[place] >= 0:
            code = table[place]
            first = firsts[code]
            if (
                mixes[code] == mixed
                and lengths[first] == lengths[row]
                and _equal(buffer, starts[first], starts[row], lengths[row])
            ):
                break
            place = (place + np.uint64(1)) & np.uint64(len(table) - 1)
        if table[place] < 0:
            if count == len(firsts):
                firsts, mixes = np.concatenate((firsts, firsts)), np.concatenate((mixes, mixes))
                table = np.full(2 * len(table), -1, np.int64)
                for code in range(count):
                    place = mixes[code] & np.uint64(len(table) - 1)
                    while table[place] >= 0:
                        place = (place + np.uint64(1)) & np.uint64(len(table) - 1)
                    table[place] = code
                place = mixed & np.uint64(len(table) - 1)
                while table[place] >= 0:
                    place = (place + np.uint64(1)) & np.uint64(len(table) - 1)
            table[place], firsts[count], mixes[count] = count, row, mixed
            count += 1
        codes[row] = table[place]
    return firsts[:count]
