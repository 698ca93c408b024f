"""Consume queue ext: from the staged units and times of a scan to files of ``consumequeue_ext/``, in a Spark task."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from storeformat.arrays import Structs
from storeformat.queues import consume_queue, consume_queue_ext
from udfs.files.file_rows import batch_of
from udfs.files.output_files import OutputDirectory, Totals
from udfs.log.staged_files import Readers, Slices
from udfs.log.staged_runs import TIME

_UNITS_AT_A_TIME = 1 << 16


@dataclass(frozen=True)
class PlannedExtFile:
    """One file to make, of the units of the slices; ``times_of`` has the times file of each units file. A ``closed``
    file is not the last one of its queue.
    """

    path: str
    slices: Slices
    times_of: dict[str, str]
    closed: bool


@dataclass(frozen=True)
class BuildExtFiles:
    """Makes ext files of one size, and counts their units again in the bytes on storage."""

    output: OutputDirectory
    file_size: int

    def __call__(self, planned: Iterator[PlannedExtFile]) -> Iterator[pa.RecordBatch]:
        with Readers() as readers:
            for file in planned:
                pieces = consume_queue_ext.file_pieces(_units(file, readers), closed=file.closed)
                yield batch_of([self.output.make_of(file.path, pieces, self.file_size, _tally, what="an ext file")])


def _tally(stored: memoryview) -> Totals:
    return Totals(consume_queue_ext.written_units(stored))


def _units(file: PlannedExtFile, readers: Readers) -> Iterator[Structs]:
    """Yields the units of a file piece by piece."""
    for source, begin, count in file.slices.steps(_UNITS_AT_A_TIME):
        units = readers.rows(source, consume_queue.UNIT, begin, count)
        yield consume_queue_ext.pack_units(units["tags_code"], readers.rows(file.times_of[source], TIME, begin, count))
