"""Compiled dispatch; the pass over plain records is tested with those who use it (``record/test_plain_dispatch``)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.java_rules import hash_code
from support.kernel_columns import assert_same
from support.store_builder import Message, encode_record

from storeformat.kernels import PADDING, Tally, UnitColumns, numpy_kernels
from storeformat.queues.consume_queue import UNIT
from storeformat.record.decode import DecodeRules
from storeformat.record.dispatch import DispatchRules
from storeformat.record.plain_dispatch import PlainDispatch

numba_kernels: Any = pytest.importorskip("storeformat.kernels.numba_kernels", exc_type=ImportError)


@given(st.integers(0, 300), st.sampled_from([1, 5, 1 << 14]), st.integers(0, 2**32 - 1))
def test_groups_agree(count: int, topics: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    units = UnitColumns(
        rng.integers(0, topics, count, np.int32),
        rng.integers(0, rng.choice([1, 8, 1 << 16]), count, np.int32),
        np.arange(count) // 3 + rng.integers(0, 2, count),
        rng.integers(-(2**63), 2**63, count, np.int64),
        rng.integers(-(2**31), 2**31, count, np.int32),
        rng.integers(-(2**63), 2**63, count, np.int64),
        np.arange(count),
    )
    light = rng.integers(0, 2, count).astype(bool)
    found, expected = np.empty(count, UNIT), np.empty(count, UNIT)
    one = numba_kernels.group_units(units, light, found)
    other = numpy_kernels.group_units(units, light, expected)
    assert_same(one, other, "order and begins")
    assert found.tobytes() == expected.tobytes()


def test_names_of_properties_are_words_of_eight_bytes() -> None:
    from storeformat.kernels.numba_dispatch import _word

    assert [_word(name) for name in (b"TAGS", b"UNIQ_KEY", b"INNER_NUMBER")] == [
        0x53474154, 0x59454B5F51494E55, 0x554E5F52454E4E49,
    ]  # fmt: skip


def test_two_plain_records_become_units_and_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("storeformat.record.plain_dispatch.active", lambda: numba_kernels)
    first = Message(topic="A", queue_id=3, queue_offset=1 << 40, tags="t", keys="k", body=b"12", store_timestamp=5)
    second = Message(topic="B", queue_id=65_535, queue_offset=7, store_timestamp=6)
    one, other = encode_record(first, 1000), encode_record(second, 1000 + len(encode_record(first, 1000)))
    buffer = np.frombuffer(one + other + bytes(PADDING), np.uint8)
    codes = {b"A": 11, b"B": 22}
    plain = PlainDispatch(
        DecodeRules(), DispatchRules(()), codes.__getitem__, lambda topic: False, with_units=True, with_entries=True
    )
    units, tally = UnitColumns.of(2), Tally.start()
    assert plain.take(buffer, np.array([0, len(one)]), 1000, units, tally) == 2
    assert [column.tolist() for column in units] == [
        [11, 22], [3, 65_535], [1 << 40, 7], [1000, 1000 + len(one)], [len(one), len(other)], [116, 0], [5, 6],
    ]  # fmt: skip
    entry = abs(hash_code("A#k")).to_bytes(4, "little") + (1000).to_bytes(8, "little") + (5).to_bytes(8, "little")
    assert plain.entries(tally).tobytes() == entry
    assert tally[[Tally.UNITS, Tally.ENTRIES, Tally.RECORDS, Tally.RECORD_BYTES, Tally.TOPICS]].tolist() == [
        2, 0, 2, len(one) + len(other), 2,
    ]  # fmt: skip
    assert tally[[Tally.LAST_RECORD, Tally.LAST_UNIT, Tally.LAST_ENTRY]].tolist() == [1000 + len(one)] * 2 + [1000]
