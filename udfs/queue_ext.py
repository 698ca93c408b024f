"""Consume queue ext: from the staged units and times of a scan to files of ``consumequeue_ext/``, in a Spark task."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from storeformat.queues import consume_queue, consume_queue_ext
from storeformat.storage import files, locations, outputs
from storeformat.storage.extents import read_back_whole
from udfs.file_rows import FileRow, batch_of
from udfs.staged_files import Readers
from udfs.staged_runs import TIME

_UNITS_AT_A_TIME = 1 << 16


@dataclass(frozen=True)
class PlannedExtFile:
    """One file to make: ``counts[i]`` units from unit ``begins[i]`` of ``units_paths[i]``, whose times are those of
    ``times_paths[i]``. A ``closed`` file is not the last one of its queue.
    """

    path: str
    units_paths: tuple[str, ...]
    times_paths: tuple[str, ...]
    begins: tuple[int, ...]
    counts: tuple[int, ...]
    closed: bool


@dataclass(frozen=True)
class BuildExtFiles:
    """Makes ext files of one size, and counts their units again in the bytes on storage."""

    output: str
    drafts: str
    file_size: int

    def __call__(self, jobs: Iterator[PlannedExtFile]) -> Iterator[pa.RecordBatch]:
        with Readers() as readers:
            for job in jobs:
                yield batch_of([self._build(job, readers)])

    def _build(self, job: PlannedExtFile, readers: Readers) -> FileRow:
        target = locations.join(self.output, job.path)
        draft = outputs.draft_of(target, self.drafts)
        used = 0
        with files.FileWriter(draft) as writer:
            for piece in consume_queue_ext.file_pieces(_units(job, readers), closed=job.closed):
                writer.write(piece)
                used += len(piece)
            writer.finish(self.file_size)
        stored, content = read_back_whole(draft, used, self.file_size, path=target, what="an ext file")
        outputs.settle(draft, target)
        return FileRow(job.path, content, consume_queue_ext.written_units(stored))


def _units(job: PlannedExtFile, readers: Readers) -> Iterator[npt.NDArray[np.void]]:
    """Yields the units of a file piece by piece."""
    for units_path, times_path, begin, count in zip(
        job.units_paths, job.times_paths, job.begins, job.counts, strict=True
    ):
        for first in range(begin, begin + count, _UNITS_AT_A_TIME):
            size = min(_UNITS_AT_A_TIME, begin + count - first)
            units = readers.rows(units_path, consume_queue.UNIT, first, size)
            times = readers.rows(times_path, TIME, first, size)
            yield consume_queue_ext.pack_units(units["tags_code"], times)
