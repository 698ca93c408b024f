"""Checks of queues in files and in RocksDB."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from storeformat.arrays import LogExtent, Structs
from storeformat.queues import batch_consume_queue, consume_queue, rocksdb_pairs
from storeformat.queues.queue_check import Expectation, UnitComparison, compare_units, with_wrong_tags_codes
from storeformat.queues.rocksdb_check import FirstDifference, Limits, Pairs, PairsComparison, compare_pairs
from storeformat.queues.rocksdb_pairs import VALUE

# --------------------------------------------------------------------------------------------------- queue check
Unit = tuple[int, int, int]
"""phyOffset, size, tagsCode."""

PRE_BLANK = (0, 0x7FFFFFFF, 0)
ZERO = (0, 0, 0)
OWN = [(1000, 100, 7), (1100, 100, -1), (1200, 100, 0), (1300, 100, 1 << 40)]
"""The queue's units at places 2 to 6 of a file of ten; the log that was read is [500, 2000)."""
HEALTHY = [PRE_BLANK] * 2 + OWN + [ZERO] * 4


def array(units: list[Unit]) -> Structs:
    return np.array(units, consume_queue.UNIT)


def expected(**changes: Any) -> Expectation:
    units = array([ZERO] * 2 + OWN + [ZERO] * 4)
    return replace(Expectation(units, 2, 6, np.zeros(10, bool), LogExtent(500, 2000)), **changes)


def compare(changed: dict[int, Unit], **changes: Any) -> UnitComparison:
    """The comparison of a healthy file in which some places are changed."""
    return compare_units(expected(**changes), array([changed.get(place, unit) for place, unit in enumerate(HEALTHY)]))


def after_end(found: UnitComparison) -> tuple[int, int, int, int]:
    units = found.after_end
    return units.count, units.below_log, units.taken, units.beyond_log


def fields(unit: Unit | None) -> dict[str, int] | None:
    return None if unit is None else dict(zip(("phy_offset", "size", "tags_code"), unit, strict=True))


def test_a_healthy_file() -> None:
    found = compare({})
    assert (found.faults, found.counts) == ((), {})
    assert (found.compared, found.lagging, found.last_present, found.old, found.unproven) == (4, 0, 1300, 0, 0)
    assert after_end(found) == (0, 0, 0, 0)
    assert (found.last_is_pre_blank, found.all_zero) == (False, False)
    assert len(found.ext_places) == len(found.delivery_hashes) == len(found.after_end.places) == 0


@pytest.mark.parametrize(
    ("unit", "cause", "want"),
    [
        ((499, 10, 3), None, None),  # of a message that retention took
        ((700, 10, 3), None, None),  # of one that damage took
        (PRE_BLANK, None, None),
        ((500, 10, 3), "extra_unit", None),
        ((800, 10, 3), "extra_unit", None),
        (ZERO, "missing_unit", PRE_BLANK),
        ((-1, 10, 3), "wrong_offset", PRE_BLANK),
        ((-1, 0, 3), "wrong_offset", PRE_BLANK),
        ((400, 0, 3), "wrong_size", PRE_BLANK),
        ((0, -1, 0), "wrong_size", PRE_BLANK),
    ],
)
def test_before_the_queue(unit: Unit, cause: str | None, want: Unit | None) -> None:
    found = compare({1: unit}, log=LogExtent(500, 2000, ((700, 800),)))
    assert found.counts == ({cause: 1} if cause else {})
    assert [(fault.position, fault.cause) for fault in found.faults] == ([(20, cause)] if cause else [])
    assert found.old == (cause is None and unit != PRE_BLANK)
    assert found.compared == 4
    for fault in found.faults:
        assert fault.expected == fields(want)
        assert fault.found == (None if unit == ZERO else fields(unit))


@pytest.mark.parametrize(
    ("unit", "cause"),
    [
        ((1201, 100, 0), "wrong_offset"),
        ((1201, 99, 5), "wrong_offset"),
        ((1200, 99, 5), "wrong_size"),
        ((1200, 100, 5), "wrong_tags_code"),
        (PRE_BLANK, "wrong_offset"),
        (ZERO, "missing_unit"),
    ],
)
def test_each_field_of_the_queues_own_units(unit: Unit, cause: str) -> None:
    found = compare({4: unit})
    assert found.counts == {cause: 1}
    (fault,) = found.faults
    assert (fault.position, fault.cause, fault.expected) == (4 * 20, cause, fields(OWN[2]))
    assert fault.found == (None if unit == ZERO else fields(unit))
    assert (found.compared, found.last_present) == (3, 1300)


def test_the_last_unit_that_is_as_it_should_be() -> None:
    assert compare({5: ZERO}).last_present == 1200
    assert compare(dict.fromkeys(range(2, 6), ZERO)).last_present == -1


