"""Checks of queues in files and in RocksDB."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from storeformat.arrays import Bools, LogExtent, Structs
from storeformat.queues import batch_consume_queue, consume_queue, rocksdb_pairs
from storeformat.queues.queue_check import UnitComparison, compare_units
from storeformat.queues.rocksdb_check import FirstDifference, Limits, Pairs, PairsComparison, compare_pairs
from storeformat.queues.rocksdb_pairs import VALUE

# --------------------------------------------------------------------------------------------------- queue check
Unit = tuple[int, int, int]
"""phyOffset, size, tagsCode."""

PRE_BLANK = (0, 0x7FFFFFFF, 0)
ZERO = (0, 0, 0)
OWN = [(1000, 100, 7), (1100, 100, -1), (1200, 100, 0), (1300, 100, 1 << 40)]
"""The queue's units at places 2 to 6 of a file of ten; the log that was read is [500, 2000)."""
EXPECTED = [PRE_BLANK] * 2 + OWN + [ZERO] * 4
LOG = LogExtent(500, 2000, ((700, 800),))


def array(units: list[Unit]) -> Structs:
    return np.array(units, consume_queue.UNIT)


def is_record(units: Structs) -> Bools:
    return np.asarray(units["phy_offset"] % 100 == 0)


def compare(changed: dict[int, Unit], *, fillers: tuple[int, ...] = (), **changes: Any) -> UnitComparison:
    """The comparison of a healthy file in which some places are changed."""
    found = array([changed.get(place, unit) for place, unit in enumerate(EXPECTED)])
    damaged = np.isin(np.arange(10), fillers)
    return compare_units(array(EXPECTED), found, range(2, 6), damaged, LOG, is_record, **changes)


def differences(found: UnitComparison) -> dict[str, int]:
    return {one.cause: one.count for one in found.differences}


def hazards(found: UnitComparison) -> dict[str, int]:
    return {one.cause: one.count for one in found.hazards}


def fields(unit: Unit | None) -> dict[str, int] | None:
    return None if unit in (None, ZERO) else dict(zip(("phy_offset", "size", "tags_code"), unit, strict=True))


def test_a_healthy_file() -> None:
    found = compare({})
    assert (found.differences, found.hazards, found.reach) == ((), (), 1300)
    assert +found.counts == {"equal": 4}


@pytest.mark.parametrize(
    ("place", "unit", "cause", "want"),
    [
        (1, (499, 10, 3), None, None),  # of a message that retention took
        (1, (700, 10, 3), None, None),  # of one that damage took
        (1, PRE_BLANK, None, None),
        (1, (500, 10, 3), "extra_unit", None),
        (1, ZERO, "missing_unit", PRE_BLANK),
        (1, (-1, 10, 3), "wrong_unit", PRE_BLANK),
        (1, (0, -1, 0), "wrong_unit", PRE_BLANK),
        (4, (1201, 100, 0), "wrong_unit", OWN[2]),
        (4, (1200, 99, 0), "wrong_unit", OWN[2]),
        (4, (1200, 100, 5), "wrong_unit", OWN[2]),
        (4, PRE_BLANK, "wrong_unit", OWN[2]),
        (4, ZERO, "missing_unit", OWN[2]),
        (6, (1900, 10, 3), "extra_unit", None),
    ],
)
def test_one_unit_that_differs(place: int, unit: Unit, cause: str | None, want: Unit | None) -> None:
    found = compare({place: unit})
    assert differences(found) == ({cause: 1} if cause else {})
    for one in found.differences:
        assert (one.position, one.expected, one.found) == (place * 20, fields(want), fields(unit))
    assert found.counts["old"] == (cause is None and unit != PRE_BLANK)
    assert found.counts["equal"] == 3 + (place != 4)


def test_differences_are_counted_and_the_first_is_shown() -> None:
    found = compare({2: (1000, 99, 7), 3: (1100, 99, -1), 4: ZERO, 5: ZERO})
    assert differences(found) == {"missing_unit": 2, "wrong_unit": 2}
    assert [one.position for one in found.differences] == [80, 40]
    assert found.reach == -1


@pytest.mark.parametrize(
    ("dispatched", "lagging"), [(None, 0), (1301, 0), (1300, 1), (1201, 1), (1200, 2), (1000, 4), (0, 4)]
)
def test_units_that_were_not_dispatched_yet_need_not_be_there(dispatched: int | None, lagging: int) -> None:
    zeros = dict.fromkeys(range(6 - lagging, 6), ZERO)
    found = compare(zeros, dispatched=dispatched)
    assert (found.differences, found.counts["lagging"], found.counts["equal"]) == ((), lagging, 4 - lagging)
    if lagging < 4:
        assert differences(compare(zeros | {5 - lagging: ZERO}, dispatched=dispatched)) == {"missing_unit": 1}


