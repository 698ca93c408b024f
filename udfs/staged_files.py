"""Staged files that a task reads from in many places."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from storeformat.storage import files

if TYPE_CHECKING:
    from typing_extensions import Self


class Readers:
    """Keeps the files of one task open; a task reads many slices of few files."""

    _MOST = 256

    def __init__(self) -> None:
        self._open: dict[str, files.RangeReader] = {}

    def open(self, path: str) -> files.RangeReader:
        """Returns the reader of a file."""
        if path not in self._open:
            if len(self._open) >= self._MOST:
                self._open.pop(next(iter(self._open))).close()
            self._open[path] = files.RangeReader(path)
        return self._open[path]

    def rows(self, path: str, kind: np.dtype[Any], begin: int, count: int) -> npt.NDArray[Any]:
        """Returns ``count`` rows of a fixed layout from row ``begin`` on."""
        content = bytearray(count * kind.itemsize)
        self.open(path).read_into(begin * kind.itemsize, memoryview(content))
        return np.frombuffer(content, kind)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for reader in self._open.values():
            reader.close()
