"""Consume-queue units and index entries of one split, staged to build files.

=============  ============================================================================================
``*.units``    consume-queue units as they will lie on disk (20 bytes), grouped into runs: units of one queue
               with consecutive queue offsets, in log order
``*.times``    the store time (``TIME``) of the record of each unit, in the order of the units; where asked for
``*.entries``  index entries in the broker's order of ``putKey``: ``storeformat.index.index_file.ROW``
=============  ============================================================================================

A file is created with its first row. Memory: ``_FLUSH_UNITS`` units.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from storeformat.arrays import Bools, Bytes, Table, table_of
from storeformat.index.index_file import ROW, TAG_MARK
from storeformat.kernels import UnitColumns, numpy_kernels
from storeformat.queues.consume_queue import UNIT
from storeformat.record.dispatch import IndexEntries
from udfs.log.staged_files import Staged, StagedFile

TIME = np.dtype("<i8")

_FLUSH_UNITS = 1 << 19
RUN = np.dtype(
    [
        ("topic_codes", "i4"),  # into the scan's topics
        ("queue_ids", "i4"),
        ("first_queue_offsets", "i8"),
        ("counts", "i8"),
        ("begins", "i8"),  # first unit in the units file
        ("first_offsets", "i8"),  # log offset of the first record
        ("last_offsets", "i8"),
        ("light", "?"),  # units in a queue that is not the records' own
    ]
)


def times_path(units_path: str) -> str:
    """The file of store times beside a file of units."""
    return units_path.removesuffix(".units") + ".times"


class RunWriter:
    """Writes a split's units grouped into runs; light units have runs of their own."""

    def __init__(self, directory: str, name: str, *, with_times: bool) -> None:
        self._units_file = StagedFile(directory, f"{name}.units")
        self._times_file = StagedFile(directory if with_times else "", f"{name}.times")
        self.room = UnitColumns.of(_FLUSH_UNITS)  # units to be grouped; the first ``waiting`` rows are filled
        self.waiting = 0
        self._light = np.zeros(_FLUSH_UNITS, bool)
        self._runs: list[Table] = []

    def add(self, units: UnitColumns, light: Bools) -> None:
        """Add units with the scan's topic codes."""
        taken, count = 0, len(units.offsets)
        while taken < count:
            self.make_room()
            step = min(count - taken, _FLUSH_UNITS - self.waiting)
            here, there = slice(self.waiting, self.waiting + step), slice(taken, taken + step)
            self.room.put(here, units.rows(there))
            self._light[here] = light[there]
            taken += step
            self.waiting += step

    def make_room(self) -> None:
        """Flush if there is no room for one more."""
        if self.waiting == _FLUSH_UNITS:
            self.flush()

    def flush(self) -> None:
        count, self.waiting = self.waiting, 0
        if not count:
            return
        units, light = self.room.rows(slice(count)), self._light[:count]
        packed = np.empty(count, UNIT)
        order, begins = numpy_kernels.group_units(units, light, packed)
        first = np.flatnonzero(begins)
        first_rows, last_rows = order[first], order[np.append(first[1:], count) - 1]
        self._runs.append(
            table_of(
                RUN,
                topic_codes=units.topic_codes[first_rows],
                queue_ids=units.queue_ids[first_rows],
                first_queue_offsets=units.queue_offsets[first_rows],
                counts=np.diff(first, append=count),
                begins=first + self._units_file.count,
                first_offsets=units.offsets[first_rows],
                last_offsets=units.offsets[last_rows],
                light=light[first_rows],
            )
        )
        if self._times_file.wanted:
            self._times_file.write(units.store_timestamps[order].astype(TIME))
        self._units_file.take(packed, packed["phy_offset"])

    def close(self, kind: type[BaseException] | None, error: BaseException | None) -> None:
        """Close the files; after an exception they are removed."""
        self._units_file.close(kind, error)
        self._times_file.close(kind, error)

    def staged(self) -> Staged:
        return replace(self._units_file.totals(), runs=b"".join(part.tobytes() for part in self._runs))


class EntryWriter(StagedFile):
    """Writes index entries of one split as they come."""

    def add(self, entries: IndexEntries, tags: Bools | None) -> None:
        """Write entries, with ``TAG_MARK`` on those of ``tags``."""
        rows = np.empty(len(entries.offsets), ROW)
        rows["key_hash"], rows["offset"] = entries.key_hashes, entries.offsets
        rows["store_timestamp"] = entries.store_timestamps
        if tags is not None:
            rows["key_hash"] |= np.where(tags, np.int32(TAG_MARK), np.int32(0))
        self.add_rows(rows.view(np.uint8))

    def add_rows(self, content: Bytes) -> None:
        """Write entries given as bytes of ``ROW``s."""
        rows = content.view(ROW)
        self.take(rows, rows["offset"])
