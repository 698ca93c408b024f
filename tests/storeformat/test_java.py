"""Arrays, errors, and what Java makes of texts."""

from __future__ import annotations

import pickle

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import java_rules

from storeformat import javacompat
from storeformat.arrays import LogExtent, cut_ranges, narrow, stable_order, sum_of_offsets
from storeformat.errors import DamagedLog, RecordDefect, StoreFormatError
from storeformat.javacompat import (
    concat_hashes,
    decode_java_utf8,
    index_key_hashes,
    java_hash,
    java_hashes,
    java_hashes_and_lengths,
    java_split,
    parse_int,
    parse_long,
    parse_short,
)
from storeformat.javaproperties import as_written, parse_properties


# -------------------------------------------------------------------------------------------------------- arrays
def test_numbers_that_do_not_fit_32_bits_are_refused() -> None:
    fits = np.array([-(1 << 31), (1 << 31) - 1])
    assert narrow(fits).dtype == np.int32
    assert narrow(fits).tolist() == fits.tolist()
    for number in (-(1 << 31) - 1, 1 << 31):
        with pytest.raises(OverflowError, match=r"^a number does not fit 32 bits$"):
            narrow(np.array([number]))


@pytest.mark.parametrize("count", [1 << 16, (1 << 16) + 1])
def test_rows_of_one_group_stay_in_their_order(count: int) -> None:
    groups = np.array([5, count - 1, 5, 0, count - 1])
    assert stable_order(groups, count).tolist() == [3, 0, 2, 1, 4]


def test_offsets_are_summed_modulo_64_bits() -> None:
    assert sum_of_offsets(np.array([(1 << 63) - 1, 1, 7])) == (1 << 63) + 7
    assert sum_of_offsets(np.array([-1])) == (1 << 64) - 1
    assert sum_of_offsets(np.zeros(0, np.int64)) == 0


def test_an_offset_is_lost_from_the_begin_of_a_damaged_range_to_before_its_end() -> None:
    log = LogExtent(0, 1000, ((100, 200), (300, 301)))
    assert log.lost(np.array([99, 100, 199, 200, 300, 301])).tolist() == [False, True, True, False, True, False]
    assert not LogExtent(0, 1000).lost(np.array([100])).any()


