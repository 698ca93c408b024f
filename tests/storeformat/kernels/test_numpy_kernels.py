"""Every implementation against what Java, zlib and a slow loop say; the reference first."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.kernel_columns import implementations, laid_out, padded
from support.store_builder import Message, encode_record
from support.strategies import texts

from storeformat import javacompat
from storeformat.errors import RecordDefect
from storeformat.index.index_file import ENTRY, time_diff
from storeformat.kernels import Kernels, Spans
from storeformat.record.decode import DecodeRules, Fault, decode


@settings(max_examples=2 * settings.default.max_examples, deadline=None)
@given(st.lists(texts(40).map(str.encode) | st.binary(max_size=40), max_size=20))
def test_hashes_are_javas(values: list[bytes]) -> None:
    buffer, spans = laid_out(values)
    for implementation in implementations():
        hashes, lengths = implementation.hash_spans(buffer, spans)
        assert hashes.tolist() == [javacompat.java_hash(value) for value in values]
        units = [len(javacompat.decode_java_utf8(value).encode("utf-16-le")) // 2 for value in values]
        assert lengths.tolist() == units


@pytest.mark.parametrize("distinct", [1, 127, 128, 129, 5000])
def test_dictionary_numbers_values_in_order_of_appearance(distinct: int) -> None:
    values = [b"value %d" % (number * number % distinct) for number in range(3 * distinct)]
    buffer, spans = laid_out(values)
    for implementation in implementations():
        codes, words = implementation.dictionary(buffer, spans)
        assert words == list(dict.fromkeys(values))
        assert [words[code] for code in codes.tolist()] == values


@pytest.mark.parametrize("kernels", implementations(), ids=lambda kernels: kernels.NAME)
@pytest.mark.parametrize(("slots", "values"), [(100_003, 1 << 31), (7, 1 << 31), (100_003, 50)])
def test_entries_are_linked_to_the_one_before_in_their_slot(kernels: Kernels, slots: int, values: int) -> None:
    hashes = np.random.default_rng(11).integers(0, values, 300_000, dtype=np.int64).astype(np.int32)
    table, packed = np.zeros(slots, np.int32), np.zeros(len(hashes), ENTRY)
    zeros = np.zeros(len(hashes), np.int64)
    for begin in range(0, len(hashes), 70_000):
        part = slice(begin, begin + 70_000)
        kernels.put_entries(hashes[part], zeros[part], zeros[part], 0, begin + 1, table, packed[part])
    newest: dict[int, int] = {}
    expected = []
    for number, slot in enumerate((hashes % slots).tolist(), 1):
        expected.append(newest.get(slot, 0))
        newest[slot] = number
    assert packed["prev_index"].tolist() == expected
    assert packed["key_hash"].tolist() == hashes.tolist()
    assert {slot: number for slot, number in enumerate(table.tolist()) if number} == newest


@pytest.mark.parametrize("kernels", implementations(), ids=lambda kernels: kernels.NAME)
@pytest.mark.parametrize(
    ("begin", "time", "seconds"),
    [
        (1000, 1000, 0),
        (1000, 1999, 0),
        (1000, 2000, 1),
        (1000, 999, 0),
        (1000, -(1 << 62), 0),
        (1, 1 + 1000 * 0x7FFFFFFF, 0x7FFFFFFF),
        (1, 1 + 1000 * 0x80000000, 0x7FFFFFFF),
        (1, (1 << 63) - 1, 0x7FFFFFFF),
        (0, 5000, 0),
        (-1, 5000, 0),
    ],
)
def test_time_differences_are_whole_seconds_that_fit_31_bits(
    kernels: Kernels, begin: int, time: int, seconds: int
) -> None:
    packed = np.zeros(1, ENTRY)
    largest = np.array([0x7FFFFFFF], np.int32), np.array([(1 << 63) - 1])
    kernels.put_entries(*largest, np.array([time]), begin, 0x7FFFFFFF, np.array([0x7FFFFFFE], np.int32), packed)
    assert packed[0].tolist() == (0x7FFFFFFF, (1 << 63) - 1, seconds, 0x7FFFFFFE)
    assert time_diff(time, begin) == seconds


@pytest.mark.parametrize("kernels", implementations(), ids=lambda kernels: kernels.NAME)
def test_the_hash_whose_absolute_value_does_not_fit_is_stored_as_0(kernels: Kernels) -> None:
    """``Math.abs(Integer.MIN_VALUE)`` is negative, and IndexFile#indexKeyHashMethod makes 0 of it."""
    key = b"tbaekxa"
    assert javacompat.java_hash(b"TopicTest#" + key) == -(1 << 31)
    buffer, spans = laid_out([key])
    topic, nothing = (
        np.array([[javacompat.java_hash("TopicTest#")]] * 2, np.int32),
        Spans(spans.starts, np.array([-1], np.int32)),
    )
    for whole, keys in (((spans,), nothing), ((nothing,), spans)):
        rows, hashes = kernels.index_keys(buffer, np.ones(1, bool), whole, keys, np.zeros(1, np.int32), topic)
        assert (rows.tolist(), hashes.tolist()) == ([0], [0])


@pytest.mark.parametrize("kernels", implementations(), ids=lambda kernels: kernels.NAME)
def test_body_crc_is_zlibs_without_its_top_bit(kernels: Kernels) -> None:
    values = [b"", b"a", b"123456789", bytes(range(256)) * 40]
    buffer, spans = laid_out(values)
    found = kernels.crc32_spans(buffer, spans.starts, spans.lengths)
    assert found.tolist() == [0, 0x68B7BE43, 0x4BF43926, zlib.crc32(values[3]) & 0x7FFFFFFF]


@pytest.mark.usefixtures("each_kernels")
@pytest.mark.parametrize("body", [b"", b"ab"])
@pytest.mark.parametrize("topic", ["", "T"])
def test_a_record_without_properties_has_no_byte_too_many(topic: str, body: bytes) -> None:
    """Its parts end just where it does; one byte less in its size is a contradiction."""
    record = encode_record(Message(topic=topic, body=body), 0)
    assert len(record) == 91 + len(topic) + len(body)
    rules = DecodeRules(check_crc=False)
    block, fault = decode(padded(record), 0, np.zeros(1, np.int64), rules)
    assert fault == (None if topic else Fault(0, RecordDefect.BAD_NAME)), "of its lengths none is wrong"
    assert len(block) == (1 if topic else 0)
    shorter = (len(record) - 1).to_bytes(4, "big") + record[4:]
    _, fault = decode(padded(shorter), 0, np.zeros(1, np.int64), rules)
    too_small = RecordDefect.SIZE_TOO_SMALL if len(record) == 91 else RecordDefect.LENGTH_MISMATCH
    assert fault is not None
    assert fault.defect == too_small
