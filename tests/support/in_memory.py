"""A segment that is in memory, where a file's reader is expected."""

from __future__ import annotations


class Bytes:
    """Takes the place of ``files.RangeReader``."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def read_into(self, offset: int, target: memoryview) -> None:
        target[:] = self.data[offset : offset + len(target)]
