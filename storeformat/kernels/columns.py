"""The column types that kernels take and return."""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from storeformat.arrays import Bools, Bytes, Int32s, Int64s

PADDING = 256
"""Bytes that must follow the data of every buffer, so that a head read at the last position stays inside it."""

ENTRY_MAGIC = 1
ENTRY_HEAD = struct.Struct(">iiqqq12xii")
"""Of a DLedger entry (``storeformat.log.dledger``): magic, size, index, term, pos, bodyLen, and the record's TOTALSIZE.
"""


class Spans(NamedTuple):
    """Byte ranges in a buffer, one a row: ``[start, start + length)``; length -1 means absent."""

    starts: Int64s
    lengths: Int32s

    def rows(self, chosen: slice | Bools | Int64s) -> Spans:
        """Some rows."""
        return Spans(self.starts[chosen], self.lengths[chosen])


class Heads(NamedTuple):
    """The fixed fields of each record, and where its variable parts lie in the buffer. All columns have one row a
    record.

    ``defect`` holds ``RecordDefect`` codes; the positions of a row with a defect in its frame are only safe to read,
    not right. Starts are positions in the buffer, times milliseconds; negative lengths are stored as 0.
    """

    total_size: Int32s
    magic_code: Int32s
    body_crc: npt.NDArray[np.uint32]
    queue_id: Int32s
    flag: Int32s
    queue_offset: Int64s
    physical_offset: Int64s
    sys_flag: Int32s
    born_timestamp: Int64s
    store_timestamp: Int64s
    reconsume_times: Int32s
    prepared_transaction_offset: Int64s
    body_start: Int64s
    body_length: Int32s
    topic_start: Int64s
    topic_length: Int32s
    properties_start: Int64s
    properties_length: Int32s
    defect: Bytes

    def rows(self, chosen: slice | Bools | Int64s) -> Heads:
        """Some rows."""
        return Heads._make(column[chosen] for column in self)
