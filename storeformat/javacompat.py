"""Java's rules for text and numbers that decide bytes in the store, for Arrow columns and single values.

======================  =========================================================================================
Java                    here
======================  =========================================================================================
String#hashCode         ``java_hash``, ``java_hashes``: h = 31*h + c over UTF-16 code units, modulo 2**32, signed
a.concat(b).hashCode()  ``concat_hashes``: hash(a) * 31**len(b) + hash(b), so that topic + "#" is hashed once
Math#abs                ``index_key_hashes``: |MIN_VALUE| stays negative and becomes 0
new String(b, UTF_8)    ``decode_java_utf8``: malformed input as the JDK replaces it
Integer#parseInt, ...   ``parse_int``, ``parse_short``, ``parse_long``: Unicode digits, no blanks or underscores
String#split(String)    ``java_split``: drops trailing empty parts
StringUtils#isBlank     ``is_blank``: white space as Character#isWhitespace has it
======================  =========================================================================================

Columns are binary or string arrays of the UTF-8 bytes in the store; hashes are of the text Java decodes from them.
"""

from __future__ import annotations

import re
import unicodedata
from datetime import datetime, timezone
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from storeformat.arrays import Bytes, Int32s

INT_MIN, INT_MAX = -(1 << 31), (1 << 31) - 1
LONG_MIN, LONG_MAX = -(1 << 63), (1 << 63) - 1

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)  # where System#currentTimeMillis starts to count

_BLOCK_UNITS = 1 << 16  # code units hashed at a time: the products of one block stay in the processor's cache

# Python replaces each byte of an encoded surrogate, the JDK the two or three bytes as one.
_ENCODED_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
_REPLACEMENT = "\ufffd".encode()

_NOT_WHITE_SPACE = "\x85\xa0\u2007\u202f"  # white space in Python, not in Character#isWhitespace


def decode_java_utf8(data: bytes) -> str:
    """Decode like ``new String(data, UTF_8)``: malformed input becomes U+FFFD."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return _ENCODED_SURROGATE.sub(_REPLACEMENT, data).decode(errors="replace")


def decode_java_texts(values: pa.Array) -> pa.StringArray:
    """Decode a binary array like ``decode_java_utf8``; nulls stay null."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        texts = [None if value is None else decode_java_utf8(value) for value in values.to_pylist()]
        return pa.array(texts, pa.string())


def java_hash(text: str | bytes) -> int:
    """Signed 32-bit ``String#hashCode`` of a text or UTF-8 bytes; for a TAGS value the message's tags code.

    >>> java_hash("TagA"), java_hash("polygenelubricants")
    (2598919, -2147483648)
    """
    if isinstance(text, bytes):
        text = decode_java_utf8(text)
    units = text.encode() if text.isascii() else memoryview(text.encode("utf-16", "surrogatepass")).cast("H")[1:]
    value = 0
    for unit in units:  # a loop: making an array costs as much as some hundred characters
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def java_hashes(values: pa.Array) -> Int32s:
    """``String#hashCode`` of each value of a binary or string array; 0 for nulls."""
    return java_hashes_and_lengths(values)[0]


def java_hashes_and_lengths(values: pa.Array) -> tuple[Int32s, Int32s]:
    """``String#hashCode`` and ``String#length`` (UTF-16 units) of each value; 0 and 0 for nulls."""
    if values.null_count:
        values = values.fill_null(pa.scalar(b"", pa.binary()).cast(values.type))
    data, offsets = binary_buffers(values)
    begin, end = int(offsets[0]), int(offsets[-1])
    hashes = _hash_units(data, offsets)
    lengths = np.diff(offsets).astype(np.int32)
    high = data[begin:end] >= 0x80
    if high.any():
        high_before = np.zeros(len(high) + 1, dtype=np.int64)
        np.cumsum(high, out=high_before[1:])
        rows = np.flatnonzero(np.diff(high_before[offsets - begin]))
        hashes[rows], lengths[rows] = _hash_decoded(values.take(pa.array(rows)))
    return hashes, lengths


def concat_hashes(head: npt.ArrayLike, tail: npt.ArrayLike, tail_lengths: npt.ArrayLike) -> Int32s:
    """Hashes of head + tail from the parts' hashes and the tail's length in UTF-16 units, with broadcasting."""
    heads, tails = (np.asarray(part, dtype=np.int32).view(np.uint32) for part in (head, tail))
    lengths = np.asarray(tail_lengths, dtype=np.int64)
    power = _powers(31, _table_size(int(lengths.max(initial=0)) + 1))
    joined: npt.NDArray[np.uint32] = heads * power[lengths] + tails
    return joined.view(np.int32)


def index_key_hashes(hashes: npt.ArrayLike) -> Int32s:
    """Hashes as in index files: absolute, 0 for ``Integer.MIN_VALUE`` (IndexFile#indexKeyHashMethod)."""
    signed = np.asarray(hashes, dtype=np.int32)
    return np.where(signed == INT_MIN, np.int32(0), np.abs(signed))


def parse_int(text: str) -> int | None:
    """``Integer.parseInt(text)``, None where Java throws NumberFormatException.

    >>> parse_int("+5"), parse_int("2147483648"), parse_int(" 5")
    (5, None, None)
    """
    return _parse(text, INT_MIN, INT_MAX)


def parse_short(text: str) -> int | None:
    """``Short.parseShort(text)``, None where Java throws NumberFormatException."""
    return _parse(text, -(1 << 15), (1 << 15) - 1)


def parse_long(text: str) -> int | None:
    """``Long.parseLong(text)``, None where Java throws NumberFormatException."""
    return _parse(text, LONG_MIN, LONG_MAX)


