"""Room that a pass over plain records is given; what it fills in is tested in ``record/test_plain_dispatch.py``."""

from __future__ import annotations

import numpy as np
import pytest

from storeformat.kernels import PADDING, Tally, TopicKind, TopicTable, UnitColumns

NAMES = ("topic_codes", "queue_ids", "queue_offsets", "offsets", "sizes", "tags_codes", "store_timestamps")
BITS = (32, 32, 64, 64, 32, 64, 64)


def test_columns_of_units_have_their_widths() -> None:
    units = UnitColumns.of(3)
    assert units._fields == NAMES
    assert [column.dtype for column in units] == [np.dtype(f"int{bits}") for bits in BITS]
    assert [column.shape for column in units] == [(3,)] * 7


def test_rows_of_units_are_taken_and_put() -> None:
    units = UnitColumns(
        *(np.arange(4 * number, 4 * number + 4, dtype=f"int{bits}") for number, bits in enumerate(BITS))
    )
    assert [column.tolist() for column in units.rows(slice(1, 3))] == [[4 * n + 1, 4 * n + 2] for n in range(7)]
    chosen = np.array([True, False, False, True])
    assert [column.tolist() for column in units.rows(chosen)] == [[4 * n, 4 * n + 3] for n in range(7)]
    room = UnitColumns(*(np.zeros(3, f"int{bits}") for bits in BITS))
    room.put(slice(1, 3), units.rows(slice(2, 4)))
    assert [column.tolist() for column in room] == [[0, 4 * n + 2, 4 * n + 3] for n in range(7)]


@pytest.mark.parametrize(("topics", "slots"), [(1, 2), (2, 4), (3, 8), (4, 8), (5, 16), (1 << 15, 1 << 16)])
def test_a_table_of_topics_has_at_least_two_slots_for_each(topics: int, slots: int) -> None:
    table = TopicTable.of(topics, 10)
    assert (table.slots.tolist(), table.slots.dtype) == ([-1] * slots, np.int64)
    assert (len(table.mixes), table.mixes.dtype) == (topics, np.uint64)
    assert (table.names.tolist(), table.names.dtype) == ([0] * (10 + PADDING), np.uint8)
    assert (len(table.starts), table.starts.dtype) == (topics, np.int64)
    assert (len(table.lengths), table.lengths.dtype) == (topics, np.int32)
    assert (table.codes.tolist(), table.codes.dtype) == ([0] * topics, np.int32)
    assert (table.kinds.tolist(), table.kinds.dtype) == ([TopicKind.ODD] * topics, np.uint8)
    assert (table.joined_topics.tolist(), table.joined_topics.dtype) == ([[0] * topics] * 2, np.int32)


def test_names_of_topics_lie_side_by_side() -> None:
    table = TopicTable.of(2, 10)
    table.names[:7] = np.frombuffer(b"OneFour", np.uint8)
    table.starts[:], table.lengths[:] = (0, 3), (3, 4)
    assert [table.name(row) for row in (0, 1)] == [b"One", b"Four"]


def test_sums_of_nothing() -> None:
    sums = Tally.start()
    assert (sums.tolist(), sums.dtype) == ([0, 0, 0, 0, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0], np.int64)
