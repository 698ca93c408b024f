"""Units of BatchCQ topics of one split, staged to build files of ``batchconsumequeue/``.

A split's staging file ``*.batches`` has packed units as on disk, grouped by queue. A run is the units of one queue from
one flush, cut before every unit that starts its queue over (base 0).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from storeformat.arrays import Table, table_of
from storeformat.queues.batch_consume_queue import UNIT
from storeformat.record.dispatch import BatchUnits
from udfs.log.staged_files import Staged, StagedFile

_FLUSH_UNITS = 1 << 18


BATCH_RUN = np.dtype(
    [
        ("topic_codes", "i4"),  # into the scan's topics
        ("queue_ids", "i4"),
        ("begins", "i8"),  # first unit in the file
        ("counts", "i8"),
        ("births", "?"),  # begins with base 0
        ("messages", "i8"),
    ]
)


class BatchRunWriter(StagedFile):
    """Writes a split's batch units grouped by queue; without a ``directory`` it only counts them."""

    def __init__(self, directory: str, name: str) -> None:
        super().__init__(directory, f"{name}.batches")
        self._waiting: list[BatchUnits] = []
        self._runs: list[Table] = []

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
            table_of(
                BATCH_RUN,
                topic_codes=topics[first],
                queue_ids=queues[first],
                begins=first + self.count,
                counts=np.diff(first, append=len(units)),
                births=birth[first],
                messages=np.add.reduceat(units["batch_size"], first, dtype=np.int64),
            )
        )
        self.take(units, units["phy_offset"])

    def staged(self) -> Staged:
        return replace(self.totals(), runs=b"".join(part.tobytes() for part in self._runs))
