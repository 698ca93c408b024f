"""Which messages are reported lost where damage hit a field that nothing checks: a topic or a queue id."""

from __future__ import annotations

import random

import pytest
from support.reading import read_segments
from support.store_builder import LogBuilder, Message, Placed

from jobs.log.losses import DAMAGE, NO_DAMAGE, Loss, Losses, StrayRecord, _Intervals
from storeformat import message as m
from storeformat.record.decode import DISPATCH_PROPERTIES, DecodeRules
from storeformat.record.dispatch import DispatchRules
from storeformat.record.light_queues import MultiDispatchRules

SEGMENT = 1 << 16
PROBED = 4
"""The record of queue 1 that comes to stand in another queue; it is the third of its own."""


def a_log() -> tuple[bytearray, list[Placed]]:
    """Two records of queue 1, one of queue 0 with room for many messages, and ten of queue 1."""
    log = LogBuilder(SEGMENT)
    for number in range(13):
        log.clock += 1
        log.message(topic="Topic", queue_id=number != 2, body=bytes(5000 if number == 2 else 20))
    return bytearray(log.segments[0]), list(log.records)


def losses_of(data: bytearray, lost: Placed) -> list[Loss]:
    """What is lost of a log of which one record is destroyed."""
    data[lost.offset : lost.end] = random.Random(1).randbytes(lost.size)
    one, other = (read_segments({0: data}, split_size, "salvage").losses.rows for split_size in (SEGMENT, 500))
    assert one == other
    return one


@pytest.mark.parametrize("field", ["topic", "queue id"])
def test_a_record_of_a_queue_that_is_not_there_makes_no_losses_of_its_own(field: str) -> None:
    """It says topic "Uopic", or queue 77, and queue offset 3; no other record says so."""
    data, records = a_log()
    at = data.index(b"Topic", records[PROBED].offset)
    if field == "topic":
        data[at] += 1
    else:
        data[records[PROBED].offset + 15] = 77
    assert records[PROBED].message.queue_offset == 3
    assert losses_of(data, records[2]) == []


def test_a_record_that_comes_into_another_queue_makes_no_losses_there() -> None:
    """Queue 0 goes on after it as if nothing had been between."""
    log = LogBuilder(SEGMENT)
    for number, queue_id in enumerate((0, 1, 1, 1, 1, 1, 1, 1, 0, 1)):
        log.clock += 1
        log.message(topic="Topic", queue_id=queue_id, body=bytes(5000 if number == 2 else 20))
    data, records = bytearray(log.segments[0]), list(log.records)
    data[records[7].offset + 15] = 0
    assert (records[7].message.queue_offset, records[8].message.queue_offset) == (6, 1)
    assert [(row.queue_id, row.first_queue_offset) for row in losses_of(data, records[2])] == [(1, 1)]


def test_what_is_lost_before_the_only_survivor_of_a_queue_counts() -> None:
    """No other queue misses a message there, so queue 77 had 3 that lay in the damaged bytes."""
    log = LogBuilder(SEGMENT)
    for number in range(9):
        log.clock += 1
        log.message(topic="Topic", queue_id=1, body=bytes(500 if number == 2 else 20))
    log.message(topic="Topic", queue_id=77, queue_offset=3, body=b"alone")
    (lost,) = [row for row in losses_of(bytearray(log.segments[0]), log.records[2]) if row.queue_id == 77]
    assert (lost.first_queue_offset, lost.messages) == (0, 3)


def after_damage(size: int, before: int, *numbers: int) -> list[tuple[int | None, int, str]]:
    """What is lost of a queue with the messages 0 to ``before``, then ``size`` destroyed bytes, then some numbers."""
    log = LogBuilder(SEGMENT)
    for _ in range(before):
        log.message(topic="T")
        log.message(topic="another")
    bare = log.message(topic="T").size
    log.truncate(log.records[-1].offset)
    lost = log.message(topic="T", body=bytes(size - bare))
    assert lost.size == size
    for number in numbers:
        log.message(topic="T", queue_offset=number)
        log.message(topic="another")
    return [(row.first_queue_offset, row.messages, row.cause) for row in losses_of(bytearray(log.segments[0]), lost)]


def test_damaged_bytes_hold_a_message_for_each_91_of_them() -> None:
    """A gap of three in 273 bytes is theirs; one byte less explains two at most."""
    assert after_damage(273, 1, 4, 5) == [(1, 3, DAMAGE)]
    assert after_damage(272, 1, 4, 5) == [(1, 3, NO_DAMAGE)]


def many_queues(count: int, queue_offset: int, *, damaged: int) -> list[Loss]:
    """What ``count`` queues claim that begin at ``queue_offset`` after one damaged record."""
    log = LogBuilder(1 << 20)
    log.message(topic="Topic", body=bytes(10))
    lost = log.message(topic="Topic", body=bytes(damaged))
    for number in range(count):
        log.message(topic="Topic", queue_id=number + 1, queue_offset=queue_offset)
        log.message(topic="Topic", queue_id=number + 1, queue_offset=queue_offset + 1)
    data = bytearray(log.segments[0])
    data[lost.offset : lost.offset + 90] = b"\xff" * 90
    return read_segments({0: data}, 1 << 20, "salvage").losses.rows


