"""Compiled kernels on records against the reference: the same columns for any bytes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support import golden
from support.entry_log import encode_entry
from support.kernel_columns import NAMES, assert_same, columns, laid_out, padded, value_columns
from support.strategies import ODD_PIECES, apply_damages, damages, logs

from storeformat import message as m
from storeformat.kernels import numpy_kernels

numba_kernels: Any = pytest.importorskip("storeformat.kernels.numba_kernels", exc_type=ImportError)


def assert_kernels_agree(data: bytes, base: int, split_parser: bool = False) -> Mapping[str, Any]:
    expected = columns(numpy_kernels, data, base, split_parser)
    found = columns(numba_kernels, data, base, split_parser)
    assert found.keys() == expected.keys()
    for name, column in expected.items():
        assert_same(found[name], column, name)
    return expected


@pytest.mark.golden
@pytest.mark.parametrize("store", golden.stores("all"), ids=str)
def test_kernels_agree_on_real_logs(store: golden.GoldenStore) -> None:
    root = golden.unpack(store)
    records = 0
    for path in sorted((root / "commitlog").iterdir()):
        found = assert_kernels_agree(path.read_bytes(), int(path.name), split_parser=store.name.endswith("4.6.1"))
        records += len(found["crc"])
    assert records >= len(golden.chain(root, store)) > 0


@settings(
    max_examples=min(60, settings.default.max_examples),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(st.data(), st.booleans())
def test_kernels_agree_on_damaged_logs(data: st.DataObject, split_parser: bool) -> None:
    log = data.draw(logs())
    segments = apply_damages(log.segments, data.draw(damages(log)))
    for base, content in segments.items():
        assert_kernels_agree(content, base, split_parser)


@st.composite
def random_records(draw: Any) -> bytes:
    """Random bytes with sizes that lead through them, magics and lengths that are sometimes right."""
    data = b""
    for _ in range(draw(st.integers(1, 6))):
        content = bytearray(draw(st.binary(min_size=m.BLANK_SIZE, max_size=160)))
        content[4:8] = draw(st.sampled_from([m.MAGIC_V1_BYTES, m.MAGIC_V2_BYTES, bytes(content[4:8])]))
        if len(content) > 92:
            content[36:40] = draw(st.sampled_from([0, 0x10, 0x20, 0x30])).to_bytes(4, "big")
            content[84:88] = draw(st.integers(-2, len(content) - 86)).to_bytes(4, "big", signed=True)
            content[88] = draw(st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFF]))
            content[-2:] = draw(st.sampled_from([b"\0\0", b"\xff\xff", bytes(content[-2:])]))
        size = draw(st.sampled_from([len(content)] * 8 + [len(content) + 1, 8, 0x7FFFFFFF, 1 << 31]))
        data += (size % (1 << 32)).to_bytes(4, "big") + content[4:]
    return data


@settings(max_examples=3 * settings.default.max_examples, deadline=None)
@given(random_records(), st.sampled_from([0, 1 << 40]))
def test_kernels_agree_on_random_records(data: bytes, base: int) -> None:
    found = assert_kernels_agree(data, base)
    assert found["reached"] <= len(data)


PROPERTY_WORDS = [*ODD_PIECES, *NAMES, b"\x01", b"\x02", b"\0", b" ", b"v"]
PROPERTY_BLOCKS = st.lists(
    st.lists(st.sampled_from(PROPERTY_WORDS) | st.binary(max_size=9), max_size=8).map(b"".join),
    max_size=6,
)


@settings(max_examples=5 * settings.default.max_examples, deadline=None)
@given(PROPERTY_BLOCKS, st.booleans())
def test_property_spans_agree_on_any_block(blocks: list[bytes], split_parser: bool) -> None:
    buffer, spans = laid_out(blocks)
    expected = numpy_kernels.property_spans(buffer, *spans, NAMES, split_parser)
    found = numba_kernels.property_spans(buffer, *spans, NAMES, split_parser)
    assert_same(tuple(map(tuple, found)), tuple(map(tuple, expected)), "spans")
    for values in expected:
        one, other = (
            value_columns(implementation, buffer, values) for implementation in (numba_kernels, numpy_kernels)
        )
        assert_same(tuple(one.values()), tuple(other.values()), "values")


@st.composite
def random_entries(draw: Any) -> bytes:
    """DLedger entries whose heads are mostly right: each field lies now and then."""
    data = b""
    index, term = draw(st.sampled_from([0, 5, (1 << 63) - 3])), 1
    for _ in range(draw(st.integers(1, 6))):
        record = bytearray(draw(st.binary(min_size=88, max_size=140)))
        record[:4] = len(record).to_bytes(4, "big")
        entry = bytearray(encode_entry(bytes(record), index, term, len(data)))
        if draw(st.integers(0, 9)) == 0:
            at = draw(st.sampled_from([0, 3, 4, 7, 8, 15, 16, 23, 24, 31, 44, 47, 48, 51]))
            entry[at] = draw(st.integers(0, 255))
        data += entry
        index, term = min(index + 1, (1 << 63) - 1), term + draw(st.sampled_from([0, 0, 0, 1, -1]))
    return data


@settings(max_examples=3 * settings.default.max_examples, deadline=None)
@given(st.data(), random_entries())
def test_walks_over_entries_agree(data: st.DataObject, entries: bytes) -> None:
    limit = data.draw(st.integers(0, len(entries)))
    stop = data.draw(st.integers(0, limit))
    offset = data.draw(st.sampled_from([0, 0, 0, 1]))
    number = data.draw(st.sampled_from([(-1, -1), (4, 1), (5, 1), (4, 2), ((1 << 63) - 1, 0)]))
    committed = data.draw(st.sampled_from([-1, 2, 7, 1 << 62]))
    arguments = (padded(entries[:limit]), 0, stop, limit, offset, *number, committed)
    expected = numpy_kernels.walk_entries(*arguments)
    assert_same(numba_kernels.walk_entries(*arguments), expected, "entries")
    assert expected[1] <= limit