@pytest.mark.parametrize(("code", "is_address"), [(-(1 << 63), True), (-(1 << 31) - 1, True), (-(1 << 31), False)])
@pytest.mark.parametrize("ext", [True, False])
def test_an_address_stands_for_tags_where_the_queue_has_an_ext(code: int, is_address: bool, ext: bool) -> None:
    found = compare({3: (1100, 100, code)}, ext=ext)
    assert found.ext_places.tolist() == ([3] if ext and is_address else [])
    assert found.counts == ({} if ext and is_address else {"wrong_tags_code": 1})
    assert found.compared == (4 if ext and is_address else 3)
    assert compare({3: (1101, 100, code)}, ext=ext).counts == {"wrong_offset": 1}


def test_a_hash_stands_for_a_time_of_delivery_in_a_schedule_queue_alone() -> None:
    assert compare({5: (1300, 100, -5)}, schedule=True).delivery_hashes.tolist() == [5]
    assert compare({5: (1300, 100, -5)}, schedule=True).compared == 4
    assert compare({5: (1300, 100, -5)}).counts == {"wrong_tags_code": 1}
    assert compare({5: (1300, 100, 1 << 41)}, schedule=True).counts == {"wrong_tags_code": 1}
    assert compare({2: (1000, 100, 8)}, schedule=True).counts == {"wrong_tags_code": 1}
    elsewhere = compare({5: (1301, 100, -5)}, schedule=True)
    assert (elsewhere.counts, elsewhere.compared, len(elsewhere.delivery_hashes)) == ({"wrong_offset": 1}, 3, 0)


def test_what_was_taken_for_right_can_turn_out_wrong() -> None:
    address = -(1 << 63)
    changed = {3: (1100, 100, address), 4: (1200, 100, address), 5: (1300, 100, 5)}
    found = compare(changed, ext=True, schedule=True)
    assert (found.ext_places.tolist(), found.delivery_hashes.tolist(), found.compared) == ([3, 4], [5], 4)
    units = array([changed.get(place, unit) for place, unit in enumerate(HEALTHY)])
    assert with_wrong_tags_codes(found, np.zeros(0, np.int64), expected().units, units) is found
    wrong = with_wrong_tags_codes(found, np.array([4, 5]), expected().units, units)
    assert (wrong.ext_places.tolist(), wrong.delivery_hashes.tolist(), wrong.compared) == ([3], [], 2)
    assert wrong.counts == {"wrong_tags_code": 2}
    assert [(fault.position, fault.expected, fault.found) for fault in wrong.faults] == [
        (80, fields(OWN[2]), fields(changed[4])),
        (100, fields(OWN[3]), fields(changed[5])),
    ]
    assert with_wrong_tags_codes(wrong, np.array([3]), expected().units, units).counts == {"wrong_tags_code": 3}


@pytest.mark.parametrize(
    ("dispatched", "lagging"), [(None, 0), (1301, 0), (1300, 1), (1201, 1), (1200, 2), (1000, 4), (0, 4)]
)
def test_units_that_were_not_dispatched_yet_need_not_be_there(dispatched: int | None, lagging: int) -> None:
    zeros = dict.fromkeys(range(6 - lagging, 6), ZERO)
    found = compare(zeros, dispatched=dispatched)
    assert (found.counts, found.lagging, found.compared) == ({}, lagging, 4 - lagging)
    if lagging < 4:
        assert compare(zeros | {5 - lagging: ZERO}, dispatched=dispatched).counts == {"missing_unit": 1}


def test_old_units_after_the_end() -> None:
    found = compare({6: (499, 10, 0), 7: (1999, 11, 0), 9: (600, 12, 0)})
    assert found.counts == {}
    assert found.after_end.places.tolist() == [6, 7, 9]
    assert found.after_end.phy_offsets.tolist() == [499, 1999, 600]
    assert found.after_end.sizes.tolist() == [10, 11, 12]
    assert after_end(found) == (3, 1, 2, 0)
    found = compare({6: PRE_BLANK, 7: (2000, 10, 0), 8: (1999, 10, 0), 9: (1999, 0, 0)})
    assert (found.after_end.places.tolist(), found.after_end.taken, found.after_end.beyond_log) == ([8], 0, 1)
    assert compare(dict.fromkeys(range(6, 10), (600, 10, 0))).after_end.taken == 4
    whole_file = compare_units(
        Expectation(array([ZERO]), 0, 0, np.zeros(1, bool), LogExtent(500, 2000)), array([(600, 10, 0)])
    )
    assert (whole_file.after_end.count, whole_file.after_end.taken) == (1, 1)


