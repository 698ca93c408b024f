"""Ranges of bytes, held against sets of offsets."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from jobs.log.byte_ranges import ByteRange, common, joined, without

RANGES = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=6)


def offsets(ranges: list[ByteRange]) -> set[int]:
    return {at for begin, end in ranges for at in range(begin, end)}


@given(RANGES, RANGES)
def test_ranges_are_as_sets_of_offsets(one: list[ByteRange], other: list[ByteRange]) -> None:
    left, right = joined(one), joined(other)
    assert offsets(left) == offsets(one)
    assert all(before[1] < after[0] for before, after in itertools.pairwise(left))
    assert offsets(common(left, right)) == offsets(one) & offsets(other)
    assert offsets(without(left, right)) == offsets(one) - offsets(other)
