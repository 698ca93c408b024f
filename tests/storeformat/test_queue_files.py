"""Files of consume queues, and checks of them."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.broker_model import CQ_UNIT, ConsumeQueue
from support.refusals import refusal

from storeformat.arrays import Bools, LogExtent, Structs, as_fields
from storeformat.errors import TotalsDisagree, WrongSettings
from storeformat.queues import batch_consume_queue, consume_queue, rocksdb_queues
from storeformat.queues import consume_queue as cq
from storeformat.queues import consume_queue_ext as ext
from storeformat.queues.batch_consume_queue import check_file_size, is_valid, parse_units, written_units
from storeformat.queues.queue_check import (
    Finding,
    Pairs,
    UnitComparison,
    compare_pairs,
    compare_units,
)
from storeformat.queues.rocksdb_queues import VALUE
from storeformat.queues.topic_filter import TopicFilter, selected, selects
from storeformat.store import layout


# ------------------------------------------------------------------------------------------------- consume queue
def cut(offsets: list[int], cuts: set[int]) -> list[tuple[int, int, int]]:
    """Runs (first queue offset, count, number of the first message): at every break of order, and at ``cuts``."""
    runs: list[tuple[int, int, int]] = []
    for message, offset in enumerate(offsets):
        if runs and message not in cuts and offset == runs[-1][0] + runs[-1][1]:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1, runs[-1][2])
        else:
            runs.append((offset, 1, message))
    return runs


def build_file(file_size: int, pre_blanks: int, pieces: list[bytes]) -> bytes:
    return (cq.PRE_BLANK * pre_blanks + b"".join(pieces)).ljust(file_size, b"\0")


def assemble(places: cq.Places, first_messages: list[int], per_file: int) -> dict[int, list[int]]:
    """Message numbers by queue and position, put together from the files of a plan; 0 beyond the end."""
    files, slices = cq.plan_files(places, per_file, 100 * per_file)
    rest = iter(slices.tolist())
    queues: dict[int, list[int]] = {}
    for key, base, pre_blanks, count_of_slices, closed in files.tolist():
        units = [-1] * pre_blanks
        for run, begin, count, filler in itertools.islice(rest, count_of_slices):
            message = first_messages[run] + begin
            units += [message] * count if filler else range(message, message + count)
        assert 0 < len(units) <= per_file
        assert not closed or len(units) == per_file
        content = queues.setdefault(key, [-1] * (base // 100))
        assert len(content) == base // 100, "files of a queue follow each other"
        content += units
    assert next(rest, None) is None
    return queues


queue_lives = st.lists(
    st.one_of(
        st.tuples(st.just(0), st.integers(1, 9)),
        st.tuples(st.integers(0, 30), st.integers(1, 9)),
        st.tuples(st.integers(-3, 3), st.integers(1, 5)),
    ),
    min_size=1,
    max_size=7,
).map(lambda lives: [first + step for first, count in lives for step in range(count)])


@settings(max_examples=4 * settings.default.max_examples, deadline=None)
@given(
    st.dictionaries(st.integers(0, 50), st.tuples(queue_lives, st.sets(st.integers(0, 60))), max_size=6),
    st.integers(1, 12),
)
@example({}, 1)
def test_placement_is_that_of_one_put_after_the_other(
    queues: dict[int, tuple[list[int], set[int]]], per_file: int
) -> None:
    owners, firsts, counts, first_messages = [], [], [], []
    expected = {}
    for queue in sorted(queues):
        offsets, cuts = queues[queue]
        model = ConsumeQueue(100 * CQ_UNIT.size)
        for message, offset in enumerate(offsets):
            if offset >= 0:
                model.put_message_position_info(message, 1, 0, offset)
        if model.files:
            units = CQ_UNIT.iter_unpack(model.files[0][: model.end])
            expected[queue] = [-1 if size > 1 else message for message, size, _ in units]
        for first, count, message in cut(offsets, cuts):
            owners.append(queue)
            firsts.append(first)
            counts.append(count)
            first_messages.append(message)
    plan = cq.place_runs(owners, firsts, counts)
    found = assemble(plan, first_messages, per_file)
    assert found == expected
    for number, queue in enumerate(plan.queues["key"].tolist()):
        written = sum(unit >= 0 for unit in expected.get(queue, ()))
        assert plan.queues["end"][number] - plan.queues["first"][number] == written
        assert plan.queues["earlier_lives"][number] + plan.queues["dropped"][number] + written == len(queues[queue][0])


def test_notes_say_what_was_left_out() -> None:
    # first life 0-4; second life 0-2, then 1 again (late), then 7 (shifted to 3), then one below zero
    plan = cq.place_runs([1] * 5, [0, 0, 1, 7, -1], [5, 3, 1, 2, 1])
    assert plan.queues.tolist() == [(1, 0, 5, 5, 2, 2)]
    assert plan.runs["position"][3] == 3


def test_a_queue_begins_anew_where_it_is_told_to() -> None:
    """The first message of its new life is lost: a later one is the first that is left."""
    runs = [4, 4, 9], [0, 2, 5], [3, 1, 1]
    whole = cq.place_runs(*runs, after_damage=[False, True, True])
    assert (whole.runs["in_last_life"].tolist(), whole.queues["earlier_lives"].tolist()) == ([True, True, True], [0, 0])
    anew = cq.place_runs(*runs, after_damage=[False, True, True], begins_anew=[False, True, True])
    assert anew.runs.tolist() == [(0, 0, 0, 0, 0, False), (0, 2, 0, 1, 2, True), (1, 5, 0, 1, 5, True)]
    assert anew.queues.tolist() == [(4, 0, 3, 3, 0, 0), (9, 0, 6, 0, 0, 0)]


def test_a_lost_counter_begins_no_life() -> None:
    """As ConsumeQueue#putMessagePositionInfo appends: offset 0 is never taken for dispatched, 1 to 3 are, 4 is next."""
    plan = cq.place_runs([7] * 3, [0, 0, 1], [3, 1, 4], counter_lost=[False, True, False])
    assert plan.runs.tolist() == [(0, 0, 0, 3, 0, True), (0, 3, 0, 1, 0, True), (0, 4, 3, 1, 0, True)]
    assert plan.queues[["end", "earlier_lives", "dropped"]].tolist() == [(5, 0, 3)]


