"""What scans spend their time in, compiled by numba: the size chain, the pass over plain records that does at once what
``numpy_kernels`` does for any record (without it a rebuild takes twice as long), and what a load does most of all: CRCs
and properties.

All compiled code stands in this one module, as numba keeps it by its source file alone. Each loop has one signature, so
no worker compiles. Positions are made unsigned before they are used: a negative index would
be looked for at each access. The compiler makes one load of eight bytes that are put together, and one of a big-endian
number.
"""

from __future__ import annotations

import zlib
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import binding, ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from storeformat import message as m
from storeformat.arrays import Bytes, Int32s, Int64s
from storeformat.kernels import (
    ENTRY_SIZE,
    PADDING,
    PlainRules,
    PlainStop,
    Spans,
    Tally,
    TopicKind,
    TopicTable,
    UnitColumns,
)


def _column(kind: Any, dimensions: int = 1) -> Any:
    """Type of an argument that is only read: arrays that may be written fit it too."""
    return types.Array(kind, dimensions, "C", readonly=True)


def _result(kind: Any, dimensions: int = 1) -> Any:
    """Type of an argument that is written."""
    return types.Array(kind, dimensions, "C")


# An array that is handed to a function has its references counted, atomically, which takes most of the time of short
# loops; code that makes no array needs no counts.
_KEPT: Any = {"cache": True, "_nrt": False}
_inlined: Any = njit(forceinline=True, _nrt=False)  # type: ignore[call-overload]
_BYTES, _INT32S, _INT64S = _column(types.uint8), _column(types.int32), _column(types.int64)
_TWO: Any = types.Tuple((types.int64, types.int64))  # type: ignore[no-untyped-call]
_EVERY_BYTE, _HIGH_BITS = np.uint64(0x0101010101010101), np.uint64(0x8080808080808080)


# --- numbers and words ------------------------------------------------------------------------------------------


@_inlined
def _byte_at(buffer, at):  # type: ignore[no-untyped-def]
    return np.int64(buffer[np.uint64(at)])


@_inlined
def _int16_at(buffer, at):  # type: ignore[no-untyped-def]
    return np.int64(np.int8(buffer[np.uint64(at)])) * 256 + _byte_at(buffer, at + 1)


@_inlined
def _int32_at(buffer, at):  # type: ignore[no-untyped-def]
    return np.int32(
        np.uint32(buffer[np.uint64(at)]) << np.uint32(24)
        | np.uint32(buffer[np.uint64(at + 1)]) << np.uint32(16)
        | np.uint32(buffer[np.uint64(at + 2)]) << np.uint32(8)
        | np.uint32(buffer[np.uint64(at + 3)])
    )


@_inlined
def _int64_at(buffer, at):  # type: ignore[no-untyped-def]
    return np.int64(_int32_at(buffer, at)) << 32 | np.int64(np.uint32(_int32_at(buffer, at + 4)))


@_inlined
def _word_at(buffer, at):  # type: ignore[no-untyped-def]
    """Eight bytes, the first one lowest."""
    word = np.uint64(buffer[np.uint64(at)])
    for place in range(1, 8):
        word |= np.uint64(buffer[np.uint64(at + place)]) << np.uint64(8 * place)
    return word


@_inlined
def _short_word_at(buffer, at, length):  # type: ignore[no-untyped-def]
    """The first ``length`` of eight bytes, at least one; the others are 0."""
    word = _word_at(buffer, at)
    return word & ((np.uint64(1) << np.uint64(8 * length)) - np.uint64(1)) if length < 8 else word


@_inlined
def _first_marked(marks):  # type: ignore[no-untyped-def]
    """Number of bytes before the first whose highest bit is set, in a word with no other bits."""
    below = ((marks & -marks) - np.uint64(1)) & _EVERY_BYTE
    return np.int64((below * _EVERY_BYTE) >> np.uint64(56)) - 1


