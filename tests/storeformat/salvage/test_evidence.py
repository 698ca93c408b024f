"""What a witness learns block by block is what it would learn record by record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from hypothesis import example, given
from hypothesis import strategies as st
from support.in_memory import Bytes
from support.store_builder import Message, encode_record

from storeformat.log.block_window import BlockWindow
from storeformat.log.chain_walk import chain_from
from storeformat.log.segments import Segment
from storeformat.record.decode import DecodeRules, RecordBlock
from storeformat.salvage.evidence import CLOCK_SLACK, Neighbours, Strength, SurvivorJudge, _Rows
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
    witness, model = SurvivorJudge(near), RecordByRecord(near)
    for claims in blocks:
        witness.learn(a_block(claims))
        model.learn(claims)
        learned = witness._learned
        assert witness._ends == model.ends
        assert (learned.claims, learned.successions) == (model.learned, model.successions)
        assert (learned.missing, learned.contradictions) == (model.missing, model.contradictions)
        assert learned.contradicted == model.contradicted
        assert witness.contradicts == (model.contradictions > 0 and model.successions <= model.contradictions)


@given(near=NEIGHBOURS, claims=st.lists(CLAIMS, min_size=1, max_size=12))
@example(near=Neighbours({(b"A", 0): 5}), claims=queue_a(4, 0))
@example(near=Neighbours({(b"A", 0): 5}), claims=queue_a(4, 5))
def test_a_block_is_older_if_each_of_its_records_is(near: Neighbours, claims: list[Claim]) -> None:
    assert SurvivorJudge(near).is_older(a_block(claims)) == RecordByRecord(near).is_older(claims)


@given(near=NEIGHBOURS, claims=st.lists(CLAIMS, min_size=1, max_size=12))
@example(near=Neighbours({(b"A", 0): 5}), claims=queue_a(0, 1))
@example(near=Neighbours({(b"A", 0): 5}, {(b"A", 0): 9}, before=2, after=3), claims=queue_a(5))
def test_what_is_judged_is_all_of_which_there_may_be_evidence(near: Neighbours, claims: list[Claim]) -> None:
    witness, block = SurvivorJudge(near), a_block(claims)
    rows = _Rows(block)
    of_some_evidence = [row for row in range(len(block)) if witness._judge(rows, row) != Strength.NONE]
    assert set(of_some_evidence) <= set(witness._candidates(block))