RACES = {
    "two of one queue": ([0, 0, 2], [1, 1, 2], [0, 1, 2]),
    "three": ([0, 0, 0, 3], [1, 1, 1, 1], [0, 1, 2, 3]),
    "in the second life": ([0, 0, 0, 2], [1, 1, 1, 1], [0, 0, 1, 2]),
    "the second life begins": ([0, 0, 1], [1, 1, 1], [0, 0, 1]),
    "the second life has two": ([0, 0, 2], [1, 2, 1], [0, 0, 2]),
    "nothing follows": ([0, 0], [1, 1], [0, 0]),
    "more is missing": ([0, 0, 3], [1, 1, 1], [0, 0, 3]),
}


@pytest.mark.parametrize(("firsts", "counts", "expected"), RACES.values(), ids=RACES)
def test_producers_that_race_for_a_new_light_queue(firsts: list[int], counts: list[int], expected: list[int]) -> None:
    size = len(firsts)
    given = np.full(size, 7), np.array(firsts), np.array(counts)
    assert cq.without_races(*given, np.ones(size, bool)).tolist() == expected
    assert given[1].tolist() == firsts
    assert cq.without_races(*given, np.zeros(size, bool)).tolist() == firsts
    assert cq.without_races(*given, np.ones(size, bool), np.arange(size) == size - 1).tolist() == firsts
    other = np.array([6] + [7] * (size - 1))
    assert cq.without_races(other, *given[1:], np.ones(size, bool)).tolist()[0] == 0


def test_places_of_lost_messages_are_filled_where_the_log_is_damaged() -> None:
    runs = ([7] * 3, [10, 20, 25], [5, 2, 4])
    assert cq.place_runs(*runs).queues["end"].tolist() == [21], "a broker leaves no gap"
    plan = cq.place_runs(*runs, after_damage=[False, True, False])
    assert plan.runs["position"].tolist() == [10, 20, 22]
    assert plan.runs["fill"].tolist() == [0, 5, 0]
    found = assemble(plan, [100, 200, 300], 8)[7][10:]
    assert found == [*range(100, 105), *[200] * 5, *range(200, 202), *range(300, 304)]


