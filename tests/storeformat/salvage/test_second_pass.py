"""Which records of rejected chains fit in where they lie, between survivors and lost bytes."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import pytest
from support.in_memory import Bytes
from support.store_builder import Embedded, LogBuilder, Message
from support.surveying import RULES, a_log_of, walk

from storeformat.log.block_window import BlockWindow
from storeformat.log.chain_walk import ChainWalk, chain_from
from storeformat.log.segments import Segment
from storeformat.record.decode import DecodeRules
from storeformat.salvage import second_pass
from storeformat.salvage.evidence import Neighbours
from storeformat.salvage.queue_offsets import Queue
from storeformat.salvage.second_pass import _surviving_piece, find_survivors

SIZE = 8192
HOUR = 3600 * 1000
LEAST = 91
"""Bytes of the smallest record there is."""
RECORD = 100
"""Bytes of each record here."""
Q: Queue = (b"TopicTest", 0)


@dataclass(frozen=True)
class Seen:
    """A record that claims a place in a queue; it survived, or its chain was rejected."""

    number: int
    queue: int = 0
    hour: int = 0
    survived: bool = True
    sys_flag: int = 0
    foreign: bool = False


def kept(number: int, queue: int = 0, hour: int = 0) -> Seen:
    return Seen(number, queue, hour)


def doubted(number: int, queue: int = 0, hour: int = 0, sys_flag: int = 0) -> Seen:
    return Seen(number, queue, hour, survived=False, sys_flag=sys_flag)


PREPARED = doubted(0, sys_flag=4)
FOREIGN = Seen(0, foreign=True)


def reader(log: LogBuilder) -> second_pass.Reader:
    window = BlockWindow(Bytes(log.segments[0]), Segment("x", 0, SIZE))  # type: ignore[arg-type]

    def read(begin: int, end: int) -> ChainWalk:
        return chain_from(window, begin, DecodeRules(), stop=end)

    return read


def fitting(*items: Seen | int, near: Neighbours | None = None, start: int = 0) -> list[int]:
    """The numbers, in log order, of the doubted records that a second look lets out; integers are lost bytes. The
    survey began at ``start``.
    """
    log = LogBuilder(SIZE)
    chains: list[tuple[bool, int, int]] = []
    places: list[int] = []
    for item in items:
        if isinstance(item, int):
            log.raw(b"\xa5" * item)
            continue
        own = log.end_offset + 1 if item.foreign else None
        message = Message(queue_id=item.queue, queue_offset=item.number, physical_offset=own, sys_flag=item.sys_flag)
        placed = log.message(message, store_timestamp=1_700_000_000_000 + item.hour * HOUR)
        assert placed.size == RECORD
        if not item.survived:
            places.append(placed.offset)
        begin = placed.offset
        if chains and chains[-1][::2] == (item.survived, begin):
            begin = chains.pop()[1]
        chains.append((item.survived, begin, placed.end))
    pieces, rejected = (
        [(begin, end) for is_piece, begin, end in chains if is_piece == wanted] for wanted in (True, False)
    )
    found = find_survivors(reader(log), near or Neighbours(), start, log.end_offset, pieces, rejected)
    assert all(one[1] < other[0] for one, other in pairwise(found)), "those that touch are one"
    assert {at for begin, end in found for at in range(begin, end, RECORD)} <= set(places)
    return [number for number, at in enumerate(places) if any(begin <= at < end for begin, end in found)]


@pytest.mark.parametrize(
    ("lost", "fits"),
    [(0, {1}), (LEAST - 1, {1}), (LEAST, {1, 2}), (2 * LEAST - 1, {1, 2}), (2 * LEAST, {1, 2, 3})],
)
def test_lost_bytes_hold_what_is_missing(lost: int, fits: set[int]) -> None:
    """Between it and the record before it in its queue, or after it, or both."""
    assert {number for number in range(6) if fitting(kept(0), lost, doubted(number))} == fits
    assert {number for number in range(6) if fitting(doubted(5 - number), lost, kept(5))} == fits
    assert {number for number in range(6) if fitting(kept(0), lost, doubted(number), lost, kept(5))} == {
        number for number in fits if 5 - number in fits
    }


def test_all_bytes_lost_since_the_last_record_of_a_queue_count() -> None:
    """Here on both sides of a record of another queue, not a message's worth on either."""
    other = kept(0, queue=1)
    assert [number for number in range(6) if fitting(kept(0), 60, other, 60, doubted(number))] == [1, 2]
    assert [number for number in range(6) if fitting(doubted(number), 60, other, 60, kept(5))] == [3, 4]


