"""Staged files: their writer, the slices of them that make an output file, and readers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from storeformat.arrays import Structs, cut_ranges, narrow, sum_of_offsets
from storeformat.queues.consume_queue import SLICE
from storeformat.storage import files, locations

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(frozen=True, slots=True)
class Slices:
    """Parts of staged files in order: rows of ``SLICE``, whose ``source`` is a number into ``sources``."""

    sources: tuple[str, ...]
    table: Structs

    @staticmethod
    def of(*slices: tuple[str, int, int]) -> Slices:
        """Slices from (source, begin, count)."""
        sources = {source: number for number, source in enumerate(dict.fromkeys(source for source, _, _ in slices))}
        rows = [(sources[source], begin, count, False) for source, begin, count in slices]
        return Slices(tuple(sources), np.array(rows, SLICE))

    def __len__(self) -> int:
        return len(self.table)

    def __getitem__(self, part: slice) -> Slices:
        table = self.table[part].copy()
        used, table["source"] = np.unique(table["source"], return_inverse=True)
        return Slices(tuple(self.sources[source] for source in used.tolist()), table)

    def __iter__(self) -> Iterator[tuple[str, int, int]]:
        for source, begin, count in self.table[["source", "begin", "count"]].tolist():
            yield self.sources[source], begin, count

    @property
    def rows(self) -> int:
        return int(self.table["count"].sum(dtype=np.int64))

    @property
    def first(self) -> tuple[str, int]:
        """Source and number of the first row."""
        row = self.table[0]
        return self.sources[row["source"]], int(row["begin"])

    @property
    def last(self) -> tuple[str, int]:
        """Source and number of the last row."""
        row = self.table[-1]
        return self.sources[row["source"]], int(row["begin"] + row["count"]) - 1

    def cut(self, every: int, first: int = 0) -> Iterator[tuple[int, Slices]]:
        """Number and slices of each file of ``every`` rows, with the first row at place ``first``."""
        ends = np.cumsum(self.table["count"], dtype=np.int64) + first
        begins = ends - self.table["count"]
        rows, numbers, piece_begins, piece_ends = cut_ranges(begins, ends, every)
        pieces = Slices(self.sources, self.table[rows])
        pieces.table["begin"] += narrow(piece_begins - begins[rows])
        pieces.table["count"] = narrow(piece_ends - piece_begins)
        edges = [*np.flatnonzero(np.diff(numbers, prepend=-1)).tolist(), len(numbers)]
        for begin, end in pairwise(edges):
            yield int(numbers[begin]), pieces[begin:end]

    def steps(self, most: int) -> Iterator[tuple[str, int, int]]:
        """Source, begin and count of pieces of at most ``most`` rows, in order."""
        for source, begin, count in self:
            for first in range(begin, begin + count, most):
                yield source, first, min(most, begin + count - first)


@dataclass(frozen=True, slots=True)
class Staged:
    """Number of a split's rows, their offset sum modulo 2**64, their file, if written, and bytes of their runs."""

    count: int = 0
    offset_sum: int = 0
    path: str = ""
    runs: bytes = b""


NOTHING_STAGED = Staged()


class StagedFile:
    """A staging file, created with its first rows. Without a ``directory`` rows are only counted."""

    def __init__(self, directory: str, name: str) -> None:
        self.wanted = bool(directory)
        self.count = self._offset_sum = 0
        self._path = locations.join(directory, name)
        self._open = ExitStack()
        self._file: Any = None

    @property
    def path(self) -> str:
        """Path of the rows; empty without any."""
        return self._path if self._file else ""

    def take(self, rows: npt.NDArray[Any], offsets: npt.NDArray[Any]) -> None:
        """Count rows, a contiguous array, with their log offsets, and write them."""
        if self.wanted and len(rows):
            self.write(rows)
        self.count += len(rows)
        self._offset_sum = (self._offset_sum + sum_of_offsets(offsets)) % (1 << 64)

    def totals(self) -> Staged:
        return Staged(self.count, self._offset_sum, self.path)

    def write(self, rows: npt.NDArray[Any]) -> None:
        """Append rows, a contiguous array."""
        self._file = self._file or self._open.enter_context(files.new_stream(self._path))
        with files.writing(self._path):
            self._file.write(rows.view(np.uint8).data)

    def close(self, kind: type[BaseException] | None, error: BaseException | None) -> None:
        """Close the file; after an exception it is removed."""
        self._open.__exit__(kind, error, None)


class Readers:
    """Keeps a task's files open: it reads many slices of few files."""

    _MOST = 256

    def __init__(self) -> None:
        self._open: dict[str, files.RangeReader] = {}

    def open(self, path: str) -> files.RangeReader:
        if path not in self._open:
            if len(self._open) >= self._MOST:
                self._open.pop(next(iter(self._open))).close()
            self._open[path] = files.RangeReader(path)
        return self._open[path]

    def rows(
        self, path: str, kind: np.dtype[Any], begin: int, count: int, buffer: bytearray | None = None
    ) -> npt.NDArray[Any]:
        """``count`` rows of ``kind`` from row ``begin`` on, valid until ``buffer``, if given, is reused."""
        content = memoryview(buffer or bytearray(count * kind.itemsize))[: count * kind.itemsize]
        self.open(path).read_into(begin * kind.itemsize, content)
        return np.frombuffer(content, kind)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for reader in self._open.values():
            reader.close()
