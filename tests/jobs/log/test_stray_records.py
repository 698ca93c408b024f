"""Records with a damaged queue id, topic or queue offset, which nothing checks: no other record may move for them."""

from __future__ import annotations

import re
import struct
from typing import Any

import pytest
from support.reading import read_segments
from support.store_builder import LogBuilder, Message, Placed

from jobs.log.log_scan import LogReading
from storeformat.errors import DamagedLog
from storeformat.queues.topic_filter import TopicFilter

SIZE = 1 << 16


def a_log(count: int = 30) -> LogBuilder:
    """Two queues of one topic, in turn."""
    log = LogBuilder(SIZE)
    for number in range(count):
        log.message(Message("Topic", number % 2, body=b"x" * number))
    return log


def read(log: LogBuilder, policy: str, *changes: tuple[int, bytes], **scan: Any) -> LogReading:
    data = bytearray(log.segments[0])
    for offset, new in changes:
        data[offset : offset + len(new)] = new
    return read_segments({0: data}, 500, policy, **scan)


def queue_id(placed: Placed, number: int) -> tuple[int, bytes]:
    return placed.offset + 12, struct.pack(">i", number)


def queue_offset(placed: Placed, number: int) -> tuple[int, bytes]:
    return placed.offset + 20, struct.pack(">q", number)


def queues(reading: LogReading) -> dict[int, list[tuple[int, int]]]:
    """Of each queue: where its runs lie, and how many units each has, fillers aside."""
    table, places = reading.queue_runs, reading.queue_runs.plan().runs
    found: dict[int, list[tuple[int, int]]] = {}
    for row in range(len(table.keys)):
        found.setdefault(table.queue_at(row)[1], []).append((int(places["position"][row]), int(places["count"][row])))
    return found


def units(reading: LogReading) -> dict[int, list[int]]:
    """The places of each queue that are taken."""
    return {
        queue: sorted(place for begin, count in runs for place in range(begin, begin + count))
        for queue, runs in queues(reading).items()
    }


WHOLE = {0: list(range(15)), 1: list(range(15))}


@pytest.mark.parametrize("claimed", [2, 77, 1 << 30])
def test_a_record_with_a_damaged_queue_id_comes_home(claimed: int) -> None:
    log = a_log()
    stray = log.records[9]
    reading = read(log, "salvage", queue_id(stray, claimed))
    assert units(reading) == WHOLE
    assert (reading.losses.rows, reading.is_damaged, reading.queue_runs.left_out) == ([], True, 0)
    (row,) = reading.facts()["stray_records"]
    assert row == {
        "offset": stray.offset, "topic": "Topic", "queue_id": claimed, "queue_offset": 4,
        "belongs_to": {"topic": "Topic", "queue_id": 1, "queue_offset": 4},
    }  # fmt: skip


@pytest.mark.parametrize("more", [1, 2])
def test_a_record_that_takes_just_the_next_place_of_another_queue_comes_home(more: int) -> None:
    """The record of queue 1 lies just before the one whose place it claims in queue 0, the last one there or not."""
    log = LogBuilder(SIZE)
    for queue in (0, 0, 1, 1, 1, 1, *[0] * more, 1):
        log.message(Message("Topic", queue, body=b"x"))
    stray, twin = log.records[4], log.records[6]
    assert stray.message.queue_offset == twin.message.queue_offset == 2
    reading = read(log, "salvage", queue_id(stray, 0))
    assert units(reading) == {0: list(range(2 + more)), 1: [0, 1, 2, 3, 4]}
    assert [item.offset for item in reading.losses.strays] == [stray.offset]


def test_of_two_records_with_one_claim_the_first_stays_where_either_may_be_the_stray_one() -> None:
    log = a_log()
    reading = read(log, "salvage", queue_id(log.records[9], 0))
    assert units(reading) == {0: WHOLE[0], 1: [place for place in range(15) if place != 4]}
    assert [(loss.queue_id, loss.first_queue_offset) for loss in reading.losses.rows] == [(1, 4)]


def test_a_record_with_a_damaged_topic_comes_home() -> None:
    log = a_log()
    stray = log.records[9]
    at = log.segments[0].index(b"Topic", stray.offset)
    reading = read(log, "salvage", (at, b"Uopic"))
    assert units(reading) == WHOLE
    assert reading.losses.strays[0].home == ("Topic", 1, 4)


@pytest.mark.parametrize("number", [8, 9, 28, 29])
@pytest.mark.parametrize("claimed", [0, 3, 1 << 40])
def test_a_damaged_queue_offset_moves_nothing_else(number: int, claimed: int) -> None:
    log = a_log()
    stray = log.records[number]
    reading = read(log, "salvage", queue_offset(stray, claimed))
    queue, own = stray.message.queue_id, stray.message.queue_offset
    expected = {queue: [place for place in WHOLE[queue] if place != own] for queue in WHOLE}
    found = units(reading)
    assert {other: found[other] for other in found if other != queue} == {1 - queue: WHOLE[1 - queue]}
    assert set(expected[queue]) <= set(found[queue])
    assert (own in found[queue]) == (number < 28 or claimed != 3)


@pytest.mark.parametrize("sys_flag", [4, 12])
def test_a_gap_that_nothing_explains_is_filled_and_told(sys_flag: int) -> None:
    """A message whose flags make it a half message, or a rolled back one, takes no place in its queue."""
    log = a_log()
    hidden = log.records[9]
    reading = read(log, "salvage", (hidden.offset + 36, struct.pack(">i", sys_flag)))
    assert units(reading)[1] == [place for place in range(15) if place != 4]
    assert reading.queue_runs.plan().runs["fill"].sum() == 1
    (loss,) = reading.losses.rows
    assert (loss.queue_id, loss.first_queue_offset, loss.messages) == (1, 4, 1)
    assert loss.begin <= hidden.offset < loss.end
    assert "no damaged bytes" in loss.cause


