"""Consume queue ext: places, addresses and bytes, against the broker's own unit by unit."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storeformat import consumequeueext as ext
from storeformat.errors import TotalsDisagree, WrongSettings

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


def test_units_and_end_mark() -> None:
    units = ext.pack_units([2598919, -2113935936, 1795167552993], [1, 2, 1 << 40])
    content = b"".join(bytes(piece) for piece in ext.file_pieces([units[:2], units[2:]], closed=True))
    assert content == b"".join(
        struct.pack(">hqqh", 20, code, time, 0)
        for code, time in ((2598919, 1), (-2113935936, 2), (1795167552993, 1 << 40))
    ) + b"\xff\xff"  # fmt: skip
    assert ext.written_units(content.ljust(100, b"\0")) == 3
    assert b"".join(bytes(piece) for piece in ext.file_pieces([units], closed=False)) == content[:-2]


def test_a_file_without_room_is_an_error() -> None:
    assert ext.units_per_file(24) == 1
    with pytest.raises(WrongSettings, match="mappedFileSizeConsumeQueueExt"):
        ext.units_per_file(23)


def test_no_address_beyond_the_last() -> None:
    with pytest.raises(TotalsDisagree, match="no address"):
        ext.addresses((1 << 63) // 24, 1, 24)