def test_old_units_are_counted_all_and_shown_up_to_a_thousand() -> None:
    units = array([(10 * n, 10, 0) for n in range(50, 1051)])
    comparison = compare_units(
        Expectation(array([ZERO] * 1001), 0, 0, np.zeros(1001, bool), LogExtent(500, 1 << 40)), units
    )
    assert (comparison.after_end.count, comparison.after_end.taken, comparison.counts) == (1001, 1001, {})
    assert comparison.after_end.places.tolist() == list(range(1000))


def test_damage_leaves_places_for_anything_that_a_broker_accepts() -> None:
    fillers = np.arange(10) == 3
    for unit in (OWN[1], (5, 5, 5), PRE_BLANK):
        found = compare({3: unit}, fillers=fillers)
        assert (found.counts, found.compared, found.unproven) == ({}, 3, 1)
    for unit in (ZERO, (5, 0, 5), (-1, 5, 5)):
        found = compare({3: unit}, fillers=fillers)
        assert found.counts == {"missing_unit": 1}
        assert found.faults[0].found == (None if unit == ZERO else fields(unit))
    assert compare({5: ZERO}, fillers=np.arange(10) == 5, dispatched=1300).counts == {}


def test_how_a_file_ends() -> None:
    pre_blank_last = compare(dict.fromkeys(range(2, 6), ZERO), dispatched=0)
    assert (pre_blank_last.last_is_pre_blank, pre_blank_last.all_zero) == (True, False)
    nothing = compare(dict.fromkeys(range(10), ZERO), dispatched=0)
    assert (nothing.last_is_pre_blank, nothing.all_zero) == (False, True)
    assert nothing.counts == {"missing_unit": 2}


def test_faults_are_counted_all_and_shown_in_order_up_to_a_thousand() -> None:
    units = array([(10 * n, 10, 0) for n in range(1, 1502)])
    found = units.copy()
    found["size"][1:] = 9
    found["phy_offset"][-1] += 1
    comparison = compare_units(Expectation(units, 0, 1501, np.zeros(1501, bool), LogExtent(0, 1 << 40)), found)
    assert comparison.counts == {"wrong_size": 1499, "wrong_offset": 1}
    assert [fault.position for fault in comparison.faults] == [20 * n for n in range(1, 1001)]


@pytest.mark.parametrize(
    ("field", "cause"),
    [
        *((name, "wrong_offset") for name in ("phy_offset", "msg_base_offset")),
        *((name, "wrong_size") for name in ("size", "batch_size")),
        ("tags_code", "wrong_tags_code"),
        *((name, "wrong_entry") for name in ("store_timestamp", "compacted_offset", "reserved")),
    ],
)
def test_each_field_of_a_batch_queues_unit(field: str, cause: str) -> None:
    units = np.array([(1000, 100, 7, 5_000, 0, 3, -1, 0), (1100, 100, 7, 5_001, 3, 2, -1, 0)], batch_consume_queue.UNIT)
    expectation = Expectation(units, 0, 2, np.zeros(2, bool), LogExtent(500, 2000))
    assert compare_units(expectation, units).compared == 2
    found = units.copy()
    found[field][1] += 1
    comparison = compare_units(expectation, found)
    assert comparison.counts == {cause: 1}
    assert [fault.position for fault in comparison.faults] == [46]


def test_a_batch_queue_has_no_pre_blank_units() -> None:
    """Its first file begins with its first unit, so what looks like one is of a message that retention took."""
    units = np.zeros(2, batch_consume_queue.UNIT)
    units[1] = (1000, 100, 7, 5_000, 0, 3, -1, 0)
    found = units.copy()
    found[0] = (0, 0x7FFFFFFF, 0, 4_000, 0, 1, -1, 0)
    comparison = compare_units(Expectation(units, 1, 2, np.zeros(2, bool), LogExtent(500, 2000)), found)
    assert (comparison.counts, comparison.old, comparison.compared) == ({}, 1, 1)


@pytest.mark.parametrize(("base", "messages", "accepted"), [(3, 2, 1), (0, 1, 1), (-1, 2, 0), (3, 0, 0), (3, -1, 0)])
def test_a_broker_takes_no_batch_without_messages(base: int, messages: int, accepted: int) -> None:
    units = np.zeros(2, batch_consume_queue.UNIT)
    units[0] = (1000, 100, 7, 5_000, 0, 3, -1, 0)
    found = units.copy()
    found[1] = (600, 100, 7, 5_000, base, messages, -1, 0)
    comparison = compare_units(Expectation(units, 0, 1, np.zeros(2, bool), LogExtent(500, 2000)), found)
    assert (comparison.counts, comparison.compared, comparison.after_end.count) == ({}, 1, accepted)


# ------------------------------------------------------------------------------------------------- rocksdb check
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
    found = compare_pairs(LOG, there, Limits(log_begin=91))
    assert (found.before_log, found.first) == (1, FirstDifference("missing_unit", 6, (110, 10, 2, 8), None))
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
