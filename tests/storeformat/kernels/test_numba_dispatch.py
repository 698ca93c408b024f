"""Compiled dispatch; the pass over plain records is tested with those who use it (``record/test_plain_dispatch``)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.kernel_columns import assert_same

from storeformat.kernels import UnitColumns, numpy_kernels
from storeformat.queues.consume_queue import UNIT

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
