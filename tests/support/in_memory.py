"""Segments that are in memory, where files are expected."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from typing_extensions import Self


class Bytes:
    """Takes the place of one open ``files.RangeReader``."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def read_into(self, offset: int, target: memoryview) -> None:
        target[:] = self.data[offset : offset + len(target)]

    def next_data(self, offset: int) -> int:
        return offset  # no holes


class MemoryReader:
    """Takes the place of the class ``files.RangeReader``: paths are keys of ``contents``."""

    contents: ClassVar[dict[str, bytes]] = {}

    def __init__(self, path: str) -> None:
        self._data = self.contents[path]

    def read_into(self, offset: int, target: memoryview) -> None:
        target[:] = self._data[offset : offset + len(target)]

    def next_data(self, offset: int) -> int:
        return offset  # no holes

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass
