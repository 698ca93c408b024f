"""Kernels: against literal bytes, and what is compiled against numpy."""

from __future__ import annotations

import zlib
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support import golden
from support.kernel_columns import assert_same, laid_out, padded
from support.store_builder import Message, encode_record
from support.strategies import ODD_PIECES, apply_damages, damages, logs, texts
from support.uniform_log import uniform_log

from storeformat import javacompat
from storeformat import message as m
from storeformat.errors import RecordDefect
from storeformat.index.index_file import ENTRY, ROW, time_diff
from storeformat.kernels import PADDING, Spans, Tally, UnitColumns, active, numpy_kernels
from storeformat.record.decode import DISPATCH_PROPERTIES, DecodeRules, Fault, decode
from storeformat.record.dispatch import DispatchRules, MultiDispatchRules, PlainDispatch, index_entries, queue_units

# -------------------------------------------------------------------------------------------------------------- kernels
# The hot functions: numpy's against what Java, zlib and a slow loop say, and the compiled ones against numpy's on any
# bytes; the pass over plain records is below.
NAMES = (*DISPATCH_PROPERTIES, m.INNER_MULTI_DISPATCH, m.INNER_MULTI_QUEUE_OFFSET)
MODULES = [numpy_kernels] if active() is numpy_kernels else [numpy_kernels, active()]


@settings(max_examples=3 * settings.default.max_examples, deadline=None)
@given(st.data(), st.lists(st.integers(0, 40), min_size=1, max_size=12))
def test_sizes_lead_up_to_stop_and_within_limit(data: st.DataObject, sizes: list[int]) -> None:
    log = b"".join(size.to_bytes(4, "big") + bytes(max(size - 4, 0)) for size in sizes)
    limit = data.draw(st.integers(0, len(log)))
    stop = data.draw(st.integers(0, limit))
    expected, at = [], 0
    for size in sizes:
        if at >= stop or at + 4 > limit or size < 8 or at + size > limit:
            break
        expected.append(at)
        at += size
    for module in MODULES:
        positions, reached = module.walk_sizes(padded(log), 0, stop, limit)
        assert (positions.tolist(), reached) == (expected, at)


@settings(max_examples=2 * settings.default.max_examples, deadline=None)
@given(st.lists(texts(40).map(str.encode) | st.binary(max_size=40), max_size=20))
def test_hashes_are_javas(values: list[bytes]) -> None:
    buffer, spans = laid_out(values)
    hashes, lengths = numpy_kernels.hash_spans(buffer, spans)
    assert hashes.tolist() == [javacompat.java_hash(value) for value in values]
    assert lengths.tolist() == [len(javacompat.decode_java_utf8(value).encode("utf-16-le")) // 2 for value in values]


@pytest.mark.parametrize("distinct", [1, 127, 128, 129, 5000])
def test_dictionary_numbers_values_in_order_of_appearance(distinct: int) -> None:
    values = [b"value %d" % (number * number % distinct) for number in range(3 * distinct)]
    buffer, spans = laid_out(values)
    codes, words = numpy_kernels.dictionary(buffer, spans)
    assert words == list(dict.fromkeys(values))
    assert [words[code] for code in codes.tolist()] == values


@pytest.mark.parametrize(("slots", "values"), [(100_003, 1 << 31), (7, 1 << 31), (100_003, 50)])
def test_entries_are_linked_to_the_one_before_in_their_slot(slots: int, values: int) -> None:
    hashes = np.random.default_rng(11).integers(0, values, 300_000, dtype=np.int64).astype(np.int32)
    table, packed = np.zeros(slots, np.int32), np.zeros(len(hashes), ENTRY)
    zeros = np.zeros(len(hashes), np.int64)
    for begin in range(0, len(hashes), 70_000):
        part = slice(begin, begin + 70_000)
        numpy_kernels.put_entries(hashes[part], zeros[part], zeros[part], 0, begin + 1, table, packed[part])
    newest: dict[int, int] = {}
    expected = []
    for number, slot in enumerate((hashes % slots).tolist(), 1):
        expected.append(newest.get(slot, 0))
        newest[slot] = number
    assert packed["prev_index"].tolist() == expected
    assert packed["key_hash"].tolist() == hashes.tolist()
    assert {slot: number for slot, number in enumerate(table.tolist()) if number} == newest


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
        ((1 << 63) - 1, 7000, 0),
        (1, -(1 << 63), 0x7FFFFFFF),
    ],
)
def test_time_differences_are_whole_seconds_that_fit_31_bits(begin: int, time: int, seconds: int) -> None:
    packed = np.zeros(1, ENTRY)
    largest = np.array([0x7FFFFFFF], np.int32), np.array([(1 << 63) - 1])
    numpy_kernels.put_entries(*largest, np.array([time]), begin, 0x7FFFFFFF, np.array([0x7FFFFFFE], np.int32), packed)
    assert packed[0].tolist() == (0x7FFFFFFF, (1 << 63) - 1, seconds, 0x7FFFFFFE)
    assert time_diff(time, begin) == seconds