def test_units_that_a_live_broker_dispatched_meanwhile_are_equal() -> None:
    found = compare({5: ZERO}, dispatched=1100)
    assert (found.differences, found.hazards, found.reach) == ((), (), 1200)
    assert (found.counts["equal"], found.counts["lagging"]) == (3, 1)


def test_old_units_after_the_end() -> None:
    old = {6: (499, 10, 0), 7: (1999, 11, 0), 8: (900, 11, 0), 9: (699, 12, 0)}  # that at 900 is of an earlier life
    found = compare(old)
    assert (found.differences, hazards(found), found.hazards[0].position) == ((), {"old_units": 4}, 120)
    found = compare({6: PRE_BLANK, 7: (2000, 10, 0), 8: (1999, 0, 0), 9: (750, 10, 0)})
    assert (found.differences, hazards(found)) == ((), {"units_beyond_log": 1})
    assert found.counts["unproven"] == 1


def test_a_file_without_a_unit_of_the_log() -> None:
    found = compare_units(
        array([ZERO] * 3),
        array([(400, 10, 0), (1999, 10, 0), (600, 1, 1)]),
        range(0),
        np.zeros(3, bool),
        LOG,
        is_record,
    )
    assert (differences(found), hazards(found), found.counts["old"]) == ({"extra_unit": 1}, {"old_units": 1}, 1)


def test_damage_leaves_places_for_anything_that_a_broker_accepts() -> None:
    for unit in (OWN[1], (5, 5, 5), PRE_BLANK):
        found = compare({3: unit}, fillers=(3,))
        assert (found.differences, found.counts["equal"], found.counts["unproven"]) == ((), 3, 1)
    for unit in (ZERO, (5, 0, 5), (-1, 5, 5)):
        found = compare({3: unit}, fillers=(3,))
        assert differences(found) == {"missing_unit": 1}
        assert found.differences[0].found == fields(unit)
    assert compare({5: ZERO}, fillers=(5,), dispatched=1300).differences == ()


def test_how_a_file_ends() -> None:
    assert hazards(compare(dict.fromkeys(range(2, 6), ZERO), dispatched=0)) == {"pre_blank_end": 1}
    nothing = compare(dict.fromkeys(range(10), ZERO), dispatched=0)
    assert (differences(nothing), hazards(nothing)) == ({"missing_unit": 2}, {"zero_file": 10})


def compare_batches(*found: tuple[int, ...], own: range) -> UnitComparison:
    units = np.zeros(2, batch_consume_queue.UNIT)
    units[own.start] = BATCH
    there = np.array(list(found), batch_consume_queue.UNIT)
    return compare_units(units, there, own, np.zeros(2, bool), LOG, is_record)


BATCH = (1000, 100, 7, 5_000, 0, 3, -1, 0)
NO_BATCH = (0,) * 8


@pytest.mark.parametrize("field", range(8))
def test_each_field_of_a_batch_queues_unit(field: int) -> None:
    assert compare_batches(BATCH, NO_BATCH, own=range(1)).counts["equal"] == 1
    changed = tuple(value + (number == field) for number, value in enumerate(BATCH))
    assert differences(compare_batches(changed, NO_BATCH, own=range(1))) == {"wrong_unit": 1}


def test_a_batch_queue_has_no_pre_blank_units() -> None:
    """Its first file begins with its first unit, so what looks like one is of a message that retention took."""
    found = compare_batches((0, 0x7FFFFFFF, 0, 4_000, 0, 1, -1, 0), BATCH, own=range(1, 2))
    assert (found.differences, found.counts["old"], found.counts["equal"]) == ((), 1, 1)


@pytest.mark.parametrize(("base", "messages", "accepted"), [(3, 2, 1), (0, 1, 1), (-1, 2, 0), (3, 0, 0), (3, -1, 0)])
def test_a_broker_takes_no_batch_without_messages(base: int, messages: int, accepted: int) -> None:
    found = compare_batches(BATCH, (601, 100, 7, 5_000, base, messages, -1, 0), own=range(1))
    assert (found.differences, found.counts["equal"]) == ((), 1)
    assert hazards(found) == ({"old_units": 1} if accepted else {})


# ------------------------------------------------------------------------------------------------- rocksdb check
WHOLE = Limits(log_begin=0)


def pairs(*rows: tuple[int, int, int, int, int]) -> Pairs:
    """(queue offset, phy_offset, size, tags_code, store_timestamp) of each."""
    return Pairs(np.array([row[0] for row in rows], np.int64), np.array([row[1:] for row in rows], VALUE))


PAIRS = pairs((5, 100, 10, 1, 7), (6, 110, 10, 2, 8), (7, 120, 10, 3, 9))


