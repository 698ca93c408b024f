"""What lies after the last sound record: a damaged message, or what an older log left there."""

from __future__ import annotations

import random
from typing import Any
from unittest import mock

import pytest
from support import reading as reading_here
from support.reading import read_segments
from support.store_builder import Embedded, LogBuilder, Message

from jobs.log import log_scan
from jobs.log.verified_chain import ProvenLog, queue_runs, time_before
from jobs.spark.runner import Runner
from storeformat.log.chain import Break

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
    runner = Runner()
    monkeypatch.setattr(reading_here, "Runner", lambda: runner)
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


# ------------------------------------------------------------------------------------- what is proven around each break
def many_breaks(rng: random.Random, segments: int) -> tuple[ProvenLog, list[Break]]:
    """The proven part of a log of few queues whose segments are damaged at random, some with wrong queue offsets."""
    log = LogBuilder(SEGMENT)
    spoil = []
    for _ in range(segments):
        for _ in range(rng.randint(2, 12)):
            more = {"queue_offset": rng.randint(0, 60)} if rng.random() < 0.1 else {}
            placed = log.message(topic=rng.choice("AB"), queue_id=rng.randint(0, 1), **more)
            if rng.random() < 0.08:
                spoil.append(placed.offset)
        log.blank()
    known: list[ProvenLog] = []
    real = log_scan.broken_places
    with mock.patch.object(log_scan, "broken_places", lambda log, breaks: known.append(log) or real(log, breaks)):
        read_segments(spoiled(log, *spoil), 700, "salvage")
    assert known, "nothing was damaged"
    return known[-1], list(known[-1].chain.breaks)


def plain_edges(runs: list[tuple[Any, int, int, tuple[int, int]]], doubts: list[int], *, backwards: bool) -> Any:
    """``_Side`` of some runs, as its docstring says it, one queue at a time."""
    edges, others = {}, {}
    for queue in {run[0] for run in runs}:
        mine = [run[1:] for run in runs if run[0] == queue]
        (first, count, (begin, last)), previous = mine[-1], mine[-2] if len(mine) > 1 else None
        edges[queue] = first if backwards else first + count
        if count == 1 and previous is not None:
            before = previous[0] if backwards else previous[0] + previous[1]
            gap = (last, previous[2][0]) if backwards else (previous[2][1], begin)
            end, following = (first + 1, before) if backwards else (before, first)
            if following not in (0, end) and not any(gap[0] < doubt < gap[1] for doubt in doubts):
                others[queue] = before
    return edges, others


@pytest.mark.parametrize("seed", range(6))
def test_each_break_has_what_the_scans_on_its_sides_prove(seed: int) -> None:
    known, breaks = many_breaks(random.Random(seed), 8)
    lost = [(item.offset, item.segment.end) for item in breaks]
    lost += [(item.start.offset, item.end) for item in known.older]
    for item, place in zip(breaks, log_scan.broken_places(known, breaks), strict=True):
        before = [scan for scan in known.counted if scan.report.end <= item.offset]
        after = [scan for scan in known.counted if scan.report.split.start >= item.segment.end]
        doubts = [begin for begin, _ in lost]
        doubts += [offset for scan in known.counted for offset, _ in scan.foreign_records]
        near = place.neighbours
        assert (near.ends, near.other_ends) == plain_edges(list(queue_runs(before)), doubts, backwards=False)
        backwards = list(queue_runs(after[::-1], backwards=True))
        assert (near.firsts, near.other_firsts) == plain_edges(backwards, doubts, backwards=True)
        times = [scan.times.first for scan in after if scan.times.first is not None]
        assert near.after == (times[0] if times else None)
        assert near.before == time_before(before, near.after)
        assert near.room == sum(end - begin for begin, end in lost if begin < item.offset)
        assert near.room_after == sum(end - begin for begin, end in lost if begin >= item.segment.end)
        numbers = [scan.report.last_number for scan in before if scan.report.last_number is not None]
        assert place.last_entry == (numbers[-1] if numbers else None)


def test_each_scan_is_looked_at_twice_however_many_breaks_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    known, breaks = many_breaks(random.Random(7), 40)
    looked: list[int] = []

    def recorded(scans: Any, **more: Any) -> Any:
        looked.append(len(scans))
        return queue_runs(scans, **more)

    monkeypatch.setattr(log_scan, "queue_runs", recorded)
    assert len(list(log_scan.broken_places(known, breaks))) == len(breaks) > 10
    assert sum(looked) <= 2 * len(known.counted)
