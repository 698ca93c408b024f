"""Values in compiled code: hashes, index keys and entries, dictionaries. See ``numba_kernels``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numba import njit, types

from storeformat import javacompat
from storeformat.arrays import Bools, Bytes, Int32s, Int64s, Structs
from storeformat.kernels import numpy_kernels
from storeformat.kernels.columns import Spans
from storeformat.kernels.machine_words import (
    BYTES,
    EVERY_BYTE,
    HIGH_BITS,
    INT32S,
    INT64S,
    column,
    load64,
    memory,
    next_byte,
    prefetch,
    result,
    store64,
    swap32,
    tuple_of,
)
from storeformat.kernels.numba_records import grown


def hash_spans(buffer: Bytes, spans: Spans) -> tuple[Int32s, Int32s]:
    """See ``Kernels.hash_spans``."""
    hashes = np.empty(len(spans.starts), np.int32)
    lengths = spans.lengths.copy()
    if _hash(buffer, spans.starts, spans.lengths, hashes, lengths):
        rows = np.flatnonzero(lengths < 0)
        hashes[rows], lengths[rows] = javacompat.java_hashes_and_lengths(gather_spans(buffer, spans.rows(rows)))
    return hashes, lengths


_EVEN_BYTES, _EVEN_PAIRS = np.uint64(0x00FF00FF00FF00FF), np.uint64(0x0000FFFF0000FFFF)
_POWERS = np.array([pow(31, n, 1 << 32) for n in range(9)], np.uint32)


@njit(forceinline=True)
def _hash_word(word):  # type: ignore[no-untyped-def]
    """Hash of eight bytes below 0x80, the lowest first: sums of pairs, of pairs of pairs, of both halves."""
    pairs = (word & _EVEN_BYTES) * np.uint64(31) + ((word >> np.uint64(8)) & _EVEN_BYTES)
    fours = (pairs & _EVEN_PAIRS) * np.uint64(31**2) + ((pairs >> np.uint64(16)) & _EVEN_PAIRS)
    return np.uint32(fours) * np.uint32(31**4) + np.uint32(fours >> np.uint64(32))


@njit(forceinline=True)
def hash_ascii(buffer, at, left, value):  # type: ignore[no-untyped-def]
    """Returns the hash of a text with hash ``value`` and ``left`` bytes after it, and all the bytes ored."""
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


@njit(types.int64(BYTES, INT64S, INT32S, result(types.int32), result(types.int32)), cache=True)
def _hash(buffer_bytes, starts, lengths, hashes, units):  # type: ignore[no-untyped-def]
    """Hashes the values of ASCII alone; of the others, which it counts, ``units`` becomes -1."""
    buffer = memory(buffer_bytes)
    odd = 0
    for row in range(len(starts)):
        value, seen = hash_ascii(buffer, starts[row], lengths[row], np.uint32(0))
        hashes[row] = np.int32(value)
        if seen & HIGH_BITS:
            units[row] = -1
            odd += 1
    return odd


def index_keys(
    buffer: Bytes,
    indexable: Bools,
    whole: tuple[Spans, ...],
    keys: Spans,
    topic_codes: Int32s,
    joined_topics: Int32s,
) -> tuple[Int64s, Int32s]:
    """See ``Kernels.index_keys``."""
    uniq_keys, tags = whole[0], whole[-1]
    columns: tuple[Any, ...] = (np.empty(4 * len(keys.starts), np.int64), np.empty(4 * len(keys.starts), np.int32))
    row, count, odd = 0, 0, False
    while row < len(keys.starts) and not odd:
        columns = grown(columns, count, most_entries(int(keys.lengths[row])))
        row, count, odd = _index_keys(
            buffer,
            indexable,
            *uniq_keys,
            *keys,
            len(whole) > 1,
            *tags,
            topic_codes,
            joined_topics,
            row,
            count,
            *columns,
        )
    if odd:
        return numpy_kernels.index_keys(buffer, indexable, whole, keys, topic_codes, joined_topics)
    return columns[0][:count], columns[1][:count]


@njit(forceinline=True)
def most_entries(keys_size):  # type: ignore[no-untyped-def]
    """Entries that a record can make: one of each second byte of its keys, and two more."""
    return max(keys_size, 0) // 2 + 3


@njit(forceinline=True)
def key_hash(buffer, at, length, head):  # type: ignore[no-untyped-def]
    """Returns the hash of a topic and a key, as an index file stores it, or -1 where the key is not ASCII."""
    value, seen = hash_ascii(buffer, at, length, np.uint32(head))
    if seen & HIGH_BITS:
        return np.int32(-1)
    stored = abs(np.int64(np.int32(value)))
    return np.int32(0) if stored > 0x7FFFFFFF else np.int32(stored)


SPACES = np.uint64(ord(" ")) * EVERY_BYTE


@njit(
    tuple_of(types.int64, types.int64, types.boolean)(
        BYTES,
        column(types.boolean),
        *(INT64S, INT32S),
        *(INT64S, INT32S),
        *(types.boolean, INT64S, INT32S),
        INT32S,
        column(types.int32, 2),
        *(types.int64, types.int64, result(types.int64), result(types.int32)),
    ),
    cache=True,
)
def _index_keys(  # type: ignore[no-untyped-def]
    buffer_bytes, indexable, uniq_at, uniq_size, keys_at, keys_size, with_tags, tags_at, tags_size, topic_codes, joined,
    first_row, count, owners, hashes,
):  # fmt: skip
    """Fills entries from row ``first_row`` on; returns the row for which there is no room, how many entries are filled,
    and whether a key is not ASCII.
    """
    buffer = memory(buffer_bytes)
    odd = False
    for row in range(first_row, len(topic_codes)):
        if not indexable[row]:
            continue
        if count + most_entries(keys_size[row]) > len(owners):
            return row, count, odd
        head = joined[0, topic_codes[row]]
        first = count
        if uniq_size[row] >= 0:
            hashes[count] = key_hash(buffer, uniq_at[row], uniq_size[row], head)
            count += 1
        begin, stop = keys_at[row], keys_at[row] + keys_size[row]
        while begin < stop:
            end = next_byte(buffer, begin, stop, SPACES)
            if end > begin:
                hashes[count] = key_hash(buffer, begin, end - begin, head)
                count += 1
            begin = end + 1
        if with_tags and tags_size[row] > 0:
            hashes[count] = key_hash(buffer, tags_at[row], tags_size[row], joined[1, topic_codes[row]])
            count += 1
        for entry in range(first, count):
            owners[entry] = row
            odd = odd or hashes[entry] < 0
    return len(topic_codes), count, odd


_AHEAD = 24


def put_entries(
    key_hashes: Int32s,
    phy_offsets: Int64s,
    store_timestamps: Int64s,
    begin_timestamp: int,
    first_number: int,
    slot_table: Int32s,
    packed: Structs,
) -> None:
    """See ``Kernels.put_entries``."""
    key_hashes = np.ascontiguousarray(key_hashes, np.int32)
    phy_offsets = np.ascontiguousarray(phy_offsets, np.int64)
    store_timestamps = np.ascontiguousarray(store_timestamps, np.int64)
    words = packed.view(np.uint32).reshape(len(packed), 5)
    _put_entries(key_hashes, phy_offsets, store_timestamps, begin_timestamp, first_number, slot_table, words)


@njit(
    types.void(INT32S, INT64S, INT64S, types.int64, types.int64, result(types.int32), result(types.uint32, 2)),
    cache=True,
)
def _put_entries(  # type: ignore[no-untyped-def]
    key_hashes, phy_offsets, store_timestamps, begin_timestamp, first_number, slot_table, packed
):
    rows, table = len(key_hashes), memory(slot_table)
    slots = np.empty(rows, np.int64)
    for row in range(rows):
        slots[row] = np.uint64(key_hashes[row]) % np.uint64(len(slot_table))
    for row in range(rows):
        # The table is larger than the processor's caches, and every entry goes somewhere else in it.
        prefetch(table, 4 * slots[min(row + _AHEAD, rows - 1)])
        phy_offset = np.uint64(phy_offsets[row])
        seconds = np.int64(0)
        if begin_timestamp > 0:
            seconds = min(max((store_timestamps[row] - begin_timestamp) // 1000, 0), 0x7FFFFFFF)
        packed[row, 0] = swap32(np.uint32(key_hashes[row]))
        packed[row, 1] = swap32(np.uint32(phy_offset >> np.uint64(32)))
        packed[row, 2] = swap32(np.uint32(phy_offset))
        packed[row, 3] = swap32(np.uint32(seconds))
        packed[row, 4] = swap32(np.uint32(slot_table[slots[row]]))
        slot_table[slots[row]] = first_number + row


def dictionary(buffer: Bytes, spans: Spans) -> tuple[Int32s, list[bytes]]:
    """See ``Kernels.dictionary``."""
    codes = np.empty(len(spans.starts), np.int32)
    columns: tuple[Any, ...] = (np.empty(128, np.int64), np.empty(128, np.uint64))
    row, count = 0, 0
    while row < len(codes):
        columns = grown(columns, count, 1)
        table = np.full(1 << (2 * len(columns[0]) - 1).bit_length(), -1, np.int64)
        row, count = _encode(buffer, *spans, codes, row, count, table, *columns)
    begins, lengths = spans.rows(columns[0][:count])
    ends = begins + lengths
    return codes, [buffer[a:b].tobytes() for a, b in zip(begins.tolist(), ends.tolist(), strict=True)]


@njit(forceinline=True)
def mix_bytes(buffer, at, length):  # type: ignore[no-untyped-def]
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


@njit(forceinline=True)
def same_bytes(one, at, other, start, length):  # type: ignore[no-untyped-def]
    """Whether two buffers have the same bytes at these places; their paddings are read, not used."""
    while length >= 8:
        if load64(one, at) != load64(other, start):
            return False
        at += 8
        start += 8
        length -= 8
    if length == 0:
        return True
    return (load64(one, at) ^ load64(other, start)) << np.uint64(8 * (8 - length)) == 0


@njit(
    tuple_of(types.int64, types.int64)(
        *(BYTES, INT64S, INT32S, result(types.int32), types.int64, types.int64),
        *(result(types.int64), result(types.int64), result(types.uint64)),
    ),
    cache=True,
)
def _encode(  # type: ignore[no-untyped-def]
    buffer_bytes, starts, lengths, codes, first_row, count, table, firsts, mixes
):
    """Fills ``codes`` from row ``first_row`` on, and the row of each distinct value's first occurrence. Returns the row
    for which there is no room, and how many distinct values there are. The table, empty at first, is at most half full.
    """
    buffer = memory(buffer_bytes)
    last = np.uint64(len(table) - 1)
    for code in range(count):
        place = mixes[code] & last
        while table[place] >= 0:
            place = (place + np.uint64(1)) & last
        table[place] = code
    for row in range(first_row, len(starts)):
        mixed = mix_bytes(buffer, starts[row], lengths[row])
        place = mixed & last
        while table[place] >= 0:
            code = table[place]
            first = firsts[code]
            if (
                mixes[code] == mixed
                and lengths[first] == lengths[row]
                and same_bytes(buffer, starts[first], buffer, starts[row], lengths[row])
            ):
                break
            place = (place + np.uint64(1)) & last
        if table[place] < 0:
            if count == len(firsts):
                return row, count
            table[place], firsts[count], mixes[count] = count, row, mixed
            count += 1
        codes[row] = table[place]
    return len(starts), count


def gather_spans(buffer: Bytes, spans: Spans) -> pa.BinaryArray:
    """See ``Kernels.gather_spans``; here the spans may lie in any order."""
    offsets = np.zeros(len(spans.starts) + 1, np.int32)
    np.cumsum(spans.lengths, out=offsets[1:])
    data = np.empty(int(offsets[-1]) + 8, np.uint8)
    _copy(buffer, spans.starts, offsets, data)
    return pa.BinaryArray.from_buffers(
        pa.binary(), len(spans.starts), [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )


@njit(types.void(BYTES, INT64S, INT32S, result(types.uint8)), cache=True)
def _copy(buffer_bytes, starts, offsets, data_bytes):  # type: ignore[no-untyped-def]
    buffer = memory(buffer_bytes)
    data = memory(data_bytes)
    for row in range(len(starts)):
        start, begin, end = starts[row], offsets[row], offsets[row + 1]
        # Words, the last of which reaches into the next value's place (or the eight bytes at the end), written later.
        while begin < end:
            store64(data, begin, load64(buffer, start))
            start += 8
            begin += 8
