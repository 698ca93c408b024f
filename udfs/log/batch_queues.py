"""Units of BatchCQ topics of one split, staged to build files of ``batchconsumequeue/``.

A split's staging file ``*.batches`` has packed units as on disk, grouped by queue. A run is the units of one queue from
one flush, cut before every unit that starts its queue over (base 0).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from storeformat.arrays import Int32s, Int64s
from storeformat.queues.batch_consume_queue import UNIT
from storeformat.record.dispatch import BatchUnits
from udfs.log.staged_files import Staged, StagedFile

_FLUSH_UNITS = 1 << 18


@dataclass(frozen=True)
class BatchRuns:
    """One row a run: ``counts`` units for ``messages`` from unit ``begins`` of the file; ``births`` marks base 0."""

    topic_codes: Int32s
    queue_ids: Int32s
    begins: Int64s
    counts: Int64s
    births: Int64s
    messages: Int64s


_NO_RUNS = BatchRuns(*(np.zeros(0, dtype) for dtype in ("i4", "i4", "i8", "i8", "i8", "i8")))


@dataclass(frozen=True, slots=True)
class StagedBatches(Staged):
    """Batch units of one split, with their runs."""

    runs: BatchRuns = _NO_RUNS


NO_BATCHES = StagedBatches()


class BatchRunWriter(StagedFile):
    """Writes a split's batch units grouped by queue; without a ``directory`` it only counts them."""

    def __init__(self, directory: str, name: str) -> None:
        super().__init__(directory, f"{name}.batches")
        self._waiting: list[BatchUnits] = []
        self._runs: list[BatchRuns] = []

    def add(self, units: BatchUnits) -> None:
        """Add units with the scan's topic codes."""
        if len(units.units):
            self._waiting.append(units)
        if sum(len(part.units) for part in self._waiting) >= _FLUSH_UNITS:
            self.flush()

    def flush(self) -> None:
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
                first + self.count,
                np.diff(first, append=len(units)),
                birth[first].astype(np.int64),
                np.add.reduceat(units["batch_size"], first, dtype=np.int64),
            )
        )
        self.take(units, units["phy_offset"])

    def staged(self) -> StagedBatches:
        if not self._runs:
            return NO_BATCHES
        names = BatchRuns.__dataclass_fields__
        runs = BatchRuns(*(np.concatenate([getattr(part, name) for part in self._runs]) for name in names))
        units = self.totals()
        return StagedBatches(units.count, units.offset_sum, units.path, runs)