def test_a_queue_whose_first_messages_are_lost_is_filled_from_its_begin() -> None:
    plan = cq.place_runs([7, 7], [3, 9], [2, 1], after_damage=[True, True])
    assert plan.queues["first"].tolist() == [0]
    assert plan.runs["position"].tolist() == [3, 9]
    assert plan.runs["fill"].tolist() == [3, 4]
    assert cq.plan_files(plan, 8, 160)[0]["pre_blanks"].tolist() == [0, 0]
    assert assemble(plan, [100, 200], 8)[7] == [*[100] * 3, 100, 101, *[200] * 4, 200]


def test_a_queue_shifted_before_the_damage_stays_shifted() -> None:
    plan = cq.place_runs([7] * 3, [0, 5, 20], [3, 2, 1], after_damage=[False, False, True])
    assert plan.runs["position"].tolist() == [0, 3, 18]  # 13 messages lost, shift of 2 kept
    assert plan.runs["fill"].tolist() == [0, 0, 13]


@settings(max_examples=2 * settings.default.max_examples, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 6)), min_size=1, max_size=8), st.data())
def test_filled_gaps_do_not_depend_on_cuts(runs: list[tuple[int, int]], data: st.DataObject) -> None:
    damage = data.draw(st.lists(st.booleans(), min_size=len(runs), max_size=len(runs)))
    pieces = [(first, count, 100 * number, damage[number]) for number, (first, count) in enumerate(runs)]
    cuts = [data.draw(st.integers(0, count)) for _, count in runs]
    halves = []
    for (first, count, message, damaged), at in zip(pieces, cuts, strict=True):
        halves += [(first, at, message, damaged)] if at else []
        halves += [(first + at, count - at, message + at, damaged and not at)] if at < count else []
    results = []
    for parts in (pieces, halves):
        plan = cq.place_runs([0] * len(parts), *np.array(parts)[:, :2].T, [part[3] for part in parts])
        results.append(assemble(plan, [part[2] for part in parts], 7))
    assert results[0] == results[1]


def test_queue_offsets_that_no_file_can_hold() -> None:
    plan = cq.place_runs([0, 0, 1], [3, 1 << 60, (1 << 63) - 5], [2, 4, 3])
    assert plan.queues["end"].tolist() == [5, 0]
    assert plan.queues["dropped"].tolist() == [4, 3]
    assert cq.plan_files(plan, 50, 1000)[0]["key"].tolist() == [0]


def test_runs_out_of_order_are_a_mistake_of_the_caller() -> None:
    with pytest.raises(ValueError, match=r"^runs must be sorted by queue$"):
        cq.place_runs([1, 0], [0, 0], [1, 1])


def test_unit_of_a_real_broker() -> None:
    units = cq.pack_units([0, 377], [0x86, 181], [2598919, 1795167552993])
    assert units[:1].tobytes().hex() == "000000000000000000000086000000000027a807"
    assert units[1:].tobytes().hex() == "0000000000000179000000b5000001a1f85305e1"
    assert cq.pack_units([0], [0], [-(1 << 31)]).tobytes().hex()[24:] == "ffffffff80000000"
    assert cq.PRE_BLANK.hex() == "00000000000000007fffffff0000000000000000"
    assert layout.file_name(300_000 * cq.UNIT_SIZE) == "00000000000006000000"


def test_what_recovery_accepts() -> None:
    units = cq.parse_units(build_file(160, 2, [cq.pack_units([5, 9], [4, 4], [0, -1]).tobytes()]) + b"cut")
    assert cq.is_valid(units).tolist() == [True] * 4 + [False] * 4
    assert cq.is_pre_blank(units).tolist() == [True] * 2 + [False] * 6
    assert cq.written_units(units) == 4
    assert cq.written_units(units[:4]) == 4


