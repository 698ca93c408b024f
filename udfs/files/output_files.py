"""How a task makes a file: write a draft, read it back, and only then give it its name; and what it says of the file.

What the driver gets to know of a file (SHA-256, how far it holds data, how many units) comes from the bytes on storage,
not from what was meant to be there. A task that is run again because its machine was lost, or whose twin still runs,
puts the same bytes under the same name.

Rows of files travel and wait as Arrow columns, because there may be a hundred thousand: as objects they would take a
kilobyte each, as columns their path and 60 bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import pyarrow as pa

from storeformat.arrays import sum_of_offsets
from storeformat.queues.consume_queue import Piece
from storeformat.storage import files, locations, outputs
from storeformat.storage.extents import Content, read_back_whole


@dataclass(frozen=True)
class Totals:
    """What the bytes of a file hold: units or entries, the sum of their commit-log offsets modulo 2**64, and the time
    of last change (milliseconds) that the file is to have, None where that does not matter.
    """

    count: int = 0
    offset_sum: int = 0
    modified: int | None = None


def stored_size(root: str, data_size: int, size: int) -> int:
    """The length on storage of a file of ``size`` bytes with data up to ``data_size``: an object has no holes, and ends
    with its data. ``publish`` gives copies of objects their length.
    """
    return size if locations.is_local(root) else data_size


@dataclass(frozen=True)
class OutputDirectory:
    """Where files are made: their paths are below ``root``, until they are whole they lie in ``drafts``."""

    root: str
    drafts: str

    def make(
        self,
        path: str,
        write: Callable[[files.FileWriter], None],
        read_back: Callable[[str], tuple[Content, Totals]],
    ) -> FileRow:
        """Returns the row of a file that ``write`` writes and ``read_back`` checks, given the path of the draft."""
        target = locations.join(self.root, path)
        draft = outputs.draft_of(target, self.drafts)
        with files.FileWriter(draft) as writer:
            write(writer)
        content, tally = read_back(draft)
        if tally.modified is not None:
            files.set_modified(draft, tally.modified)
        outputs.settle(draft, target)
        return FileRow(path, content, tally.count, tally.offset_sum)

    def make_of(
        self, path: str, pieces: Iterable[Piece], size: int | None, tally: Callable[[memoryview], Totals], *, what: str
    ) -> FileRow:
        """Returns the row of a file of ``size`` bytes that begins with these pieces (None: that is all of it).

        ``tally`` gets the bytes of the pieces as they were read back. Raises TotalsDisagree where the file holds
        anything else.
        """
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


@dataclass(frozen=True)
class FileRow:
    """One written file: path below the output, content, the units or entries its bytes hold, and the sum of their
    commit-log offsets, modulo 2**64.
    """

    path: str
    content: Content
    count: int = 0
    offset_sum: int = 0


def batch_of(rows: Iterable[FileRow]) -> pa.RecordBatch:
    """Returns rows as columns of ``SCHEMA``."""
    named = [{"path": row.path, **vars(row.content), "count": row.count, "offset_sum": row.offset_sum} for row in rows]
    return pa.RecordBatch.from_pylist(named, SCHEMA)


@dataclass(frozen=True)
class FileRows:
    """Many rows; ``table`` has the columns of ``SCHEMA``."""

    table: pa.Table

    @staticmethod
    def of(batches: Iterable[pa.RecordBatch]) -> FileRows:
        """Returns the rows of all batches, in their order."""
        return FileRows(pa.Table.from_batches(list(batches), SCHEMA))

    @staticmethod
    def concatenate(parts: Iterable[FileRows]) -> FileRows:
        """Returns the rows of all parts, in their order."""
        return FileRows(pa.concat_tables([SCHEMA.empty_table(), *(part.table for part in parts)]))

    def by_path(self) -> FileRows:
        """Returns the rows in order of their paths, as UTF-8."""
        return FileRows(self.table.sort_by("path"))

    def offset_sum(self) -> int:
        """Returns the sum of all offsets, modulo 2**64."""
        return sum_of_offsets(self.table["offset_sum"].to_numpy())

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __iter__(self) -> Iterator[FileRow]:
        for batch in self.table.to_batches(max_chunksize=1024):
            for path, size, data_size, sha256, count, offset_sum in zip(*(c.to_pylist() for c in batch), strict=True):
                yield FileRow(path, Content(size, data_size, sha256), count, offset_sum)
