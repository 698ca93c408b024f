"""The hot functions on buffers: ``numpy_kernels`` is the general way, ``numba_kernels`` (extra ``fast``) does the bulk
of a sound log faster, with the same result. ``ROCKETMQ_STORE_SPARK_KERNELS=numpy`` does without, ``numba`` insists.
Here are the columns that they take and return, and what the pass over plain records is given and fills.

Shapes and units: a buffer is ``uint8`` in native memory with at least ``PADDING`` bytes after its data; starts and
positions are int64 places in it, lengths int32 bytes; all columns that go in or come out of one call have one row a
record (or span). No function raises on bad bytes, and none reads outside the buffer.
"""

from __future__ import annotations

import os
import pkgutil
import struct
import sys
import zlib
from enum import IntEnum
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

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
    """Fixed fields of each record, and the positions of its variable parts in the buffer, one row a record.

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


ENTRY_SIZE = 20
"""Bytes of an index entry as a pass writes it: key hash (int32), offset and store timestamp (int64)."""


class UnitColumns(NamedTuple):
    """Consume-queue units, one a row, in log order; or room for them, which a pass fills from the front."""

    topic_codes: Int32s
    queue_ids: Int32s
    queue_offsets: Int64s
    offsets: Int64s
    sizes: Int32s
    tags_codes: Int64s
    store_timestamps: Int64s

    @staticmethod
    def of(rows: int) -> UnitColumns:
        """Room for so many units."""
        return UnitColumns(*(np.empty(rows, kind) for kind in ("i4", "i4", "i8", "i8", "i4", "i8", "i8")))

    def rows(self, chosen: slice | Bools) -> UnitColumns:
        """Some rows."""
        return UnitColumns._make(column[chosen] for column in self)

    def put(self, rows: slice, units: UnitColumns) -> None:
        """Copies units into these rows."""
        columns: list[tuple[npt.NDArray[Any], npt.NDArray[Any]]] = list(zip(self, units, strict=True))
        for column, values in columns:
            column[rows] = values


class TopicKind(IntEnum):
    """What a pass over plain records does with those of a topic."""

    PLAIN = 0
    SCHEDULE = 1
    """The tags code of a record with DELAY is its time of delivery."""
    ODD = 2
    """They are left to the general way."""


class TopicTable(NamedTuple):
    """The topics that a pass over plain records knows: a table of open addressing, and a row a topic.

    ``slots`` (a power of two) hold rows or -1, ``mixes`` the hashes of the names. ``names`` holds the names without
    gaps, and ``PADDING`` bytes. The pass itself adds a topic and stops; whoever called it fills in the
    scan's code of it, its ``TopicKind`` and its ``joined_topics``, which are as in ``numpy_kernels.index_keys``.
    """

    slots: Int64s
    mixes: npt.NDArray[np.uint64]
    names: Bytes
    starts: Int64s
    lengths: Int32s
    codes: Int32s
    kinds: Bytes
    joined_topics: Int32s

    @staticmethod
    def of(topics: int, name_bytes: int) -> TopicTable:
        """A table with room for so many topics and bytes of names."""
        return TopicTable(
            np.full(1 << (2 * topics - 1).bit_length(), -1, np.int64),
            np.empty(topics, np.uint64),
            np.zeros(name_bytes + PADDING, np.uint8),
            np.empty(topics, np.int64),
            np.empty(topics, np.int32),
            np.zeros(topics, np.int32),
            np.full(topics, TopicKind.ODD, np.uint8),
            np.zeros((2, topics), np.int32),
        )

    def name(self, row: int) -> bytes:
        """The name of a topic."""
        start = int(self.starts[row])
        return self.names[start : start + int(self.lengths[row])].tobytes()


class PlainRules(NamedTuple):
    """What a pass over plain records checks and makes; see ``DecodeRules`` and ``DispatchRules``."""

    check_crc: bool
    split_parser: bool
    with_units: bool
    with_entries: bool
    index_tags: bool
    delay_millis: Int64s


class Tally(IntEnum):
    """Places in the sums (int64) that a pass over plain records keeps up. Sums of offsets are modulo 2**64."""

    UNITS = 0
    """Rows filled of the room for units."""
    ENTRIES = 1
    """Rows filled of the room for index entries."""
    RECORDS = 2
    RECORD_BYTES = 3
    LAST_RECORD = 4
    LAST_UNIT = 5
    LAST_ENTRY = 6
    FIRST_TIME = 7
    """Store timestamp of the first record; valid where there are records."""
    THIRD_TIME = 8
    """The last three store timestamps, the third from last first; as many are valid as there are records."""
    SECOND_TIME = 9
    LAST_TIME = 10
    LATEST_TIME = 11
    TOPICS = 12
    """Topics in the table."""
    STOP = 13
    """Why the pass ended, a ``PlainStop``."""

    @staticmethod
    def start() -> Int64s:
        """The sums of nothing."""
        sums = np.zeros(len(Tally), np.int64)
        sums[[Tally.LAST_RECORD, Tally.LAST_UNIT, Tally.LAST_ENTRY]] = -1
        return sums


class PlainStop(IntEnum):
    """Why a pass over plain records ended."""

    DONE = 0
    NEW_TOPIC = 1
    """The next record has a topic that was not in the table: it is its last row now."""
    FULL = 2
    """The columns have no room for the next record."""
    ODD = 3
    """The next record is not sound or not plain, or its topic is one too many."""


_WITH_CONSTANTS = ("message.py", "kernels/__init__.py")
"""Modules whose values go into compiled code: numba does not see that they change."""
_preferred = "auto"


def prefer_numpy() -> None:
    """Lets this process use numpy where the user named nothing: for little work, loading compiled code takes longer."""
    global _preferred  # noqa: PLW0603  (a process has one implementation)
    _preferred = "numpy"
    compiled.cache_clear()


def active() -> ModuleType:
    """The module to take ``walk_sizes``, ``crc32_spans``, ``property_spans`` and ``property_pieces`` from."""
    from storeformat.kernels import numpy_kernels  # noqa: PLC0415 - it takes the columns from here

    return compiled() or numpy_kernels


@lru_cache(maxsize=1)
def compiled() -> ModuleType | None:
    """The module of compiled functions, None where this process uses numpy alone.

    Raises ImportError where ``ROCKETMQ_STORE_SPARK_KERNELS`` asks for numba and it is not installed.
    """
    choice = os.environ.get("ROCKETMQ_STORE_SPARK_KERNELS", _preferred)
    if choice == "numpy":
        return None
    is_ours = sys.prefix != sys.base_prefix and os.access(sys.prefix, os.W_OK)
    digest = 0
    for name in _WITH_CONSTANTS:
        digest = zlib.crc32(pkgutil.get_data("storeformat", name) or b"", digest)
    try:
        home = Path(sys.prefix if is_ours else "~/.cache/rocketmq-store-spark").expanduser()
        os.environ.setdefault("NUMBA_CACHE_DIR", str(home / "kernels" / f"{digest:08x}"))
        import storeformat.kernels.numba_kernels as made  # noqa: PLC0415 - it may be missing
    except (ImportError, RuntimeError, OSError):  # without numba, a home directory, or a place for its cache
        if choice == "numba":
            raise
        return None
    return made
