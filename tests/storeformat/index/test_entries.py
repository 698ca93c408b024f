"""Index entries before they have a file."""

from __future__ import annotations

import numpy as np

from storeformat.index.entries import ROW, TAG_MARK, hashes_of


def test_a_row_has_twenty_bytes_and_its_hash_no_mark() -> None:
    rows = np.array([(5, 900, 7), (5 | TAG_MARK, 950, 8), (0x7FFFFFFF | TAG_MARK, 990, 9)], ROW)
    assert rows.tobytes()[:20] == bytes([5, 0, 0, 0, 0x84, 3, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0])
    assert (rows["key_hash"] < 0).tolist() == [False, True, True]
    assert hashes_of(rows).tolist() == [5, 5, 0x7FFFFFFF]
    assert hashes_of(rows).dtype == np.int32
