"""Index entries before they have a number, a slot and a file: rows in ``putKey`` order.

===  ===================  =============================================================================================
 0   key_hash             int32, little-endian; ``TAG_MARK`` is set in it where the key is of TAGS
 4   offset               int64, commit-log offset of the record
12   store_timestamp      int64, of the record, in milliseconds
===  ===================  =============================================================================================

Not a broker format: scans stage these rows for ``index_file`` and ``index_check``.
"""

from __future__ import annotations

import numpy as np

from storeformat.arrays import Int32s, Structs

ROW = np.dtype([("key_hash", "<i4"), ("offset", "<i8"), ("store_timestamp", "<i8")])
TAG_MARK = -(1 << 31)  # set in the key_hash of TAGS rows; stored hashes are never negative


def hashes_of(rows: Structs) -> Int32s:
    """Hashes as stored in files, without ``TAG_MARK``."""
    return np.asarray(rows["key_hash"] & 0x7FFFFFFF, np.int32)
