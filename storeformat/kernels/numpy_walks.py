"""The reference kernels that follow sizes through a segment: the only loops over messages in Python. Part of
``numpy_kernels``.
"""

from __future__ import annotations

import struct

import numpy as np

from storeformat import message as m
from storeformat.arrays import Bytes, Int64s
from storeformat.kernels.columns import ENTRY_HEAD, ENTRY_MAGIC

_SIZE = struct.Struct(">i")


def walk_sizes(buffer: Bytes, start: int, stop: int, limit: int) -> tuple[Int64s, int]:
    """See ``Kernels.walk_sizes``."""
    positions: list[int] = []
    append = positions.append
    unpack = _SIZE.unpack_from
    view = memoryview(buffer.data)
    position = start
    stop = min(stop, limit - 3)
    while position < stop:
        size = unpack(view, position)[0]
        if size < m.BLANK_SIZE or position + size > limit:
            break
        append(position)
        position += size
    return np.array(positions, dtype=np.int64), position


def walk_entries(
    buffer: Bytes, start: int, stop: int, limit: int, buffer_offset: int, index: int, term: int, committed: int
) -> tuple[Int64s, int]:
    """See ``Kernels.walk_entries``."""
    positions: list[int] = []
    unpack = ENTRY_HEAD.unpack_from
    view = memoryview(buffer.data)
    position = start
    stop = min(stop, limit - ENTRY_HEAD.size + 1)
    extra = ENTRY_HEAD.size - 4
    while position < stop:
        magic, size, own_index, own_term, place, body_length, total_size = unpack(view, position)
        if magic != ENTRY_MAGIC or size < extra + m.MIN_RECORD_SIZE or position + size > limit:
            break
        if place != buffer_offset + position or body_length != size - extra or total_size != body_length:
            break
        if own_index < 0 or (own_term < term and own_index > committed) or (index >= 0 and own_index != index + 1):
            break
        positions.append(position)
        index, term = own_index, own_term
        position += size
    return np.array(positions, dtype=np.int64), position