def java_split(text: str, separator: str) -> list[str]:
    """``text.split(separator)`` for a literal separator: no trailing empty parts, but "" is one part."""
    parts = text.split(separator)
    if len(parts) == 1:
        return parts
    while parts and not parts[-1]:
        parts.pop()
    return parts


def is_blank(text: str) -> bool:
    """``StringUtils.isBlank(text)``. No-break spaces are not white space in Java."""
    return all(character.isspace() and character not in _NOT_WHITE_SPACE for character in text)


def binary_buffers(values: pa.Array) -> tuple[Bytes, npt.NDArray[Any]]:
    """Bytes and offsets of a binary or string array, not copied: value i is ``data[offsets[i]:offsets[i + 1]]``.
    ``data`` begins where the buffer does, also for a slice. Raises TypeError for other arrays.
    """
    large = pa.types.is_large_binary(values.type) or pa.types.is_large_string(values.type)
    if not (large or pa.types.is_binary(values.type) or pa.types.is_string(values.type)):
        raise TypeError(f"a binary or string array is needed, not {values.type}")
    _, offset_buffer, data_buffer = values.buffers()
    if offset_buffer is None or len(values) == 0:
        return np.empty(0, dtype=np.uint8), np.zeros(1, dtype=np.int64)
    offsets = np.frombuffer(offset_buffer, dtype=np.int64 if large else np.int32)
    offsets = offsets[values.offset : values.offset + len(values) + 1]
    data = np.empty(0, dtype=np.uint8) if data_buffer is None else np.frombuffer(data_buffer, dtype=np.uint8)
    return data, offsets


def _hash_units(units: npt.NDArray[Any], offsets: npt.NDArray[Any]) -> Int32s:
    """Two operations a unit, whatever the lengths: 31 has an inverse modulo 2**32, so each unit is weighted with
    31**-position, and a value's hash is the difference of the running sum at its ends times 31**(last position).
    """
    count = len(offsets) - 1
    offsets = offsets.astype(np.int64, copy=False)  # searchsorted would convert them for every block
    hashes = np.zeros(count, dtype=np.uint32)
    longest = int(np.diff(offsets).max(initial=0))
    size = _table_size(max(_BLOCK_UNITS, longest))
    powers, inverses = _powers(31, size), _powers(pow(31, -1, 1 << 32), size)
    sums = np.zeros(size + 1, dtype=np.uint32)
    first = 0
    while first < count:
        begin = int(offsets[first])
        stop = max(int(np.searchsorted(offsets, begin + _BLOCK_UNITS, side="right")) - 1, first + 1)
        length = int(offsets[stop]) - begin
        np.multiply(units[begin : begin + length], inverses[:length], out=sums[1 : length + 1])
        np.cumsum(sums[1 : length + 1], out=sums[1 : length + 1])
        ends = offsets[first : stop + 1] - begin
        at_ends = sums[ends]
        # An empty value at the very begin picks powers[-1]: harmless, its difference is 0.
        hashes[first:stop] = (at_ends[1:] - at_ends[:-1]) * powers[ends[1:] - 1]
        first = stop
    return hashes.view(np.int32)


def _hash_decoded(values: pa.Array) -> tuple[Int32s, Int32s]:
    data, offsets = binary_buffers(values)
    data, offsets = data[int(offsets[0]) : int(offsets[-1])], offsets - offsets[0]
    try:
        text = data.tobytes().decode()
    except UnicodeDecodeError:
        return _hash_one_by_one(values)
    continues = (data & 0xC0) == 0x80
    starts = offsets[:-1][np.diff(offsets) > 0]
    if continues[starts].any():  # well-formed only because one value goes on in the next
        return _hash_one_by_one(values)
    # One unit for each character, a second one where four bytes announce a code point beyond the basic plane.
    units_before = np.zeros(len(data) + 1, dtype=np.int64)
    np.cumsum((~continues).astype(np.int8) + (data >= 0xF0), out=units_before[1:])
    unit_offsets = units_before[offsets]
    units = np.frombuffer(text.encode("utf-16-le"), dtype="<u2")
    return _hash_units(units, unit_offsets), np.diff(unit_offsets).astype(np.int32)


def _hash_one_by_one(values: pa.Array) -> tuple[Int32s, Int32s]:
    texts = [decode_java_utf8(value.as_buffer().to_pybytes()) for value in values]
    pieces = [text.encode("utf-16-le") for text in texts]
    offsets = np.zeros(len(pieces) + 1, dtype=np.int64)
    np.cumsum([len(piece) // 2 for piece in pieces], out=offsets[1:])
    units = np.frombuffer(b"".join(pieces), dtype="<u2")
    return _hash_units(units, offsets), np.diff(offsets).astype(np.int32)


def _table_size(needed: int) -> int:
    """The next power of two, so that ``_powers`` caches few tables."""
    return 1 << max(needed - 1, 1).bit_length()


@lru_cache(maxsize=16)
def _powers(base: int, size: int) -> npt.NDArray[np.uint32]:
    powers = np.full(size, base, np.uint32)
    powers[0] = 1
    np.cumprod(powers, out=powers)
    powers.flags.writeable = False
    return powers


def _parse(text: str, low: int, high: int) -> int | None:
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not digits:
        return None
    value = 0
    for character in digits:
        # Character.digit sees single UTF-16 units, so digits beyond the basic plane do not count.
        digit = unicodedata.decimal(character, -1) if character <= "\uffff" else -1
        if digit < 0 or value > high:
            return None
        value = value * 10 + digit
    value = -value if text[0] == "-" else value
    return value if low <= value <= high else None
