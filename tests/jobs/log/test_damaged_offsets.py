"""Damage that leaves the chain of sizes whole: a record's own offset, its place in its queue, a queue's first record.

No broker looks at PHYSICALOFFSET when it recovers, so ``stop`` does not end the log there either; but the record goes
to no queue, and every policy says so.
"""

from __future__ import annotations

import struct
from typing import Any

import pytest
from support.reading import read_segments
from support.store_builder import LogBuilder, Message, Placed

from jobs.log.log_scan import LogReading
from jobs.rebuild import planning
from storeformat.errors import DamagedLog, RecordDefect
from storeformat.queues.topic_filter import TopicFilter
from storeformat.record.decode import DecodeRules
from storeformat.store.settings import Settings

SIZE = 4096
POLICIES = ("stop", "salvage")


def a_log(**fields: object) -> LogBuilder:
    """Two queues in turn, over three segments."""
    log = LogBuilder(SIZE)
    while log.end_offset < 2 * SIZE + 1000:
        log.message(Message(queue_id=len(log.records) % 2, body=b"x" * (len(log.records) % 40)), **fields)
    return log


def read(log: LogBuilder, on_damage: str, *changes: tuple[int, bytes], split_size: int = SIZE) -> LogReading:
    segments = {base: bytearray(data) for base, data in log.segments.items()}
    for offset, data in changes:
        base = offset - offset % SIZE
        segments[base][offset - base : offset - base + len(data)] = data
    rules = DecodeRules(as_broker=on_damage == "stop")
    return read_segments(segments, split_size, on_damage, decode_rules=rules)


def own_offset(placed: Placed) -> tuple[int, bytes]:
    return placed.offset + 28, struct.pack(">q", placed.offset ^ 1 << 33)


def places_of(log: LogBuilder) -> dict[str, int]:
    """A record in the middle of a segment, the first of one, the last of its queue."""
    first = next(number for number, placed in enumerate(log.records) if placed.offset == SIZE)
    return {"middle": 8, "first of its segment": first, "last of its queue": len(log.records) - 2}


@pytest.mark.parametrize("where", ["middle", "first of its segment", "last of its queue"])
@pytest.mark.parametrize("property_crc", [False, True], ids=["plain", "property-crc"])
@pytest.mark.parametrize("split_size", [300, SIZE])
def test_a_damaged_own_offset_costs_that_record_under_every_policy(
    where: str, property_crc: bool, split_size: int
) -> None:
    log = a_log(property_crc=property_crc)
    lost = log.records[places_of(log)[where]]
    change = own_offset(lost)
    with pytest.raises(DamagedLog):
        read(log, "fail", change, split_size=split_size)
    for policy in POLICIES:
        reading = read(log, policy, change, split_size=split_size)
        assert (reading.end, reading.records) == (log.end_offset, len(log.records) - 1), policy
        assert [(item.begin, item.end) for item in reading.damaged] == [(lost.offset, lost.end)], policy
        assert reading.losses.facts()["lost_messages_at_least"] == 1
        if policy == "salvage" and property_crc and where == "last of its queue":
            continue  # nothing proves its head: one record is lost, but nobody knows which
        (loss,) = reading.losses.rows
        expected = (lost.message.queue_id, lost.message.queue_offset, 1)
        assert (loss.queue_id, loss.first_queue_offset, loss.messages) == expected


@pytest.mark.parametrize("number", [1, 8])
@pytest.mark.parametrize("task", [{"with_units": False}, {"topics": (TopicFilter("A", None),)},
                                  {"topics": (TopicFilter("B", None),)}])  # fmt: skip