@pytest.mark.parametrize(
    ("near", "fits"),
    [
        pytest.param(Neighbours(), set(), id="nothing known"),
        pytest.param(Neighbours(whole=True), {0, 1}, id="the whole log"),
        pytest.param(Neighbours({Q: 3}), {3, 4}, id="a queue's end"),
        pytest.param(Neighbours({Q: 3}, room=LEAST), {3, 4, 5}, id="a queue's end, and more is lost since"),
        pytest.param(Neighbours(firsts={Q: 6}), {4, 5}, id="a queue's begin after"),
        pytest.param(Neighbours(firsts={Q: 6}, room_after=LEAST), {3, 4, 5}, id="and more is lost up to there"),
        pytest.param(Neighbours({Q: 4}, {Q: 6}), {4, 5}, id="both"),
        pytest.param(Neighbours({(b"TopicTest", 1): 3}), set(), id="another queue's end"),
    ],
)
def test_what_is_proven_around_the_segment_counts(near: Neighbours, fits: set[int]) -> None:
    found = {number for number in range(9) if fitting(LEAST, doubted(number), LEAST, near=near)}
    assert found == fits


def test_bytes_before_the_survey_are_not_lost() -> None:
    near = Neighbours({Q: 3})
    assert [number for number in range(9) if fitting(500, doubted(number), near=near, start=500 - LEAST)] == [3, 4]


def test_messages_may_be_lost_under_records_of_another_place() -> None:
    assert [number for number in range(5) if fitting(kept(0), FOREIGN, doubted(number))] == [1, 2]
    after = kept(0, queue=1), FOREIGN, kept(4)
    assert [number for number in range(5) if fitting(doubted(number), *after)] == [2, 3]


def test_where_the_nearest_claim_contradicts_the_next_both_are_asked() -> None:
    """One of the two is damaged: if it is the nearer one, it takes one of the places between."""
    assert [number for number in range(9) if fitting(kept(4), kept(0), doubted(number))] == [1, 5, 6]
    assert [number for number in range(12) if fitting(doubted(number), kept(9), kept(4))] == [2, 3, 8]
    assert [number for number in range(9) if fitting(kept(0), kept(2), LEAST, doubted(number))] == [1, 2, 3, 4]
    assert [number for number in range(9) if fitting(doubted(number), LEAST, kept(4), kept(6))] == [2, 3, 4, 5]
    assert [number for number in range(9) if fitting(kept(3), kept(4), doubted(number))] == [5]
    assert [number for number in range(9) if fitting(doubted(number), kept(3), kept(4))] == [2]


@pytest.mark.parametrize(
    ("chain", "fits"),
    [
        ([doubted(1), doubted(2)], [0, 1]),
        ([doubted(1), doubted(50)], []),
        ([doubted(1), doubted(2), doubted(50)], [0, 1]),
        ([doubted(50), doubted(1), doubted(2)], [1, 2]),
        ([doubted(50), doubted(2), doubted(3)], [1, 2]),
        ([doubted(50), doubted(3), doubted(4)], []),
        ([doubted(1), doubted(50), doubted(2)], [0, 2]),
        ([doubted(1), doubted(50), doubted(2), doubted(3)], [0, 2, 3]),
        ([doubted(1), doubted(3), doubted(2)], [0, 2]),
        ([doubted(50), doubted(1), doubted(3), doubted(2), doubted(3)], [1, 3, 4]),
        ([doubted(1), PREPARED], [0, 1]),
        ([doubted(1), doubted(2), PREPARED], [0, 1, 2]),
        ([PREPARED, doubted(1), doubted(2)], [1, 2]),
        ([doubted(1), doubted(2), doubted(50), PREPARED, doubted(3)], [0, 1, 4]),
        ([PREPARED], []),
    ],
)
def test_most_records_of_a_chain_must_fit(chain: list[Seen], fits: list[int]) -> None:
    """The bytes of one that does not may have held another; one without a place goes with the one before it."""
    assert fitting(kept(0), *chain) == fits


def test_a_record_without_a_place_must_be_in_time() -> None:
    prepared = doubted(0, hour=50, sys_flag=4)
    assert fitting(kept(0), doubted(1), prepared, doubted(2), kept(3, hour=20)) == [0, 2]


def test_the_bytes_of_records_after_it_in_its_chain_may_have_held_others() -> None:
    assert fitting(doubted(0), doubted(1), doubted(50), kept(3)) == [0, 1]
    assert fitting(doubted(0), doubted(1), doubted(50), kept(4)) == []


