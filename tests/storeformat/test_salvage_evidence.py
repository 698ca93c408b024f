"""What proves a record after damage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.in_memory import Bytes
from support.store_builder import Embedded, LogBuilder, Message, encode_record

from storeformat.log.chain_walk import BlockWindow, ChainWalk, chain_from
from storeformat.log.segments import Segment
from storeformat.record.decode import DecodeRules, RecordBlock
from storeformat.salvage import second_pass
from storeformat.salvage.evidence import CLOCK_SLACK, Neighbours, Side, Strength, SurvivorJudge, _Rows, latest_time
from storeformat.salvage.queue_offsets import Queue
from storeformat.salvage.second_pass import find_survivors

# ------------------------------------------------------------------------------------------------------ evidence
MOST = (1 << 63) - 1


@dataclass(frozen=True)
class Claim:
    """A record that says it takes a place in a queue, None where it takes none: it is prepared, or of another place."""

    queue: Queue
    number: int
    time: int
    sys_flag: int = 0
    foreign: bool = False

    @property
    def queued(self) -> bool:
        return not self.foreign and self.sys_flag in (0, 8)


@dataclass
class RecordByRecord:
    """The rules, one claim after the other."""

    near: Neighbours
    ends: dict[Queue, int] = field(default_factory=dict)
    contradicted: set[Queue] = field(default_factory=set)
    learned: int = 0
    successions: int = 0
    missing: int = 0
    contradictions: int = 0

    def __post_init__(self) -> None:
        self.ends = dict(self.near.before.edges)

    def learn(self, claims: Sequence[Claim]) -> None:
        for claim in claims:
            if claim.queued:
                self._compare(claim.queue, claim.number)
                self.ends[claim.queue] = claim.number + 1

    def _compare(self, queue: Queue, number: int) -> None:
        end = self.ends.get(queue, 0 if self.near.whole else None)
        following = self.near.after.edges.get(queue)
        self.learned += 1
        if number == 0:
            self.contradicted.discard(queue)
        if end is not None and 0 < number < end:
            self.contradicted.add(queue)
        if queue in self.contradicted or (following is not None and following <= number and following != 0):
            self.contradictions += 1
        elif number == 0:
            self.successions += self.near.whole and queue not in self.ends
        elif end is not None:
            self.successions += number == end
            self.missing += max(number - end, 0)

    def is_older(self, claims: Sequence[Claim]) -> bool:
        return all(
            (self.near.before.time is not None and claim.time < self.near.before.time)
            or (claim.queued and claim.number < self.ends.get(claim.queue, 0))
            for claim in claims
        )


TIMES = st.sampled_from([0, 1, 5, CLOCK_SLACK, 2 * CLOCK_SLACK])
NUMBERS = st.integers(0, 6) | st.sampled_from([0, MOST - 1, MOST, -1, -MOST - 1])
QUEUES = st.tuples(st.sampled_from([b"A", b"B", b"TOPIC"]), st.sampled_from([0, 1, 70_000]))
CLAIMS = st.builds(Claim, QUEUES, NUMBERS, TIMES, st.sampled_from([0, 0, 0, 8, 4, 12]), st.booleans())
NEIGHBOURS = st.builds(
    Neighbours,
    st.builds(
        Side,
        st.dictionaries(QUEUES, st.integers(0, 6) | st.just(MOST + 1)),
        st.none() | TIMES,
        st.sampled_from([0, 91, 1000]),
    ),
    st.builds(Side, st.dictionaries(QUEUES, NUMBERS), st.none() | TIMES),
    whole=st.booleans(),
)


def a_block(claims: Sequence[Claim]) -> RecordBlock:
    """The records of one chain, without its first one: no segment begins with a record of another place."""
    data = bytearray(encode_record(Message(topic="FIRST", queue_id=0, queue_offset=0, body=b"x"), 0))
    for claim in claims:
        message = Message(*claim.queue, claim.number, b"x", store_timestamp=claim.time, sys_flag=claim.sys_flag)
        data += encode_record(message, len(data) + claim.foreign)
    segment = Segment("x", 0, len(data))
    walk = chain_from(BlockWindow(Bytes(bytes(data)), segment), 0, DecodeRules())  # type: ignore[arg-type]
    (block,) = walk
    assert len(block) == len(claims) + 1
    return block.take(slice(1, None))


def queue_a(*numbers: int) -> list[Claim]:
    return [Claim((b"A", 0), number, 1) for number in numbers]


@given(near=NEIGHBOURS, blocks=st.lists(st.lists(CLAIMS, min_size=1, max_size=12), min_size=1, max_size=3))
@example(near=Neighbours(whole=True), blocks=[queue_a(0, 1, 2), queue_a(1, 2, 0, 1)])
@example(near=Neighbours(Side({(b"A", 0): 5})), blocks=[queue_a(3, 4), queue_a(5, 6), queue_a(0, 1, 3)])
@example(near=Neighbours(Side({(b"A", 0): MOST + 1})), blocks=[queue_a(3, MOST, MOST), queue_a(MOST, 4, MOST)])
@example(near=Neighbours(after=Side({(b"A", 0): 4})), blocks=[queue_a(0, 3, 4, 5)])
@example(near=Neighbours(whole=True), blocks=[queue_a(-1, -1, 0)])
@example(
    near=Neighbours(whole=True),
    blocks=[[Claim((b"A", queue_id), number, 1) for queue_id, number in ((1, 0), (65_537, 0), (1, 1))]],
)
def test_a_block_teaches_what_its_records_teach_one_by_one(near: Neighbours, blocks: list[list[Claim]]) -> None:
    judge, model = SurvivorJudge(near), RecordByRecord(near)
    for claims in blocks:
        judge.learn(a_block(claims))
        model.learn(claims)
        learned = judge._learned
        assert judge._ends == model.ends
        assert (learned.claims, learned.successions) == (model.learned, model.successions)
        assert (learned.missing, learned.contradictions) == (model.missing, model.contradictions)
        assert learned.contradicted == model.contradicted
        assert judge.contradicts == (model.contradictions > 0 and model.successions <= model.contradictions)


@given(near=NEIGHBOURS, claims=st.lists(CLAIMS, min_size=1, max_size=12))
@example(near=Neighbours(Side({(b"A", 0): 5})), claims=queue_a(4, 0))
@example(near=Neighbours(Side({(b"A", 0): 5})), claims=queue_a(4, 5))
def test_a_block_is_older_if_each_of_its_records_is(near: Neighbours, claims: list[Claim]) -> None:
    assert SurvivorJudge(near).is_older(a_block(claims)) == RecordByRecord(near).is_older(claims)


@given(near=NEIGHBOURS, claims=st.lists(CLAIMS, min_size=1, max_size=12))
@example(near=Neighbours(Side({(b"A", 0): 5})), claims=queue_a(0, 1))
@example(near=Neighbours(Side({(b"A", 0): 5}, 2), Side({(b"A", 0): 9}, 3)), claims=queue_a(5))
def test_what_is_judged_is_all_of_which_there_may_be_evidence(near: Neighbours, claims: list[Claim]) -> None:
    judge, block = SurvivorJudge(near), a_block(claims)
    rows = _Rows(block)
    of_some_evidence = [row for row in range(len(block)) if judge._judge(rows, row) != Strength.NONE]
    assert set(of_some_evidence) <= set(judge._candidates(block))


# ----------------------------------------------------------------------------------------------------- literal cases
DAY = CLOCK_SLACK
A, B = (b"A", 0), (b"B", 0)
PREPARED_FLAG = 4


def judged(near: Neighbours, *claims: Claim, row: int = 0) -> Strength:
    return SurvivorJudge(near)._judge(_Rows(a_block(claims)), row)


def of_a(*numbers: int, time: int = 10) -> list[Claim]:
    return [Claim(A, number, time) for number in numbers]


@pytest.mark.parametrize(
    ("near", "claims", "strength"),
    [
        # between both neighbours of its queue
        (Neighbours(Side({A: 5}), Side({A: 9})), of_a(5), Strength.STRONG),
        (Neighbours(Side({A: 5}), Side({A: 9})), of_a(6), Strength.NONE),
        (Neighbours(Side({A: 5}, room=91), Side({A: 9})), of_a(6), Strength.STRONG),
        (Neighbours(Side({A: 5}, room=90), Side({A: 9})), of_a(6), Strength.NONE),
        (Neighbours(Side({A: 5}, room=3 * 91), Side({A: 9})), of_a(8), Strength.STRONG),
        (Neighbours(Side({A: 5}, room=5 * 91), Side({A: 9})), of_a(9), Strength.NONE),
        (Neighbours(Side({A: 5}, DAY + 11), Side({A: 9}, DAY + 11)), of_a(5), Strength.NONE),
        (Neighbours(Side({A: 5}, DAY + 10), Side({A: 9}, DAY + 10)), of_a(5), Strength.STRONG),
        # just the next one of its queue
        (Neighbours(Side({A: 5})), of_a(5), Strength.FAIR),
        (Neighbours(Side({A: 5}, 10), Side(time=10)), of_a(5), Strength.FAIR),
        (Neighbours(Side({A: 5}, 11)), of_a(5), Strength.NONE),
        (Neighbours(Side({A: 5}), Side(time=9)), of_a(5), Strength.NONE),
        (Neighbours(Side({A: 5}, 20), Side(time=9)), of_a(5), Strength.FAIR),
        (Neighbours(whole=True), [Claim(A, 0, 10), Claim(B, 0, 10)], Strength.WEAK),
        # later ones, earlier ones
        (Neighbours(Side({A: 5}, room=91)), of_a(6), Strength.WEAK),
        (Neighbours(Side({A: 5})), of_a(6), Strength.NONE),
        (Neighbours(Side({A: 5})), of_a(4), Strength.NONE),
        (Neighbours(), of_a(4), Strength.WEAK),
        (Neighbours(whole=True), of_a(1), Strength.NONE),
        (Neighbours(Side(room=91), whole=True), of_a(1), Strength.WEAK),
        # what comes after it in its chain
        (Neighbours(Side({A: 5})), of_a(5, 6), Strength.FAIR),
        (Neighbours(Side({A: 5})), of_a(5, 5), Strength.NONE),
        (Neighbours(Side({A: 5})), of_a(5, 4), Strength.FAIR),
        (Neighbours(Side({A: 5}, room=9 * 91)), of_a(7, 6), Strength.NONE),
        (Neighbours(Side({A: 5})), of_a(5, 0), Strength.FAIR),
        (Neighbours(Side({A: 5})), of_a(5, 5, 0), Strength.NONE),
        (Neighbours(Side({A: 5}), Side({A: 5})), of_a(5, 9), Strength.NONE),
        (Neighbours(Side({A: 5})), [*of_a(5), Claim(B, 5, 10), Claim((b"A", 1), 5, 10), *of_a(6)], Strength.FAIR),
        (Neighbours(Side({A: 5})), [*of_a(5), Claim(A, 5, 10, PREPARED_FLAG), *of_a(6)], Strength.FAIR),
        # the queue begins, or begins again
        (Neighbours(), of_a(0), Strength.WEAK),
        (Neighbours(Side({A: 5})), of_a(0), Strength.NONE),
        (Neighbours(Side({A: 5})), of_a(0, 1), Strength.NONE),
        (Neighbours(Side({A: 5}), Side({A: 4})), of_a(0), Strength.WEAK),
        (Neighbours(Side({A: 5}), Side({A: 5})), of_a(0), Strength.NONE),
        (Neighbours(Side({A: 5})), of_a(0, 6), Strength.NONE),
        (Neighbours(Side({A: 5})), of_a(0, 0), Strength.WEAK),
        # without a place in a queue
        (Neighbours(Side(time=10), Side(time=20)), [Claim(A, 0, 10, PREPARED_FLAG)], Strength.WEAK),
        (Neighbours(Side(time=1), Side(time=10)), [Claim(A, 0, 10, PREPARED_FLAG)], Strength.WEAK),
        (Neighbours(Side(time=11), Side(time=20)), [Claim(A, 0, 10, PREPARED_FLAG)], Strength.NONE),
        (Neighbours(Side(time=1), Side(time=9)), [Claim(A, 0, 10, PREPARED_FLAG)], Strength.NONE),
    ],
)
def test_what_the_neighbours_say_of_a_record(near: Neighbours, claims: list[Claim], strength: Strength) -> None:
    assert judged(near, *claims) == strength


@pytest.mark.parametrize(("time", "strength"), [(DAY + 5, Strength.WEAK), (DAY + 6, Strength.NONE), (5, Strength.WEAK)])
def test_a_time_of_the_future_is_more_than_a_clock_jumps_ahead_of_its_chain(time: int, strength: Strength) -> None:
    """Where no record after the chain bounds it; the latest time after it is 5."""
    claims = [Claim(A, 0, at, PREPARED_FLAG) for at in (time, 5, 0)]
    assert judged(Neighbours(Side(time=0)), *claims) == strength
    assert judged(Neighbours(), *claims) == Strength.WEAK
    assert judged(Neighbours(Side(time=0)), claims[0]) == Strength.WEAK


def test_what_is_of_this_life_is_no_more_than_a_day_off() -> None:
    judge = SurvivorJudge(Neighbours(Side(time=DAY + 100)))
    assert [judge.is_of_an_older_life(time) for time in (99, 100, 101)] == [True, False, False]
    assert not SurvivorJudge(Neighbours(after=Side(time=5))).is_of_an_older_life(-DAY)
    assert [judge.may_be_of_this_life(a_block([Claim(A, 0, time)])) for time in (99, 100)] == [False, True]
    later = SurvivorJudge(Neighbours(Side(time=1), Side(time=5)))
    assert [later.may_be_of_this_life(a_block([Claim(A, 0, time)])) for time in (DAY + 5, DAY + 6)] == [True, False]


@pytest.mark.parametrize(
    ("near", "claims", "row", "first"),
    [
        (Neighbours(Side({A: 5}), Side({A: 9})), of_a(6, 7, 8), 2, 0),
        (Neighbours(Side({A: 5})), of_a(6, 7, 8), 2, 0),
        (Neighbours(Side({A: 5}), Side({A: 9})), of_a(6, 9, 8), 2, 2),
        (Neighbours(Side({A: 5})), of_a(5), 0, 0),
        (Neighbours(), of_a(6, 7, 8), 2, 2),
        (Neighbours(whole=True), of_a(6, 7, 8), 2, 0),
        (Neighbours(Side({A: 5})), [*of_a(6), Claim(A, 0, 10, PREPARED_FLAG), *of_a(8)], 2, 2),
        (Neighbours(Side({A: 5}, DAY + 11)), [*of_a(6), *of_a(7, 8, time=11)], 2, 1),
        (Neighbours(Side({A: 5}, DAY + 10)), [*of_a(6), *of_a(7, 8, time=11)], 2, 0),
        (Neighbours(Side({A: 5})), of_a(1, 2, 3), 2, 0),
        (Neighbours(Side({A: 5})), of_a(1, 3, 4), 2, 1),
        (Neighbours(Side({A: 5})), of_a(4, 5), 1, 1),
        (Neighbours(Side({A: 5}), Side({A: 2})), of_a(1), 0, 0),
    ],
)
def test_records_before_a_survivor_that_their_queue_proves(
    near: Neighbours, claims: list[Claim], row: int, first: int
) -> None:
    assert SurvivorJudge(near)._reach_back(_Rows(a_block(claims)), row) == first


def test_a_copy_of_a_judge_knows_the_same_and_learns_alone() -> None:
    judge = SurvivorJudge(Neighbours(Side({A: 5}, 1, 91), Side({A: 9}, 20), whole=True))
    judge.learn(a_block(of_a(5)))
    copy, rows = judge.copy(), _Rows(a_block(of_a(7)))
    assert copy._judge(rows, 0) == judge._judge(rows, 0) == Strength.STRONG
    copy.learn(a_block(of_a(6)))
    assert (copy._end(B), copy._end(A), judge._end(A)) == (0, 7, 6)


def test_the_latest_of_a_few_times_is_none_that_damage_made() -> None:
    assert latest_time([5, 3, 4], None) == 5
    assert latest_time([5, 3, 4 + DAY], None) == 4 + DAY
    assert latest_time([5, 3, 6 + DAY], None) == 5
    assert latest_time([5, 3, 900], 6) == 5
    assert latest_time([5, 3, 900], 900) == 900
    assert latest_time([5, 900], 6) == 5
    assert latest_time([7], 6) == 7


def test_what_is_learned_bounds_times() -> None:
    judge = SurvivorJudge(Neighbours(Side({A: 5})))
    judge.learn(a_block([Claim(A, 5, 100)]))
    strengths = [judge._judge(_Rows(a_block([Claim(A, 6, time)])), 0) for time in (99, 100)]
    assert strengths == [Strength.NONE, Strength.FAIR]
    judge.learn(a_block([Claim(A, 6, 500, foreign=True)]))
    assert judge._judge(_Rows(a_block([Claim(A, 6, 100)])), 0) == Strength.FAIR, "a record of another place"


# --------------------------------------------------------------------------------------------------- second pass
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
        return chain_from(window, begin, DecodeRules(), stop=end, block_size=RECORD)

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
    ("lost", "fits"), [(0, {1}), (LEAST - 1, {1}), (LEAST, {1, 2}), (2 * LEAST - 1, {1, 2}), (2 * LEAST, {1, 2, 3})]
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
        pytest.param(Neighbours(Side({Q: 3})), {3, 4}, id="a queue's end"),
        pytest.param(Neighbours(Side({Q: 3}, room=LEAST)), {3, 4, 5}, id="a queue's end, and more is lost since"),
        pytest.param(Neighbours(after=Side({Q: 6})), {4, 5}, id="a queue's begin after"),
        pytest.param(Neighbours(after=Side({Q: 6}, room=LEAST)), {3, 4, 5}, id="and more is lost up to there"),
        pytest.param(Neighbours(Side({Q: 4}), Side({Q: 6})), {4, 5}, id="both"),
        pytest.param(Neighbours(Side({(b"TopicTest", 1): 3})), set(), id="another queue's end"),
    ],
)
def test_what_is_proven_around_the_segment_counts(near: Neighbours, fits: set[int]) -> None:
    found = {number for number in range(9) if fitting(LEAST, doubted(number), LEAST, near=near)}
    assert found == fits


def test_bytes_before_the_survey_are_not_lost() -> None:
    near = Neighbours(Side({Q: 3}))
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
    near = Neighbours(Side(time=start + 10 * HOUR), Side(time=start + 20 * HOUR), whole=True)
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
