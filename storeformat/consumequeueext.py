"""Consume queue ext: where a queue keeps tags code, store time and a filter's bit map (``enableConsumeQueueExt``).

======  ==========  ===============  ==============================================================
offset  type        field            meaning
======  ==========  ===============  ==============================================================
0       i16         size             of the whole unit; -1 closes a file
2       i64         tags_code        what the queue's unit would hold
10      i64         msg_store_time   milliseconds
18      i16         bit_map_size     bytes of the bit map behind
======  ==========  ===============  ==============================================================

All big-endian. Files are named with the byte offset of their first unit. The unit in the consume queue holds the
address instead of the tags code: the byte offset with the sign bit set. Mirrors ConsumeQueueExt (4.1.0 to 5.5.0).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

UNIT_HEAD = np.dtype([("size", ">i2"), ("tags_code", ">i8"), ("msg_store_time", ">i8"), ("bit_map_size", ">i2")])
MAX_ADDRESS = -(1 << 31) - 1
"""Tags codes up to this are addresses (ConsumeQueueExt#isExtAddr); hashes and delivery times are all higher."""

_WITHOUT_SIGN = (1 << 63) - 1


def is_address(tags_codes: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Returns which tags codes are addresses."""
    return tags_codes <= MAX_ADDRESS


def unit_offsets(addresses: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Returns the byte offsets that addresses stand for (ConsumeQueueExt#unDecorate)."""
    return np.asarray(addresses, np.int64) & np.int64(_WITHOUT_SIGN)


def parse_unit_heads(content: npt.NDArray[np.uint8], positions: npt.NDArray[np.int64]) -> npt.NDArray[np.void]:
    """Returns the heads of the units at these positions of a file's bytes, as rows of ``UNIT_HEAD``.

    A unit of which not even the head lies inside has only zeros.
    """
    heads = np.zeros(len(positions), UNIT_HEAD)
    inside = np.flatnonzero((positions >= 0) & (positions + UNIT_HEAD.itemsize <= len(content)))
    places = positions[inside, None] + np.arange(UNIT_HEAD.itemsize)
    heads[inside] = np.ascontiguousarray(content[places]).view(UNIT_HEAD)[:, 0]
    return heads
