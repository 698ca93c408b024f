"""Consume-queue files: ordinary, of batches, extended."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.refusals import refusal

from storeformat.errors import TotalsDisagree, WrongSettings
from storeformat.queues import consume_queue as cq
from storeformat.queues import consume_queue_ext as ext
from storeformat.queues.batch_consume_queue import check_file_size, is_valid, parse_units, written_units
from storeformat.queues.topic_filter import TopicFilter, selected, selects
from storeformat.store import layout


# ------------------------------------------------------------------------------------------------- consume queue
@dataclass
class Queue:
    """A consume queue as ConsumeQueue#putMessagePositionInfo writes it, one put after the other; -1 is a pre-blank."""

    units: list[int] = field(default_factory=list)
    first: int | None = None

    def put(self, queue_offset: int, message: int) -> None:
        if queue_offset == 0:  # a new life of the topic: what the broker had was deleted with it
            self.units, self.first = [], 0
        if queue_offset < 0:
            return
        if self.first is None:
            self.first = queue_offset
            self.units = [-1] * queue_offset
        if queue_offset == 0 or queue_offset >= len(self.units):
            self.units.append(message)


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
        model = Queue()
        for message, offset in enumerate(offsets):
            model.put(offset, message)
        if model.first is not None:
            expected[queue] = model.units
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