# ------------------------------------------------------------------------------------------- batch consume queue
def unit(
    offset: int = 4096, size: int = 300, tags: int = -7, time: int = 1_700_000_000_000, base: int = 12, batch: int = 3
) -> bytes:
    return struct.pack(">qiqqqhii", offset, size, tags, time, base, batch, -1, 0)


@pytest.mark.parametrize(
    ("changed", "valid"),
    [
        *((changed, True) for changed in ({}, {"offset": 0}, {"size": 1}, {"base": 0}, {"batch": 1})),
        *((changed, False) for changed in ({"offset": -1}, {"size": 0}, {"base": -1}, {"batch": 0}, {"batch": -1})),
    ],
)
def test_what_a_broker_accepts(changed: dict[str, int], valid: bool) -> None:
    units = parse_units(unit() + unit(**changed) + unit())
    assert is_valid(units).tolist() == [True, valid, True]
    assert written_units(units) == (3 if valid else 1)
    assert written_units(parse_units(bytes(920))) == written_units(parse_units(b"")) == 0


@pytest.mark.parametrize("size", [-46, 0, 1, 45, 47, 921])
def test_a_length_that_holds_no_whole_units_is_refused(size: int) -> None:
    with pytest.raises(WrongSettings, match=f"holds no whole units: found {size}, expected a multiple of 46"):
        check_file_size(size)
    assert [check_file_size(size) for size in (46, 920, 46 * 300_000)] == [46, 920, 46 * 300_000]


# --------------------------------------------------------------------------------------------- consume queue ext
SIGN = 1 << 63


def places(units: int, file_size: int) -> Iterator[int]:
    """ConsumeQueueExt#put for units of 20 bytes, one after the other: where each begins."""
    wrote, base = 0, 0
    for _ in range(units):
        if file_size - wrote - 4 < 20:
            wrote, base = 0, base + file_size
        yield base + wrote
        wrote += 20


@given(st.integers(24, 200), st.integers(0, 60), st.integers(0, 60))
def test_addresses_are_those_that_the_broker_counts(file_size: int, first: int, count: int) -> None:
    expected = list(places(first + count, file_size))[first:]
    found = ext.addresses(first, count, file_size)
    assert (found + np.int64(SIGN - 1) + np.int64(1)).tolist() == expected
    assert ext.is_address(found).all()
    assert ext.unit_offsets(found).tolist() == expected


def test_what_is_an_address() -> None:
    """ConsumeQueueExt#isExtAddr: up to Integer.MIN_VALUE - 1, which no hash and no time is."""
    codes = [-(1 << 63), -(1 << 31) - 1, -(1 << 31), -1, 0, (1 << 31) - 1, 1_700_000_000_000]
    assert ext.is_address(np.array(codes)).tolist() == [True, True, False, False, False, False, False]


def test_units_and_end_mark() -> None:
    units = ext.pack_units([2598919, -2113935936, 1795167552993], [1, 2, 1 << 40])
    content = units.tobytes() + ext.END_MARK
    assert content == b"".join(
        struct.pack(">hqqh", 20, code, time, 0)
        for code, time in ((2598919, 1), (-2113935936, 2), (1795167552993, 1 << 40))
    ) + b"\xff\xff"  # fmt: skip
    assert [ext.written_units(content[:size].ljust(100, b"\0")) for size in (62, 60, 40, 0)] == [3, 3, 2, 0]
    assert [ext.written_units(content[:size]) for size in (62, 60, 40, 0)] == [3, 3, 2, 0]
    with_bit_map = struct.pack(">hqqh8x", 28, 1, 2, 8)
    assert ext.written_units(content[:20] + with_bit_map) == 1
    places = np.array([0, -1, 20, 42, 43, 62, 1 << 40])
    heads = ext.parse_unit_heads(np.frombuffer(content, np.uint8), places)
    assert heads["size"].tolist() == [20, 0, 20, struct.unpack_from(">h", content, 42)[0], 0, 0, 0]
    assert heads["tags_code"][[0, 1, 2]].tolist() == [2598919, 0, -2113935936]


