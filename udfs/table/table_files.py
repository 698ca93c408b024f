"""Files of a Delta table read with Arrow, in this process, or in tasks where Spark cannot reach the storage."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads

from storeformat.storage import files


@dataclass(frozen=True)
class TableFile:
    """One file: ``name`` in Delta's log (URL-encoded), path, partition ``values``, extreme commit-log offsets."""

    name: str
    path: str
    size: int
    values: Mapping[str, Any]
    least: int | None = None
    largest: int | None = None


def dataset_of(found: Sequence[TableFile], schema: pa.Schema) -> pads.FileSystemDataset:
    """Rows of files; missing columns are NULL. 96-bit times are read as microseconds, for their whole range."""
    form = pads.ParquetFileFormat(read_options=pads.ParquetReadOptions(coerce_int96_timestamp_unit="us"))
    fragments = []
    for file in found:
        filesystem, inner = files.resolve(file.path)
        fragments.append(form.make_fragment(inner, filesystem, _all_rows_have(file.values, schema)))
    return pads.FileSystemDataset(fragments, schema, form)


def _all_rows_have(values: Mapping[str, Any], schema: pa.Schema) -> pc.Expression:
    condition = pc.scalar(True)
    for name, value in values.items():
        column = pc.field(name)
        condition &= column.is_null() if value is None else column == pa.scalar(value, schema.field(name).type)
    return condition


@dataclass(frozen=True)
class ReadFiles:
    """A mapper from file numbers to rows, for ``mapInArrow``."""

    files: tuple[TableFile, ...]
    schema: pa.Schema

    def __call__(self, numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from dataset_of([self.files[number]], self.schema).to_batches()