@_inlined
def _next_space(buffer, at, end):  # type: ignore[no-untyped-def]
    """Position of the next blank in [at, end), or end. Padding is read, not used."""
    while at < end:
        word = _word_at(buffer, at) ^ (np.uint64(32) * _EVERY_BYTE)
        marks = (word - _EVERY_BYTE) & ~word & _HIGH_BITS
        if marks:
            return min(at + _first_marked(marks), end)
        at += 8
    return end


@_inlined
def _same_bytes(one, at, other, start, length):  # type: ignore[no-untyped-def]
    """Whether two buffers have the same bytes at these places; their paddings are read, not used."""
    while length > 0:
        if _short_word_at(one, at, length) != _short_word_at(other, start, length):
            return False
        at += 8
        start += 8
        length -= 8
    return True


# --- framing ----------------------------------------------------------------------------------------------------


def walk_sizes(buffer: Bytes, start: int, stop: int, limit: int) -> tuple[Int64s, int]:
    """See ``numpy_kernels.walk_sizes``."""
    positions = np.empty(max(stop - start, 0) // m.BLANK_SIZE + 1, np.int64)
    count, reached = _walk(buffer, start, min(stop, limit - 3), limit, positions)
    return positions[:count], reached


@njit(_TWO(_BYTES, types.int64, types.int64, types.int64, _result(types.int64)), **_KEPT)
def _walk(buffer, position, stop, limit, positions):  # type: ignore[no-untyped-def]
    count = 0
    while position < stop:
        size = np.int64(_int32_at(buffer, position))
        if size < m.BLANK_SIZE or position + size > limit:
            break
        positions[np.uint64(count)] = position
        count += 1
        position += size
    return count, position


# --- CRC-32 -----------------------------------------------------------------------------------------------------


def _tables() -> npt.NDArray[np.uint32]:
    """Row k, column b: what byte b, k bytes before the end, adds to the CRC."""
    tables = np.zeros((16, 256), np.uint32)
    tables[0] = [zlib.crc32(bytes([byte ^ 0xFF])) ^ 0xFF000000 for byte in range(256)]
    for k in range(1, 16):
        tables[k] = (tables[k - 1] >> 8) ^ tables[0][tables[k - 1] & 0xFF]
    return tables


_TABLES = _tables()


@_inlined
def _looked_up(tables, row, word):  # type: ignore[no-untyped-def]
    """CRC of the eight bytes of a word; the last is ``row`` bytes before the end."""
    crc = np.uint32(0)
    for place in range(8):
        crc ^= tables[np.uint64(row + 7 - place), (word >> np.uint64(8 * place)) & np.uint64(0xFF)]
    return crc


@intrinsic
def _carryless(typing_context: Any, one: Any, other: Any) -> Any:
    """The carry-less product of two words: its low and its high word."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        pair, places = ir.VectorType(ir.IntType(64), 2), [ir.Constant(ir.IntType(32), place) for place in (0, 1)]
        kind = ir.FunctionType(pair, (pair, pair, ir.IntType(8)))
        multiply = cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.pclmulqdq")  # type: ignore[no-untyped-call]
        words = [builder.insert_element(ir.Constant(pair, ir.Undefined), value, places[0]) for value in values]
        found = builder.call(multiply, (*words, ir.Constant(ir.IntType(8), 0)))
        return cgutils.pack_array(builder, [builder.extract_element(found, place) for place in places])  # type: ignore[no-untyped-call]

    return types.UniTuple(types.uint64, 2)(types.uint64, types.uint64), generate  # type: ignore[no-untyped-call]


_product: Any = _carryless
_HAS_PRODUCTS = bool(binding.get_host_cpu_features().get("pclmul"))
_FOLDED_FROM = 128  # shorter spans are not worth the start of four chains of products
_FAR, _NEAR = (np.uint64(0x154442BD4), np.uint64(0x1C6E41596)), (np.uint64(0x1751997D0), np.uint64(0x0CCAA009E))


@_inlined
def _words_at(buffer, at):  # type: ignore[no-untyped-def]
    return _word_at(buffer, at), _word_at(buffer, at + 8)


@_inlined
def _folded(words, factors, more):  # type: ignore[no-untyped-def]
    """16 bytes whose remainder is that of ``words``, 64 or 16 bytes before them, and of ``more``."""
    low, high = _product(words[0], factors[0]), _product(words[1], factors[1])
    return low[0] ^ high[0] ^ more[0], low[1] ^ high[1] ^ more[1]


@_inlined
def _crc32(tables, buffer, at, end):  # type: ignore[no-untyped-def]
    """CRC-32 (zlib's) of the bytes [at, end), by carry-less products where the processor has them.

    Bytes are a polynomial over GF(2), their CRC its remainder. After "Fast CRC Computation for Generic Polynomials
    Using PCLMULQDQ Instruction" (Gopal and others, Intel 2009), which has the factors.
    """
    crc = np.uint32(0xFFFFFFFF)
    if _HAS_PRODUCTS and end - at >= _FOLDED_FROM:
        a, b = _words_at(buffer, at), _words_at(buffer, at + 16)
        c, d = _words_at(buffer, at + 32), _words_at(buffer, at + 48)
        a = a[0] ^ np.uint64(crc), a[1]
        at += 64
        while end - at >= 64:
            a, b = _folded(a, _FAR, _words_at(buffer, at)), _folded(b, _FAR, _words_at(buffer, at + 16))
            c, d = _folded(c, _FAR, _words_at(buffer, at + 32)), _folded(d, _FAR, _words_at(buffer, at + 48))
            at += 64
        a = _folded(_folded(_folded(a, _NEAR, b), _NEAR, c), _NEAR, d)
        crc = _looked_up(tables, 8, a[0]) ^ _looked_up(tables, 0, a[1])
    while end - at >= 16:
        words = _words_at(buffer, at)
        crc = _looked_up(tables, 8, words[0] ^ np.uint64(crc)) ^ _looked_up(tables, 0, words[1])
        at += 16
    while at < end:
        crc = np.uint32(crc >> 8) ^ tables[0, np.uint64((crc ^ _byte_at(buffer, at)) & 0xFF)]
        at += 1
    return crc ^ np.uint32(0xFFFFFFFF)


def crc32_spans(buffer: Bytes, starts: Int64s, lengths: Int32s) -> npt.NDArray[np.uint32]:
    """See ``numpy_kernels.crc32_spans``."""
    found = np.empty(len(starts), np.uint32)
    _crcs(_TABLES, buffer, starts, lengths, found)
    return found


@njit(types.void(_column(types.uint32, 2), _BYTES, _INT64S, _INT32S, _result(types.uint32)), **_KEPT)
def _crcs(tables, buffer, starts, lengths, found):  # type: ignore[no-untyped-def]
    for row in range(len(starts)):
        found[row] = _crc32(tables, buffer, starts[row], starts[row] + lengths[row]) & m.CRC_MASK


# --- properties -------------------------------------------------------------------------------------------------


@_inlined
def _next_separator(buffer, at, end):  # type: ignore[no-untyped-def]
    """Position of the next byte below 3 in [at, end), or end. Eight bytes at a time; the padding is read, not used."""
    while at < end:
        word = _word_at(buffer, at)
        # The lowest marked byte is below 3; marks above it may be borrowed.
        marks = (word - np.uint64(3) * _EVERY_BYTE) & ~word & _HIGH_BITS
        if marks:
            return min(at + _first_marked(marks), end)
        at += 8
    return end


@_inlined
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


@_inlined
def _next_piece(buffer, begin, stop, split_parser):  # type: ignore[no-untyped-def]
    """Where the name of the piece at ``begin`` ends, its value's length (-1: dropped), and where the piece ends."""
    at, cut, cuts, last_other = begin, begin, 0, begin
    while True:
        seen = _next_separator(buffer, at, stop)
        if seen > at:
            last_other = seen
        if seen >= stop or _byte_at(buffer, seen) == m.PROPERTY_SEPARATOR:
            break
        if _byte_at(buffer, seen) == m.NAME_VALUE_SEPARATOR:
            cut = cut if cuts else seen
            cuts += 1
        else:
            last_other = seen + 1
        at = seen + 1
    return cut, _kept_value(begin, cut, seen, cuts, last_other, split_parser), seen


def property_spans(
    buffer: Bytes, starts: Int64s, lengths: Int32s, names: tuple[bytes, ...], split_parser: bool
) -> list[Spans]:
    """See ``numpy_kernels.property_spans``."""
    value_starts = np.zeros((len(names), len(starts)), np.int64)
    value_lengths = np.full((len(names), len(starts)), -1, np.int32)
    _values(buffer, starts, lengths, *_laid_out(names), split_parser, value_starts, value_lengths)
    return [Spans(*columns) for columns in zip(value_starts, value_lengths, strict=True)]


@lru_cache(maxsize=16)
def _laid_out(names: tuple[bytes, ...]) -> tuple[Bytes, Int64s, Int64s]:
    """Names one after the other, with room to read words, where each begins, and their lengths."""
    sizes = np.array([len(name) for name in names], np.int64)
    return np.frombuffer(b"".join(names) + bytes(8), np.uint8), np.cumsum(sizes) - sizes, sizes


@njit(
    types.void(
        *(_BYTES, _INT64S, _INT32S, _BYTES, _INT64S, _INT64S, types.boolean),
        *(_result(types.int64, 2), _result(types.int32, 2)),
    ),
    **_KEPT,
)
def _values(  # type: ignore[no-untyped-def]
    buffer, starts, lengths, names, name_starts, name_lengths, split_parser, value_starts, value_lengths
):
    for row in range(len(starts)):
        begin, stop = starts[row], starts[row] + lengths[row]
        while begin < stop:
            cut, value_length, end = _next_piece(buffer, begin, stop, split_parser)
            for name in range(len(name_lengths) if value_length >= 0 else 0):
                length = name_lengths[name]
                if length == cut - begin and _same_bytes(buffer, begin, names, name_starts[name], length):
                    value_starts[name, row], value_lengths[name, row] = cut + 1, value_length
            begin = end + 1


def property_pieces(buffer: Bytes, starts: Int64s, lengths: Int32s, split_parser: bool) -> tuple[Int64s, Spans, Spans]:
    """See ``numpy_kernels.property_pieces``."""
    room = 8 * len(starts)
    while True:
        places, sizes = np.empty((3, room), np.int64), np.empty((2, room), np.int32)
        count = _pieces(buffer, starts, lengths, split_parser, places, sizes)
        if count <= room:
            (rows, names, values), (name_lengths, value_lengths) = places[:, :count], sizes[:, :count]
            return rows, Spans(names, name_lengths), Spans(values, value_lengths)
        room = count


@njit(types.int64(_BYTES, _INT64S, _INT32S, types.boolean, _result(types.int64, 2), _result(types.int32, 2)), **_KEPT)
def _pieces(buffer, starts, lengths, split_parser, places, sizes):  # type: ignore[no-untyped-def]
    """Fills a column piece by piece while there is room; returns how many pieces there are."""
    count = 0
    for row in range(len(starts)):
        begin, stop = starts[row], starts[row] + lengths[row]
        while begin < stop:
            cut, value_length, end = _next_piece(buffer, begin, stop, split_parser)
            if value_length >= 0:
                if count < places.shape[1]:
                    places[0, count], places[1, count], places[2, count] = row, begin, cut + 1
                    sizes[0, count], sizes[1, count] = cut - begin, value_length
                count += 1
            begin = end + 1
    return count


def _name(name: bytes) -> np.uint64:
    return np.uint64(int.from_bytes(name[:8], "little"))


_OTHER, _KEYS, _TAGS, _UNIQ_KEY, _DELAY, _RARE = range(6)
"""What the pass knows of a property by its name."""
_KEYS_WORD, _TAGS_WORD, _DELAY_WORD, _UNIQ_KEY_WORD = _name(m.KEYS), _name(m.TAGS), _name(m.DELAY), _name(m.UNIQ_KEY)
_INNER_NUM, _INNER_BASE, _PROPERTY_CRC = _name(m.INNER_NUM), _name(m.INNER_BASE), _name(m.PROPERTY_CRC)
_KEYS_CUT, _TAGS_CUT = _name(m.KEYS + b"\x01"), _name(m.TAGS + b"\x01")
_FIVE_BYTES = np.uint64((1 << 40) - 1)


@_inlined
def _known_name(buffer, at):  # type: ignore[no-untyped-def]
    """The name of most properties that matter, and where its 0x01 is: found by its first bytes, without a search."""
    word = _word_at(buffer, at)
    if word == _UNIQ_KEY_WORD and _byte_at(buffer, at + 8) == m.NAME_VALUE_SEPARATOR:
        return _UNIQ_KEY, at + 8
    if word & _FIVE_BYTES == _KEYS_CUT:
        return _KEYS, at + 4
    if word & _FIVE_BYTES == _TAGS_CUT:
        return _TAGS, at + 4
    return _OTHER, at


@_inlined
def _name_of(buffer, at, length):  # type: ignore[no-untyped-def]
    """The name of a property, by its length. Names that begin like one of the rare ones count as rare, too."""
    word = _short_word_at(buffer, at, length)
    if length < 8:
        if word == _KEYS_WORD:
            return _KEYS
        if word == _TAGS_WORD:
            return _TAGS
        return _DELAY if word == _DELAY_WORD else _OTHER
    if word == _UNIQ_KEY_WORD:
        return _UNIQ_KEY if length == 8 else _OTHER
    return _RARE if word in (_INNER_NUM, _INNER_BASE, _PROPERTY_CRC) else _OTHER


@_inlined
def _properties(buffer, begin, stop, split_parser):  # type: ignore[no-untyped-def]
    """Place and length of UNIQ_KEY, KEYS, TAGS and DELAY (-1: absent), and whether there is one of the rare ones."""
    uniq_at, keys_at, tags_at, delay_at = begin, begin, begin, begin
    uniq_size, keys_size, tags_size, delay_size = np.int64(-1), np.int64(-1), np.int64(-1), np.int64(-1)
    rare = False
    while begin < stop:
        name, cut = _known_name(buffer, begin)
        end = _next_separator(buffer, cut + 1, stop) if name else begin
        size = end - cut - 1
        if not name or size < 1 or (end < stop and _byte_at(buffer, end) != m.PROPERTY_SEPARATOR):
            cut, size, end = _next_piece(buffer, begin, stop, split_parser)
            name = _name_of(buffer, begin, cut - begin) if size >= 0 else _OTHER
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


# --- hashes -----------------------------------------------------------------------------------------------------

_EVEN_BYTES, _EVEN_PAIRS = np.uint64(0x00FF00FF00FF00FF), np.uint64(0x0000FFFF0000FFFF)
_POWERS = np.array([pow(31, n, 1 << 32) for n in range(9)], np.uint32)


@_inlined
def _hash_word(word):  # type: ignore[no-untyped-def]
    """Hash of eight bytes below 0x80, the lowest first: sums of pairs, of pairs of pairs, of both halves."""
    pairs = (word & _EVEN_BYTES) * np.uint64(31) + ((word >> np.uint64(8)) & _EVEN_BYTES)
    fours = (pairs & _EVEN_PAIRS) * np.uint64(31**2) + ((pairs >> np.uint64(16)) & _EVEN_PAIRS)
    return np.uint32(fours) * np.uint32(31**4) + np.uint32(fours >> np.uint64(32))


@_inlined
def _hash_ascii(buffer, at, left, value):  # type: ignore[no-untyped-def]
    """The hash of a text with hash ``value`` and ``left`` bytes after it, and all the bytes ored."""
    seen = np.uint64(0)
    while left >= 8:
        word = _word_at(buffer, at)
        seen |= word
        value = np.uint32(value * _POWERS[8] + _hash_word(word))
        at += 8
        left -= 8
    if left > 0:
        # Zeros in front add nothing to a hash.
        word = _word_at(buffer, at) << np.uint64(8 * (8 - left))
        seen |= word
        value = np.uint32(value * _POWERS[left] + _hash_word(word))
    return value, seen


@_inlined
def _key_hash(buffer, at, length, head):  # type: ignore[no-untyped-def]
    """The hash of a topic and a key, as an index file stores it, or -1 where the key is not ASCII."""
    value, seen = _hash_ascii(buffer, at, length, np.uint32(head))
    if seen & _HIGH_BITS:
        return np.int32(-1)
    stored = abs(np.int64(np.int32(value)))
    return np.int32(0) if stored > 0x7FFFFFFF else np.int32(stored)


# --- topics -----------------------------------------------------------------------------------------------------


@_inlined
def _mixed(buffer, at, length):  # type: ignore[no-untyped-def]
    """A hash of bytes for the table of topics."""
    mixed = np.uint64(length) * np.uint64(0x9E3779B97F4A7C15)
    while length > 0:
        mixed = (mixed ^ _short_word_at(buffer, at, length)) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(32)
        at += 8
        length -= 8
    return mixed


@_inlined
def _find_topic(slots, mixes, names, starts, lengths, buffer, at, length):  # type: ignore[no-untyped-def]
    """Row of a topic in the table (-1 where it is not in it), what it is found by, and its slot."""
    last = np.uint64(len(slots) - 1)
    mixed = _mixed(buffer, at, length)
    place = mixed & last
    while True:
        row = slots[place]
        if row < 0:
            return row, mixed, place
        known = np.uint64(row)
        found = mixes[known] == mixed and lengths[known] == length
        if found and _same_bytes(buffer, at, names, starts[known], length):
            return row, mixed, place
        place = (place + np.uint64(1)) & last


@_inlined
def _add_topic(  # type: ignore[no-untyped-def]
    slots, mixes, names, starts, lengths, tally, slot, mixed, buffer, at, length
):
    """Makes a topic the last row of the table; returns why the pass stops: for that, or because there is no room."""
    row = tally[_TOPICS]
    start = starts[row - 1] + lengths[row - 1] if row > 0 else np.int64(0)
    if row == len(starts) or start + length > len(names) - PADDING:
        return _ODD
    for byte in range(length):
        names[start + byte] = buffer[np.uint64(at + byte)]
    slots[slot], mixes[row] = row, mixed
    starts[row], lengths[row] = start, length
    tally[_TOPICS] += 1
    return _NEW_TOPIC


# --- the pass over plain records --------------------------------------------------------------------------------

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
    """Checks records from the first position on and appends what they become to ``units`` and ``entries`` (rows of
    ``index.entries.ROW``, as bytes); returns how many. ``tally`` (``Tally``) is kept up and says why it stopped.

    Plain are records that the general functions (``decode``, ``queue_units``, ``index_entries``) find sound, that
    go to no light or batch queue and have no property CRC, and whose topic, tags and keys are ASCII. It may stop at any
    record; what it takes is as the general functions have it. Precondition: that of ``decode_heads``.
    """
    rows = entries.view(np.uint32).reshape(-1, ENTRY_SIZE // 4)
    taken: int = _dispatch(_TABLES, buffer, positions, buffer_offset, *rules, *topics, *units, rows, tally)
    return taken


@_inlined
def _parts(buffer, p, total_size, sys_flag):  # type: ignore[no-untyped-def]
    """Whether the lengths in a record add up, its store timestamp, and where body, topic and properties begin, each
    with its length. What cannot be reached is read at position 0, as numpy does.
    """
    store_at = p + 56 + (12 if sys_flag & m.BORN_HOST_V6 else 0)
    tail, record_end = store_at + 16 + (12 if sys_flag & m.STORE_HOST_V6 else 0), p + total_size
    body_start, body_length = tail + 16, np.int64(max(_int32_at(buffer, tail + 12), 0))
    long_topic = 1 if _int32_at(buffer, p + 4) == m.MAGIC_V2 else 0
    fits = body_start + body_length + long_topic + 3 <= record_end
    topic_at = body_start + body_length if fits else 0
    topic_length = _int16_at(buffer, topic_at) if long_topic else np.int64(np.int8(_byte_at(buffer, topic_at)))
    topic_start = topic_at + 1 + long_topic
    fits = fits and topic_length >= 0 and topic_start + topic_length + 2 <= record_end
    properties_at = topic_start + topic_length if fits else 0
    properties_length = max(_int16_at(buffer, properties_at), 0)
    fits = fits and properties_at + 2 + properties_length == record_end
    store_timestamp = _int64_at(buffer, store_at)
    return (
        fits, store_timestamp, body_start, body_length, topic_start, topic_length, properties_at + 2, properties_length,
    )  # fmt: skip


@_inlined
def _delay_level(buffer, at, length):  # type: ignore[no-untyped-def]
    """The number that a few decimal digits are, or -1."""
    if length < 1 or length > _MOST_DIGITS:
        return np.int64(-1)
    level = np.int64(0)
    for place in range(at, at + length):
        digit = _byte_at(buffer, place) - 48
        if digit < 0 or digit > 9:
            return np.int64(-1)
        level = 10 * level + digit
    return level


@_inlined
def _tags_code(buffer, at, size, delay_at, delay_size, store_timestamp, delay_millis):  # type: ignore[no-untyped-def]
    """Whether the tags code is plain, and it. ``delay_size`` is -1 where DELAY does not matter."""
    value, seen = _hash_ascii(buffer, at, max(size, 0), np.uint32(0))
    code = np.int64(np.int32(value))
    if delay_size < 0:
        return seen & _HIGH_BITS == 0, code
    level = _delay_level(buffer, delay_at, delay_size)
    place = min(level, len(delay_millis)) - 1
    if place >= 0:
        code = store_timestamp + delay_millis[place]
    return level >= 0 and seen & _HIGH_BITS == 0, code


@_inlined
def _put_entry(entries, number, stored_hash, offset, time):  # type: ignore[no-untyped-def]
    """Writes one row of ``index.entries.ROW``."""
    row = np.uint64(number)
    entries[row, 0] = np.uint32(stored_hash)
    entries[row, 1], entries[row, 2] = np.uint32(offset), np.uint32(offset >> 32)
    entries[row, 3], entries[row, 4] = np.uint32(time), np.uint32(time >> 32)
    return stored_hash < 0


@_inlined
def _put_entries_of(  # type: ignore[no-untyped-def]
    entries, number, buffer, uniq_at, uniq_size, keys_at, keys_size, head, tags_at, tags_size, tags_head, offset, time
):
    """Writes the entries of a record; returns the number after the last, and whether a key is not ASCII."""
    odd = False
    if uniq_size >= 0:
        odd = _put_entry(entries, number, _key_hash(buffer, uniq_at, uniq_size, head), offset, time)
        number += 1
    stop = keys_at + keys_size
    while keys_at < stop:
        end = _next_space(buffer, keys_at, stop)
        if end > keys_at:
            odd |= _put_entry(entries, number, _key_hash(buffer, keys_at, end - keys_at, head), offset, time)
            number += 1
        keys_at = end + 1
    if tags_size > 0:
        odd |= _put_entry(entries, number, _key_hash(buffer, tags_at, tags_size, tags_head), offset, time)
        number += 1
    return number, odd


@_inlined
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
        _column(types.uint32, 2),
        *(_BYTES, _INT64S, types.int64),
        *(types.boolean, types.boolean, types.boolean, types.boolean, types.boolean, _INT64S),
        *(_result(types.int64), _result(types.uint64), _result(types.uint8), _result(types.int64)),
        *(_result(types.int32), _INT32S, _BYTES, _column(types.int32, 2)),
        *(_result(types.int32), _result(types.int32), _result(types.int64), _result(types.int64)),
        *(_result(types.int32), _result(types.int64), _result(types.int64)),
        *(_result(types.uint32, 2), _result(types.int64)),
    ),
    **_KEPT,
)
def _dispatch(  # type: ignore[no-untyped-def]
    tables,
    buffer, positions, buffer_offset,
    check_crc, split_parser, with_units, with_entries, index_tags, delay_millis,
    slots, mixes, names, starts, lengths, codes, kinds, joined,
    topic_codes, queue_ids, queue_offsets, offsets, sizes, tags_codes, store_timestamps,
    entries, tally,
):  # fmt: skip
    unit, entry = tally[_UNITS], tally[_ENTRIES]
    taken, stop = np.int64(0), _DONE
    for row in range(len(positions)):
        p, stop = positions[row], _ODD
        offset, total_size, sys_flag = p + buffer_offset, np.int64(_int32_at(buffer, p)), _int32_at(buffer, p + 36)
        magic, crc = _int32_at(buffer, p + 4), np.uint32(_int32_at(buffer, p + 8))
        if (
            magic not in (m.MAGIC_V1, m.MAGIC_V2)
            or _int64_at(buffer, p + 28) != offset
            or _int32_at(buffer, p + 12) < 0
        ):
            break
        fits, store_timestamp, body_start, body_length, topic_start, topic_length, begin, size = _parts(
            buffer, p, total_size, sys_flag
        )
        body_end = body_start + body_length
        if not fits or (check_crc and _crc32(tables, buffer, body_start, body_end) & m.CRC_MASK != crc):
            break
        topic, mixed, slot = _find_topic(slots, mixes, names, starts, lengths, buffer, topic_start, topic_length)
        if topic < 0:
            stop = _add_topic(
                slots, mixes, names, starts, lengths, tally, slot, mixed, buffer, topic_start, topic_length
            )
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
        most = max(keys_size, 0) // 2 + 3  # one of each second byte of its keys, and two more
        if (queued and unit == len(offsets)) or (indexed and entry + most > len(entries)):
            stop = _FULL
            break
        if indexed:
            after, odd = _put_entries_of(
                entries, entry, buffer, uniq_at, uniq_size, keys_at, keys_size, joined[0, topic],
                tags_at, tags_size if index_tags else -1, joined[1, topic], offset, store_timestamp,
            )  # fmt: skip
            if odd:
                break
            if after > entry:
                entry = after
                tally[_LAST_ENTRY] = offset
        if queued:
            topic_codes[unit], queue_ids[unit], sizes[unit] = codes[topic], _int32_at(buffer, p + 12), total_size
            queue_offsets[unit], offsets[unit] = _int64_at(buffer, p + 20), offset
            tags_codes[unit], store_timestamps[unit] = tags_code, store_timestamp
            unit += 1
            tally[_LAST_UNIT] = offset
        _count(tally, offset, total_size, store_timestamp)
        taken, stop = taken + 1, _DONE
    tally[_UNITS], tally[_ENTRIES], tally[_STOP] = unit, entry, stop
    return taken
