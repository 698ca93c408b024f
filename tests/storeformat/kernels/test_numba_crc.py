"""The compiled CRC against zlib's."""

from __future__ import annotations

import zlib

import numpy as np
import pytest

pytest.importorskip("storeformat.kernels.numba_kernels", exc_type=ImportError)


@pytest.mark.parametrize("carryless", [pytest.param(True, marks=pytest.mark.thorough), False])
def test_crc_is_zlibs_at_every_length(carryless: bool) -> None:
    from storeformat.kernels.machine_words import memory
    from storeformat.kernels.numba_crc import TABLES, crc32

    data = np.random.default_rng(6).integers(0, 256, 5000, np.uint8)
    for length in (*range(300), 4096, 4999):
        assert crc32(memory(TABLES), memory(data), 1, 1 + length, carryless) == zlib.crc32(data[1 : 1 + length]), length


def test_tables_are_remainders_bit_by_bit() -> None:
    from storeformat.kernels.numba_crc import _tables

    def remainder(byte: int, shift: int) -> int:
        for _ in range(shift):
            byte = byte >> 1 ^ (0xEDB88320 if byte & 1 else 0)
        return byte

    tables = _tables()
    assert (tables.shape, tables.dtype) == ((16, 256), np.uint32)
    assert tables.tolist() == [[remainder(byte, 8 * row + 8) for byte in range(256)] for row in range(16)]
