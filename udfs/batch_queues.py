"""Units of BatchCQ topics: from the scan to files in ``batchconsumequeue/``, inside a Spark task.

The scan leaves them in one more staging file a split, ``*.batches``: packed units as on disk, grouped by queue. A run
is the units of one queue from one flush, cut before every unit that begins its queue anew (base 0).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from storeformat.arrays import Int32s, Int64s, sum_of_offsets
from storeformat.queues.batch_consume_queue import UNIT, UNIT_SIZE, written_units
from storeformat.record.dispatch import BatchUnits
from storeformat.storage import files, locations, outputs
from storeformat.storage.extents import read_back_whole
from udfs.file_rows import FileRow, batch_of
from udfs.staged_files import Readers

_FLUSH_UNITS = 1 << 18


@dataclass(frozen=True)
class BatchRuns:
    """One row a run: ``counts`` units, which stand for ``messages``, from unit ``begins`` of the scan's batch file;
    ``births`` marks base 0.
    """

    topic_codes: Int32s
    queue_ids: Int32s
    begins: Int64s
    counts: Int64s
    births: Int64s
    messages: Int64s


NO_RUNS = BatchRuns(*(np.zeros(0, dtype) for dtype in ("i4", "i4", "i8", "i8", "i8", "i8")))


class BatchRunWriter:
    """Collects batch units of one split and writes them grouped by queue; the file appears with the first unit. Without
    a ``path`` they are only summed up.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._file: files.FileWriter | None = None
        self._waiting: list[BatchUnits] = []
        self._runs: list[BatchRuns] = []
        self.units = 0
        self.offset_sum = 0

    @property
    def path(self) -> str:
        """Where the units are; empty where there are none."""
        return self._path if self._file else ""

    def add(self, units: BatchUnits) -> None:
        """Takes units whose topic codes are the scan's."""
        if len(units.units):
            self._waiting.append(units)
        if sum(len(part.units) for part in self._waiting) >= _FLUSH_UNITS:
            self.flush()

    def flush(self) -> None:
        """Writes what is waiting."""
        if not self._waiting:
            return
        topics = np.concatenate([part.topic_codes for part in self._waiting])
        queues = np.concatenate([part.queue_ids for part in self._waiting])
        units = np.concatenate([part.units for part in self._waiting], dtype=UNIT)  # else numpy turns to native order
        self._waiting = []
        order = np.argsort((topics.astype(np.int64) << 32) | queues, kind="stable")
        topics, queues, units = topics[order], queues[order], units[order]
        birth = units["msg_base_offset"] == 0
        starts = birth.copy()
        starts[0] = True
        starts[1:] |= (topics[1:] != topics[:-1]) | (queues[1:] != queues[:-1])
        first = np.flatnonzero(starts)
        self._runs.append(
            BatchRuns(
                topics[first],
                queues[first],
                first + self.units,
                np.diff(first, append=len(units)),
                birth[first].astype(np.int64),
                np.add.reduceat(units["batch_size"], first, dtype=np.int64),
            )
        )
        if self._path:
            self._file = self._file or files.FileWriter(self._path, stream=True)
            self._file.write(units.view(np.uint8).data)
        self.units += len(units)
        self.offset_sum += sum_of_offsets(units["phy_offset"])

    def close(self, kind: type[BaseException] | None, error: BaseException | None) -> None:
        """Closes the file; after an exception it is removed."""
        if self._file is not None:
            self._file.__exit__(kind, error, None)

    def runs(self) -> BatchRuns:
        """Returns all runs, in the order of the file."""
        names = BatchRuns.__dataclass_fields__
        if not self._runs:
            return NO_RUNS
        return BatchRuns(*(np.concatenate([getattr(part, name) for part in self._runs]) for name in names))


@dataclass(frozen=True)
class PlannedBatchQueueFile:
    """One batch-queue file to make: ``counts[i]`` units from unit ``begins[i]`` of ``sources[i]``, in this order."""

    path: str
    sources: tuple[str, ...]
    begins: tuple[int, ...]
    counts: tuple[int, ...]


@dataclass(frozen=True)
class BuildBatchQueueFiles:
    """Makes batch-queue files of one size."""

    output: str
    drafts: str
    file_size: int

    def __call__(self, jobs: Iterator[PlannedBatchQueueFile]) -> Iterator[pa.RecordBatch]:
        with Readers() as readers:
            for job in jobs:
                yield batch_of([self._build(job, readers)])

    def _build(self, job: PlannedBatchQueueFile, readers: Readers) -> FileRow:
        target = locations.join(self.output, job.path)
        draft = outputs.draft_of(target, self.drafts)
        with files.FileWriter(draft) as writer:
            for source, begin, count in zip(job.sources, job.begins, job.counts, strict=True):
                piece = bytearray(count * UNIT_SIZE)
                readers.open(source).read_into(begin * UNIT_SIZE, memoryview(piece))
                writer.write(piece)
            writer.finish(self.file_size)
        used = UNIT_SIZE * sum(job.counts)
        stored, content = read_back_whole(draft, used, self.file_size, path=target, what="a batch-queue file")
        units = np.frombuffer(stored, UNIT)
        mine = units[: written_units(units)]
        outputs.settle(draft, target)
        total = sum_of_offsets(mine["phy_offset"])
        return FileRow(job.path, content, len(mine), total)
