"""Pairs of a database against those of the log."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from storeformat.queues.rocksdb_check import FirstDifference, Limits, Pairs, PairsComparison, compare_pairs
from storeformat.queues.rocksdb_pairs import VALUE

WHOLE = Limits(log_begin=0)


def pairs(*rows: tuple[int, int, int, int, int]) -> Pairs:
    """(queue offset, phy_offset, size, tags_code, store_timestamp) of each."""
    return Pairs(np.array([row[0] for row in rows], np.int64), np.array([row[1:] for row in rows], VALUE))


LOG = pairs((5, 100, 10, 1, 7), (6, 110, 10, 2, 8), (7, 120, 10, 3, 9))


def test_equal_pairs_differ_in_nothing() -> None:
    assert compare_pairs(LOG, LOG, WHOLE) == PairsComparison(compared=3)


@pytest.mark.parametrize(
    ("row", "cause"),
    [
        ((6, 111, 11, 3, 0), "wrong_offset"),
        ((6, 110, 11, 2, 8), "wrong_size"),
        ((6, 110, 10, 3, 8), "wrong_tags_code"),
        ((6, 110, 10, 2, 9), "wrong_store_time"),
    ],
)
def test_a_pair_that_differs_counts_once(row: tuple[int, int, int, int, int], cause: str) -> None:
    found = compare_pairs(LOG, pairs((5, 100, 10, 1, 7), row, (7, 120, 10, 3, 9)), WHOLE)
    assert found.counts == {cause: 1}
    assert found.first == FirstDifference(cause, 6, (110, 10, 2, 8), row[1:])


def test_missing_and_surplus_pairs() -> None:
    there = pairs((4, 90, 10, 0, 0), (5, 100, 10, 1, 7), (7, 120, 10, 3, 9))
    found = compare_pairs(LOG, there, WHOLE)
    assert found.counts == {"missing_unit": 1, "extra_unit": 1}
    assert found.first == FirstDifference("extra_unit", 4, None, (90, 10, 0, 0))
    assert compare_pairs(LOG, there, Limits(log_begin=91)).before_log == 1
    assert compare_pairs(LOG, there, Limits(log_begin=91)).first == FirstDifference(
        "missing_unit", 6, (110, 10, 2, 8), None
    )
    assert compare_pairs(LOG, there, Limits(0, unread=((90, 91),))).counts == {"missing_unit": 1}


def test_what_a_broker_never_reads_is_beyond() -> None:
    there = pairs((5, 100, 10, 1, 7), (6, 110, 10, 2, 8), (7, 120, 10, 3, 9), (8, 130, 10, 4, 9))
    assert compare_pairs(LOG, there, Limits(0, last=7)) == PairsComparison(compared=3, beyond=1)
    assert compare_pairs(LOG, there, Limits(0, last=8)).counts == {"extra_unit": 1}


def test_what_was_not_dispatched_yet_lags() -> None:
    there = pairs((5, 100, 10, 1, 7), (6, 999, 10, 2, 8))
    assert compare_pairs(LOG, there, Limits(0, dispatched=110)) == PairsComparison(compared=3, lagging=2)
    assert compare_pairs(LOG, there, Limits(0, dispatched=120)).counts == {"wrong_offset": 1}
    nothing = pairs()
    assert compare_pairs(LOG, nothing, Limits(0, dispatched=0)) == PairsComparison(compared=3, lagging=3)


def test_parts_add_up() -> None:
    one = compare_pairs(LOG, pairs(), WHOLE)
    assert one.plus(one).counts == {"missing_unit": 6}
    assert PairsComparison().plus(one).first == one.first
    first, later = FirstDifference("a", 1, None, None), FirstDifference("b", 2, None, None)
    one = PairsComparison(1, Counter(a=2, b=3), first, 4, 5, 6)
    other = PairsComparison(10, Counter(b=20, c=30), later, 40, 50, 60)
    assert one.plus(other) == PairsComparison(11, Counter(a=2, b=23, c=30), first, 44, 55, 66)


def test_offsets_are_compared_to_the_byte() -> None:
    """Beyond 2^53 floating-point numbers would be too coarse."""
    at = (1 << 53) + 1
    log = pairs((5, at - 1, 10, 1, 7), (6, at, 10, 2, 8))
    found = compare_pairs(log, pairs(), Limits(0, dispatched=at))
    assert (found.counts, found.lagging) == ({"missing_unit": 1}, 1)
    there = pairs((7, at - 1, 10, 1, 7), (8, at, 10, 1, 7), (9, at + 1, 10, 1, 7))
    assert compare_pairs(pairs(), there, Limits(at)).before_log == 1
    assert compare_pairs(pairs(), there, Limits(0, dispatched=at)).counts == {"extra_unit": 1}
    assert compare_pairs(pairs(), there, Limits(0, unread=((at, at + 1),))).counts == {"extra_unit": 2}
