"""Compiled kernels on values against the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storeformat.index.index_file import ENTRY
from storeformat.kernels import numpy_kernels

numba_kernels: Any = pytest.importorskip("storeformat.kernels.numba_kernels", exc_type=ImportError)


@settings(max_examples=settings.default.max_examples, deadline=None)
@given(st.data(), st.integers(0, 300), st.sampled_from([1, 7, 100]), st.sampled_from([-1, 0, 1, 1_700_000_000_000]))
def test_index_entries_are_linked_and_packed_alike(data: st.DataObject, count: int, slots: int, begin: int) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 1 << 32)))
    key_hashes = rng.choice(np.array([0, 5, 0x7FFFFFFF, 12, 1 << 20], np.int32), count)
    phy_offsets = rng.integers(0, 1 << 62, count)
    timestamps = begin + rng.choice(np.array([-1, 0, 999, 1000, 1 << 41, 1 << 42]), count)
    results = []
    for implementation in (numpy_kernels, numba_kernels):
        table, packed = np.zeros(slots, np.int32), np.zeros(count, ENTRY)
        for part in (slice(0, count // 3), slice(count // 3, count)):
            columns = (key_hashes[part], phy_offsets[part], timestamps[part])
            implementation.put_entries(*columns, begin, part.start + 1, table, packed[part])
        results.append((packed.tobytes(), table.tolist()))
    assert results[0] == results[1]
    assert np.frombuffer(results[0][0], ENTRY)["prev_index"].max(initial=0) < max(count, 1)
