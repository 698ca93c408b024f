"""What a judge of survivors learns block by block is what it would learn record by record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.in_memory import Bytes
from support.store_builder import Message, encode_record

from storeformat.log.block_window import BlockWindow
from storeformat.log.chain_walk import chain_from
from storeformat.log.segments import Segment
from storeformat.record.decode import DecodeRules, RecordBlock
from storeformat.salvage.evidence import CLOCK_SLACK, Neighbours, Strength, SurvivorJudge, _Rows, latest_time
from storeformat.salvage.queue_offsets import Queue

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
        self.ends = dict(self.near.ends)

    def learn(self, claims: Sequence[Claim]) -> None:
        for claim in claims:
            if claim.queued:
                self._compare(claim.queue, claim.number)
                self.ends[claim.queue] = claim.number + 1

    def _compare(self, queue: Queue, number: int) -> None:
        end = self.ends.get(queue, 0 if self.near.whole else None)
        following = self.near.firsts.get(queue)
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
            (self.near.before is not None and claim.time < self.near.before)
            or (claim.queued and claim.number < self.ends.get(claim.queue, 0))
            for claim in claims
        )


TIMES = st.sampled_from([0, 1, 5, CLOCK_SLACK, 2 * CLOCK_SLACK])
NUMBERS = st.integers(0, 6) | st.sampled_from([0, MOST - 1, MOST, -1, -MOST - 1])
QUEUES = st.tuples(st.sampled_from([b"A", b"B", b"TOPIC"]), st.sampled_from([0, 1, 70_000]))
CLAIMS = st.builds(Claim, QUEUES, NUMBERS, TIMES, st.sampled_from([0, 0, 0, 8, 4, 12]), st.booleans())
NEIGHBOURS = st.builds(
    Neighbours,
    ends=st.dictionaries(QUEUES, st.integers(0, 6) | st.just(MOST + 1)),
    firsts=st.dictionaries(QUEUES, NUMBERS),
    before=st.none() | TIMES,
    after=st.none() | TIMES,
    room=st.sampled_from([0, 91, 1000]),
    whole=st.booleans(),
)


def a_block(claims: Sequence[Claim]) -> RecordBlock:
    """The records of one chain, without its first one: no segment begins with a record of another place."""
    data = bytearray(encode_record(Message(topic="FIRST", queue_id=0, queue_offset=0, body=b"x"), 0))
    for claim in claims:
        message = Message(
            topic=claim.queue[0],
            queue_id=claim.queue[1],
            queue_offset=claim.number,
            store_timestamp=claim.time,
            sys_flag=claim.sys_flag,
            body=b"x",
        )
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
@example(near=Neighbours({(b"A", 0): 5}), blocks=[queue_a(3, 4), queue_a(5, 6), queue_a(0, 1, 3)])
@example(near=Neighbours({(b"A", 0): MOST + 1}), blocks=[queue_a(3, MOST, MOST), queue_a(MOST, 4, MOST)])
@example(near=Neighbours(firsts={(b"A", 0): 4}), blocks=[queue_a(0, 3, 4, 5)])
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
@example(near=Neighbours({(b"A", 0): 5}), claims=queue_a(4, 0))
@example(near=Neighbours({(b"A", 0): 5}), claims=queue_a(4, 5))
def test_a_block_is_older_if_each_of_its_records_is(near: Neighbours, claims: list[Claim]) -> None:
    assert SurvivorJudge(near).is_older(a_block(claims)) == RecordByRecord(near).is_older(claims)


@given(near=NEIGHBOURS, claims=st.lists(CLAIMS, min_size=1, max_size=12))
@example(near=Neighbours({(b"A", 0): 5}), claims=queue_a(0, 1))
@example(near=Neighbours({(b"A", 0): 5}, {(b"A", 0): 9}, before=2, after=3), claims=queue_a(5))
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
        (Neighbours({A: 5}, {A: 9}), of_a(5), Strength.STRONG),
        (Neighbours({A: 5}, {A: 9}), of_a(6), Strength.NONE),
        (Neighbours({A: 5}, {A: 9}, room=91), of_a(6), Strength.STRONG),
        (Neighbours({A: 5}, {A: 9}, room=90), of_a(6), Strength.NONE),
        (Neighbours({A: 5}, {A: 9}, room=3 * 91), of_a(8), Strength.STRONG),
        (Neighbours({A: 5}, {A: 9}, room=5 * 91), of_a(9), Strength.NONE),
        (Neighbours({A: 5}, {A: 9}, before=DAY + 11, after=DAY + 11), of_a(5), Strength.NONE),
        (Neighbours({A: 5}, {A: 9}, before=DAY + 10, after=DAY + 10), of_a(5), Strength.STRONG),
        # just the next one of its queue
        (Neighbours({A: 5}), of_a(5), Strength.FAIR),
        (Neighbours({A: 5}, before=10, after=10), of_a(5), Strength.FAIR),
        (Neighbours({A: 5}, before=11), of_a(5), Strength.NONE),
        (Neighbours({A: 5}, after=9), of_a(5), Strength.NONE),
        (Neighbours({A: 5}, before=20, after=9), of_a(5), Strength.FAIR),
        (Neighbours(whole=True), [Claim(A, 0, 10), Claim(B, 0, 10)], Strength.WEAK),
        # later ones, earlier ones
        (Neighbours({A: 5}, room=91), of_a(6), Strength.WEAK),
        (Neighbours({A: 5}), of_a(6), Strength.NONE),
        (Neighbours({A: 5}), of_a(4), Strength.NONE),
        (Neighbours(), of_a(4), Strength.WEAK),
        (Neighbours(whole=True), of_a(1), Strength.NONE),
        (Neighbours(whole=True, room=91), of_a(1), Strength.WEAK),
        # what comes after it in its chain
        (Neighbours({A: 5}), of_a(5, 6), Strength.FAIR),
        (Neighbours({A: 5}), of_a(5, 5), Strength.NONE),
        (Neighbours({A: 5}), of_a(5, 4), Strength.FAIR),
        (Neighbours({A: 5}, room=9 * 91), of_a(7, 6), Strength.NONE),
        (Neighbours({A: 5}), of_a(5, 0), Strength.FAIR),
        # the queue begins, or begins again
        (Neighbours(), of_a(0), Strength.WEAK),
        (Neighbours({A: 5}), of_a(0), Strength.NONE),
        (Neighbours({A: 5}), of_a(0, 1), Strength.NONE),
        (Neighbours({A: 5}, {A: 4}), of_a(0), Strength.WEAK),
        (Neighbours({A: 5}, {A: 5}), of_a(0), Strength.NONE),
        (Neighbours({A: 5}), of_a(0, 6), Strength.NONE),
        (Neighbours({A: 5}), of_a(0, 0), Strength.WEAK),
        # without a place in a queue
        (Neighbours(before=10, after=20), [Claim(A, 0, 10, PREPARED_FLAG)], Strength.WEAK),
        (Neighbours(before=1, after=10), [Claim(A, 0, 10, PREPARED_FLAG)], Strength.WEAK),
        (Neighbours(before=11, after=20), [Claim(A, 0, 10, PREPARED_FLAG)], Strength.NONE),
        (Neighbours(before=1, after=9), [Claim(A, 0, 10, PREPARED_FLAG)], Strength.NONE),
    ],
)
def test_what_the_neighbours_say_of_a_record(near: Neighbours, claims: list[Claim], strength: Strength) -> None:
    assert judged(near, *claims) == strength


@pytest.mark.parametrize(("time", "strength"), [(DAY + 5, Strength.WEAK), (DAY + 6, Strength.NONE), (5, Strength.WEAK)])
def test_a_time_of_the_future_is_more_than_a_clock_jumps_ahead_of_its_chain(time: int, strength: Strength) -> None:
    """Where no record after the chain bounds it; the latest time after it is 5."""
    claims = [Claim(A, 0, at, PREPARED_FLAG) for at in (time, 5, 0)]
    assert judged(Neighbours(before=0), *claims) == strength
    assert judged(Neighbours(), *claims) == Strength.WEAK
    assert judged(Neighbours(before=0), claims[0]) == Strength.WEAK


def test_what_is_of_this_life_is_no_more_than_a_day_off() -> None:
    judge = SurvivorJudge(Neighbours(before=DAY + 100))
    assert [judge.is_of_an_older_life(time) for time in (99, 100, 101)] == [True, False, False]
    assert not SurvivorJudge(Neighbours(after=5)).is_of_an_older_life(-DAY)
    assert [judge.may_be_of_this_life(a_block([Claim(A, 0, time)])) for time in (99, 100)] == [False, True]
    later = SurvivorJudge(Neighbours(before=1, after=5))
    assert [later.may_be_of_this_life(a_block([Claim(A, 0, time)])) for time in (DAY + 5, DAY + 6)] == [True, False]


@pytest.mark.parametrize(
    ("near", "claims", "row", "first"),
    [
        (Neighbours({A: 5}, {A: 9}), of_a(6, 7, 8), 2, 0),
        (Neighbours({A: 5}), of_a(6, 7, 8), 2, 0),
        (Neighbours({A: 5}, {A: 9}), of_a(6, 9, 8), 2, 2),
        (Neighbours({A: 5}), of_a(5), 0, 0),
        (Neighbours(), of_a(6, 7, 8), 2, 2),
        (Neighbours(whole=True), of_a(6, 7, 8), 2, 0),
        (Neighbours({A: 5}), [*of_a(6), Claim(A, 0, 10, PREPARED_FLAG), *of_a(8)], 2, 2),
        (Neighbours({A: 5}, before=DAY + 11), [*of_a(6), *of_a(7, 8, time=11)], 2, 1),
        (Neighbours({A: 5}, before=DAY + 10), [*of_a(6), *of_a(7, 8, time=11)], 2, 0),
        (Neighbours({A: 5}), of_a(1, 2, 3), 2, 0),
        (Neighbours({A: 5}), of_a(1, 3, 4), 2, 1),
        (Neighbours({A: 5}), of_a(4, 5), 1, 1),
        (Neighbours({A: 5}, {A: 2}), of_a(1), 0, 0),
    ],
)
def test_records_before_a_survivor_that_their_queue_proves(
    near: Neighbours, claims: list[Claim], row: int, first: int
) -> None:
    assert SurvivorJudge(near)._reach_back(_Rows(a_block(claims)), row) == first


@pytest.mark.parametrize(
    ("numbers", "following", "end", "lowest"),
    [
        ((3, 9, 7), None, 0, 7),
        ((3, 9, 7), 5, 0, 5),
        ((3, 9, 7), 5, 8, 5),
        ((3, 9, 7), None, 8, 9),
        ((3, 9, 7, 0, 2), 1, 0, 7),
        ((3, 0, 2), 1, 0, 0),
        ((3,), None, 0, None),
        ((3,), 0, 0, 0),
        ((3,), 4, 0, 4),
    ],
)
def test_the_lowest_place_that_follows(
    numbers: tuple[int, ...], following: int | None, end: int, lowest: int | None
) -> None:
    """Of the own queue alone, and up to where it begins again."""
    beside = [Claim(B, 1, 10), Claim((b"A", 1), 1, 10), Claim(A, 1, 10, PREPARED_FLAG)]
    claims = [claim for number in numbers for claim in (Claim(A, number, 10), *beside)]
    assert _Rows(a_block(claims)).lowest_later(0, following, end) == lowest


def test_a_copy_of_a_judge_knows_the_same() -> None:
    near = Neighbours({A: 5}, {A: 9}, 1, 20, room=91, whole=True)
    judge = SurvivorJudge(near)
    judge.learn(a_block(of_a(5)))
    copy = judge.copy()
    for other in (B, A):
        assert copy._end(other) == judge._end(other) == (6 if other == A else 0)
    rows = _Rows(a_block(of_a(7)))
    assert copy._judge(rows, 0) == judge._judge(rows, 0) == Strength.STRONG
    copy.learn(a_block(of_a(6)))
    assert (copy._end(A), judge._end(A)) == (7, 6)


def test_the_latest_of_a_few_times_is_none_that_damage_made() -> None:
    assert latest_time([5, 3, 4], None) == 5
    assert latest_time([5, 3, 4 + DAY], None) == 4 + DAY
    assert latest_time([5, 3, 6 + DAY], None) == 5
    assert latest_time([5, 3, 900], 6) == 5
    assert latest_time([5, 3, 900], 900) == 900
    assert latest_time([5, 900], 6) == 5
    assert latest_time([7], 6) == 7


def test_what_is_learned_bounds_times() -> None:
    judge = SurvivorJudge(Neighbours({A: 5}))
    judge.learn(a_block([Claim(A, 5, 100)]))
    strengths = [judge._judge(_Rows(a_block([Claim(A, 6, time)])), 0) for time in (99, 100)]
    assert strengths == [Strength.NONE, Strength.FAIR]
    judge.learn(a_block([Claim(A, 6, 500, foreign=True)]))
    assert judge._judge(_Rows(a_block([Claim(A, 6, 100)])), 0) == Strength.FAIR, "a record of another place"