@given(ranges=st.lists(st.tuples(st.integers(0, 60), st.integers(1, 30)), max_size=8), every=st.integers(1, 12))
def test_ranges_are_cut_at_every_multiple(ranges: list[tuple[int, int]], every: int) -> None:
    expected = []
    for row, (begin, length) in enumerate(ranges):
        places = range(begin, begin + length)
        for number in sorted({place // every for place in places}):
            inside = [place for place in places if place // every == number]
            expected.append((row, number, inside[0], inside[-1] + 1))
    begins = np.array([begin for begin, _ in ranges], np.int64)
    ends = begins + np.array([length for _, length in ranges], np.int64)
    found = cut_ranges(begins, ends, every)
    assert list(zip(*(column.tolist() for column in found), strict=True)) == expected


# -------------------------------------------------------------------------------------------------------- errors
def test_an_error_says_what_where_and_both_sides() -> None:
    error = DamagedLog("no record", path="/log", offset=7, found=0, expected=1, advice="look")
    assert str(error) == "no record: found 0, expected 1 (/log, offset 7)"
    assert str(StoreFormatError("plain")) == "plain"
    back = pickle.loads(pickle.dumps(error))
    assert (type(back), str(back), back.advice, back.exit_code) == (DamagedLog, str(error), "look", error.exit_code)


def test_a_defect_is_its_code_and_says_itself_in_words() -> None:
    assert [int(defect) for defect in RecordDefect] == list(range(len(RecordDefect)))
    assert len({defect.words for defect in RecordDefect}) == len(RecordDefect)
    assert f"{RecordDefect(6)}" == "a body does not match its CRC [BODY_CRC]"
    assert pickle.loads(pickle.dumps(RecordDefect.BODY_CRC)) is RecordDefect.BODY_CRC


# ------------------------------------------------------------------------------------------------------- message
# ------------------------------------------------------------------------------------------------ javaproperties
@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("", {}),
        ("a=1\r\nb = 2\r\n\r\n", {"a": "1", "b": "2"}),
        ("a=1\rb=2", {"a": "1", "b": "2"}),
        ("  a\t=\t1  \n# c=3\n  ! d=4\n#e=5\\\nf=6", {"a": "1  ", "f": "6"}),
        ("a:1\nb 2\nc : 3\nd\n=4", {"a": "1", "b": "2", "c": "3", "d": ""}),
        ("a=1\na=2", {"a": "2"}),
        ("delays=1s \\\n   5s \\\r\n10s\nb=2\\", {"delays": "1s 5s 10s", "b": "2"}),
        ("path=/a\\ b\nc\\=d=e=f\ng=h\\\\\ni=j", {"path": "/a b", "c=d": "e=f", "g": "h\\", "i": "j"}),
        ("a=1 # no comment", {"a": "1 # no comment"}),
        ("a=\u2028\x0b1", {"a": "\u2028\x0b1"}),
    ],
)
def test_a_file_of_properties(text: str, pairs: dict[str, str]) -> None:
    assert parse_properties(text) == pairs


@given(st.text())
def test_a_value_is_read_as_it_was_written(text: str) -> None:
    assert parse_properties(f"name={as_written(text)}") == {"name": text}


# ---------------------------------------------------------------------------------------------------- javacompat
def model_hash(text: str) -> int:
    """String#hashCode, one UTF-16 unit at a time."""
    raw = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for position in range(0, len(raw), 2):
        value = (31 * value + int.from_bytes(raw[position : position + 2], "big")) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


INDEX_HASHES = {  # stored in index entries by 5.5.0
    "TopicT#U0": 1902675303,
    "TopicT#k1": 1902674620,
    "TopicT#T#a||b": 678982862,
    "TopicT#T#a b": 1917762858,
    "TopicT#T#z": 1146606509,
}
TAGS_CODES = {  # stored in consume queues by 4.9.8
    "TagA": 2598919,
    "标签😀": 825518074,
    "😀": 1772899,
    "polygenelubricants": -(1 << 31),
    "": 0,
}


@pytest.mark.parametrize(("text", "expected"), TAGS_CODES.items())
def test_tag_hashes_that_real_brokers_stored(text: str, expected: int) -> None:
    assert java_hash(text) == java_hash(text.encode()) == java_rules.hash_code(text) == expected


def test_columns_of_broker_hashes() -> None:
    hashes = java_hashes(pa.array(TAGS_CODES))
    assert hashes.dtype == np.int32
    assert hashes.tolist() == list(TAGS_CODES.values())
    assert index_key_hashes(java_hashes(pa.array(INDEX_HASHES))).tolist() == list(INDEX_HASHES.values())


# What new String(bytes, UTF_8) gives on JDK 17.
@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"plain", "plain"),
        ("标签😀".encode(), "标签😀"),
        (b"\xed\xa0\x80", "\ufffd"),
        (b"\xed\xa0", "\ufffd"),
        (b"\xed\xa0A", "\ufffdA"),
        (b"\xed\xb0\x80x", "\ufffdx"),
        (b"\xed\x9f\xbf", "\ud7ff"),
        (b"\xff\xfe", "\ufffd\ufffd"),
        (b"\xc3", "\ufffd"),
        (b"\xe4\xb8", "\ufffd"),
        (b"\xc0\x80", "\ufffd\ufffd"),
        (b"\xf0\x90\x80", "\ufffd"),
    ],
)
def test_malformed_utf8_as_the_jdk_replaces_it(data: bytes, expected: str) -> None:
    assert decode_java_utf8(data) == java_rules.new_string_utf8(data) == expected
    hashed = model_hash(expected)
    assert java_hashes(pa.array([data, b"", data], pa.binary())).tolist() == [hashed, 0, hashed]


any_bytes = st.one_of(
    st.binary(max_size=40),
    st.text(max_size=20).map(lambda text: text.encode("utf-8", "surrogatepass")),
    st.text(alphabet=st.characters(max_codepoint=127), max_size=60).map(str.encode),
    st.none(),
)