def test_a_record_that_fits_nowhere_is_left_out_of_all_queues() -> None:
    log = a_log()
    reading = read(log, "salvage", queue_id(log.records[9], 0), queue_offset(log.records[9], 9))
    assert units(reading) == {0: WHOLE[0], 1: [place for place in range(15) if place != 4]}
    assert reading.queue_runs.left_out == 1
    assert [stray.home for stray in reading.losses.strays] == [None]


def test_two_records_that_claim_one_place_stay_where_they_are() -> None:
    log = LogBuilder(SIZE)
    for number in range(60):
        log.message(Message("Topic", number % 3, body=b"x"))
    strays = log.records[10], log.records[11]  # places 3 of queues 1 and 2
    reading = read(log, "salvage", *(queue_id(stray, 70 + n) for n, stray in enumerate(strays)))
    assert reading.losses.strays == []
    found = units(reading)
    assert {queue: len(found[queue]) for queue in found} == {0: 20, 1: 19, 2: 19, 70: 1, 71: 1}
    assert [max(found[queue]) for queue in range(3)] == [19, 19, 19]


@pytest.mark.parametrize("scan", [{}, {"topics": (TopicFilter("Topic", 1),)}])
def test_fail_refuses_a_gap_and_a_stray_record_with_both_offsets(scan: dict[str, Any]) -> None:
    log = a_log()
    stray, following = log.records[9], log.records[11]
    with pytest.raises(DamagedLog, match=f"{stray.offset} says .* before offset {following.offset}") as refused:
        read(log, "fail", queue_id(stray, 77), **scan)
    assert refused.value.offset == stray.offset
    assert int(refused.value.path) == max(base for base in log.segments if base <= stray.offset)
    assert re.search("salvage", refused.value.advice)


def test_stop_appends_as_a_broker_does() -> None:
    log = a_log()
    found = units(read(log, "stop", queue_id(log.records[9], 77)))
    assert found == {0: WHOLE[0], 1: list(range(14)), 77: [4]}


def test_fail_takes_a_last_message_0_for_a_topic_created_anew_as_a_broker_does() -> None:
    log = LogBuilder(SIZE)
    for _ in range(2):
        log.message(Message("Topic", 0))
        log.delete_topic("Topic")
    assert read(log, "fail").queue_runs.plan().queues["end"].tolist() == [1]


@pytest.mark.parametrize(
    ("policies", "before", "after", "ends"),
    [
        pytest.param(["fail", "salvage"], [0, 1] * 8, [0, 1], [1, 1], id="both queues start over"),
        # one message 0 at the end may have a damaged queue offset; a message 1 after it says that it has not
        pytest.param(["fail", "stop", "salvage"], [0] * 5, [0, 0], [2], id="two messages"),
    ],
)
def test_a_topic_created_anew_is_no_stray_record(
    policies: list[str], before: list[int], after: list[int], ends: list[int]
) -> None:
    log = LogBuilder(SIZE)
    for queues in (before, after):
        for queue in queues:
            log.message(Message("Topic", queue))
        log.delete_topic("Topic")
    for policy in policies:
        reading = read(log, policy)
        assert reading.losses.strays == []
        assert reading.queue_runs.plan().queues["end"].tolist() == ends


@pytest.mark.parametrize(
    ("last", "ends", "left_out"), [([1], [5, 2], [0, 0]), ([], [5, 1], [3, 0]), ([0], [5, 1], [3, 1])]
)
def test_a_topic_was_deleted_where_none_of_its_queues_goes_on(
    last: list[int], ends: list[int], left_out: list[int]
) -> None:
    """Queue 0 starts over. Queue 1 goes on after that, as a lost counter has it, or is not used, or starts over."""
    log = LogBuilder(SIZE)
    for queue, number in ((1, 0), *((0, number) for number in (0, 1, 2, 0, 1, 2, 3, 4)), *((1, end) for end in last)):
        log.message(Message("Topic", queue, queue_offset=number))
    for split_size in (200, SIZE):
        plan = read_segments(log.segments, split_size).queue_runs.plan()
        assert (plan.queues["end"].tolist(), plan.queues["earlier_lives"].tolist()) == (ends, left_out)


def test_the_first_message_of_a_new_life_is_no_stray_record_where_those_after_it_are_lost() -> None:
    """The old life has as many messages as the new one before its next survivor."""
    log = LogBuilder(SIZE)
    for number in range(10):
        log.message(Message("Topic", number % 2))
    log.delete_topic("Topic")
    for queue in (1, 0, 1, 1, 1, 1, 1):
        log.message(Message("Topic", queue))
    lost = log.records[12:16]
    reading = read(log, "salvage", (lost[0].offset, b"?" * sum(record.size for record in lost)))
    assert reading.losses.strays == []
    assert (reading.losses.messages, reading.queue_runs.plan().queues["end"].tolist()) == (4, [1, 6])


def test_two_strays_in_one_queue_come_home() -> None:
    log = LogBuilder(SIZE)
    for _ in range(10):
        log.message(Message("Topic", 1))
    for number in range(20):
        log.message(Message("Topic", number % 2))
    strays = [log.records[13], log.records[19]]
    reading = read(log, "salvage", *(queue_id(stray, 0) for stray in strays))
    assert units(reading) == {0: list(range(10)), 1: list(range(20))}
    assert [row["offset"] for row in reading.facts()["stray_records"]] == [stray.offset for stray in strays]
