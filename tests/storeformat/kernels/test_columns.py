"""Columns of record heads."""

from __future__ import annotations

import numpy as np

from storeformat.kernels import Heads
from storeformat.kernels.columns import ENTRY_HEAD


def test_the_first_rows_of_all_columns() -> None:
    heads = Heads(*(np.arange(number, number + 5) for number in range(len(Heads._fields))))
    assert [column.tolist() for column in heads.rows(slice(2))] == [[n, n + 1] for n in range(len(Heads._fields))]


def test_an_entry_head_reaches_to_the_size_of_its_record() -> None:
    assert ENTRY_HEAD.size == 48 + 4
