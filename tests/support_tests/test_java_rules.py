"""The model's Java: values that a JVM gave."""

from __future__ import annotations

import pytest
from support import java_rules
from support.java_rules import NumberFormatError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("TagA", 2598919),
        ("标签😀", 825518074),
        ("\U0001f600", 1772899),
        ("polygenelubricants", -2147483648),
    ],
)
def test_hash_code(text: str, expected: int) -> None:
    assert java_rules.hash_code(text) == expected


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"plain", "plain"),
        ("标签😀".encode(), "标签😀"),
        (b"\xed\xa0\x80", "�"),  # an encoded surrogate is one replacement, in Python it would be three
        (b"\xed\xa0x", "�x"),
        (b"\xff\xfe", "��"),
        (b"\xe6\xa0", "�"),
    ],
)
def test_new_string_utf8(data: bytes, expected: str) -> None:
    assert java_rules.new_string_utf8(data) == expected


@pytest.mark.parametrize(
    ("text", "expected"), [("a,b", ["a", "b"]), (",a,,b,,", ["", "a", "", "b"]), (",", []), ("", [""]), ("a", ["a"])]
)
def test_split(text: str, expected: list[str]) -> None:
    assert java_rules.split(text, ",") == expected


@pytest.mark.parametrize(("text", "expected"), [("+3", 3), ("-0", 0), ("٣", 3), ("007", 7), ("32767", 32767)])
def test_parse_short(text: str, expected: int) -> None:
    assert java_rules.parse_integer(text, 16) == expected


@pytest.mark.parametrize("text", ["", "+", "-", " 3", "3 ", "1_0", "32768", "3.0", "+-3", "𝟑"])
def test_parse_short_rejects(text: str) -> None:
    with pytest.raises(NumberFormatError):
        java_rules.parse_integer(text, 16)


def test_blank_and_abs() -> None:
    assert [java_rules.is_blank(text) for text in (None, "", " \t", "\u00a0", "x")] == [True, True, True, False, False]
    assert [java_rules.math_abs(value) for value in (-1, 5, -(2**31))] == [1, 5, -(2**31)]
    assert java_rules.wrap_int(2**31) == -(2**31)
