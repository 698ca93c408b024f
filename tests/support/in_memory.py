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

    def read(self, offset: int, length: int) -> bytes:
        data = bytearray(length)
        self.read_into(offset, memoryview(data))
        return bytes(data)

    def next_data(self, offset: int) -> int:
        return offset  # no holes


class MemoryReader(Bytes):
    """Takes the place of the class ``files.RangeReader``: paths are keys of ``contents``."""

    contents: ClassVar[dict[str, bytes]] = {}

    def __init__(self, path: str) -> None:
        super().__init__(self.contents[path])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass
