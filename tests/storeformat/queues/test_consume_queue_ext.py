"""Consume queue ext: places, addresses and bytes, against the broker's own unit by unit."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from support.refusals import refusal

from storeformat.errors import TotalsDisagree, WrongSettings
from storeformat.queues import consume_queue_ext as ext

SIGN = 1 << 63


def places(units: int, file_size: int) -> Iterator[int]:
    """ConsumeQueueExt#put for units of 20 bytes, one after the other: where each begins."""
    wrote, base = 0, 0
    for _ in range(units):
        if file_size - wrote - 4 < 20:
            wrote, base = 0, base + file_size
        yield base + wrote
        wrote += 20


@given(st.integers(24, 200), st.integers(0, 60), st.integers(0, 60))
def test_addresses_are_those_that_the_broker_counts(file_size: int, first: int, count: int) -> None:
    expected = list(places(first + count, file_size))[first:]
    found = ext.addresses(first, count, file_size)
    assert (found + np.int64(SIGN - 1) + np.int64(1)).tolist() == expected
    assert ext.is_address(found).all()
    assert ext.unit_offsets(found).tolist() == expected


def test_the_first_address() -> None:
    assert ext.addresses(0, 1, 1000).astype(">i8").tobytes().hex() == "8000000000000000"


def test_what_is_an_address() -> None:
    """ConsumeQueueExt#isExtAddr: up to Integer.MIN_VALUE - 1, which no hash and no time is."""
    codes = [-(1 << 63), -(1 << 31) - 1, -(1 << 31), -1, 0, (1 << 31) - 1, 1_700_000_000_000]
    assert ext.is_address(np.array(codes)).tolist() == [True, True, False, False, False, False, False]


def test_units_and_end_mark() -> None:
    units = ext.pack_units([2598919, -2113935936, 1795167552993], [1, 2, 1 << 40])
    content = b"".join(bytes(piece) for piece in ext.file_pieces([units[:2], units[2:]], closed=True))
    assert content == b"".join(
        struct.pack(">hqqh", 20, code, time, 0)
        for code, time in ((2598919, 1), (-2113935936, 2), (1795167552993, 1 << 40))
    ) + b"\xff\xff"  # fmt: skip
    assert [ext.written_units(content[:size].ljust(100, b"\0")) for size in (62, 60, 40, 0)] == [3, 3, 2, 0]
    assert [ext.written_units(content[:size]) for size in (62, 60, 40, 0)] == [3, 3, 2, 0]
    with_bit_map = struct.pack(">hqqh8x", 28, 1, 2, 8)
    assert ext.written_units(content[:20] + with_bit_map) == 1
    places = np.array([0, -1, 20, 42, 43, 62, 1 << 40])
    heads = ext.parse_unit_heads(np.frombuffer(content, np.uint8), places)
    assert heads["size"].tolist() == [20, 0, 20, struct.unpack_from(">h", content, 42)[0], 0, 0, 0]
    assert heads["tags_code"][[0, 1, 2]].tolist() == [2598919, 0, -2113935936]
    assert b"".join(bytes(piece) for piece in ext.file_pieces([units], closed=False)) == content[:-2]


def test_a_file_without_room_is_an_error() -> None:
    assert ext.units_per_file(24) == 1
    said = {"what": "mappedFileSizeConsumeQueueExt holds no unit", "found": 23, "expected": "24 or more"}
    assert refusal(WrongSettings, lambda: ext.units_per_file(23)) == said


def test_no_address_beyond_the_last() -> None:
    first = (1 << 63) // 24
    said = {"what": "consume queue ext has no address for a unit", "found": first * 24}
    assert refusal(TotalsDisagree, lambda: ext.addresses(first, 1, 24)) == said
