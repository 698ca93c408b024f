"""The properties of rows that checks ask for, out of the column of maps as Parquet has it: names apart from values."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from storeformat.arrays import Bools, Int64s

PROPERTIES = (
    "INNER_BASE", "INNER_NUM", "DELAY", "TIMER_OUT_MS", "TRAN_MSG", "REAL_TOPIC", "RETRY_TOPIC", "DLQ_ORIGIN_TOPIC",
    "TIMER_DEL_UNIQKEY", "TIMER_ROLL_TIMES", "__transactionId__", "PGROUP", "TRANS_OFFSET",
)  # fmt: skip
TELLING = ("INNER_BASE", "DELAY", "TIMER_OUT_MS", "TRAN_MSG")
"""Properties for whose sake those of any row are looked at."""


class Properties:
    """The properties of interest of a row group's rows: first their names, then their values, too."""

    def __init__(self, column: pa.ChunkedArray) -> None:
        (self._lists,) = column.chunks
        (names,) = self._lists.flatten().flatten()
        of_code = pc.index_in(names.dictionary, value_set=pa.array(PROPERTIES)).fill_null(-1)
        self._pairs_of = np.append(np.asarray(of_code), -1)[np.asarray(names.indices)]
        self._values: pa.Array | None = None

    def have(self, names: Iterable[str]) -> bool:
        """Whether any row may have one of these."""
        return bool(np.isin([PROPERTIES.index(name) for name in names], self._pairs_of).any())

    def add_values(self, column: pa.ChunkedArray) -> None:
        """Takes the values; a NULL is as good as none."""
        (self._values,) = column.chunk(0).flatten().flatten()
        if self._values.null_count:
            self._pairs_of = np.where(np.asarray(self._values.is_valid()), self._pairs_of, -1)

    @cached_property
    def _rows_of(self) -> Int64s:
        return np.asarray(pc.list_parent_indices(self._lists)).astype(np.int64)

    def given(self, name: str) -> Bools:
        """Returns which rows have a property."""
        found = np.zeros(len(self._lists), bool)
        if self._values is not None:
            found[self._rows_of[self._pairs_of == PROPERTIES.index(name)]] = True
        return found

    def of(self, name: str, rows: Int64s) -> pa.Array:
        """Returns a property of some rows."""
        if self._values is None or not len(rows):
            return pa.nulls(len(rows), pa.string())
        places = np.full(len(self._lists), -1, np.int64)
        pairs = np.flatnonzero(self._pairs_of == PROPERTIES.index(name))
        places[self._rows_of[pairs]] = pairs
        return self._values.take(pa.array(places[rows], mask=places[rows] < 0))