def test_the_hash_whose_absolute_value_does_not_fit_is_stored_as_0() -> None:
    """``Math.abs(Integer.MIN_VALUE)`` is negative, and IndexFile#indexKeyHashMethod makes 0 of it."""
    key = b"tbaekxa"
    assert javacompat.java_hash(b"TopicTest#" + key) == -(1 << 31)
    buffer, spans = laid_out([key])
    topic, nothing = (
        np.array([[javacompat.java_hash("TopicTest#")]] * 2, np.int32),
        Spans(spans.starts, np.array([-1], np.int32)),
    )
    for whole, keys in (((spans,), nothing), ((nothing,), spans)):
        rows, hashes = numpy_kernels.index_keys(buffer, np.ones(1, bool), whole, keys, np.zeros(1, np.int32), topic)
        assert (rows.tolist(), hashes.tolist()) == ([0], [0])


@pytest.mark.parametrize("module", MODULES)
def test_body_crc_is_zlibs_without_its_top_bit(module: ModuleType) -> None:
    data = np.random.default_rng(6).integers(0, 256, 5000 + PADDING, np.uint8)
    lengths = np.array([*range(300), 4096, 4999], np.int32)
    found = module.crc32_spans(data, np.ones(len(lengths), np.int64), lengths)
    assert found.tolist() == [zlib.crc32(data[1 : 1 + length]) & 0x7FFFFFFF for length in lengths.tolist()]


PROPERTY_WORDS = [*ODD_PIECES, *NAMES, b"\x01", b"\x02", b"\0", b" ", b"v"]
PROPERTY_BLOCKS = st.lists(
    st.lists(st.sampled_from(PROPERTY_WORDS) | st.binary(max_size=9), max_size=8).map(b"".join), max_size=6
)


@settings(max_examples=5 * settings.default.max_examples, deadline=None)
@given(PROPERTY_BLOCKS, st.booleans())
def test_properties_agree_on_any_block(blocks: list[bytes], split_parser: bool) -> None:
    buffer, spans = laid_out(blocks)
    for function, arguments in (("property_spans", (NAMES,)), ("property_pieces", ())):
        one, other = (
            getattr(module, function)(buffer, *spans, *arguments, split_parser) for module in (MODULES[0], MODULES[-1])
        )
        assert_same(tuple(map(tuple, other)), tuple(map(tuple, one)), function)


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


# ------------------------------------------------------------------------------------------------------- plain dispatch
numba_kernels: Any = pytest.importorskip("storeformat.kernels.numba_kernels", exc_type=ImportError)
DELAYS = (1_000, 5_000, 10_000)


