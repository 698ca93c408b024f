"""Buffers as callers of kernels make them, and columns that two ways make of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from storeformat.kernels import PADDING, Spans


def padded(data: bytes) -> np.ndarray[Any, Any]:
    """A buffer as callers of kernels make it, but the bytes after the data are not zero: what they decide, shows."""
    return np.frombuffer(data + b"\x02\xff" * (PADDING // 2), np.uint8)


def laid_out(values: list[bytes]) -> tuple[np.ndarray[Any, Any], Spans]:
    """The values one after the other with gaps between them, the last one at the very end of the data."""
    lengths = np.array([len(value) for value in values], np.int32)
    starts = np.cumsum(lengths + np.int64(3)) - lengths
    return padded(b"".join(b"gap" + value for value in values)), Spans(starts.astype(np.int64), lengths)


def assert_same(found: Any, expected: Any, what: str) -> None:
    if isinstance(expected, np.ndarray):
        assert found.dtype == expected.dtype, what
        np.testing.assert_array_equal(found, expected, err_msg=what)
    elif isinstance(expected, tuple | list):
        assert len(found) == len(expected), what
        for number, (one, other) in enumerate(zip(found, expected, strict=True)):
            assert_same(one, other, f"{what}, part {number}")
    else:
        assert found == expected, what