@settings(max_examples=3 * settings.default.max_examples, deadline=None)
@given(st.lists(any_bytes, max_size=30), st.integers(0, 5), st.sampled_from([pa.binary(), pa.large_binary()]))
def test_columns_equal_the_model(values: list[bytes | None], skipped: int, arrow_type: pa.DataType) -> None:
    column = pa.array(values, arrow_type)[skipped:]
    hashes, lengths = java_hashes_and_lengths(column)
    texts = [decode_java_utf8(value or b"") for value in values[skipped:]]
    assert hashes.tolist() == [model_hash(text) for text in texts]
    assert lengths.tolist() == [len(text.encode("utf-16-le", "surrogatepass")) // 2 for text in texts]
    assert java_hashes(column).tolist() == hashes.tolist()
    assert (hashes.dtype, lengths.dtype) == (np.int32, np.int32)


@pytest.mark.parametrize(
    "values", [("a€"[:1].encode() + b"\xe2", b"\x82\xacb"), (b"a\xc3", b"\xa9"), (b"a\xc3", b"\xa9", b"\xa9")]
)
def test_values_that_share_a_character_are_not_read_across_their_border(values: tuple[bytes, ...]) -> None:
    expected = [model_hash(decode_java_utf8(value)) for value in values]
    assert java_hashes(pa.array(values, pa.binary())).tolist() == expected


@pytest.mark.parametrize("size", [3, 4, 5, 7, 8, 9, 40])
def test_values_as_long_as_a_block_and_longer(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(javacompat, "_BLOCK_UNITS", 4)
    values = [("abcdéfghi" * 5)[:length] for length in (size, 1, 0, size, size)]
    assert java_hashes(pa.array(values)).tolist() == [model_hash(text) for text in values]


def test_texts_of_a_column_as_java_reads_them() -> None:
    assert javacompat.decode_java_texts(pa.array([b"a", None, "é".encode()])).to_pylist() == ["a", None, "é"]
    malformed = pa.array([b"a", None, b"\xff", b"\xed\xa0\x80b"])
    found = javacompat.decode_java_texts(malformed)
    assert (found.to_pylist(), found.type) == (["a", None, "\ufffd", "\ufffdb"], pa.string())


def test_only_text_columns_are_hashed() -> None:
    with pytest.raises(TypeError, match=r"^a binary or string array is needed, not int64$"):
        java_hashes(pa.array([1, 2]))
    assert java_hashes(pa.array([], pa.binary())).tolist() == []


@given(st.text(max_size=30), st.lists(st.text(max_size=30), max_size=5))
def test_hash_of_joined_text(head: str, tails: list[str]) -> None:
    column = pa.array([tail.encode("utf-8", "replace") for tail in tails], pa.binary())
    joined = concat_hashes(java_hash(head), *java_hashes_and_lengths(column))
    assert joined.tolist() == [model_hash(head + decode_java_utf8(value.as_py())) for value in column]


def test_index_key_hash_of_the_smallest_int_is_zero() -> None:
    """Where ``Math.abs`` is negative, as the model of the broker has it."""
    found = index_key_hashes([-(1 << 31), 1 - (1 << 31), -1, 0, 5, (1 << 31) - 1])
    assert (found.tolist(), found.dtype) == ([0, (1 << 31) - 1, 1, 0, 5, (1 << 31) - 1], np.int32)
    assert [java_rules.math_abs(value) for value in (-1, 5, -(1 << 31))] == [1, 5, -(1 << 31)]
    assert java_rules.wrap_int(1 << 31) == -(1 << 31)


def model_parse(text: str, bits: int) -> int | None:
    try:
        return java_rules.parse_integer(text, bits)
    except java_rules.NumberFormatError:
        return None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *(("3", 3), ("+3", 3), ("-3", -3), ("-0", 0), ("007", 7), ("٣", 3), ("１２", 12), ("0" * 300 + "1", 1)),
        *((str(number), number) for number in ((1 << 31) - 1, -(1 << 31))),
        *((str(number), None) for number in (1 << 31, -(1 << 31) - 1, 10**300)),
        *((text, None) for text in ("", "+", "-", "+-3", " 3", "3 ", "1_000", "0x10", "3.0", "²", "𝟑")),
    ],
)
def test_integers_as_java_parses_them(text: str, expected: int | None) -> None:
    assert parse_int(text) == model_parse(text, 32) == expected


def test_ranges_of_short_and_long() -> None:
    for bits, parse in ((16, parse_short), (64, parse_long)):
        most = (1 << bits - 1) - 1
        for number, expected in ((most, most), (most + 1, None), (-most - 1, -most - 1), (-most - 2, None)):
            assert parse(str(number)) == model_parse(str(number), bits) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("a,b", ["a", "b"]), ("a,b,,", ["a", "b"]), (",a,,b", ["", "a", "", "b"]), ("", [""]), (",,", []), ("a", ["a"])],
)
def test_split_drops_empty_parts_at_the_end_only(text: str, expected: list[str]) -> None:
    assert java_split(text, ",") == java_rules.split(text, ",") == expected


def test_blank_texts() -> None:
    """As the model of the broker has it, which follows ``Character#isWhitespace``."""
    for code in range(0x10000):
        assert javacompat.is_blank(chr(code)) == java_rules.is_blank(chr(code)), hex(code)
    for text, blank in (("", True), (" \t", True), ("\u00a0", False), (" a", False)):
        assert (javacompat.is_blank(text), java_rules.is_blank(text)) == (blank, blank)
    assert java_rules.is_blank(None)
