"""Make a file in a task: write a draft, read it back, then rename it, and report it.

The driver gets SHA-256, end of data and counts of the bytes on storage. A task that runs again, or twice, writes the
same bytes to the same name. Rows of files are Arrow columns, because there may be a hundred thousand: path and 60 bytes
each, where objects take a kilobyte.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from storeformat.storage import files, locations
from storeformat.storage.durable import Content, read_back_whole

Piece = bytes | bytearray | memoryview

SCHEMA = pa.schema(
    [
        pa.field("path", pa.string(), nullable=False),
        pa.field("size", pa.int64(), nullable=False),
        pa.field("data_size", pa.int64(), nullable=False),
        pa.field("sha256", pa.binary(32), nullable=False),
        pa.field("count", pa.int64(), nullable=False),
        pa.field("offset_sum", pa.uint64(), nullable=False),
    ]
)
Row = dict[str, Any]
"""One written file by the names of ``SCHEMA``: its content, units or entries, and their offset sum modulo 2**64."""


def file_row(path: str, content: Content, totals: Totals | None = None) -> Row:
    count, offset_sum = (totals.count, totals.offset_sum) if totals else (0, 0)
    return {"path": path, **vars(content), "count": count, "offset_sum": offset_sum}


def batch_of(rows: Iterable[Row]) -> pa.RecordBatch:
    """Rows as columns of ``SCHEMA``."""
    return pa.RecordBatch.from_pylist(list(rows), SCHEMA)


def rows_of(table: pa.Table) -> Iterator[Row]:
    for batch in table.to_batches(max_chunksize=1024):
        yield from batch.to_pylist()


@dataclass(frozen=True)
class Totals:
    """Units or entries of a file, their offset sum modulo 2**64, and modification time (milliseconds), if needed."""

    count: int = 0
    offset_sum: int = 0
    modified: int | None = None


def stored_size(root: str, data_size: int, size: int) -> int:
    """Length on storage: objects have no holes and end with their data; ``publish`` extends copies of them."""
    return size if locations.is_local(root) else data_size


@dataclass(frozen=True)
class OutputDirectory:
    """Output files below ``root``, with drafts in ``drafts``."""

    root: str
    drafts: str

    def make(
        self,
        path: str,
        write: Callable[[files.FileWriter], None],
        read_back: Callable[[str], tuple[Content, Totals]],
    ) -> Row:
        """Write a draft, check it with ``read_back``, and rename it; both get the draft's path."""
        target = locations.join(self.root, path)
        draft = files.draft_of(target, self.drafts)
        with files.FileWriter(draft) as writer:
            write(writer)
        content, tally = read_back(draft)
        if tally.modified is not None:
            files.set_modified(draft, tally.modified)
        files.settle(draft, target)
        return file_row(path, content, tally)

    def make_of(
        self, path: str, pieces: Iterable[Piece], size: int | None, tally: Callable[[memoryview], Totals], *, what: str
    ) -> Row:
        """Make a file of ``size`` bytes (None: all) from pieces; ``tally`` gets their bytes as read back."""
        used = 0

        def write(writer: files.FileWriter) -> None:
            nonlocal used
            for piece in pieces:
                writer.write(piece)
                used += len(piece)
            writer.finish(used if size is None else stored_size(self.root, used, size))

        def read_back(draft: str) -> tuple[Content, Totals]:
            whole, named = used if size is None else size, locations.join(self.root, path)
            stored, content = read_back_whole(draft, used, stored_size(self.root, used, whole), path=named, what=what)
            return replace(content, size=whole), tally(stored)

        return self.make(path, write, read_back)