@pytest.fixture(autouse=True)
def compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that did little work before prefers numpy."""
    monkeypatch.setattr("storeformat.record.dispatch.compiled", lambda: numba_kernels)


def assert_as_the_general_functions(data: bytes, base: int, decode_rules: DecodeRules, rules: DispatchRules) -> int:
    """Takes what is plain from the front of the records in ``data``; returns how many these were."""
    buffer = padded(data)
    positions, _ = numpy_kernels.walk_sizes(buffer, 0, len(data), len(data))
    codes: dict[bytes, int] = {}
    plain = PlainDispatch(
        decode_rules, rules, lambda topic: codes.setdefault(topic, len(codes)), lambda topic: topic == b"A",
        with_units=True, with_entries=True,
    )  # fmt: skip
    room, tally = UnitColumns.of(len(positions) + 1), Tally.start()
    taken = plain.take(buffer, positions, base, room, tally)
    block, _ = decode(buffer, base, positions[:taken], decode_rules)
    assert len(block) == taken
    assert not block.foreign.any()
    assert b"A" not in block.topics
    found_slowly, entries = queue_units(block, rules), index_entries(block, rules)
    units = found_slowly.columns
    found = room.rows(slice(int(tally[Tally.UNITS])))
    names = np.array([codes[topic] for topic in block.topics], np.int32)
    assert_same(found.topic_codes, names[units.topic_codes], "topics")
    for name in UnitColumns._fields[1:]:
        assert_same(getattr(found, name), getattr(units, name), name)
    rows = plain.entries(tally)
    expected = np.empty(len(entries.offsets), ROW)
    expected["key_hash"], expected["offset"] = entries.key_hashes, entries.offsets
    expected["store_timestamp"] = entries.store_timestamps
    assert rows.tobytes() == expected.tobytes()
    times = block.heads.store_timestamp
    assert tally[Tally.RECORDS] == taken
    assert tally[Tally.RECORD_BYTES] == block.heads.total_size.sum(dtype=np.int64)
    assert tally[Tally.LAST_RECORD] == (block.offsets[-1] if taken else -1)
    assert tally[Tally.LAST_UNIT] == (units.offsets[-1] if len(units.offsets) else -1)
    assert tally[Tally.LAST_ENTRY] == (entries.offsets[-1] if len(entries.offsets) else -1)
    assert tally[Tally.FIRST_TIME] == (times[0] if taken else 0)
    assert tally[Tally.LATEST_TIME] == max(times.max(initial=0), 0)
    recent = tally[Tally.THIRD_TIME : Tally.LAST_TIME + 1].tolist()
    assert recent == [0, 0, 0, *times.tolist()][-3:]
    return taken


@settings(
    max_examples=min(60, settings.default.max_examples),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(st.data(), st.booleans(), st.booleans())
def test_passes_agree_on_damaged_logs(data: st.DataObject, split_parser: bool, index_tags: bool) -> None:
    log = data.draw(logs())
    for base, content in apply_damages(log.segments, data.draw(damages(log))).items():
        assert_all_as_the_general_functions(content, base, split_parser, index_tags)


def assert_all_as_the_general_functions(content: bytes, base: int, split_parser: bool, index_tags: bool) -> int:
    """After what is not plain, the pass goes on with the next record; returns how many records it took."""
    plain = begin = 0
    while True:
        rest = content[begin:]
        step = assert_as_the_general_functions(
            rest, base + begin, DecodeRules(split_parser=split_parser), DispatchRules(DELAYS, index_tags=index_tags)
        )
        plain += step
        positions, reached = numpy_kernels.walk_sizes(padded(rest), 0, len(rest), len(rest))
        if step >= len(positions):
            return plain
        begin += int(positions[step + 1]) if step + 1 < len(positions) else reached


@pytest.mark.golden
@pytest.mark.parametrize("store", golden.sampled("all"), ids=str)
def test_passes_agree_on_real_logs(store: golden.GoldenStore) -> None:
    root = golden.unpack(store)
    old = store.name.endswith("4.6.1")
    taken = sum(
        assert_all_as_the_general_functions(path.read_bytes(), int(path.name), old, False)
        for path in sorted((root / "commitlog").iterdir())
    )
    assert (taken > 0) != store.name.startswith("property-crc")


def test_all_records_of_a_healthy_log_are_plain() -> None:
    log = uniform_log(1 << 20)
    assert assert_as_the_general_functions(log.data, 0, DecodeRules(), DispatchRules(DELAYS)) == log.messages


@pytest.mark.parametrize("room", [1, 2, 100])
def test_a_pass_stops_where_there_is_no_room_and_goes_on(room: int, monkeypatch: pytest.MonkeyPatch) -> None:
    log = uniform_log(200_000, message_bytes=300)
    monkeypatch.setattr("storeformat.record.dispatch._ENTRY_ROOM", 40)
    buffer = np.frombuffer(log.data + bytes(PADDING), np.uint8)
    positions, _ = numpy_kernels.walk_sizes(buffer, 0, len(log.data), len(log.data))
    plain = PlainDispatch(
        DecodeRules(), DispatchRules(DELAYS), lambda topic: 0, lambda topic: False, with_units=True, with_entries=True
    )
    units, tally, taken, offsets, entries = UnitColumns.of(room), Tally.start(), 0, b"", b""
    while taken < len(positions):
        taken += plain.take(buffer, positions[taken:], 0, units, tally)
        offsets += units.rows(slice(int(tally[Tally.UNITS]))).offsets.tobytes()
        entries += plain.entries(tally).tobytes()
        tally[Tally.UNITS] = 0
    block, _ = decode(buffer, 0, positions, DecodeRules())
    assert offsets == block.offsets.tobytes()
    made = np.frombuffer(entries, ROW)
    assert made["key_hash"].tobytes() == index_entries(block, DispatchRules(DELAYS)).key_hashes.tobytes()


def test_light_queues_and_batch_topics_take_the_general_way() -> None:
    assert PlainDispatch.serves(DispatchRules(()))
    assert not PlainDispatch.serves(DispatchRules((), multi_dispatch=MultiDispatchRules(True)))
    assert not PlainDispatch.serves(DispatchRules((), batch_topics=frozenset({b"B"})))


def test_topics_that_the_table_has_no_room_for_are_not_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    log = uniform_log(200_000, message_bytes=300)
    assert log.topics > 3
    monkeypatch.setattr("storeformat.record.dispatch._MOST_TOPICS", 3)
    assert 3 <= assert_as_the_general_functions(log.data, 0, DecodeRules(), DispatchRules(DELAYS)) < log.messages
