"""Index entries as a log makes them, before they have a number, a slot and a file: rows in the order of ``putKey``.

===  ===================  =============================================================================================
 0   key_hash             int32, little-endian; ``TAG_MARK`` is set in it where the key is of TAGS
 4   offset               int64, commit-log offset of the record
12   store_timestamp      int64, of the record, in milliseconds
===  ===================  =============================================================================================

This is not a format of the broker's: scans stage it for those that build index files (``index_file``) or check them
(``matching``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from storeformat.arrays import Int32s, Structs

ROW = np.dtype([("key_hash", "<i4"), ("offset", "<i8"), ("store_timestamp", "<i8")])
TAG_MARK = -(1 << 31)
"""Set in the ``key_hash`` of rows that come from TAGS; stored hashes are never negative."""


@dataclass(frozen=True)
class Rows:
    """The entries that the log makes, in its order: ``read(begin, end)`` returns rows of ``ROW``, ``find(offset)`` the
    number of the first row at or after a commit-log offset.
    """

    total: int
    read: Callable[[int, int], Structs]
    find: Callable[[int], int]


def hashes_of(rows: Structs) -> Int32s:
    """Returns the hashes of rows as they are stored, without the mark of TAGS."""
    return np.asarray(rows["key_hash"] & 0x7FFFFFFF, np.int32)
