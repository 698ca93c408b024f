"""Consume queue ext: tags code, store time and filter bit map of a queue's units (``enableConsumeQueueExt``).

FORMAT.md has the unit. Files are named with the byte offset of their first unit. The consume-queue unit holds the
address instead of the tags code: the byte offset with the sign bit set. Mirrors ConsumeQueueExt (4.1.0 to 5.5.0).

Bit maps come from consumers, so units made here have none, like those of topics without filters; a broker passes
messages without one to the filter itself. Then all units have one size, and a unit's place follows from its number:
each record put into the queue counts, even if its unit was dropped; records of light queues do not. A broker's own
files differ where units have bit maps, where it deleted the log's head, and where it dispatched records twice.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from storeformat.arrays import Bools, Bytes, Int64s, Structs, leading
from storeformat.errors import TotalsDisagree, WrongSettings

UNIT_HEAD = np.dtype([("size", ">i2"), ("tags_code", ">i8"), ("msg_store_time", ">i8"), ("bit_map_size", ">i2")])
MAX_ADDRESS = -(1 << 31) - 1  # highest address (ConsumeQueueExt#isExtAddr); hashes and delivery times are higher

UNIT_SIZE = UNIT_HEAD.itemsize  # without a bit map

_WITHOUT_SIGN = (1 << 63) - 1
_SIGN = -(1 << 63)
_END_BLANK = 4  # bytes reserved for a file's end mark (ConsumeQueueExt#END_BLANK_DATA_LENGTH)

END_MARK = (-1).to_bytes(2, "big", signed=True)
_MAX_REAL_OFFSET = MAX_ADDRESS - _SIGN


def units_per_file(file_size: int) -> int:
    """Number of units without bit maps in a file. Without one, a broker would create empty files endlessly."""
    units = (file_size - _END_BLANK) // UNIT_SIZE
    if units < 1:
        raise WrongSettings(
            "mappedFileSizeConsumeQueueExt holds no unit", found=file_size, expected=f"{UNIT_SIZE + _END_BLANK} or more"
        )
    return units


def addresses(first: int, count: int, file_size: int) -> Int64s:
    """Addresses of ``count`` units from number ``first`` on, as stored in the queue's units."""
    numbers = np.arange(first, first + count, dtype=np.int64)
    per_file = units_per_file(file_size)
    offsets = numbers // per_file * file_size + numbers % per_file * UNIT_SIZE
    if count and int(offsets[-1]) + UNIT_SIZE > _MAX_REAL_OFFSET:
        raise TotalsDisagree("consume queue ext has no address for a unit", found=int(offsets[-1]))
    return offsets + np.int64(_SIGN)


def pack_units(tags_codes: npt.ArrayLike, store_timestamps: npt.ArrayLike) -> Structs:
    """Units without bit maps."""
    codes = np.asarray(tags_codes)
    units = np.zeros(len(codes), UNIT_HEAD)
    units["size"], units["tags_code"], units["msg_store_time"] = UNIT_SIZE, codes, store_timestamps
    return units


def written_units(content: bytes | memoryview) -> int:
    """Number of units without bit maps before the first other bytes."""
    units = np.frombuffer(content, UNIT_HEAD, len(content) // UNIT_SIZE)
    return leading((units["size"] == UNIT_SIZE) & (units["bit_map_size"] == 0))


def is_address(tags_codes: Int64s) -> Bools:
    """Which tags codes are addresses."""
    return tags_codes <= MAX_ADDRESS


def unit_offsets(addresses: Int64s) -> Int64s:
    """Byte offsets of addresses (ConsumeQueueExt#unDecorate)."""
    return np.asarray(addresses, np.int64) & np.int64(_WITHOUT_SIGN)


def parse_unit_heads(content: Bytes, positions: Int64s) -> Structs:
    """Unit heads at positions of a file's bytes; zeros for a head outside the bytes."""
    heads = np.zeros(len(positions), UNIT_HEAD)
    inside = np.flatnonzero((positions >= 0) & (positions + UNIT_HEAD.itemsize <= len(content)))
    places = positions[inside, None] + np.arange(UNIT_HEAD.itemsize)
    heads[inside] = np.ascontiguousarray(content[places]).view(UNIT_HEAD)[:, 0]
    return heads
