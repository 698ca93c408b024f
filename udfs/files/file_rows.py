"""Written files as rows: what a task says of each file that it made, and what the driver keeps until the manifest is
written.

Rows travel and wait as Arrow columns, because there may be a hundred thousand: as objects they would take a kilobyte
each, as columns their path and 60 bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from storeformat.arrays import sum_of_offsets
from storeformat.storage.extents import Content

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