def test_what_a_second_look_lets_out_is_a_survivor_for_the_next_chain() -> None:
    assert fitting(kept(0), 2 * LEAST, doubted(3), LEAST, doubted(3)) == [0]
    assert fitting(kept(0), 2 * LEAST, doubted(3), LEAST, doubted(4), doubted(5)) == [0, 1, 2]


@pytest.mark.parametrize(
    ("before", "after", "hours"),
    [
        ((10,), (), range(10, 200)),
        ((), (20,), range(20 + 1)),
        ((10,), (20,), range(10, 21)),
        ((10, 12, 11), (20, 18, 19), range(10, 21)),
        ((5, 10, 12, 11), (20, 18, 19, 25), range(10, 21)),
        ((100, 100, 0), (110, 110, 110), range(100, 111)),
        ((100, 100, 100), (190, 110, 110), range(100, 111)),
        ((100, 100, 76), (110, 110, 134), range(76, 135)),
        ((100, 100, 75), (110, 110, 135), range(100, 111)),
    ],
)
def test_its_time_is_between_those_around_it(before: tuple[int, ...], after: tuple[int, ...], hours: range) -> None:
    """Of the three next to it on either side, but none that is off by more than a day."""
    left = [kept(number, hour=hour) for number, hour in enumerate(before)]
    right = [kept(len(before) + 1 + number, hour=hour) for number, hour in enumerate(after)]
    for hour in {0, hours[0] - 1, hours[0], hours[-1], hours[-1] + 1} & set(range(200)):
        fits = fitting(*left, doubted(len(before), hour=hour), *right) == [0]
        assert fits == (hour in hours), hour


@pytest.mark.parametrize("apart", [0, LEAST])
def test_the_times_of_several_pieces_count(apart: int) -> None:
    before = [kept(0, hour=5), apart, kept(1, hour=10), LEAST, kept(2, hour=12), apart, kept(3, hour=11), LEAST]
    after = [LEAST, kept(5, hour=18), apart, kept(6, hour=19), LEAST, kept(7, hour=20), apart, kept(8, hour=25)]
    fits = [hour for hour in (0, 9, 10, 20, 21, 30) if fitting(*before, doubted(4, hour=hour), *after)]
    assert fits == [10, 20]


def test_with_no_survivor_beside_it_the_times_around_the_segment_count() -> None:
    start = 1_700_000_000_000
    near = Neighbours(whole=True, before=start + 10 * HOUR, after=start + 20 * HOUR)
    assert [hour for hour in range(40) if fitting(doubted(0, hour=hour), near=near)] == list(range(10, 21))


@pytest.mark.parametrize(("most", "fits"), [(1, []), (2, [0, 1]), (3, [0, 1, 2]), (4, [0, 1, 2])])
def test_only_so_many_records_are_looked_at_twice(most: int, fits: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(second_pass, "MOST_ROWS", most)
    assert fitting(kept(0), LEAST, doubted(1), doubted(2), LEAST, doubted(3)) == fits


def test_a_chain_that_reaches_into_what_survived_stays_out() -> None:
    """A survivor lies in what its last record takes for a body."""
    log = LogBuilder(SIZE)
    begin = log.message(body=b"x").end
    copy = Message(queue_offset=7, store_timestamp=log.clock + 1)
    end = log.message(body=Embedded((copy,), lead=b"lead")).end
    inner = log.segments[0].index(b"lead") + 4
    near = Neighbours(whole=True)
    for chain in ((0, end), (begin, end)):
        assert find_survivors(reader(log), near, 0, end, [], [chain]) == [chain]
        assert find_survivors(reader(log), near, 0, end, [(inner, inner + RECORD)], [chain]) == []
    assert find_survivors(reader(log), near, 0, end, [], [(1, end)]) == [], "no record begins there"


@pytest.mark.parametrize("block_size", [64, 300, 1 << 20])
def test_what_a_stretch_holds_of_a_queue_does_not_depend_on_blocks(block_size: int) -> None:
    data, records = a_log_of(0, 1, 0, 2, 0, 3, 3, 0, 1, 1, 1)
    window, *_ = walk(data)
    piece = records[0].offset, records[-1].end

    def read(begin: int, end: int) -> ChainWalk:
        return chain_from(window, begin, RULES, stop=end, block_size=block_size)

    found = _surviving_piece(read, piece, {(b"T", queue) for queue in (0, 1, 2, 4)})
    assert found.firsts == {(b"T", 0): [0, 1], (b"T", 1): [0, 1], (b"T", 2): [0]}
    assert found.lasts == {(b"T", 0): [2, 3], (b"T", 1): [2, 3], (b"T", 2): [0]}
    times = [placed.message.store_timestamp for placed in records]
    assert (found.first_times, found.last_times) == (times[:3], times[-3:])
