"""What several modules do with columns."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storeformat.arrays import LogExtent, cut_ranges, narrow, stable_order, sum_of_offsets


def test_numbers_that_do_not_fit_32_bits_are_refused() -> None:
    fits = np.array([-(1 << 31), (1 << 31) - 1])
    assert narrow(fits).dtype == np.int32
    assert narrow(fits).tolist() == fits.tolist()
    for number in (-(1 << 31) - 1, 1 << 31):
        with pytest.raises(OverflowError, match=r"^a number does not fit 32 bits$"):
            narrow(np.array([number]))


@pytest.mark.parametrize("count", [1 << 16, (1 << 16) + 1])
def test_rows_of_one_group_stay_in_their_order(count: int) -> None:
    groups = np.array([5, count - 1, 5, 0, count - 1])
    assert stable_order(groups, count).tolist() == [3, 0, 2, 1, 4]


def test_offsets_are_summed_modulo_64_bits() -> None:
    assert sum_of_offsets(np.array([(1 << 63) - 1, 1, 7])) == (1 << 63) + 7
    assert sum_of_offsets(np.array([-1])) == (1 << 64) - 1
    assert sum_of_offsets(np.zeros(0, np.int64)) == 0


def test_an_offset_is_lost_from_the_begin_of_a_damaged_range_to_before_its_end() -> None:
    log = LogExtent(0, 1000, ((100, 200), (300, 301)))
    assert log.lost(np.array([99, 100, 199, 200, 300, 301])).tolist() == [False, True, True, False, True, False]
    assert not LogExtent(0, 1000).lost(np.array([100])).any()


@given(
    ranges=st.lists(st.tuples(st.integers(0, 60), st.integers(1, 30)), max_size=8),
    every=st.integers(1, 12),
)
def test_ranges_are_cut_at_every_multiple(ranges: list[tuple[int, int]], every: int) -> None:
    expected = []
    for row, (begin, length) in enumerate(ranges):
        places = range(begin, begin + length)
        for number in sorted({place // every for place in places}):
            inside = [place for place in places if place // every == number]
            expected.append((row, number, inside[0], inside[-1] + 1))
    begins = np.array([begin for begin, _ in ranges], np.int64)
    ends = begins + np.array([length for _, length in ranges], np.int64)
    found = cut_ranges(begins, ends, every)
    assert list(zip(*(column.tolist() for column in found), strict=True)) == expected