def test_a_file_without_room_is_an_error() -> None:
    assert ext.units_per_file(24) == 1
    said = {"what": "mappedFileSizeConsumeQueueExt holds no unit", "found": 23, "expected": "24 or more"}
    assert refusal(WrongSettings, lambda: ext.units_per_file(23)) == said


def test_no_address_beyond_the_last() -> None:
    first = (1 << 63) // 24
    said = {"what": "consume queue ext has no address for a unit", "found": first * 24}
    assert refusal(TotalsDisagree, lambda: ext.addresses(first, 1, 24)) == said


# -------------------------------------------------------------------------------------------------- topic filter
@pytest.mark.parametrize(
    ("text", "topic", "queue_id"),
    [("T", "T", None), ("T:7", "T", 7), ("a:b", "a:b", None), ("a:b:0", "a:b", 0), ("T:", "T:", None),
     ("T:-1", "T:-1", None), ("T:\u0663", "T:\u0663", None)],
)  # fmt: skip
def test_a_number_after_the_last_colon_is_a_queue(text: str, topic: str, queue_id: int | None) -> None:
    found = TopicFilter.parse(text)
    assert (found.topic, found.queue_id, str(found)) == (topic, queue_id, text)


def test_a_queue_is_asked_for_by_itself_by_its_topic_or_by_nothing() -> None:
    filters = (TopicFilter("A"), TopicFilter("B", 2))
    asked = {("A", 0): True, ("A", 9): True, ("B", 2): True, ("B", 3): False, ("C", 2): False}
    assert {queue: selects(filters, *queue) for queue in asked} == asked
    assert selects((), "C", 2)
    codes, ids = np.array([0, 0, 1, 1, 2], np.int32), np.array([0, 9, 2, 3, 2], np.int32)
    rows = selected(filters, [b"A", b"B", b"C"], codes, ids)
    assert rows.tolist() == list(asked.values())
    assert selected((TopicFilter("missing"),), [b"A", b"B", b"C"], codes, ids).tolist() == [False] * 5


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
WHOLE = LogExtent(0, 1 << 62)


def pairs(*rows: tuple[int, int, int, int, int]) -> Pairs:
    """(queue offset, phy_offset, size, tags_code, store_timestamp) of each."""
    return Pairs(np.array([row[0] for row in rows], np.int64), np.array([row[1:] for row in rows], VALUE))


PAIRS = pairs((5, 100, 10, 1, 7), (6, 110, 10, 2, 8), (7, 120, 10, 3, 9))


def compared(
    expected: Pairs, found: Pairs, log: LogExtent = WHOLE, **limits: int
) -> tuple[dict[str, int], dict[str, int]]:
    """Differences by cause, and the other counts but for how many were compared."""
    comparison = compare_pairs(expected, found, log, **limits)
    assert comparison.counts.pop("compared") == len(expected.queue_offsets)
    return {one.cause: one.count for one in comparison.differences}, dict(+comparison.counts)


def test_equal_pairs_differ_in_nothing() -> None:
    assert compared(PAIRS, PAIRS) == ({}, {})


@pytest.mark.parametrize("row", [(6, 111, 11, 3, 0), (6, 110, 11, 2, 8), (6, 110, 10, 3, 8), (6, 110, 10, 2, 9)])
def test_a_pair_that_differs_counts_once(row: tuple[int, int, int, int, int]) -> None:
    found = compare_pairs(PAIRS, pairs((5, 100, 10, 1, 7), row, (7, 120, 10, 3, 9)), WHOLE)
    expected = dict(zip(VALUE.names or (), (110, 10, 2, 8), strict=True))
    there = dict(zip(VALUE.names or (), row[1:], strict=True))
    assert found.differences == (Finding("wrong_unit", 1, 6, expected, there),)


def test_missing_and_surplus_pairs() -> None:
    there = pairs((4, 90, 10, 0, 0), (5, 100, 10, 1, 7), (7, 120, 10, 3, 9))
    missing, extra = compare_pairs(PAIRS, there, WHOLE).differences
    assert missing == Finding("missing_unit", 1, 6, as_fields(PAIRS.values[1]), None)
    assert extra == Finding("extra_unit", 1, 4, None, as_fields(there.values[0]))
    assert compared(PAIRS, there, LogExtent(91, 1 << 62)) == ({"missing_unit": 1}, {"before_log": 1})
    assert compared(PAIRS, there, LogExtent(0, 1 << 62, ((90, 91),))) == ({"missing_unit": 1}, {})


