"""What Java does with text and numbers, for the model of the broker: one value at a time, after the JDK's sources.

The names are those of the JDK methods in snake case.
"""

from __future__ import annotations

import re
import struct
import unicodedata

_ENCODED_SURROGATE = re.compile(rb"\xED[\xA0-\xBF][\x80-\xBF]?")
REPLACEMENT = "�".encode()


class NumberFormatError(ValueError):
    """``java.lang.NumberFormatException``."""


def wrap_int(value: int) -> int:
    """``value`` as a Java int: modulo 2^32, signed."""
    return (value + (1 << 31)) % (1 << 32) - (1 << 31)


def new_string_utf8(data: bytes) -> str:
    """``new String(data, UTF_8)``: like Python's replacement, except that an encoded surrogate is one U+FFFD."""
    return _ENCODED_SURROGATE.sub(REPLACEMENT, data).decode("utf-8", "replace")


def utf16_units(text: str) -> tuple[int, ...]:
    """The UTF-16 code units: what ``String#charAt`` sees."""
    data = text.encode("utf-16-be", "surrogatepass")
    return struct.unpack(f">{len(data) // 2}H", data)


def hash_code(text: str) -> int:
    value = 0
    for unit in utf16_units(text):
        value = wrap_int(31 * value + unit)
    return value


def math_abs(value: int) -> int:
    """``Math.abs(int)``: the smallest int stays negative."""
    return value if value == -(1 << 31) else abs(value)


def split(text: str, separator: str) -> list[str]:
    """``String#split`` by one literal character: trailing empty strings go, a text without separator stays whole."""
    if separator not in text:
        return [text]
    parts = text.split(separator)
    while parts and not parts[-1]:
        parts.pop()
    return parts


def parse_integer(text: str, bits: int) -> int:
    """``Short.parseShort``, ``Integer.parseInt``, ``Long.parseLong`` for 16, 32, 64 bits."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not digits:
        raise NumberFormatError(text)
    value = 0
    for character in digits:
        digit = unicodedata.decimal(character, None) if ord(character) <= 0xFFFF else None
        if digit is None:
            raise NumberFormatError(text)
        value = 10 * value + digit
    value = -value if text[0] == "-" else value
    if not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
        raise NumberFormatError(text)
    return value


def is_blank(text: str | None) -> bool:
    """``StringUtils.isBlank``: null, empty, or whitespace as ``Character#isWhitespace`` has it (no-break is not)."""
    return text is None or all(_is_whitespace(character) for character in text)


def _is_whitespace(character: str) -> bool:
    if character in "\u00a0\u2007\u202f":
        return False
    return character in "\t\n\v\f\r\x1c\x1d\x1e\x1f" or unicodedata.category(character) in ("Zs", "Zl", "Zp")
