"""The compiled pass over plain records against the general functions: the same for real, random and damaged logs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support import golden
from support.kernel_columns import assert_same, padded
from support.strategies import apply_damages, damages, logs
from support.uniform_log import uniform_log

from storeformat.index.entries import ROW
from storeformat.kernels import PADDING, Tally, UnitColumns, numpy_kernels
from storeformat.record.decode import DecodeRules, decode
from storeformat.record.dispatch import DispatchRules, PlainDispatch, index_entries, queue_units
from storeformat.record.light_queues import MultiDispatchRules

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
@pytest.mark.parametrize("store", golden.stores("all"), ids=str)
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