def test_a_damaged_own_offset_is_told_whatever_queues_are_read(number: int, task: dict[str, Any]) -> None:
    """The first record of its queue, too; an index alone would miss the message without a word."""
    log = LogBuilder(SIZE)
    for _ in range(20):
        log.message(Message("AB"[len(log.records) % 2]))
    lost = log.records[number]
    segments = {0: bytearray(log.segments[0])}
    place, data = own_offset(lost)
    segments[0][place : place + 8] = data
    with pytest.raises(DamagedLog) as refused:
        read_segments(segments, SIZE, **task)
    assert str(refused.value) == f"the commit log is damaged: {RecordDefect.FOREIGN_OFFSET} (0, offset {lost.offset})"
    assert refused.value.advice == "--on-damage salvage fills the place of the message"
    reading = read_segments(segments, SIZE, "stop", **task)
    assert [(item.begin, item.end) for item in reading.damaged] == [(lost.offset, lost.end)]
    assert (reading.foreign_records, reading.losses.facts()["lost_messages_at_least"]) == ([], 1)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_record_of_another_place_is_lost_where_its_own_queue_ends(policy: str) -> None:
    """And nowhere else: not in a queue of another topic with the same id."""
    log = LogBuilder(SIZE)
    for number in range(20):
        log.message(Message("AB"[number % 2], 1))
    reading = read(log, policy, own_offset(log.records[19]))
    (loss,) = reading.losses.rows
    assert (loss.topic, loss.queue_id, loss.first_queue_offset, loss.messages) == ("B", 1, 9, 1)

    other = log.message(Message("C", 1, queue_offset=10))
    log.message(Message("A", 0))
    reading = read(log, policy, own_offset(log.records[4]), own_offset(other))
    (loss,) = reading.losses.rows
    assert (loss.topic, loss.queue_id, loss.first_queue_offset, loss.messages) == ("A", 1, 2, 1)
    assert reading.foreign_records == [(other.offset, other.size)]


def test_stop_goes_on_after_a_property_crc_that_no_broker_looks_at() -> None:
    log = a_log(property_crc=True)
    flag = log.records[5].offset + 16
    reading = read(log, "stop", (flag, b"\1"))
    assert (reading.end, reading.records, reading.damaged) == (log.end_offset, len(log.records), [])
    assert read(log, "salvage", (flag, b"\1")).records == len(log.records) - 1


def test_stop_goes_on_after_a_blank_of_another_size() -> None:
    log = a_log()
    blank = next(placed.end for placed in log.records if placed.end + 200 > SIZE)
    for size, end in ((12, log.end_offset), (-3, log.end_offset), (SIZE, blank)):
        reading = read(log, "stop", (blank, struct.pack(">i", size)))
        assert reading.end == end


def test_a_segment_that_was_moved_is_stepped_over_by_stop_alone() -> None:
    """As a broker steps over it; it dispatches what lies there to places where something else is."""
    log = a_log()
    moved = (SIZE, log.segments[0])
    with pytest.raises(DamagedLog, match="FOREIGN_OFFSET"):
        read(log, "fail", moved)
    inside = [placed for placed in log.records if SIZE <= placed.offset < 2 * SIZE]
    reading = read(log, "stop", moved)
    assert reading.end == log.end_offset
    assert reading.records == len(log.records) - len(inside)
    assert reading.losses.messages == len(inside)
    assert reading.damaged


def test_zeros_before_a_segment_of_which_the_blank_is_damaged_are_lost_pages() -> None:
    log = LogBuilder(SIZE)
    record = log.message(body=b"x" * 100)
    log.blank()
    log.blank()
    tail = record.end, bytes(SIZE - record.end)
    reading = read(log, "salvage", (record.offset + 84, struct.pack(">i", 7)), tail, (SIZE, struct.pack(">i", 9)))
    named = [(item.begin, item.end) for item in reading.damaged]
    assert named == [(0, record.end), (record.end, SIZE), (SIZE, SIZE + 8)]
    assert (reading.end, reading.blank_bytes) == (2 * SIZE, SIZE - 8)


