"""CRC-32 (zlib's) in compiled code: carry-less multiplication where the processor has it, else tables for 16 bytes.

A message is a polynomial over GF(2) and its CRC the remainder modulo P. Folding replaces 16 bytes by 16 bytes of the
same remainder 64 (or 16) bytes further on: two carry-less products with powers of x modulo P. What is left at the end
goes through the tables. After "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction" (Gopal and
others, Intel 2009); the factors are those of every implementation of it for the bit-reflected P = 0xEDB88320.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

from storeformat.kernels.machine_words import HAS_CARRYLESS_MULTIPLY, carryless_fold, load32, load64

_POLYNOMIAL = 0xEDB88320
_FOLD_64 = (np.uint64(0x154442BD4), np.uint64(0x1C6E41596))
_FOLD_16 = (np.uint64(0x1751997D0), np.uint64(0x0CCAA009E))
_FOLDED_FROM = 128
"""Shorter spans are not worth the start of four folding chains."""


def _tables() -> npt.NDArray[np.uint32]:
    """Returns row k, column b: what byte b, k bytes before the end, adds to the CRC."""
    tables = np.zeros((16, 256), np.uint32)
    tables[0] = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        odd = tables[0] & 1
        tables[0] = (tables[0] >> 1) ^ (odd * np.uint32(_POLYNOMIAL))
    for k in range(1, 16):
        tables[k] = (tables[k - 1] >> 8) ^ tables[0][tables[k - 1] & 0xFF]
    return tables


TABLES = _tables()


@njit(inline="always")
def _look_up(tables, row, word):  # type: ignore[no-untyped-def]
    """CRC of the four bytes of a word, of which the first is row + 3 bytes before the end."""
    return (
        tables[row + 3, word & 0xFF]
        ^ tables[row + 2, (word >> 8) & 0xFF]
        ^ tables[row + 1, (word >> 16) & 0xFF]
        ^ tables[row, (word >> 24) & 0xFF]
    )


@njit
def _by_tables(tables, buffer, at, end, crc):  # type: ignore[no-untyped-def]
    """CRC state after the bytes [at, end)."""
    while end - at >= 16:
        first = load32(buffer, at) ^ crc
        crc = (
            _look_up(tables, 12, first)
            ^ _look_up(tables, 8, load32(buffer, at + 4))
            ^ _look_up(tables, 4, load32(buffer, at + 8))
            ^ _look_up(tables, 0, load32(buffer, at + 12))
        )
        at += 16
    while at < end:
        crc = np.uint32(crc >> 8) ^ tables[0, (crc ^ buffer[at]) & 0xFF]
        at += 1
    return crc


@njit
def _folded(tables, buffer, at, end):  # type: ignore[no-untyped-def]
    """CRC state after the bytes [at, end), at least 64, from the state of all ones."""
    far_low, far_high = _FOLD_64
    near_low, near_high = _FOLD_16
    a0, a1 = load64(buffer, at) ^ np.uint64(0xFFFFFFFF), load64(buffer, at + 8)
    b0, b1 = load64(buffer, at + 16), load64(buffer, at + 24)
    c0, c1 = load64(buffer, at + 32), load64(buffer, at + 40)
    d0, d1 = load64(buffer, at + 48), load64(buffer, at + 56)
    at += 64
    while end - at >= 64:
        a0, a1 = carryless_fold(a0, a1, far_low, far_high)
        b0, b1 = carryless_fold(b0, b1, far_low, far_high)
        c0, c1 = carryless_fold(c0, c1, far_low, far_high)
        d0, d1 = carryless_fold(d0, d1, far_low, far_high)
        a0, a1 = a0 ^ load64(buffer, at), a1 ^ load64(buffer, at + 8)
        b0, b1 = b0 ^ load64(buffer, at + 16), b1 ^ load64(buffer, at + 24)
        c0, c1 = c0 ^ load64(buffer, at + 32), c1 ^ load64(buffer, at + 40)
        d0, d1 = d0 ^ load64(buffer, at + 48), d1 ^ load64(buffer, at + 56)
        at += 64
    a0, a1 = carryless_fold(a0, a1, near_low, near_high)
    a0, a1 = carryless_fold(a0 ^ b0, a1 ^ b1, near_low, near_high)
    a0, a1 = carryless_fold(a0 ^ c0, a1 ^ c1, near_low, near_high)
    a0, a1 = a0 ^ d0, a1 ^ d1
    while end - at >= 16:
        a0, a1 = carryless_fold(a0, a1, near_low, near_high)
        a0, a1 = a0 ^ load64(buffer, at), a1 ^ load64(buffer, at + 8)
        at += 16
    crc = (
        _look_up(tables, 12, np.uint32(a0))
        ^ _look_up(tables, 8, np.uint32(a0 >> 32))
        ^ _look_up(tables, 4, np.uint32(a1))
        ^ _look_up(tables, 0, np.uint32(a1 >> 32))
    )
    return _by_tables(tables, buffer, at, end, crc)


@njit
def crc32(tables, buffer, at, end, fold):  # type: ignore[no-untyped-def]
    """CRC-32 of the bytes [at, end); ``tables`` is ``TABLES``. ``fold`` allows carry-less products where they exist."""
    state = np.uint32(0xFFFFFFFF)
    if HAS_CARRYLESS_MULTIPLY and fold and end - at >= _FOLDED_FROM:
        state = _folded(tables, buffer, at, end)
    else:
        state = _by_tables(tables, buffer, at, end, state)
    return state ^ np.uint32(0xFFFFFFFF)
