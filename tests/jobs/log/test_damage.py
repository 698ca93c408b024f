"""What lies after the last sound record: a damaged message, or what an older log left there."""

from __future__ import annotations

import pytest
from support import reading as reading_here
from support.reading import read_segments
from support.store_builder import Embedded, LogBuilder, Message

from jobs.spark.runner import LocalRunner

SEGMENT = 4096
TIME = 1_700_000_000_000


@pytest.mark.parametrize(("later", "is_loss"), [(1, True), (0, True), (-1, False)])
@pytest.mark.parametrize("split_size", [SEGMENT, 100])
def test_a_damaged_last_record_is_a_loss_unless_it_is_older_than_the_one_before(
    split_size: int, later: int, *, is_loss: bool
) -> None:
    """A broker stores many messages in one millisecond: the same time is no sign of an older log."""
    log = LogBuilder(SEGMENT)
    log.message(topic="A", body=b"sound", store_timestamp=TIME)
    last = log.message(topic="B", body=b"damaged", store_timestamp=TIME + later)
    data = bytearray(log.segments[0])
    data[data.index(b"damaged", last.offset)] ^= 1
    reading = read_segments({0: data}, split_size, "salvage")
    assert bool(reading.damaged) is is_loss
    assert reading.records == 1


def claims(log: LogBuilder, *numbers: int) -> None:
    for number in numbers:
        log.message(topic="A", queue_offset=number)


def spoiled(log: LogBuilder, *offsets: int) -> dict[int, bytes]:
    """The segments with the heads of some records gone."""
    segments = {base: bytearray(data) for base, data in log.segments.items()}
    for offset in offsets:
        at = offset % SEGMENT
        segments[offset - at][at : at + 88] = b"\xff" * 88
    return {base: bytes(data) for base, data in segments.items()}


@pytest.mark.parametrize("split_size", [SEGMENT, 100])
@pytest.mark.parametrize("lie", [4, 19])
def test_one_wrong_queue_offset_before_damage_costs_no_survivor(split_size: int, lie: int) -> None:
    """Or a record of an older log that lies just where one must begin: the queue goes on from the record before it."""
    log = LogBuilder(SEGMENT)
    claims(log, 0, 1, 2, 3, 4, 5, lie)
    lost = log.message(topic="A", queue_offset=6)
    claims(log, 7, 8)
    reading = read_segments(spoiled(log, lost.offset), split_size, "salvage")
    assert [(item.begin, item.end) for item in reading.damaged] == [(lost.offset, lost.end)]
    assert reading.records == len(log.records) - 1


@pytest.mark.parametrize("split_size", [SEGMENT, 100])
@pytest.mark.parametrize("lie", [3, 40])
def test_one_wrong_queue_offset_after_damage_costs_no_survivor(split_size: int, lie: int) -> None:
    log = LogBuilder(SEGMENT)
    claims(log, 0, 1, 2, 3, 4, 5)
    lost = log.message(topic="A", queue_offset=6)
    claims(log, 7, 8)
    log.blank()
    claims(log, lie, 9, 10)
    reading = read_segments(spoiled(log, lost.offset), split_size, "salvage")
    assert [(item.begin, item.end) for item in reading.damaged] == [(lost.offset, lost.end)]
    assert reading.records == len(log.records) - 1


@pytest.mark.parametrize("split_size", [SEGMENT, 100])
def test_survivors_of_one_damaged_segment_say_how_late_it_is_in_the_next(split_size: int) -> None:
    """Nothing is proven before either of the two: a record years older that lies in the lost body is no survivor."""
    log = LogBuilder(SEGMENT)
    first = log.message(topic="B")
    claims(log, 0, 1, 2)
    log.blank()
    old = Message(topic="B", queue_offset=1, store_timestamp=TIME - 100_000_000_000)
    holder = log.message(topic="B", body=Embedded((old,), rejoins=True))
    claims(log, 3)
    log.blank()
    log.message(topic="B")
    reading = read_segments(spoiled(log, first.offset, holder.offset), split_size, "salvage")
    assert [(item.begin, item.end) for item in reading.damaged] == [
        (first.offset, first.end), (holder.offset, holder.end),
    ]  # fmt: skip


def test_stages_have_the_names_that_people_see(monkeypatch: pytest.MonkeyPatch) -> None:
    """Damage in two segments, the older of which tells more of the later one, and at the end."""
    runner = LocalRunner()
    monkeypatch.setattr(reading_here, "LocalRunner", lambda: runner)
    log = LogBuilder(SEGMENT)
    first = log.message(topic="B")
    claims(log, 0, 1, 2)
    log.blank()
    holder = log.message(topic="B")
    claims(log, 3)
    log.blank()
    claims(log, 4)
    last = log.message(topic="B")
    read_segments(spoiled(log, first.offset, holder.offset, last.offset), SEGMENT, "salvage")
    assert list(runner.stages) == [
        "scan the commit log", "look past the end", "survey damaged segments", "scan what survived",
        "survey again after survivors",
    ]  # fmt: skip