@pytest.mark.parametrize("follow", [1, 3])
@pytest.mark.parametrize("split_size", [100, 600, 1000, SIZE])
def test_a_log_does_not_end_at_zeros_that_records_follow(split_size: int, follow: int) -> None:
    """The zeros fill splits; what follows ends with a split, or is all that one holds."""
    log = LogBuilder(SIZE)
    for _ in range(15):
        log.message(body=b"x" * 20)
    assert log.end_offset == 3 * 600
    begin, end = log.records[5].offset, log.records[-follow].offset
    zeros = begin, bytes(end - begin)
    reading = read(log, "salvage", zeros, split_size=split_size)
    assert (reading.records, reading.losses.messages, reading.end) == (5 + follow, 10 - follow, log.end_offset)
    with pytest.raises(DamagedLog, match="zeros"):
        read(log, "fail", zeros, split_size=split_size)


# ------------------------------------------------------------------------------------------------ a topic created anew
def a_topic_created_anew(more: int) -> tuple[LogBuilder, list[Placed]]:
    """A queue of eight messages, and of ``more`` in its second life, with messages of another topic between all."""
    log = LogBuilder(SIZE)
    for _ in range(8):
        log.message(topic="T", body=b"old")
        log.message(topic="other", body=b"x")
    log.delete_topic("T")
    new = []
    for _ in range(more):
        log.message(topic="other", body=b"x")
        new.append(log.message(topic="T", body=b"new"))
    log.message(topic="other", body=b"x")
    log.settle()
    return log, new


def planned(reading: LogReading) -> planning.QueuesPlan:
    layout = Settings(shown={"mappedFileSizeConsumeQueue": 1000})
    return planning.plan_queue_files(reading.queue_runs, reading.scans, layout)


@pytest.mark.parametrize("destroyed", [1, 2])
@pytest.mark.parametrize("what", [pytest.param(b"\xa5" * 88, id="head"), pytest.param(b"\0\0\0\7", id="size")])
@pytest.mark.parametrize("split_size", [150, SIZE])
def test_a_topic_created_anew_stays_so_without_its_first_messages(destroyed: int, what: bytes, split_size: int) -> None:
    log, new = a_topic_created_anew(5)
    reading = read(log, "salvage", *((placed.offset, what) for placed in new[:destroyed]), split_size=split_size)
    assert reading.records == len(log.records) - destroyed
    plan = planned(reading)
    assert plan.created_anew == {("T", 0)}
    (loss,) = [row for row in reading.losses.rows if row.topic == "T"]
    assert (loss.first_queue_offset, loss.messages) == (0, destroyed)
    (file,) = [file for file in plan.files if file.path.startswith("consumequeue/T/")]
    table = file.slices.table
    assert (file.pre_blanks, file.slices.rows, table["count"][table["filler"]].sum()) == (0, 5, destroyed)
    assert [(note["note"].partition(":")[0], note["messages"]) for note in plan.notes] == [
        ("the topic was deleted and created again", 8)
    ]
    assert (plan.queues, plan.offset_sum) == (2, None)
    assert plan.units == sum(file.slices.rows for file in plan.files) == 5 + 8 + 5 + 1


def test_where_one_message_alone_is_left_of_a_new_life_the_report_says_that_nobody_can_tell() -> None:
    log, new = a_topic_created_anew(2)
    reading = read(log, "salvage", (new[0].offset, bytes(88)))
    plan = planned(reading)
    assert plan.created_anew == frozenset()
    (note,) = plan.notes
    assert "created again in what is lost" in note["note"]
    assert (note["topic"], note["messages"]) == ("T", 1)


def test_a_corrupt_queue_offset_is_no_new_life() -> None:
    log, new = a_topic_created_anew(0)
    old = [placed for placed in log.records if placed.message.topic == "T"]
    reading = read(log, "salvage", (old[3].offset, b"\xa5" * 88), (old[5].offset + 20, struct.pack(">q", 1)))
    assert planned(reading).created_anew == frozenset()
    assert not new


def test_a_record_of_another_place_may_be_all_that_lies_after_the_last_damage() -> None:
    log = a_log()
    damaged, last = log.records[-2:]
    body = damaged.offset + 88, b"\xff\xfe\xfd"
    reading = read(log, "salvage", body, own_offset(last))
    assert (reading.end, reading.records) == (log.end_offset, len(log.records) - 2)