def test_equal_pairs_differ_in_nothing() -> None:
    assert compare_pairs(PAIRS, PAIRS, WHOLE) == PairsComparison(compared=3)


@pytest.mark.parametrize("row", [(6, 111, 11, 3, 0), (6, 110, 11, 2, 8), (6, 110, 10, 3, 8), (6, 110, 10, 2, 9)])
def test_a_pair_that_differs_counts_once(row: tuple[int, int, int, int, int]) -> None:
    found = compare_pairs(PAIRS, pairs((5, 100, 10, 1, 7), row, (7, 120, 10, 3, 9)), WHOLE)
    assert found.counts == {"wrong_unit": 1}
    assert found.first == FirstDifference("wrong_unit", 6, (110, 10, 2, 8), row[1:])


def test_missing_and_surplus_pairs() -> None:
    there = pairs((4, 90, 10, 0, 0), (5, 100, 10, 1, 7), (7, 120, 10, 3, 9))
    found = compare_pairs(PAIRS, there, WHOLE)
    assert found.counts == {"missing_unit": 1, "extra_unit": 1}
    assert found.first == FirstDifference("extra_unit", 4, None, (90, 10, 0, 0))
    found = compare_pairs(PAIRS, there, Limits(log_begin=91))
    assert (found.before_log, found.first) == (1, FirstDifference("missing_unit", 6, (110, 10, 2, 8), None))
    assert compare_pairs(PAIRS, there, Limits(0, unread=((90, 91),))).counts == {"missing_unit": 1}


def test_what_a_broker_never_reads_is_beyond() -> None:
    there = pairs((5, 100, 10, 1, 7), (6, 110, 10, 2, 8), (7, 120, 10, 3, 9), (8, 130, 10, 4, 9))
    assert compare_pairs(PAIRS, there, Limits(0, last=7)) == PairsComparison(compared=3, beyond=1)
    assert compare_pairs(PAIRS, there, Limits(0, last=8)).counts == {"extra_unit": 1}


def test_what_was_not_dispatched_yet_lags() -> None:
    there = pairs((5, 100, 10, 1, 7), (6, 999, 10, 2, 8))
    assert compare_pairs(PAIRS, there, Limits(0, dispatched=110)) == PairsComparison(compared=3, lagging=2)
    assert compare_pairs(PAIRS, there, Limits(0, dispatched=120)).counts == {"wrong_unit": 1}
    nothing = pairs()
    assert compare_pairs(PAIRS, nothing, Limits(0, dispatched=0)) == PairsComparison(compared=3, lagging=3)


def test_parts_add_up() -> None:
    one = compare_pairs(PAIRS, pairs(), WHOLE)
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


# ------------------------------------------------------------------------------------------------- rocksdb pairs
def test_keys_are_parsed() -> None:
    key = rocksdb_pairs.unit_key(b"T\x01", 7, 258)
    assert key == rocksdb_pairs.unit_keys(b"T\x01", 7, np.array([258]))[0].tobytes()
    assert rocksdb_pairs.parse_queue(key) == (b"T\x01", 7)
    assert rocksdb_pairs.queue_head(b"T\x01", 7) < key < rocksdb_pairs.after_queue(b"T\x01", 7)
    assert rocksdb_pairs.after_queue(b"T\x01", 7) < rocksdb_pairs.unit_key(b"T\x01", 8, 0)
    assert rocksdb_pairs.parse_end(rocksdb_pairs.end_key(b"T", 1, "min")) == (b"T", 1, "min")
    assert rocksdb_pairs.parse_ends(rocksdb_pairs.end_value(5, 6)) == (5, 6)
    assert rocksdb_pairs.parse_offset(rocksdb_pairs.checkpoint_value(9)) == 9


def test_what_is_no_key_is_none() -> None:
    key = rocksdb_pairs.unit_key(b"T", 1, 2)
    for wrong in (b"", b"\0\0\0\1", key[:-1], key + b"\0", key[:4] + b"\2" + key[5:]):
        assert rocksdb_pairs.parse_queue(wrong) is None
    assert rocksdb_pairs.parse_end(key) is None
    assert rocksdb_pairs.parse_end(rocksdb_pairs.end_key(b"T", 1, "mid")) is None
    assert rocksdb_pairs.parse_ends(rocksdb_pairs.checkpoint_value(9)) is None
    assert rocksdb_pairs.parse_offset(b"") is None


def test_queues_sort_as_their_keys() -> None:
    queues = [(b"B", 0), (b"A", 256), (b"A", 1), (b"AA", 0), (b"\xff", 2)]
    by_key = sorted(queues, key=lambda queue: rocksdb_pairs.queue_head(*queue))
    assert sorted(queues, key=lambda queue: rocksdb_pairs.key_order(*queue)) == by_key