def test_what_a_broker_never_reads_is_beyond() -> None:
    there = pairs((5, 100, 10, 1, 7), (6, 110, 10, 2, 8), (7, 120, 10, 3, 9), (8, 130, 10, 4, 9))
    assert compared(PAIRS, there, last=7) == ({}, {"beyond": 1})
    assert compared(PAIRS, there, last=8) == ({"extra_unit": 1}, {})


def test_what_was_not_dispatched_yet_lags() -> None:
    there = pairs((5, 100, 10, 1, 7), (6, 999, 10, 2, 8))
    assert compared(PAIRS, there, dispatched=110) == ({}, {"lagging": 2})
    assert compared(PAIRS, there, dispatched=120) == ({"wrong_unit": 1}, {"lagging": 1})
    assert compared(PAIRS, pairs(), dispatched=0) == ({}, {"lagging": 3})


def test_offsets_are_compared_to_the_byte() -> None:
    """Beyond 2^53 floating-point numbers would be too coarse."""
    at = (1 << 53) + 1
    log = pairs((5, at - 1, 10, 1, 7), (6, at, 10, 2, 8))
    assert compared(log, pairs(), dispatched=at) == ({"missing_unit": 1}, {"lagging": 1})
    there = pairs((7, at - 1, 10, 1, 7), (8, at, 10, 1, 7), (9, at + 1, 10, 1, 7))
    assert compared(pairs(), there, LogExtent(at, 1 << 62))[1] == {"before_log": 1}
    assert compared(pairs(), there, dispatched=at)[0] == {"extra_unit": 1}
    assert compared(pairs(), there, LogExtent(0, 1 << 62, ((at, at + 1),)))[0] == {"extra_unit": 2}
    places = pairs((at - 1, 100, 10, 1, 7), (at, 110, 10, 1, 7))
    assert compared(places, pairs((at, 110, 10, 1, 7)))[0] == {"missing_unit": 1}


# ------------------------------------------------------------------------------------------------- rocksdb pairs
def test_keys_are_parsed() -> None:
    key = rocksdb_queues.unit_key(b"T\x01", 7, 258)
    assert key == rocksdb_queues.unit_keys(b"T\x01", 7, np.array([258]))[0].tobytes()
    assert rocksdb_queues.parse_queue(key) == (b"T\x01", 7)
    assert rocksdb_queues.queue_head(b"T\x01", 7) < key < rocksdb_queues.after_queue(b"T\x01", 7)
    assert rocksdb_queues.after_queue(b"T\x01", 7) < rocksdb_queues.unit_key(b"T\x01", 8, 0)
    assert rocksdb_queues.parse_end(rocksdb_queues.end_key(b"T", 1, "min")) == (b"T", 1, "min")
    assert rocksdb_queues.parse_ends(rocksdb_queues.ENDS.pack(5, 6)) == (5, 6)


def test_what_is_no_key_is_none() -> None:
    key = rocksdb_queues.unit_key(b"T", 1, 2)
    for wrong in (b"", b"\0\0\0\1", key[:-1], key + b"\0", key[:4] + b"\2" + key[5:]):
        assert rocksdb_queues.parse_queue(wrong) is None
    assert rocksdb_queues.parse_end(key) is None
    assert rocksdb_queues.parse_end(rocksdb_queues.end_key(b"T", 1, "mid")) is None
    assert rocksdb_queues.parse_ends(rocksdb_queues.OFFSET.pack(9)) is None


def test_queues_sort_as_their_keys() -> None:
    queues = [(b"B", 0), (b"A", 256), (b"A", 1), (b"AA", 0), (b"\xff", 2)]
    by_key = sorted(queues, key=lambda queue: rocksdb_queues.queue_head(*queue))
    assert sorted(queues, key=lambda queue: rocksdb_queues.key_order(*queue)) == by_key
