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

from storeformat.kernels.machine_words import (
    HAS_CARRYLESS_MULTIPLY,
    carryless_fold,
    exclusive_or,
    load8,
    load32,
    load_pair,
    pair,
    words,
)

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


@njit(forceinline=True)
def _entry(tables, row, byte):  # type: ignore[no-untyped-def]
    return load32(tables, 1024 * row + 4 * np.int64(byte & 0xFF))


@njit(forceinline=True)
def _look_up(tables, row, word):  # type: ignore[no-untyped-def]
    """CRC of the four bytes of a word; the first lies row + 3 bytes before the end."""
    return (
        _entry(tables, row + 3, word)
        ^ _entry(tables, row + 2, word >> 8)
        ^ _entry(tables, row + 1, word >> 16)
        ^ _entry(tables, row, word >> 24)
    )


@njit(forceinline=True)
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
        crc = np.uint32(crc >> 8) ^ _entry(tables, 0, crc ^ load8(buffer, at))
        at += 1
    return crc


@njit(forceinline=True)
def _folded(tables, buffer, at, end):  # type: ignore[no-untyped-def]
    """CRC state after the bytes [at, end), at least 64, from the state of all ones."""
    far, near = pair(*_FOLD_64), pair(*_FOLD_16)
    a = exclusive_or(load_pair(buffer, at), pair(np.uint64(0xFFFFFFFF), np.uint64(0)))
    b, c, d = load_pair(buffer, at + 16), load_pair(buffer, at + 32), load_pair(buffer, at + 48)
    at += 64
    while end - at >= 64:
        a = exclusive_or(carryless_fold(a, far), load_pair(buffer, at))
        b = exclusive_or(carryless_fold(b, far), load_pair(buffer, at + 16))
        c = exclusive_or(carryless_fold(c, far), load_pair(buffer, at + 32))
        d = exclusive_or(carryless_fold(d, far), load_pair(buffer, at + 48))
        at += 64
    a = exclusive_or(carryless_fold(a, near), b)
    a = exclusive_or(carryless_fold(a, near), c)
    a = exclusive_or(carryless_fold(a, near), d)
    while end - at >= 16:
        a = exclusive_or(carryless_fold(a, near), load_pair(buffer, at))
        at += 16
    low, high = words(a)
    crc = (
        _look_up(tables, 12, np.uint32(low))
        ^ _look_up(tables, 8, np.uint32(low >> np.uint64(32)))
        ^ _look_up(tables, 4, np.uint32(high))
        ^ _look_up(tables, 0, np.uint32(high >> np.uint64(32)))
    )
    return _by_tables(tables, buffer, at, end, crc)


@njit(forceinline=True)
def crc32(tables, buffer, at, end, fold):  # type: ignore[no-untyped-def]
    """CRC-32 of the bytes [at, end); ``tables`` is the memory of ``TABLES``. ``fold`` allows carry-less products where
    they exist.
    """
    state = np.uint32(0xFFFFFFFF)
    if HAS_CARRYLESS_MULTIPLY and fold and end - at >= _FOLDED_FROM:
        state = _folded(tables, buffer, at, end)
    else:
        state = _by_tables(tables, buffer, at, end, state)
    return state ^ np.uint32(0xFFFFFFFF)
