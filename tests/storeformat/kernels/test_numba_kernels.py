"""The compiled kernels as a module: what they are made of, and where it lies."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from storeformat.kernels import PADDING, cache

numba_kernels: Any = pytest.importorskip("storeformat.kernels.numba_kernels", exc_type=ImportError)


def test_compiled_functions_come_from_the_copies_in_the_cache() -> None:
    from storeformat.kernels import numba_records

    place = Path(str(numba_records.__file__))
    assert place.parent == Path(os.environ["NUMBA_CACHE_DIR"], f"sources-{cache.source_name()}")
    assert place.read_bytes() == Path(cache.__file__).with_name("numba_records.py").read_bytes()
    assert numba_kernels.walk_sizes is numba_records.walk_sizes


def test_no_record_at_all() -> None:
    buffer = np.zeros(PADDING, np.uint8)
    positions, reached = numba_kernels.walk_sizes(buffer, 0, 0, 0)
    assert (len(positions), reached) == (0, 0)
    assert [len(column) for column in numba_kernels.decode_heads(buffer, positions, 0)] == [0] * 19