def test_all_queues_together_claim_no_more_than_damaged_bytes_can_have_held() -> None:
    rows = many_queues(300, 100, damaged=91 * 250)
    assert sum(row.messages for row in rows) <= 251
    assert {row.messages for row in rows} == {100}
    assert len(rows) == 2
    assert len(many_queues(300, 1, damaged=91 * 300)) == 300


def test_what_a_report_tells_of_losses() -> None:
    one, other = Loss("T", 1, 5, 2, 100, 400), Loss("U", 0, None, 1, 500, 600, NO_DAMAGE)
    stray = StrayRecord(7, "T", 1, 2, 9, ("U", 3, 4))
    facts = Losses([one, other], ((0, 1), (2, 3), (4, 5)), [stray, StrayRecord(8, "T", 1, 2, 9)]).facts()
    assert (facts["lost_messages"], facts["lost_messages_at_least"]) == (3, 6)
    assert facts["losses"] == [vars(one), vars(other)]
    home = {"topic": "U", "queue_id": 3, "queue_offset": 4}
    row = {"topic": "T", "queue_id": 1, "queue_offset": 2}
    assert facts["stray_records"] == [
        {"offset": 7, **row, "belongs_to": home},
        {"offset": 8, **row, "belongs_to": None},
    ]
    many = Losses([one] * 1_001, strays=[stray] * 1_001).facts()
    assert (len(many["losses"]), len(many["stray_records"])) == (1_000, 1_000)  # type: ignore[arg-type]
    assert many["lost_messages"] == 2_002


@pytest.mark.parametrize(
    ("home", "next_offset", "moves"),
    [
        (None, 9, False), (("U", 1, 2), 7, True), (("T", 3, 2), 7, True), (("T", 1, 3), 8, True),
        (("T", 1, 3), 7, False), (("T", 1, 2), 9, False), (("T", 1, 1), 9, False),
    ],
)  # fmt: skip
def test_which_stray_records_move_others(home: tuple[str, int, int] | None, next_offset: int, moves: bool) -> None:
    assert StrayRecord(7, "T", 1, 2, next_offset, home).moves_others is moves


def test_losses_of_one_queue_name_their_queue_offsets() -> None:
    missing = _Intervals([Loss("T", 0, 10 * number, 3, 0, 1) for number in range(1_000)])
    assert [number for number in (0, 2, 3, 9, 10, 9_992, 9_993) if number in missing] == [0, 2, 10, 9_992]


@pytest.mark.parametrize("base", [0, SEGMENT])
def test_what_lay_in_segments_that_expired_is_not_lost(base: int) -> None:
    """Queue 1 has its first message after the damage. In a log from its start the seven before it lay there."""
    log = LogBuilder(SEGMENT, base=base)
    log.queue_offsets.update({("Topic", 0): 40 if base else 0, ("Topic", 1): 7})
    for number in range(12):
        log.clock += 1
        log.message(topic="Topic", queue_id=number > 6, body=bytes(5000 if number == 2 else 20))
    data, lost = bytearray(log.segments[base]), log.records[2]
    data[lost.offset - base : lost.end - base] = random.Random(1).randbytes(lost.size)
    rows = read_segments({base: data}, 500, "salvage").losses.rows
    assert {(row.queue_id, row.first_queue_offset): row.messages for row in rows} == (
        {(0, 42): 1} if base else {(0, 2): 1, (1, 0): 7}
    )


def test_a_message_that_light_queues_share_is_lost_once() -> None:
    """A place in a light queue proves a message of another one, where the loss is at that one's end."""
    log = LogBuilder(SEGMENT)
    for queue_id in (0, 0, 1, 0):
        log.multi_dispatched(Message(topic="T", queue_id=queue_id), ["%LMQ%a", "%LMQ%b"])
    names = (m.INNER_MULTI_DISPATCH, m.INNER_MULTI_QUEUE_OFFSET)
    rules = DecodeRules(properties=(*DISPATCH_PROPERTIES, *names))
    dispatch = DispatchRules((), multi_dispatch=MultiDispatchRules(enable_lmq=True))
    for number, said in ((1, (1, 1)), (2, (0, 1))):
        data, lost = bytearray(log.segments[0]), log.records[number]
        data[lost.offset : lost.end] = random.Random(1).randbytes(lost.size)
        losses = read_segments({0: data}, SEGMENT, "salvage", decode_rules=rules, dispatch_rules=dispatch).losses
        assert [row.topic for row in losses.rows if row.topic != "T"] == ["%LMQ%a", "%LMQ%b"]
        assert (losses.messages, losses.at_least) == said
