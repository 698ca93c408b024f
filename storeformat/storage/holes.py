"""Where an open local file holds data, and where holes, which read as zeros."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator

_NO_HOLES = frozenset({errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.ENOTTY})
"""What file systems answer that cannot tell holes from data."""


def data_ranges(handle: int, begin: int, size: int) -> Iterator[tuple[int, int]]:
    """Yields the parts [low, high) of [begin, size) of an open file that are not holes; all of it where the file system
    does not tell.
    """
    while begin < size:
        try:
            low = os.lseek(handle, begin, os.SEEK_DATA)
            high = os.lseek(handle, low, os.SEEK_HOLE)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return
            if error.errno not in _NO_HOLES:
                raise
            low, high = begin, size
        if low < size:
            yield low, min(high, size)
        begin = high
